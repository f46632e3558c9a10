//! Comparison of repeated measurements with a bar: clear of it, or not resolved.

use core::cmp::Ordering;

use crate::claim::Verdict;
use crate::sample::approximate;

/// Mean of repeated measurements, with its 99 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Mean.
    pub(crate) mean: f64,
    /// Half of the interval's length; infinite with fewer than two measurements.
    pub(crate) error: f64,
}

impl Interval {
    /// Returns the interval of the mean of `values`. It is clear of no bar if one of them is not a number.
    pub(crate) fn of(values: &[f64]) -> Self {
        let count = approximate(values.len() as u64);
        let mean = values.iter().sum::<f64>() / count;
        let freedom = values.len().saturating_sub(1);
        let variance =
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / approximate(freedom as u64);
        let error = if freedom == 0 { f64::INFINITY } else { quantile(freedom) * (variance / count).sqrt() };
        Self { mean, error }
    }

    /// Returns the side of `bar` on which the whole interval lies, or `None` if the bar is within it. Measurements that all equal the bar
    /// are on neither side: [`Ordering::Equal`].
    pub(crate) fn side_of(self, bar: f64) -> Option<Ordering> {
        match () {
            () if self == (Self { mean: bar, error: 0.0 }) => Some(Ordering::Equal),
            () if self.mean + self.error < bar => Some(Ordering::Less),
            () if self.mean - self.error > bar => Some(Ordering::Greater),
            () => None,
        }
    }
}

/// Returns the 99.5 % quantile of Student's t distribution, at a number of degrees of freedom that is not above `freedom`.
fn quantile(freedom: usize) -> f64 {
    let known = QUANTILES.iter().rev().find(|(known, _)| *known <= freedom);
    known.map_or(f64::INFINITY, |(_, quantile)| *quantile)
}

/// Degrees of freedom and quantiles.
const QUANTILES: [(usize, f64); 12] = [
    (1, 63.66),
    (2, 9.92),
    (3, 5.84),
    (4, 4.60),
    (5, 4.03),
    (6, 3.71),
    (8, 3.36),
    (10, 3.17),
    (15, 2.95),
    (19, 2.86),
    (30, 2.75),
    (60, 2.66),
];

/// Returns the verdict on a statement that says of each case that it is on the side `wanted`: it holds if all are, and in part if some
/// are. It is not resolvable if no case is clear of the bar.
pub(crate) fn verdict(wanted: Ordering, sides: &[Option<Ordering>]) -> Verdict {
    match () {
        () if !sides.is_empty() && sides.iter().all(|side| *side == Some(wanted)) => Verdict::Holds,
        () if sides.contains(&Some(wanted)) => Verdict::InPart,
        () if sides.iter().all(Option::is_none) => Verdict::NotResolvable,
        () => Verdict::DoesNotHold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_clear_of_a_bar_that_it_does_not_contain() {
        let near = Interval::of(&[0.96, 0.97, 0.98]);
        assert!((near.mean - 0.97).abs() < 1e-9, "{near:?}");
        // Half a length of 9.92 * 0.01 / sqrt(3).
        assert!((near.error - 0.0573).abs() < 1e-3, "{near:?}");
        assert_eq!(near.side_of(1.0), None);
        assert_eq!(near.side_of(1.1), Some(Ordering::Less));
        assert_eq!(near.side_of(0.9), Some(Ordering::Greater));
        let many: Vec<f64> = [0.96, 0.97, 0.98].repeat(7);
        assert_eq!(Interval::of(&many).side_of(1.0), Some(Ordering::Less), "more measurements resolve more");
        assert_eq!(Interval::of(&[0.9, 0.9]).side_of(1.0), Some(Ordering::Less), "without any difference");
        assert_eq!(Interval::of(&[1.0, 1.0]).side_of(1.0), Some(Ordering::Equal));
    }

    #[test]
    fn too_few_measurements_are_clear_of_nothing() {
        for values in [&[][..], &[0.5], &[0.5, f64::NAN, 0.5]] {
            assert_eq!(Interval::of(values).side_of(1.0), None, "{values:?}");
        }
    }

    #[test]
    fn a_verdict_counts_the_cases() {
        let (less, more) = (Some(Ordering::Less), Some(Ordering::Greater));
        for (sides, expected) in [
            (&[less, less][..], Verdict::Holds),
            (&[less, None], Verdict::InPart),
            (&[less, more], Verdict::InPart),
            (&[None, more], Verdict::DoesNotHold),
            (&[None, Some(Ordering::Equal)], Verdict::DoesNotHold),
            (&[None, None], Verdict::NotResolvable),
            (&[], Verdict::NotResolvable),
        ] {
            assert_eq!(verdict(Ordering::Less, sides), expected, "{sides:?}");
        }
    }
}
