//! The background: processes that compute without end, and processes that sleep most of the time (section 4.1).

use core::hint::black_box;
use core::str::FromStr;
use core::time::Duration;
use std::fs;
use std::io::BufRead as _;
use std::thread;

use anyhow::{Context as _, bail};
use nix::unistd::getpid;
use pronto_expedite::schedule::{CALLER, Class, schedule};
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::LOAD;
use crate::child::{self, Child};
use crate::clock;

/// What a background process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It computes.
    Compute,
    /// It computes for 5 ms, sleeps for 45 ms, and so on.
    Sleep,
}

/// The paper's (section 4.1).
const COMPUTES: Duration = Duration::from_millis(5);
const SLEEPS: Duration = Duration::from_millis(45);

/// Of Fibonacci's series; the paper computes the same one (section 4.4).
const ELEMENT: u32 = 16;

/// Above every handler: its one answer must not wait.
const REPORTER: Class = Class::Fifo(50);

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "compute" => Ok(Self::Compute),
            "sleep" => Ok(Self::Sleep),
            other => bail!("no such background: {other}"),
        }
    }
}

/// What a background process has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// When, nanoseconds.
    pub(crate) at: u64,
    /// Elements computed.
    pub(crate) elements: u64,
    /// Sleeps.
    pub(crate) sleeps: u64,
    /// How much longer than asked for they lasted, all together, nanoseconds.
    pub(crate) late: u64,
    /// Time on the processor, by the kernel (`/proc/PID/schedstat`), nanoseconds.
    pub(crate) ran: u64,
}

impl Sample {
    /// What was done since `before`.
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

/// A background process; ended when dropped.
#[derive(Debug)]
pub(crate) struct Load(Child);

impl Load {
    /// Starts it; it works when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn start(kind: Kind, nice: i32) -> anyhow::Result<Self> {
        let kind = match kind {
            Kind::Compute => "compute",
            Kind::Sleep => "sleep",
        };
        let mut child = Child::spawn([LOAD, kind, &nice.to_string()])?;
        child.hear()?;
        Ok(Self(child))
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn sample(&mut self) -> anyhow::Result<Sample> {
        self.0.tell("?")?;
        let line = self.0.hear()?;
        let mut numbers = line.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next().context("a number is missing")?.context("no number");
        Ok(Sample { at: next()?, elements: next()?, sleeps: next()?, late: next()?, ran: next()? })
    }
}

/// What the thread that computes tells the one that reports.
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
                while let Some(left) = until.checked_sub(clock::shared_ns()).filter(|left| *left > 0) {
                    thread::park_timeout(Duration::from_nanos(left));
                }
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

/// Says what was done, whenever the parent asks.
fn report(done: &Done) -> anyhow::Result<()> {
    schedule(CALLER, REPORTER).context("scheduling the reporter")?;
    child::say("works")?;
    for _question in std::io::stdin().lock().lines() {
        let [elements, sleeps, late] =
            [&done.elements, &done.sleeps, &done.late].map(|count| count.load(Ordering::Relaxed));
        let schedstat = format!("/proc/{0}/task/{0}/schedstat", getpid());
        let text = fs::read_to_string(schedstat).context("reading schedstat")?;
        let ran = text.split(' ').next().context("schedstat is empty")?;
        child::say(&format!("{} {elements} {sleeps} {late} {ran}", clock::shared_ns()))?;
    }
    Ok(())
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// An element of the series, computed as slowly as its definition has it.
pub(super) fn fibonacci(element: u32) -> u64 {
    if element < 2 { element.into() } else { fibonacci(element - 1) + fibonacci(element - 2) }
}

/// Gives the calling thread a nice value.
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
