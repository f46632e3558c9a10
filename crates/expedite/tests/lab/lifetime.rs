//! Lifetimes: a flagged file closes like one without a flag, no flag is left, and the module stays loaded while it is used.

use std::fs::File;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::eventfd::EventFd;
use pronto_expedite::{Device, Flag, Refused, THIS_THREAD};

use crate::machine::{Module, Numbered, until};
use crate::waiting::{GENEROUS, write};

/// Two ends of a connection: the first is flagged, the second notices when the first is closed.
type Pair = (OwnedFd, OwnedFd);

fn unix() -> Pair {
    let (one, other) = UnixStream::pair().unwrap();
    (one.into(), other.into())
}

fn tcp() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one.into(), listener.accept().unwrap().0.into())
}

/// Returns a Unix and a TCP connection, each flagged through the device.
fn flagged(device: &Device) -> Vec<Pair> {
    let pairs = vec![unix(), tcp()];
    for (one, _) in &pairs {
        device.flag(one, Flag::default()).unwrap();
    }
    pairs
}

/// Blocks until the other end was closed. The machine's time limit ends a test that hangs.
fn until_closed(end: &OwnedFd) {
    let mut bytes = [0; 64];
    while let Ok(1..) = nix::unistd::read(end, &mut bytes) {}
}

