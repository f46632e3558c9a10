//! Allocations of the kernel that fail: each in turn, and at random (Linux, Documentation/fault-injection/fault-injection.rst).
//!
//! The kernel of `cargo xtask lab --debug-kernel` can do this; on others these tests are skipped.

use core::time::Duration;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use pronto_expedite::{Device, Flag, Refused, THIS_THREAD, Unwoken};
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::log::assert_no_kernel_warnings;
use crate::machine::{Module, Numbered, now, until};
use crate::random::Random;
use crate::rdma::Rdma;
use crate::storm::duration;
use crate::waiting::GENEROUS;

/// Settings of failed allocations.
const SETTINGS: &str = "/sys/kernel/debug/failslab";

/// More allocations than any request makes.
const MOST: u32 = 200;

/// Connections, threads and seconds of the test at random; `PRONTO_SOAK_SECONDS` overrides the last.
const PLACES: usize = 6;
const THREADS: u64 = 4;
const SECONDS: u64 = 10;

/// Allocations of which one fails, in the test at random. Requests and arrivals make three to five.
const EARLIEST: usize = 8;

/// Allocations that fail in system calls of the calling thread.
struct Faults(File);

impl Faults {
    /// Prepares them. `None` if the kernel cannot do it, which marks the test as skipped.
    #[track_caller]
    fn new() -> Option<Self> {
        if !Path::new(SETTINGS).exists() {
            // Fails if it is mounted already.
            let _mounted =
                Command::new("mount").args(["-t", "debugfs", "none", "/sys/kernel/debug"]).output();
        }
        let (Ok(own), true) = (Self::of_this_thread(), Path::new(SETTINGS).exists()) else {
            pronto_skip::because(
                "the kernel cannot make allocations fail: cargo xtask lab --debug-kernel test -p pronto-expedite",
            );
            return None;
        };
        // Also those that may wait, and without a message for each.
        set("ignore-gfp-wait", "N");
        set("verbose", "0");
        Some(own)
    }

    fn of_this_thread() -> std::io::Result<Self> {
        File::options().read(true).write(true).open("/proc/thread-self/fail-nth").map(Self)
    }

    /// Lets the `n`th allocation from now fail, counted from 1.
    fn arm(&self, n: u32) {
        self.0.write_all_at(n.to_string().as_bytes(), 0).unwrap();
    }

    /// Ends it. Returns whether an allocation has failed.
    fn end(&self) -> bool {
        let mut text = [0; 16];
        let length = self.0.read_at(&mut text, 0).unwrap();
        self.arm(0);
        str::from_utf8(&text[..length]).unwrap().trim() == "0"
    }

    /// Makes a request whose first allocation fails, then one whose second fails, until none does. Each one must be refused for want of
    /// memory, or succeed, and is undone then. Returns the number of failed allocations.
    fn each<T>(&self, name: &str, request: impl Fn() -> Result<T, Refused>, undo: impl Fn(T)) -> u32 {
        for n in 1..MOST {
            self.arm(n);
            let result = request();
            let has_failed = self.end();
            match result {
                Ok(value) => undo(value),
                Err(refused) => {
                    assert!(has_failed, "{name}: refused without a fault: {refused}");
                    assert_eq!(refused, Refused::NoMemory, "{name}, allocation {n}");
                }
            }
            if !has_failed {
                return n - 1;
            }
        }
        panic!("{name}: more than {MOST} allocations");
    }
}

fn set(name: &str, value: &str) {
    fs::write(Path::new(SETTINGS).join(name), value).unwrap();
}

