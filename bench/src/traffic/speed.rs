//! Rates of one operation over several rounds, with their noise.

use core::time::Duration;

use crate::sample::{a_to_a, approximate, median};

/// Rates of the rounds of one row. Even and odd rounds are compared: the halves differ only by noise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Speed {
    rounds: Vec<f64>,
}

impl Speed {
    /// Adds a round in which `count` operations took `time`.
    pub(crate) fn round(&mut self, count: u64, time: Duration) {
        self.rounds.push(approximate(count) / time.as_secs_f64());
    }

    /// Returns the median of the rounds, per second; NaN without rounds.
    pub(crate) fn per_second(&self) -> f64 {
        median(self.rounds.clone())
    }

    /// Returns the A/A of the rounds.
    pub(crate) fn a_to_a(&self) -> f64 {
        a_to_a(&self.rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_median_of_its_rounds_and_a_to_a_their_halves() {
        let mut speed = Speed::default();
        for count in [10, 20, 12, 20, 11] {
            speed.round(count, Duration::from_secs(2));
        }
        assert!((speed.per_second() - 6.0).abs() < 1e-9, "{speed:?}");
        assert!((speed.a_to_a() - 0.55).abs() < 1e-9, "{speed:?}");
        assert!(Speed::default().per_second().is_nan());
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
