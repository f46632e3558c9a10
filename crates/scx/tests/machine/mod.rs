//! The machine of the tests: the loaded scheduler, processes that compute, and threads whose state tests observe.
#![allow(dead_code, reason = "each test target uses a part")]

use core::time::Duration;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::poll::{PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid, getuid};
use pronto_expedite::process::thread_descriptor;
use pronto_scx::{Flags as _, Loaded, Messages, Settings};

/// Time limit of every wait, also sufficient on a busy host.
const LIMIT: Duration = Duration::from_secs(60);

/// Lock that gives one test at a time the machine.
static ALONE: Mutex<()> = Mutex::new(());

/// The machine, used by one test.
#[derive(Debug)]
pub(crate) struct Alone(#[expect(dead_code, reason = "held until the end")] MutexGuard<'static, ()>);

impl Alone {
    pub(crate) fn take() -> Self {
        Self(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the path of the BPF program for the running kernel.
pub(crate) fn object() -> PathBuf {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("lab-bpf").join(release.trim()).join("scx/pronto_scx.bpf.o")
}

/// Loads the scheduler.
pub(crate) fn load() -> Loaded {
    Loaded::load(&object(), &Settings::default(), Messages::Shown).unwrap()
}

/// Flags a thread of this process.
pub(crate) fn flag(loaded: &Loaded, tid: i32) {
    loaded.flag(thread_descriptor(tid).unwrap().as_fd(), getuid().as_raw()).unwrap();
}

/// Processes that compute until this is dropped.
#[derive(Debug)]
pub(crate) struct Hogs(Vec<Child>);

impl Hogs {
    /// Starts hogs, each with its nice value, on these CPUs (as `taskset` names them).
    pub(crate) fn start(cpus: &str, nice: &[i32]) -> Self {
        let start = |nice: &i32| {
            let mut hog = Command::new("nice");
            hog.args(["-n", &nice.to_string(), "taskset", "-c", cpus, "sh", "-c", "while :; do :; done"]);
            hog.spawn().unwrap()
        };
        Self(nice.iter().map(start).collect())
    }

    /// Returns their numbers.
    pub(crate) fn ids(&self) -> Vec<i32> {
        self.0.iter().map(|hog| hog.id().cast_signed()).collect()
    }

    /// Returns the CPU time of each, in ticks of 10 ms.
    pub(crate) fn times(&self) -> Vec<u64> {
        let time = |hog: &Child| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", hog.id())).unwrap();
            let (_, rest) = stat.rsplit_once(") ").unwrap();
            rest.split(' ').nth(11).unwrap().parse().unwrap()
        };
        self.0.iter().map(time).collect()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests measure time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits for a number of milliseconds.
pub(crate) fn pause(milliseconds: u16) {
    poll(&mut [], PollTimeout::from(milliseconds)).unwrap();
}

/// Waits until `is_so` returns true; `what` describes the condition.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "timed out waiting until {what}");
        pause(2);
    }
}

/// A thread and its kernel thread id.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    pub(crate) tid: i32,
    handle: JoinHandle<T>,
    go: Sender<()>,
}

impl<T: Send + 'static> Numbered<T> {
    /// Starts a thread that runs `work` and then stays until it is joined.
    pub(crate) fn spawn(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        let (go, may_go) = channel();
        let handle = std::thread::spawn(move || {
            sender.send(gettid().as_raw()).unwrap();
            let result = work();
            let _ = may_go.recv();
            result
        });
        Self { tid: receive(&receiver), handle, go }
    }

    /// Waits until the thread sleeps in the kernel.
    pub(crate) fn until_it_sleeps(&self) {
        until("the thread sleeps", || state(self.tid) == 'S');
    }

    /// Returns the CPU time of the thread.
    pub(crate) fn ran(&self) -> Duration {
        schedstat(self.tid, 0)
    }

    pub(crate) fn join(self) -> T {
        drop(self.go);
        self.handle.join().unwrap()
    }
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Returns a field of the scheduler's times for a thread of this process: 0 is the time that it ran.
pub(crate) fn schedstat(tid: i32, field: usize) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().nth(field).unwrap().parse().unwrap())
}

/// Returns the state of a thread of this process from /proc: `S` sleeping, `R` running.
fn state(tid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// Receives from a channel within the time limit.
pub(crate) fn receive<T>(channel: &Receiver<T>) -> T {
    channel.recv_timeout(LIMIT).unwrap()
}
