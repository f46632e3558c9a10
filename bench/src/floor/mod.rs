//! The floor: lower bounds of hardware and kernel for the parts of a call.
//!
//! Each function repeats one operation for a given time and adds the timings to a [`Recorder`]. No thread of it remains after the
//! function returns. An experiment can therefore alternate rounds of its floor with its own rounds, in one run, with one
//! instrument: `floor::cache_line(cpus, budget, &mut floor)`.
//!
//! The partner of a ping-pong is a thread of this process, pinned to the other CPU: the measured operation (a transfer of a cache
//! line, a wake-up, a socket) does not depend on whether the two share an address space.

mod bulk;
mod cache_line;
mod local;
#[expect(unsafe_code, reason = "the futex system call has no safe wrapper here")]
mod raw;
mod socket;
mod wakeup;
mod word;

use core::time::Duration;

pub(crate) use bulk::{Footprint, copy_and_sum, tcp_stream};
pub(crate) use cache_line::{one_line as cache_line, two_lines as cache_line_two};
pub(crate) use local::{empty_system_call, futex_wake_nobody, instant_now, memcpy, two_additions};
pub(crate) use socket::{tcp_blocking, tcp_spinning, unix_blocking};
pub(crate) use socket::{tcp_pair, tcp_spinning_pair};
pub(crate) use wakeup::{eventfd, futex};

use crate::echo::Wait;
use crate::placement::{CpuPair, Placement, alone};
use crate::sample::Recorder;

/// One row of the floor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Name of the row.
    pub(crate) name: &'static str,
    /// Number of cores of the probe.
    pub(crate) cores: Cores,
    /// Number of bytes that one operation copies, if it copies.
    pub(crate) bytes: Option<u32>,
    work: Work,
}

/// Number of cores of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
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

    /// Repeats the probe for about `budget`, and adds the timings to `into`.
    pub(crate) fn measure(
        &self,
        placement: Placement,
        budget: Duration,
        into: &mut Recorder,
    ) -> anyhow::Result<()> {
        match (self.work, placement.pair()) {
            (Work::Alone(work), _) => alone(placement.caller(), || work(budget, into)),
            (Work::Pair(work), Some(cpus)) => work(cpus, budget, into),
            (Work::Pair(_), None) => anyhow::bail!("{} needs two CPUs", self.name),
        }
    }
}

/// Returns the name of the bare equivalent of a call over a transport with that waiting policy. An adaptive wait is compared with
/// spinning, the better choice.
pub(crate) fn of_calls(provider: &str, wait: Wait) -> &'static str {
    match (provider, wait.name()) {
        ("shm", "block") => "futex",
        ("shm", _) => "cache-line",
        (_, "block") => "tcp-blocking",
        _ => "tcp-spinning",
    }
}

/// Repeats the bare equivalent of that name for about `budget`, with messages of `bytes` bytes over TCP, and adds it to `into`.
pub(crate) fn round(
    name: &str,
    cpus: CpuPair,
    bytes: usize,
    budget: Duration,
    into: &mut Recorder,
) -> anyhow::Result<()> {
    match name {
        "futex" => futex(cpus, budget, into),
        "cache-line" => cache_line(cpus, budget, into),
        "tcp-blocking" => tcp_blocking(cpus, bytes, budget, into),
        _ => tcp_spinning(cpus, bytes, budget, into),
    }
}

/// Every row of the floor in display order: nearest to the hardware first.
pub(crate) const PROBES: &[Probe] = &[
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
    fn every_probe_of_one_cpu_measures_something_and_ends() {
        measure_something(Cores::One);
    }

    #[test]
    fn every_probe_of_two_cpus_measures_something_and_ends() {
        if !pronto_skip::for_want_of_two_cpus() {
            measure_something(Cores::Two);
        }
    }

    fn measure_something(cores: Cores) {
        let placement = Placement::choose().unwrap();
        for probe in PROBES.iter().filter(|probe| probe.cores == cores) {
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
