//! A message sent while its receiver computes (PIOMan paper, table 1): the receiving child, one repetition, and its results.

pub(crate) mod mpi;
pub(crate) mod parked;
pub(crate) mod receiver;
pub(crate) mod stream;
pub(crate) mod work;

use pronto::Region;

use crate::sample::{a_to_a, median};

/// Writes to all of a region, so that later accesses do not pay for fresh memory.
pub(crate) fn touch(region: &Region) -> anyhow::Result<()> {
    let part = vec![1; 1 << 20];
    Ok((0..region.len()).step_by(part.len()).try_for_each(|at| region.write(at, &part))?)
}

/// One repetition, with measurements of both sides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repetition {
    /// Duration of the send in microseconds.
    pub(crate) send_us: f64,
    /// Wait of the receiver after its computation, in microseconds.
    pub(crate) wait_us: f64,
    /// Duration of the computation in microseconds.
    pub(crate) compute_us: f64,
    /// Whether the last byte had arrived at the end of the computation.
    pub(crate) before_end: bool,
}

/// All repetitions of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetitions {
    /// Repetitions without a computation.
    pub(crate) alone: Vec<Repetition>,
    /// Repetitions without a computation in which the receiver waits; empty if the receiver also waits in `alone`.
    pub(crate) waited: Vec<Repetition>,
    /// Repetitions during the computation.
    pub(crate) computing: Vec<Repetition>,
    /// Durations of the computation alone, in microseconds.
    pub(crate) compute_alone_us: Vec<f64>,
    /// Largest sampled number of bytes in sockets, in separate repetitions; `None` without samples.
    pub(crate) parked: Option<u64>,
}

/// Results of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Median of the send without a computation.
    pub(crate) alone_us: f64,
    /// Median of the send while the receiver waits for it; NaN if it was not measured.
    pub(crate) waited_us: f64,
    /// Median of the send while the receiver computes.
    pub(crate) send_us: f64,
    /// A/A that is furthest from 1 of the sends alone, the sends while the receiver computes, and the computations; NaN with less than
    /// two of them.
    pub(crate) aa: f64,
    /// A/A without the sends while the receiver computes, which shows the noise of the machine alone.
    pub(crate) control_aa: f64,
    /// Longest send while the receiver computes.
    pub(crate) longest_us: f64,
    /// Median wait of the receiver after its computation.
    pub(crate) wait_us: f64,
    /// Median of the computation, divided by that of the computation alone.
    pub(crate) stretch: f64,
    /// Share of repetitions in which the last byte arrived before the end of the computation.
    pub(crate) before_end: f64,
    /// Largest sampled number of bytes in sockets; `None` without samples.
    pub(crate) parked: Option<u64>,
}

impl Repetitions {
    /// Returns the results; `None` without repetitions.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        if self.alone.is_empty() || self.computing.is_empty() {
            return None;
        }
        let of = |list: &[Repetition], what: fn(&Repetition) -> f64| median(list.iter().map(what).collect());
        let alone_us = of(&self.alone, |one| one.send_us);
        let [aa, control_aa] = self.furthest_aa();
        let before = self.computing.iter().filter(|one| one.before_end).count();
        Some(Outcome {
            alone_us,
            waited_us: of(&self.waited, |one| one.send_us),
            send_us: of(&self.computing, |one| one.send_us),
            aa,
            control_aa,
            longest_us: self.computing.iter().map(|one| one.send_us).fold(0.0, f64::max),
            wait_us: of(&self.computing, |one| one.wait_us),
            stretch: of(&self.computing, |one| one.compute_us) / median(self.compute_alone_us.clone()),
            before_end: before as f64 / self.computing.len() as f64,
            parked: self.parked,
        })
    }

    /// Returns the A/A that is furthest from 1, with and without the sends during a computation.
    fn furthest_aa(&self) -> [f64; 2] {
        let of = |list: &[Repetition], what: fn(&Repetition) -> f64| {
            a_to_a(&list.iter().map(what).collect::<Vec<_>>())
        };
        let distance = |aa: &f64| (aa - 1.0).abs();
        // The total order puts NaN last, so one of two is the result.
        let further = |one: f64, other: f64| {
            if distance(&one).total_cmp(&distance(&other)).is_gt() { one } else { other }
        };
        let control = further(of(&self.alone, |one| one.send_us), of(&self.computing, |one| one.compute_us));
        [further(control, of(&self.computing, |one| one.send_us)), control]
    }

    /// Returns the share of the sends during a computation that took longer than `limit_us`.
    pub(crate) fn late(&self, limit_us: f64) -> f64 {
        let late = self.computing.iter().filter(|one| one.send_us > limit_us).count();
        late as f64 / self.computing.len() as f64
    }
}

impl Outcome {
    /// Returns the share of the transfer that the receiver did not wait for.
    pub(crate) fn overlap(&self) -> f64 {
        (1.0 - self.wait_us / self.alone_us).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_made_of_medians() {
        let one =
            |send_us, wait_us, before_end| Repetition { send_us, wait_us, compute_us: 110.0, before_end };
        let all = Repetitions {
            alone: vec![one(10.0, 10.0, false), one(12.0, 10.0, false), one(90.0, 10.0, false)],
            waited: vec![],
            computing: vec![one(11.0, 0.6, true), one(13.0, 0.5, true), one(40.0, 30.0, false)],
            compute_alone_us: vec![100.0, 100.0, 300.0],
            parked: Some(7),
        };
        let outcome = all.outcome().expect("there are some");
        assert_eq!((outcome.alone_us, outcome.send_us, outcome.longest_us), (12.0, 13.0, 40.0));
        // The even sends alone, 10 and 90, by the odd one; those during the computation are closer to 1.
        assert!((outcome.aa - 50.0 / 12.0).abs() < 1e-9);
        assert!((all.late(12.0) - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(outcome.parked, Some(7));
        assert!((outcome.overlap() - 0.95).abs() < 1e-9 && (outcome.stretch - 1.1).abs() < 1e-9);
        assert!((outcome.before_end - 2.0 / 3.0).abs() < 1e-9);
        assert!(Repetitions::default().outcome().is_none());
    }
}
