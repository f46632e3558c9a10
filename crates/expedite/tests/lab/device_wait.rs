//! Waiting through the device: it works like any other wait, and holds no file open.

use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pronto_expedite::{Device, Flag, Refused, Unwoken};

use crate::machine::{Module, Numbered, now, until};
use crate::waiting::{GENEROUS, ROUNDS, check, counted, counter, ends, read, write};

/// Threads that wait on one descriptor.
const CROWD: usize = 3;

fn unix() -> (OwnedFd, OwnedFd) {
    let (one, other) = UnixStream::pair().unwrap();
    (one.into(), other.into())
}

fn flagged(what: &OwnedFd) -> Arc<Device> {
    let device = Device::open().unwrap();
    device.flag(what, Flag::default()).unwrap();
    Arc::new(device)
}

/// Returns the system call of a process or thread from /proc, beginning with its number; that of ioctl is 16.
fn system_call(of: i32) -> String {
    std::fs::read_to_string(format!("/proc/{of}/syscall")).unwrap()
}

/// Starts a thread that waits on descriptor `number` without a limit, and returns when it sleeps.
fn waiter(device: &Arc<Device>, number: i32) -> Numbered<Result<(), Unwoken>> {
    let device = Arc::clone(device);
    let waiter = Numbered::spawn(move || {
        // SAFETY: the descriptor is open when the wait begins, and is not used later.
        let end = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        device.wait(end, None)
    });
    until("the thread waits through the device", || system_call(waiter.tid).starts_with("16 "));
    waiter.until_it_sleeps();
    waiter
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_waits_through_the_device_is_boosted() {
    let module = Module::load(GENEROUS);
    for ends in ends() {
        let device = flagged(&ends.reader);
        let wait = move |end: &OwnedFd| {
            device.wait(end, None).unwrap();
            read(end);
        };
        check(ends.name, "wait", counted(&ends, wait, ROUNDS));
    }
    assert!(counter(&module, "by_wait") >= 5 * ROUNDS, "{:?}", module.counters());
    assert_eq!(counter(&module, "named"), 0, "{:?}", module.counters());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn available_data_ends_a_wait_immediately_and_the_limit_ends_it_otherwise() {
    let _module = Module::load(&[]);
    let (one, other) = unix();
    let device = flagged(&one);
    for limit in [Duration::ZERO, Duration::from_millis(5), Duration::from_millis(50)] {
        let start = now();
        assert_eq!(device.wait(&one, Some(limit)), Err(Unwoken::TimedOut));
        assert!(start.elapsed() >= limit, "{limit:?}");
    }
    write(&other);
    for limit in [Some(Duration::ZERO), Some(Duration::MAX), None] {
        assert_eq!(device.wait(&one, limit), Ok(()));
    }
    read(&one);
    assert_eq!(device.wait(&one, Some(Duration::ZERO)), Err(Unwoken::TimedOut));
    drop(other);
    assert_eq!(device.wait(&one, None), Ok(()), "the end of a stream counts as an arrival");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_wait_needs_a_flag_through_the_same_device() {
    let _module = Module::load(&[]);
    let ((one, _other), (unflagged, _)) = (unix(), unix());
    let (device, stranger) = (flagged(&one), Device::open().unwrap());
    let unknown = Err(Unwoken::Refused(Refused::Unknown));
    assert_eq!(device.wait(&unflagged, None), unknown);
    assert_eq!(stranger.wait(&one, None), unknown);
    device.unflag(&one).unwrap();
    assert_eq!(device.wait(&one, None), unknown);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn room_to_write_does_not_end_a_wait() {
    let _module = Module::load(&[]);
    let (one, other) = unix();
    let device = flagged(&one);
    // Fills the other end. Reading there then announces room here.
    nix::sys::socket::setsockopt(&one, nix::sys::socket::sockopt::SndBuf, &4_096).unwrap();
    while nix::sys::socket::send(one.as_raw_fd(), &[0; 512], nix::sys::socket::MsgFlags::MSG_DONTWAIT).is_ok()
    {
    }
    let waiter = waiter(&device, one.as_raw_fd());
    let mut bytes = [0; 64 * 1024];
    while nix::sys::socket::recv(other.as_raw_fd(), &mut bytes, nix::sys::socket::MsgFlags::MSG_DONTWAIT)
        .is_ok()
    {}
    assert_eq!(
        nix::sys::socket::send(one.as_raw_fd(), &[0; 8], nix::sys::socket::MsgFlags::MSG_DONTWAIT),
        Ok(8)
    );
    waiter.until_it_sleeps();
    assert_eq!(device.wait(&one, Some(Duration::from_millis(20))), Err(Unwoken::TimedOut));
    write(&other);
    assert_eq!(waiter.join(), Ok(()));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn removing_a_flag_ends_its_waits_and_no_others() {
    let module = Module::load(&[]);
    let (one, other) = unix();
    let (device, second) = (flagged(&one), flagged(&one));
    let crowd: Vec<_> = (0..CROWD).map(|_| waiter(&device, one.as_raw_fd())).collect();
    let unmoved = waiter(&second, one.as_raw_fd());
    device.unflag(&one).unwrap();
    for waiter in crowd {
        assert_eq!(waiter.join(), Err(Unwoken::Ended));
    }
    assert_eq!(module.counters()["flags"], 1);
    write(&other);
    assert_eq!(unmoved.join(), Ok(()), "the flag of the other device was not removed");
}

/// Closes one end while threads wait there, and returns when their waits have ended.
fn close_while_waiting(one: OwnedFd, noticed: impl Fn() -> bool) {
    let device = flagged(&one);
    let crowd: Vec<_> = (0..CROWD).map(|_| waiter(&device, one.as_raw_fd())).collect();
    drop(one);
    until("the other end has noticed", noticed);
    for waiter in crowd {
        assert_eq!(waiter.join(), Err(Unwoken::Ended));
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn closing_ends_a_connection_on_which_threads_wait() {
    let module = Module::load(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    accepted.set_nonblocking(true).unwrap();
    close_while_waiting(tcp.into(), || nix::unistd::read(&accepted, &mut [0; 8]) == Ok(0));
    let (one, other) = UnixStream::pair().unwrap();
    other.set_nonblocking(true).unwrap();
    close_while_waiting(one.into(), || nix::unistd::read(&other, &mut [0; 8]) == Ok(0));
    let (reader, writer) = nix::unistd::pipe().unwrap();
    // Rust's runtime ignores SIGPIPE. The condition polls instead of writing, because data would count as an arrival.
    close_while_waiting(reader, || {
        let mut fds = [nix::poll::PollFd::new(writer.as_fd(), nix::poll::PollFlags::empty())];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO) == Ok(1)
    });
    assert_eq!(nix::unistd::write(&writer, b"x"), Err(Errno::EPIPE));
    close_while_waiting(EventFd::new().unwrap().into(), || true);
    until("no flag is left", || module.counters()["flags"] == 0);
}

/// Does nothing, so that a signal interrupts and does not kill.
extern "C" fn ignore(_signal: i32) {}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_signal_interrupts_a_wait() {
    let _module = Module::load(&[]);
    let (one, other) = unix();
    let device = flagged(&one);
    // SA_RESTART must not restart the wait: the remaining time would be unknown.
    let action = SigAction::new(SigHandler::Handler(ignore), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let waiter = waiter(&device, one.as_raw_fd());
    // SAFETY: the thread exists until it is joined.
    assert_eq!(unsafe { libc::pthread_kill(waiter.handle.as_pthread_t(), libc::SIGUSR1) }, 0);
    assert_eq!(waiter.join(), Err(Unwoken::Interrupted));
    write(&other);
    assert_eq!(device.wait(&one, None), Ok(()));
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_process_killed_while_it_waits_leaves_no_flag() {
    let module = Module::load(&[]);
    let (one, other) = unix();
    // SAFETY: the child makes system calls only.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let result = Device::open().and_then(|device| {
                device.flag(&one, Flag::default())?;
                Ok(device.wait(&one, None))
            });
            let code = i32::from(result != Ok(Ok(())));
            // SAFETY: the call only ends the process.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => child,
    };
    drop(one);
    until("the child waits", || system_call(child.as_raw()).starts_with("16 "));
    assert_eq!(module.counters()["flags"], 1);
    kill(child, Signal::SIGKILL).unwrap();
    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Signaled(child, Signal::SIGKILL, false));
    assert_eq!(nix::unistd::read(&other, &mut [0; 8]), Ok(0), "the end of the killed process was closed");
    until("no flag is left", || module.counters()["flags"] == 0);
}
