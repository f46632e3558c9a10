//! The test machine: the loaded module and its counters, and threads whose state tests observe.

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::poll::{PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use pronto_expedite::{Device, Totals};
use pronto_lab_module as lab_module;

/// Time limit of every wait, also sufficient on a busy host.
const LIMIT: Duration = Duration::from_secs(30);

/// The module; it is loaded while this exists.
#[derive(Debug)]
pub(crate) struct Module(#[expect(dead_code, reason = "held until the end")] lab_module::Module);

impl Module {
    /// Loads the module with parameters `name=value`.
    pub(crate) fn load(parameters: &[&str]) -> Self {
        Self(lab_module::Module::load(parameters))
    }

    /// Returns the module's counters, over all threads, by name.
    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let Totals { flags, threads, accounts, by_way, counts, .. } =
            Device::open().unwrap().totals().unwrap();
        let state = [
            ("flags", flags),
            ("threads", threads),
            ("accounts", accounts),
            ("by_read", by_way.read),
            ("by_poll", by_way.poll),
            ("by_epoll", by_way.epoll),
            ("by_io_uring", by_way.io_uring),
            ("by_wait", by_way.wait),
            ("named", by_way.named),
        ];
        state.into_iter().chain(counts.by_name()).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "time limits of tests use real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps for 2 ms.
fn pause() {
    poll(&mut [], PollTimeout::from(2_u8)).unwrap();
}

/// Waits until `is_so` returns true; `what` describes the condition.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "timed out waiting until {what}");
        pause();
    }
}

/// A thread and its kernel thread id.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    pub(crate) tid: i32,
    pub(crate) handle: JoinHandle<T>,
    go: Sender<()>,
}

impl<T: Send + 'static> Numbered<T> {
    /// Starts a thread that runs `work` and then stays until it is joined, because the module has no counters of ended threads.
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

    pub(crate) fn join(self) -> T {
        drop(self.go);
        self.handle.join().unwrap()
    }
}

/// Lets the calling thread run on each of this number of CPUs.
pub(crate) fn allow(cpus: usize) {
    let mut set = CpuSet::new();
    (0..cpus).for_each(|cpu| set.set(cpu).unwrap());
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Returns the state of a thread of this process from /proc: `S` sleeping, `R` running.
pub(crate) fn state(tid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// Receives from a channel within the time limit.
pub(crate) fn receive<T>(channel: &Receiver<T>) -> T {
    channel.recv_timeout(LIMIT).unwrap()
}
