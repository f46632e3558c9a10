//! If the module cannot tell which thread waits, it boosts the flag's thread. Also: completion channels of RDMA.

use core::ffi::c_long;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use pronto_expedite::{Device, Flag};

use crate::machine::{Module, Numbered, until};
use crate::program::run;
use crate::waiting::{GENEROUS, write};

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    /// For a poll request, the events.
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `IOCB_CMD_POLL`.
const AIO_POLL: u16 = 5;

/// A queue of the kernel's asynchronous I/O, whose callback the module does not recognise.
pub(crate) struct Aio(u64);

fn call(result: c_long) -> c_long {
    Errno::result(result).unwrap()
}

impl Aio {
    pub(crate) fn new() -> Self {
        let mut context: u64 = 0;
        // SAFETY: the kernel writes to the variable during the call.
        call(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) });
        Self(context)
    }

    /// Waits until a descriptor is readable.
    pub(crate) fn wait(&self, fd: &OwnedFd) {
        let mut request = Request {
            opcode: AIO_POLL,
            fd: fd.as_raw_fd().cast_unsigned(),
            buffer: u64::from(libc::POLLIN.cast_unsigned()),
            ..Request::default()
        };
        let list = [&raw mut request];
        // SAFETY: list and request outlive the call, and the kernel copies them.
        call(unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_ptr()) });
        let mut events = [0_u64; 4];
        let forever = core::ptr::null_mut::<libc::timespec>();
        // SAFETY: there is room for one event, which the kernel writes during the call.
        let count =
            unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, events.as_mut_ptr(), forever) };
        assert_eq!(call(count), 1);
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: no request of the context is pending.
        call(unsafe { libc::syscall(libc::SYS_io_destroy, self.0) });
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_flags_thread_is_boosted_if_the_waiter_is_unknown() {
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let (one, other): (OwnedFd, OwnedFd) = (one.into(), other.into());
    let reader = one.try_clone().unwrap();
    let waiter = Numbered::spawn(move || Aio::new().wait(&reader));
    device.flag(&one, Flag { thread: waiter.tid, ..Flag::default() }).unwrap();
    waiter.until_it_sleeps();
    write(&other);
    until("the named thread was boosted", || device.query(waiter.tid).is_ok_and(|it| it.counts.worker == 1));
    waiter.join();
    let counters = module.counters();
    assert_eq!((counters["named"], counters["calls"]), (1, 1), "{counters:?}");
}

/// Duplicates a descriptor of another process.
fn open_there(pid: u32, fd: i32) -> OwnedFd {
    // SAFETY: the call takes numbers only, and creates a descriptor.
    let process = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).unwrap();
    // SAFETY: the call takes numbers only, and creates a descriptor.
    let copy = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, fd, 0) }).unwrap();
    // SAFETY: the kernel created the descriptor for this function, which closes it once.
    unsafe { libc::close(i32::try_from(process).unwrap()) };
    // SAFETY: the descriptor has no other owner.
    unsafe { OwnedFd::from_raw_fd(i32::try_from(copy).unwrap()) }
}

/// Returns the RDMA event descriptors of a process: of the device, and of completions.
fn events(pid: u32) -> Vec<i32> {
    let Ok(folder) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        let is_event = target.to_string_lossy().contains("infinibandevent");
        is_event.then(|| entry.file_name().to_str()?.parse().ok())?
    };
    folder.flatten().filter_map(number).collect()
}

/// Returns the child processes of `parent`. It searches parent ids, because not every kernel lists the children.
fn children(parent: u32) -> Vec<u32> {
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let named = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        (named.trim().parse() == Ok(parent)).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.ok()?)).collect()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_thread_that_waits_for_completions_is_boosted() {
    let module = Module::load(GENEROUS);
    let device = Device::open().unwrap();
    let nodes = run(Command::new("lab-nodes").arg("2"));
    let node = |at: usize| nodes.lines().nth(at).unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (server_node, client_node) = (node(0), node(1));
    let pingpong = |node: &[String]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &node[0], "timeout", "60", "ibv_rc_pingpong", "-e", "-d", &node[1]]);
        command.args(["-g", &node[3], "-n", "300"]).stdout(Stdio::null());
        command
    };
    let mut server = pingpong(&server_node).spawn().unwrap();
    let listens = ["netns", "exec", &server_node[0], "ss", "-Hltn", "sport = :18515"];
    until("the server listens", || !run(Command::new("ip").args(listens)).is_empty());
    // `ip` has become `timeout`, which has started the program. One of the program's two descriptors is a completion channel.
    let mut flagged = false;
    until("the server has a completion channel", || {
        let pids = children(server.id()).into_iter();
        for (pid, fd) in pids.flat_map(|pid| events(pid).into_iter().map(move |fd| (pid, fd))) {
            flagged |= device.flag(open_there(pid, fd), Flag::default()).is_ok();
        }
        flagged
    });
    let mut client = pingpong(&client_node).arg(&server_node[2]).spawn().unwrap();
    assert!(client.wait().unwrap().success() && server.wait().unwrap().success());
    let counters = module.counters();
    println!("{counters:?}");
    assert!(counters["by_read"] >= 100, "{counters:?}");
    assert!(counters["direct"] + counters["worker"] >= 100, "{counters:?}");
    until("no flag is left", || module.counters()["flags"] == 0);
    run(Command::new("lab-nodes").arg("0"));
}
