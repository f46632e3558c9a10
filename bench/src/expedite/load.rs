//! The background: processes that always compute, and processes that sleep most of the time (section 4.1).

use core::hint::black_box;
use core::time::Duration;
use std::fs;
use std::thread;

use anyhow::Context as _;
use nix::unistd::getpid;
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::LOAD;
use crate::child::{self, Child};
use crate::clock::{self, nanos};
use crate::params::{Choice as _, choices};

choices! {
    /// Activity of a background process.
    pub(crate) enum Kind {
        /// It computes.
        Compute = "compute",
        /// It computes for 5 ms, sleeps for 45 ms, and so on.
        Sleep = "sleep",
    }
}

/// Phases of a process that mostly sleeps, as in the paper (section 4.1).
const COMPUTES: Duration = Duration::from_millis(5);
const SLEEPS: Duration = Duration::from_millis(45);

/// Computed element of Fibonacci's series, as in the paper (section 4.4).
const ELEMENT: u32 = 16;

/// Class of the reporting thread: above every handler, so that its reply does not wait.
const REPORTER: Class = Class::Fifo(50);

/// Work of a background process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Time in nanoseconds.
    pub(crate) at: u64,
    /// Number of computed elements.
    pub(crate) elements: u64,
    /// Number of sleeps.
    pub(crate) sleeps: u64,
    /// Total excess of the sleeps in nanoseconds.
    pub(crate) late: u64,
    /// CPU time by the kernel's accounting (`/proc/PID/schedstat`), in nanoseconds.
    pub(crate) ran: u64,
}

impl Sample {
    /// Returns the work since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            at: self.at - before.at,
            elements: self.elements - before.elements,
            sleeps: self.sleeps - before.sleeps,
            late: self.late - before.late,
            ran: self.ran - before.ran,
        }
    }
}

/// A background process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Load(Child);

impl Load {
    /// Starts a process. It works when this returns.
    pub(crate) fn start(kind: Kind, nice: i32) -> anyhow::Result<Self> {
        let mut child = Child::spawn(&LOAD, [kind.name(), &nice.to_string()])?;
        child.hear()?;
        Ok(Self(child))
    }

    /// Starts `count` processes.
    pub(crate) fn start_all(kind: Kind, count: usize, nice: i32) -> anyhow::Result<Vec<Self>> {
        (0..count).map(|_| Self::start(kind, nice)).collect()
    }

    /// Returns its work so far.
    pub(crate) fn sample(&mut self) -> anyhow::Result<Sample> {
        self.0.tell("?")?;
        let line = self.0.hear()?;
        let mut numbers = line.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next().context("a number is missing")?.context("invalid number");
        Ok(Sample { at: next()?, elements: next()?, sleeps: next()?, late: next()?, ran: next()? })
    }
}

/// Counters of the computing thread for the reporting one.
#[derive(Debug, Default)]
struct Done {
    elements: AtomicU64,
    sleeps: AtomicU64,
    late: AtomicU64,
}

/// Computes until the parent ends this process.
pub(super) fn work(kind: Kind, nice: i32) -> anyhow::Result<()> {
    static DONE: std::sync::OnceLock<Done> = std::sync::OnceLock::new();
    let done = DONE.get_or_init(Done::default);
    thread::Builder::new().name("report".into()).spawn(|| report(done)).context("starting a thread")?;
    set_nice(nice)?;
    loop {
        match kind {
            Kind::Compute => compute_one(done),
            Kind::Sleep => {
                let end = clock::thread_ns() + nanos(COMPUTES);
                while clock::thread_ns() < end {
                    compute_one(done);
                }
                let until = clock::shared_ns() + nanos(SLEEPS);
                clock::sleep_until_shared(until);
                done.sleeps.fetch_add(1, Ordering::Relaxed);
                done.late.fetch_add(clock::shared_ns() - until, Ordering::Relaxed);
            }
        }
    }
}

fn compute_one(done: &Done) {
    black_box(fibonacci(black_box(ELEMENT)));
    done.elements.fetch_add(1, Ordering::Relaxed);
}

/// Reports the work on each query of the parent.
fn report(done: &Done) -> anyhow::Result<()> {
    schedule(CALLER, REPORTER).context("scheduling the reporter")?;
    child::say("works")?;
    while child::listen()?.is_some() {
        let [elements, sleeps, late] =
            [&done.elements, &done.sleeps, &done.late].map(|count| count.load(Ordering::Relaxed));
        let schedstat = format!("/proc/{0}/task/{0}/schedstat", getpid());
        let text = fs::read_to_string(schedstat).context("reading schedstat")?;
        let ran = text.split(' ').next().context("schedstat is empty")?;
        child::say(&format!("{} {elements} {sleeps} {late} {ran}", clock::shared_ns()))?;
    }
    Ok(())
}

/// Returns an element of the series, computed recursively by its definition.
pub(super) fn fibonacci(element: u32) -> u64 {
    if element < 2 { element.into() } else { fibonacci(element - 1) + fibonacci(element - 2) }
}

/// Sets the nice value of the calling thread.
pub(super) fn set_nice(nice: i32) -> anyhow::Result<()> {
    pronto_expedite::schedule::set_nice(CALLER, nice).context("setting a nice value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_fibonaccis() {
        assert_eq!((0..10).map(fibonacci).collect::<Vec<_>>(), [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]);
    }

    #[test]
    fn a_sample_counts_from_another() {
        let at = |at| Sample { at, elements: 10 * at, sleeps: at, late: 2 * at, ran: at };
        let since = at(5).since(&at(3));
        assert_eq!((since.at, since.elements, since.sleeps, since.late, since.ran), (2, 20, 2, 4, 2));
    }
}
