//! A message sent while its receiver computes (PIOMan paper, table 1): the receiving child, one repetition, and what it tells.

pub(crate) mod mpi;
pub(crate) mod parked;
pub(crate) mod receiver;
pub(crate) mod stream;
pub(crate) mod work;

use crate::sample::{a_to_a, median};

/// One repetition, as both sides saw it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repetition {
    /// What the send took, microseconds.
    pub(crate) send_us: f64,
    /// What the receiver waited after it had computed, microseconds.
    pub(crate) wait_us: f64,
    /// What it computed for, microseconds.
    pub(crate) compute_us: f64,
    /// Whether the last byte lay in its buffer when it had computed.
    pub(crate) before_end: bool,
}

/// All repetitions of one row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetitions {
    /// With nothing to compute.
    pub(crate) alone: Vec<Repetition>,
    /// The same, with the receiver waiting for it; none where that is what alone means.
    pub(crate) waited: Vec<Repetition>,
    /// Beside the computation.
    pub(crate) beside: Vec<Repetition>,
    /// What the computation takes by itself, microseconds.
    pub(crate) compute_alone_us: Vec<f64>,
    /// The most bytes that lay in sockets at one look, in repetitions of their own; none where nobody looked.
    pub(crate) parked: Option<u64>,
}

/// What a row says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Median of the send with nothing to compute.
    pub(crate) alone_us: f64,
    /// Median of the send while the receiver waits for it; not a number if that was not measured.
    pub(crate) waited_us: f64,
    /// Median of the send while the receiver computes.
    pub(crate) send_us: f64,
    /// A/A of the sends while the receiver computes, each a round; not a number with less than two.
    pub(crate) send_aa: f64,
    /// The longest of those.
    pub(crate) longest_us: f64,
    /// Median of what the receiver waits after it has computed.
    pub(crate) wait_us: f64,
    /// Median of the computation, over the median of the same alone.
    pub(crate) stretch: f64,
    /// Repetitions in which the last byte was there before the computation's end, as a share.
    pub(crate) before_end: f64,
    /// The most bytes that lay in sockets; none where nobody looked.
    pub(crate) parked: Option<u64>,
}

impl Repetitions {
    /// None without any.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        if self.alone.is_empty() || self.beside.is_empty() {
            return None;
        }
        let of = |list: &[Repetition], what: fn(&Repetition) -> f64| median(list.iter().map(what).collect());
        let alone_us = of(&self.alone, |one| one.send_us);
        let before = self.beside.iter().filter(|one| one.before_end).count();
        Some(Outcome {
            alone_us,
            waited_us: of(&self.waited, |one| one.send_us),
            send_us: of(&self.beside, |one| one.send_us),
            send_aa: a_to_a(&self.beside.iter().map(|one| one.send_us).collect::<Vec<_>>()),
            longest_us: self.beside.iter().map(|one| one.send_us).fold(0.0, f64::max),
            wait_us: of(&self.beside, |one| one.wait_us),
            stretch: of(&self.beside, |one| one.compute_us) / median(self.compute_alone_us.clone()),
            before_end: before as f64 / self.beside.len() as f64,
            parked: self.parked,
        })
    }
}

impl Outcome {
    /// The part of the transfer that the receiver did not wait for.
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
            beside: vec![one(11.0, 0.6, true), one(13.0, 0.5, true), one(40.0, 30.0, false)],
            compute_alone_us: vec![100.0, 100.0, 300.0],
            parked: Some(7),
        };
        let outcome = all.outcome().expect("there are some");
        assert_eq!((outcome.alone_us, outcome.send_us, outcome.longest_us), (12.0, 13.0, 40.0));
        assert!((outcome.send_aa - 25.5 / 13.0).abs() < 1e-9);
        assert_eq!(outcome.parked, Some(7));
        assert!((outcome.overlap() - 0.95).abs() < 1e-9 && (outcome.stretch - 1.1).abs() < 1e-9);
        assert!((outcome.before_end - 2.0 / 3.0).abs() < 1e-9);
        assert!(Repetitions::default().outcome().is_none());
    }
}
