//! The floor: the least that hardware and kernel take for what a call is made of.
//!
//! Each function repeats one operation for a given time and adds what it saw to a [`Recorder`]; nothing of it runs on
//! after the function returned. So an experiment can measure its floor in turns with the thing itself, in one run,
//! with the same instrument: `floor::cache_line(cpus, budget, &mut floor)` between two rounds of its own.
//!
//! The partner of a ping-pong is a thread of this process, pinned to the other CPU: what is measured (a cache line's
//! way, a wake-up, a socket) does not depend on whether the two share an address space.

mod bulk;
mod cache_line;
mod local;
#[expect(unsafe_code, reason = "the futex system call has no safe wrapper here")]
mod raw;
mod socket;
mod wakeup;
mod word;

use core::time::Duration;

pub use bulk::{Footprint, copy_and_sum, tcp_stream};
pub use cache_line::{one_line as cache_line, two_lines as cache_line_two};
pub use local::{empty_system_call, futex_wake_nobody, instant_now, memcpy, two_additions};
pub use socket::{tcp_blocking, tcp_spinning, unix_blocking};
pub(crate) use socket::{tcp_pair, tcp_spinning_pair};
pub use wakeup::{eventfd, futex};

use crate::placement::{CpuPair, Placement, alone};
use crate::sample::Recorder;

/// One row of the floor.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The row's name.
    pub name: &'static str,
    /// How many cores it takes.
    pub cores: Cores,
    /// Bytes copied by one operation, if copying is what it does.
    pub bytes: Option<u32>,
    work: Work,
}

/// How many cores a probe takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// One thread on one core.
    One,
    /// A caller and a partner, on different cores.
    Two,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Alone(fn(Duration, &mut Recorder) -> anyhow::Result<()>),
    Pair(fn(CpuPair, Duration, &mut Recorder) -> anyhow::Result<()>),
}

impl Probe {
    const fn alone(name: &'static str, work: fn(Duration, &mut Recorder) -> anyhow::Result<()>) -> Self {
        Self { name, cores: Cores::One, bytes: None, work: Work::Alone(work) }
    }

    const fn pair(
        name: &'static str,
        work: fn(CpuPair, Duration, &mut Recorder) -> anyhow::Result<()>,
    ) -> Self {
        Self { name, cores: Cores::Two, bytes: None, work: Work::Pair(work) }
    }

    const fn copying(mut self, bytes: u32) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Repeats the probe for about `budget` and adds to `into`.
    ///
    /// # Errors
    /// If it needs two cores and `placement` has one, or if the system refuses what it needs.
    pub fn measure(&self, placement: Placement, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
        match (self.work, placement.pair()) {
            (Work::Alone(work), _) => alone(placement.caller(), || work(budget, into)),
            (Work::Pair(work), Some(cpus)) => work(cpus, budget, into),
            (Work::Pair(_), None) => anyhow::bail!("{} needs two CPUs", self.name),
        }
    }
}

/// Every row of the floor, in the order in which it is shown: nearest to the hardware first.
pub const PROBES: &[Probe] = &[
    Probe::pair("cache-line", cache_line),
    Probe::pair("cache-line-two", cache_line_two),
    Probe::pair("futex", futex),
    Probe::pair("eventfd", eventfd),
    Probe::pair("unix-blocking-32", |cpus, budget, into| unix_blocking(cpus, 32, budget, into)),
    Probe::pair("tcp-blocking-32", |cpus, budget, into| tcp_blocking(cpus, 32, budget, into)),
    Probe::pair("tcp-blocking-56", |cpus, budget, into| tcp_blocking(cpus, 56, budget, into)),
    Probe::pair("tcp-spinning-32", |cpus, budget, into| tcp_spinning(cpus, 32, budget, into)),
    Probe::pair("tcp-spinning-56", |cpus, budget, into| tcp_spinning(cpus, 56, budget, into)),
    Probe::alone("two-additions", two_additions),
    Probe::alone("syscall", empty_system_call),
    Probe::alone("futex-wake-nobody", futex_wake_nobody),
    Probe::alone("memcpy-4k", |budget, into| memcpy(4 << 10, budget, into)).copying(4 << 10),
    Probe::alone("memcpy-64k", |budget, into| memcpy(64 << 10, budget, into)).copying(64 << 10),
    Probe::alone("memcpy-1m", |budget, into| memcpy(1 << 20, budget, into)).copying(1 << 20),
    Probe::alone("instant-now", instant_now),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_probe_measures_something_and_ends() {
        let placement = Placement::choose().unwrap();
        for probe in PROBES.iter().filter(|probe| probe.cores == Cores::One || placement.pair().is_some()) {
            let mut recorder = Recorder::new();
            probe.measure(placement, Duration::from_millis(2), &mut recorder).unwrap();
            let sample = recorder.sample();
            assert!(sample.count > 0 && sample.min_ns <= sample.p50_ns && sample.p50_ns <= sample.p999_ns);
        }
    }

    #[test]
    fn rounds_add_up_in_one_recorder() {
        let placement = Placement::choose().unwrap();
        let mut recorder = Recorder::new();
        let probe = PROBES.iter().find(|probe| probe.name == "syscall").unwrap();
        probe.measure(placement, Duration::from_millis(1), &mut recorder).unwrap();
        let first = recorder.sample().count;
        probe.measure(placement, Duration::from_millis(1), &mut recorder).unwrap();
        assert!(recorder.sample().count > first);
    }

    #[test]
    fn a_pair_on_one_cpu_is_refused() {
        let placement = Placement::One(Placement::choose().unwrap().caller());
        let error = PROBES[0].measure(placement, Duration::from_millis(1), &mut Recorder::new());
        assert_eq!(error.unwrap_err().to_string(), "cache-line needs two CPUs");
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = PROBES.iter().map(|probe| probe.name).collect();
        assert_eq!(names.len(), PROBES.len());
    }
}
