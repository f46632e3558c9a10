//! How soon the other side learns of the end of a flagged connection: whatever ends it, and although the device through
//! which it was flagged stays open, in another process.

use core::ffi::{CStr, c_char};
use core::ptr::null;
use core::time::Duration;
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use pronto_expedite::{Device, Flag, Unwoken};

use crate::machine::{Module, Numbered, now, pin, until};
use crate::{CPUS, tcp};

/// Within this, the end of a connection must have reached its other side. Of virtual time.
const IN_TIME: Duration = Duration::from_millis(20);

/// How often each end is tried.
const TRIES: usize = 5;

/// Ends a connection, and returns when it began to.
type End = fn(OwnedFd) -> Instant;

const ENDS: [(&str, End); 6] = [
    ("close", |end| {
        let start = now();
        drop(end);
        start
    }),
    ("dup2", |end| {
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut place = end;
        let start = now();
        nix::unistd::dup2(&null, &mut place).unwrap();
        start
    }),
    ("close_range", |end| {
        let number = end.into_raw_fd().cast_unsigned();
        let start = now();
        // SAFETY: the range is one descriptor, which was given up above.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, number, number, 0) }, 0);
        start
    }),
    ("exec", |end| in_a_child(end, Deed::Execute)),
    ("exit", |end| in_a_child(end, Deed::Exit)),
    ("kill -9", |end| in_a_child(end, Deed::BeKilled)),
];

/// What a process does that has the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Execute,
    Exit,
    BeKilled,
}

/// Gives the connection to a process of its own, which ends it when it is told to.
fn in_a_child(end: OwnedFd, deed: Deed) -> Instant {
    let (told, tell) = nix::unistd::pipe().unwrap();
    let words: [&CStr; 2] = [c"/usr/bin/sleep", c"1000"];
    let arguments: [*const c_char; 3] = [words[0].as_ptr(), words[1].as_ptr(), null()];
    // SAFETY: the child makes system calls only.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let from = if deed == Deed::BeKilled { &end } else { &told };
            let _ = nix::unistd::read(from, &mut [0; 8]);
            if deed == Deed::Execute {
                // SAFETY: both are strings and a list of strings, each with its end.
                unsafe { libc::execv(arguments[0], arguments.as_ptr()) };
            }
            // SAFETY: it ends the process and nothing else.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => child,
    };
    let number = if deed == Deed::BeKilled { end.as_raw_fd() } else { told.as_raw_fd() };
    until("the child waits", || is_reading(child, number));
    drop(end);
    let start = now();
    if deed == Deed::BeKilled {
        kill(child, Signal::SIGKILL).unwrap();
    } else {
        nix::unistd::write(&tell, &[0; 8]).unwrap();
    }
    start
}

/// Whether a process is reading from that descriptor, and blocks there.
fn is_reading(child: Pid, number: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{child}/syscall")).unwrap();
    call.starts_with(&format!("{} {number:#x} ", libc::SYS_read))
}

/// How long it takes until the other side knows.
fn time_to_end(end: End, is_flagged: bool) -> Duration {
    let (one, other) = tcp();
    let device = Device::open().unwrap();
    if is_flagged {
        device.flag(&one, Flag::default()).unwrap();
    }
    let start = end(one);
    let mut bytes = [0; 8];
    assert_eq!(nix::unistd::read(&other, &mut bytes), Ok(0), "that is an end, and not a reset");
    let took = start.elapsed();
    end_children();
    took
}

/// Ends whatever processes were made, and waits for them.
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
fn the_other_side_knows_of_an_end_in_time() {
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
fn who_waits_through_the_device_holds_no_connection_open_and_is_told() {
    let module = Module::load(&[]);
    pin(CPUS.1);
    for _ in 0..TRIES {
        let (one, other) = tcp();
        let device = Arc::new(Device::open().unwrap());
        device.flag(&one, Flag::default()).unwrap();
        let waiter = Numbered::spawn({
            let (device, number) = (Arc::clone(&device), one.as_raw_fd());
            move || {
                // SAFETY: the descriptor is open when the wait begins; after that it is not looked at.
                let result = device.wait(unsafe { BorrowedFd::borrow_raw(number) }, None);
                (result, now())
            }
        });
        waiter.until_it_sleeps();
        let start = now();
        drop(one);
        assert_eq!(nix::unistd::read(&other, &mut [0; 8]), Ok(0));
        let ended = start.elapsed();
        let (result, told) = waiter.join();
        let told = told.duration_since(start);
        println!("the other side knows after {ended:?}, who waits after {told:?}");
        assert_eq!(result, Err(Unwoken::Ended));
        assert!(ended <= IN_TIME && told <= 2 * IN_TIME, "{ended:?} {told:?}");
    }
    until("no flag is left", || module.counters()["flags"] == 0);
}
