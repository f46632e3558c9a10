//! Time until the peer notices the end of a flagged connection, for every kind of end. The device through which the connection
//! was flagged stays open, in another process.

use core::ffi::{CStr, c_char};
use core::ptr::null;
use core::time::Duration;
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use pronto_expedite::process::has_children_lists;
use pronto_expedite::{Device, Flag, Unwoken};

use crate::machine::{Module, Numbered, now, pin, until};
use crate::{CPUS, tcp};

/// Virtual time within which the end of a connection must have reached the peer.
const IN_TIME: Duration = Duration::from_millis(20);

/// Tries for each kind of end.
const TRIES: usize = 5;

/// Function that ends a connection and returns the time when it began to.
type End = fn(OwnedFd) -> Instant;

const ENDS: [(&str, End); 6] = [
    ("close", |end| {
        let start = now();
        drop(end);
        start
    }),
    ("dup2", |end| {
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut target = end;
        let start = now();
        nix::unistd::dup2(&null, &mut target).unwrap();
        start
    }),
    ("close_range", |end| {
        let number = end.into_raw_fd().cast_unsigned();
        let start = now();
        // SAFETY: the range is one descriptor, whose ownership was given up above.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, number, number, 0) }, 0);
        start
    }),
    ("exec", |end| in_a_child(end, Ending::Execute)),
    ("exit", |end| in_a_child(end, Ending::Exit)),
    ("kill -9", |end| in_a_child(end, Ending::BeKilled)),
];

/// Way in which a process that owns the connection ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Execute,
    Exit,
    BeKilled,
}

/// Moves the connection to a child process, which ends it when this process notifies it.
fn in_a_child(end: OwnedFd, ending: Ending) -> Instant {
    let (notified, notify) = nix::unistd::pipe().unwrap();
    let words: [&CStr; 2] = [c"/usr/bin/sleep", c"1000"];
    let arguments: [*const c_char; 3] = [words[0].as_ptr(), words[1].as_ptr(), null()];
    // SAFETY: the child makes system calls only.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let from = if ending == Ending::BeKilled { &end } else { &notified };
            let _ = nix::unistd::read(from, &mut [0; 8]);
            if ending == Ending::Execute {
                // SAFETY: the program is a terminated string, and the arguments are a terminated list of such strings.
                unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
            }
            // SAFETY: the call only ends the process.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => child,
    };
    let number = if ending == Ending::BeKilled { end.as_raw_fd() } else { notified.as_raw_fd() };
    until("the child waits", || is_reading(child, number));
    drop(end);
    let start = now();
    if ending == Ending::BeKilled {
        kill(child, Signal::SIGKILL).unwrap();
    } else {
        nix::unistd::write(&notify, &[0; 8]).unwrap();
    }
    start
}

/// Returns whether a process blocks in a read of descriptor `number`.
fn is_reading(child: Pid, number: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap();
    call.starts_with(&format!("{} {number:#x} ", libc::SYS_read))
}

/// Measures the time until the peer notices the end.
fn time_to_end(end: End, is_flagged: bool) -> Duration {
    let (one, other) = tcp();
    let device = Device::open().unwrap();
    if is_flagged {
        device.flag(&one, Flag::default()).unwrap();
    }
    let start = end(one);
    let mut bytes = [0; 8];
    assert_eq!(nix::unistd::read(&other, &mut bytes), Ok(0), "expected the end of the stream, not a reset");
    let took = start.elapsed();
    end_children();
    took
}

/// Kills all child processes and waits for them.
fn end_children() {
    let path = format!("/proc/self/task/{}/children", nix::unistd::gettid());
    for number in std::fs::read_to_string(path).unwrap().split_whitespace() {
        let child = Pid::from_raw(number.parse().unwrap());
        kill(child, Signal::SIGKILL).unwrap();
        waitpid(child, None).unwrap();
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_peer_notices_an_end_in_time() {
    if !has_children_lists() {
        return pronto_skip::because(
            "the kernel does not list the children of threads (CONFIG_PROC_CHILDREN)",
        );
    }
    let module = Module::load(&[]);
    pin(CPUS.1);
    for (name, end) in ENDS {
        let [plain, flagged] =
            [false, true].map(|is_flagged| (0..TRIES).map(|_| time_to_end(end, is_flagged)).max().unwrap());
        println!("{name}: {plain:?} at most, {flagged:?} with a flag");
        assert!(flagged <= IN_TIME, "{name}: {flagged:?} against {plain:?} without a flag");
    }
    until("no flag is left", || module.counters()["flags"] == 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_wait_through_the_device_holds_no_connection_open_and_ends() {
    let module = Module::load(&[]);
    pin(CPUS.1);
    for _ in 0..TRIES {
        let (one, other) = tcp();
        let device = Arc::new(Device::open().unwrap());
        device.flag(&one, Flag::default()).unwrap();
        let waiter = Numbered::spawn({
            let (device, number) = (Arc::clone(&device), one.as_raw_fd());
            move || {
                // SAFETY: the descriptor is open when the wait begins, and is not used later.
                let result = device.wait(unsafe { BorrowedFd::borrow_raw(number) }, None);
                (result, now())
            }
        });
        waiter.until_it_sleeps();
        let start = now();
        drop(one);
        assert_eq!(nix::unistd::read(&other, &mut [0; 8]), Ok(0));
        let ended = start.elapsed();
        let (result, wait_ended) = waiter.join();
        let wait_ended = wait_ended.duration_since(start);
        println!("the peer notices the end after {ended:?}, the waiting thread after {wait_ended:?}");
        assert_eq!(result, Err(Unwoken::Ended));
        assert!(ended <= IN_TIME && wait_ended <= 2 * IN_TIME, "{ended:?} {wait_ended:?}");
    }
    until("no flag is left", || module.counters()["flags"] == 0);
}