fn until_no_flag_is_left(module: &Module) {
    until("no flag is left", || module.counters()["flags"] == 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn closing_ends_a_connection_and_its_flag() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    for (one, other) in flagged(&device) {
        drop(one);
        until_closed(&other);
    }
    until_no_flag_is_left(&module);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn dup2_closes_the_replaced_file() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    for (one, other) in flagged(&device) {
        let mut target = one.try_clone().unwrap();
        drop(one);
        let null = File::open("/dev/null").unwrap();
        nix::unistd::dup2(&null, &mut target).unwrap();
        until_closed(&other);
    }
    until_no_flag_is_left(&module);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn close_range_closes_a_flagged_file() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    for (one, other) in flagged(&device) {
        let number = std::os::fd::IntoRawFd::into_raw_fd(one).cast_unsigned();
        // SAFETY: the range is one descriptor, whose ownership was given up above.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, number, number, 0) }, 0);
        until_closed(&other);
    }
    until_no_flag_is_left(&module);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn pipes_and_eventfds_end_too() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    let (reader, writer) = nix::unistd::pipe().unwrap();
    device.flag(&reader, Flag::default()).unwrap();
    let eventfd = EventFd::new().unwrap();
    device.flag(&eventfd, Flag::default()).unwrap();
    assert_eq!(module.counters()["flags"], 2);
    drop(eventfd);
    drop(reader);
    // Rust's runtime ignores SIGPIPE.
    until("the pipe has no reader", || nix::unistd::write(&writer, b"x") == Err(Errno::EPIPE));
    until_no_flag_is_left(&module);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_duplicate_keeps_the_flag_and_unflagging_needs_no_particular_descriptor() {
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let (one, other) = unix();
    device.flag(&one, Flag::default()).unwrap();
    let duplicate = one.try_clone().unwrap();
    assert_eq!(device.flag(&duplicate, Flag::default()), Err(Refused::Flagged));
    drop(one);
    let waiter = Numbered::spawn({
        let reader = duplicate.try_clone().unwrap();
        move || nix::unistd::read(&reader, &mut [0; 8])
    });
    waiter.until_it_sleeps();
    write(&other);
    until("the waiter was boosted", || device.query(waiter.tid).is_ok_and(|it| it.counts.direct == 1));
    waiter.join().unwrap();
    assert_eq!(device.is_flagged(&duplicate), Ok(true));
    assert_eq!(Device::open().unwrap().is_flagged(&duplicate), Ok(false));
    device.unflag(&duplicate).unwrap();
    assert_eq!(device.is_flagged(&duplicate), Ok(false));
    assert_eq!(device.unflag(&duplicate), Err(Refused::Unknown));
    assert_eq!(module.counters()["flags"], 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn closing_the_device_removes_its_flags() {
    let module = Module::load(&[]);
    let (device, other_device) = (Device::open().unwrap(), Device::open().unwrap());
    let pairs = flagged(&device);
    other_device.flag(&pairs[0].0, Flag::default()).unwrap();
    assert_eq!(module.counters()["flags"], 3);
    drop(device);
    assert_eq!(module.counters()["flags"], 1, "the flag of the other device");
    assert_eq!(other_device.unflag(&pairs[1].0), Err(Refused::Unknown));
}

/// Starts `program` with `end` as its standard input and an inherited device through which `end` is flagged.
fn child(end: OwnedFd, device: Device, program: &[&str]) -> Child {
    fcntl(device.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).stdin(end).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Returns the system call of a process and its arguments; `running` if it is in none.
fn system_call(child: &Child) -> String {
    std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_killed_process_leaves_no_flag() {
    let module = Module::load(GENEROUS);
    for pair in [unix, tcp] {
        let (one, other) = pair();
        let device = Device::open().unwrap();
        device.flag(&one, Flag::default()).unwrap();
        // `cat` blocks in read on the flagged file. Only the child still has the file and the device.
        let mut cat = child(one, device, &["cat"]);
        let before = module.counters()["calls"];
        for round in 1..=3 {
            until("an arrival is counted", || {
                // A message just before the child sleeps wakes no thread, so it is sent only while the child is in read.
                if system_call(&cat).starts_with("0 0x0 ") {
                    write(&other);
                }
                module.counters()["calls"] >= before + round
            });
        }
        assert_eq!(module.counters()["flags"], 1);
        cat.kill().unwrap();
        cat.wait().unwrap();
        until_closed(&other);
        until_no_flag_is_left(&module);
    }
    until("ended threads are forgotten", || module.counters()["threads"] == 0);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_process_that_exits_leaves_no_flag() {
    let module = Module::load(&[]);
    let (one, other) = unix();
    let device = Device::open().unwrap();
    device.flag(&one, Flag::default()).unwrap();
    assert!(child(one, device, &["true"]).wait().unwrap().success());
    until_closed(&other);
    until_no_flag_is_left(&module);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn exec_closes_a_flagged_file_that_is_not_inherited() {
    let module = Module::load(&[]);
    let (one, other) = unix();
    let mut command = Command::new("cat");
    let number = one.as_raw_fd();
    let set = move || {
        // This runs after fork and before exec. The device is the child's own and is inherited; the connection is not.
        let device = Device::open().map_err(std::io::Error::other)?;
        // SAFETY: the descriptor was inherited by fork, and is open until exec.
        let one = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        device.flag(one, Flag::default()).map_err(std::io::Error::other)?;
        fcntl(device.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
        core::mem::forget(device);
        Ok(())
    };
    // SAFETY: the closure makes system calls only; errors allocate, and then the test has failed.
    let command = unsafe { command.pre_exec(set) };
    let mut cat = command.stdin(Stdio::piped()).spawn().unwrap();
    drop(one);
    until_closed(&other);
    until_no_flag_is_left(&module);
    drop(cat.stdin.take());
    assert!(cat.wait().unwrap().success());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_flag_lasts_while_a_child_has_device_and_file() {
    let module = Module::load(GENEROUS);
    let (one, other) = unix();
    let device = Device::open().unwrap();
    device.flag(&one, Flag::default()).unwrap();
    // `sleep` has both, so the flag outlives this process' descriptors.
    let mut sleep = child(one.try_clone().unwrap(), device, &["sleep", "1000"]);
    let reader = Numbered::spawn(move || nix::unistd::read(&one, &mut [0; 8]));
    reader.until_it_sleeps();
    write(&other);
    reader.join().unwrap();
    assert_eq!(module.counters()["calls"], 1, "{:?}", module.counters());
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    until_closed(&other);
    until_no_flag_is_left(&module);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_module_stays_while_it_is_used() {
    let module = Module::load(&[]);
    let device = Device::open().unwrap();
    let refused = Command::new("rmmod").arg("expedite").output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
    assert_eq!(device.query(THIS_THREAD), Err(Refused::Unknown), "the module must still work");
    drop(device);
    drop(module);
    assert_eq!(Device::open().unwrap_err(), Refused::NotLoaded);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn nothing_is_read_from_a_flagged_socket_by_the_module() {
    let _module = Module::load(&[]);
    let device = Device::open().unwrap();
    let (one, other) = unix();
    device.flag(&one, Flag::default()).unwrap();
    for _ in 0..3 {
        write(&other);
    }
    drop(other);
    let mut bytes = Vec::new();
    File::from(one).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 24);
}