fn files(rdma: &Rdma) -> Vec<(&'static str, OwnedFd)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let event = EventFd::new().unwrap();
    vec![
        ("unix", UnixStream::pair().unwrap().0.into()),
        ("tcp", tcp.into()),
        ("udp", UdpSocket::bind("127.0.0.1:0").unwrap().into()),
        ("completion channel", rdma.completion_channel()),
        ("pipe", nix::unistd::pipe().unwrap().0),
        ("eventfd", event.as_fd().try_clone_to_owned().unwrap()),
    ]
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_request_without_memory_is_refused_and_leaves_nothing() {
    let Some(faults) = Faults::new() else { return };
    let module = Module::load(&[]);
    let opened = faults.each("open", Device::open, drop);
    assert!(opened > 1, "{opened}");
    let device = Device::open().unwrap();
    let rdma = Rdma::start();
    for (name, file) in files(&rdma) {
        for percent in [0, 50] {
            let flag = || device.flag(&file, Flag { percent, ..Flag::default() });
            let flagged = faults.each(name, flag, |()| device.unflag(&file).unwrap());
            println!("{name} with {percent} %: {flagged} allocations");
            assert!(flagged >= 2, "{name}: {flagged}");
            assert_eq!(module.counters()["flags"], 0, "{name}");
        }
        device.flag(&file, Flag::default()).unwrap();
        faults.each("find", || device.is_flagged(&file), |found| assert!(found));
        let wait = || match device.wait(&file, Some(Duration::from_millis(1))) {
            Err(Unwoken::Refused(refused)) => Err(refused),
            _ => Ok(()),
        };
        faults.each("wait", wait, drop);
        // Removing needs no memory.
        faults.arm(1);
        let removed = device.unflag(&file);
        assert!(!faults.end() && removed.is_ok(), "{name}: {removed:?}");
    }
    faults.each("totals", || device.totals(), drop);
    faults.each("caps", || device.caps(), drop);
    let unknown = |result: Result<_, Refused>| match result {
        Err(Refused::Unknown) => Ok(()),
        other => other.map(drop),
    };
    faults.each("query", || unknown(device.query(THIS_THREAD)), drop);
    drop(device);
    until("no flag is left", || module.counters()["flags"] == 0);
    assert_no_kernel_warnings();
}

/// Messages whose sender has no memory for the state of the reader, of its user, or of its CPU.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_message_whose_boost_has_no_memory_arrives() {
    let Some(faults) = Faults::new() else { return };
    let mut denied = 0;
    for n in 1..MOST {
        // A new module has no accounts yet.
        let module = Module::load(GENEROUS);
        let (reader, writer) = UnixStream::pair().unwrap();
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        let device = Device::open().unwrap();
        device.flag(&reader, Flag::default()).unwrap();
        let waiter = Numbered::spawn(move || nix::unistd::read(&reader, &mut [0; 8]));
        waiter.until_it_sleeps();
        faults.arm(n);
        let sent = nix::unistd::write(&writer, &[1; 8]);
        let has_failed = faults.end();
        if sent.is_err() {
            // The socket itself had no memory.
            assert!(has_failed, "{n}: {sent:?}");
            assert_eq!(nix::unistd::write(&writer, &[1; 8]), Ok(8));
        }
        assert_eq!(waiter.join(), Ok(8), "allocation {n}");
        until("the boost has ended", || {
            let counters = module.counters();
            counters["direct"] + counters["worker"] == counters["drops"]
        });
        denied += module.counters()["denied_memory"];
        drop(device);
        until("no flag is left", || module.counters()["flags"] == 0);
        if !has_failed {
            println!("{} allocations failed, {denied} arrivals had no boost", n - 1);
            assert!(denied > 0, "no allocation of the module failed");
            return assert_no_kernel_warnings();
        }
    }
    panic!("more than {MOST} allocations");
}

/// Does random things, in each of which one allocation may fail.
fn disturbed(seed: u64, places: &[(OwnedFd, OwnedFd)], done: &AtomicU64, refused: &AtomicU64) {
    let faults = Faults::of_this_thread().unwrap();
    let mut random = Random::new(seed);
    let (start, duration) = (now(), duration(SECONDS));
    let mut device = None;
    while start.elapsed() < duration {
        let (one, other) = &places[random.below(PLACES)];
        faults.arm(u32::try_from(1 + random.below(EARLIEST)).unwrap());
        let result = match (&device, random.below(8)) {
            (None, _) | (Some(_), 0) => Device::open().map(|opened| device = Some(opened)),
            (Some(device), 1 | 2) => {
                device.flag(one, Flag { percent: random.pick(&[0, 50]), ..Flag::default() })
            }
            (Some(device), 3) => device.unflag(one),
            (Some(_), 4 | 5) => {
                let mut fds = [PollFd::new(one.as_fd(), PollFlags::POLLIN)];
                if poll(&mut fds, PollTimeout::from(3_u8)) == Ok(1) {
                    let _taken_by_another = nix::unistd::read(one, &mut [0; 8]);
                }
                Ok(())
            }
            (Some(_), _) => match nix::unistd::write(other, &[1; 8]) {
                Ok(_) | Err(Errno::EAGAIN) => Ok(()),
                Err(errno) => Err(errno.into()),
            },
        };
        faults.end();
        let counter = if result == Err(Refused::NoMemory) { refused } else { done };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_storm_with_failed_allocations_leaves_nothing() {
    let Some(_faults) = Faults::new() else { return };
    let module = Module::load(&["thread_percent=100", "user_percent=100", "cpu_percent=100"]);
    let places: Vec<(OwnedFd, OwnedFd)> = (0..PLACES)
        .map(|place| {
            let (one, other): (OwnedFd, OwnedFd) = if place % 2 == 0 {
                let (one, other) = UnixStream::pair().unwrap();
                (one.into(), other.into())
            } else {
                let [one, other] = [0, 0].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
                other.connect(one.local_addr().unwrap()).unwrap();
                (one.into(), other.into())
            };
            for end in [&one, &other] {
                fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
            }
            (one, other)
        })
        .collect();
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (places, done, refused) = (&places, &done, &refused);
            scope.spawn(move || disturbed(seed + 1, places, done, refused));
        }
    });
    drop(places);
    let counters = module.counters();
    let (done, refused) = (done.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    println!("{done} done, {refused} without memory; {counters:?}");
    assert!(refused > 0 && done > refused, "{done} {refused}");
    until("no flag is left", || module.counters()["flags"] == 0);
    until("every boost has ended", || {
        let counters = module.counters();
        counters["direct"] + counters["worker"] == counters["drops"]
    });
    until("every thread is forgotten", || module.counters()["threads"] == 0);
    assert_no_kernel_warnings();
}
