//! The scale of an axis: positions in per cent, and ticks.

/// A scale between two values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    /// From zero, or from the least value if it is negative, to the largest.
    Linear(f64, f64),
    /// From one power of ten to another.
    Logarithmic(i32, i32),
}

impl Scale {
    /// Returns the scale of these values.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Self {
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        if logarithmic {
            let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            let power = |value: f64| (-30..30).rfind(|power| 10_f64.powi(*power) <= value).unwrap_or(-30);
            let first = power(least);
            let last = power(most.max(least));
            let reached = 10_f64.powi(last) >= most && last > first;
            return Self::Logarithmic(first, if reached { last } else { last + 1 });
        }
        let least = values.fold(0.0, f64::min);
        let most = if most > least { most } else { least + 1.0 };
        Self::Linear(least, most + (most - least) * AIR)
    }

    /// Returns the position of a value in per cent. On a logarithmic scale, values that are not above its start are at the start.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear(least, most) => 100.0 * (value - least) / (most - least),
            Self::Logarithmic(first, last) => {
                100.0 * (value.max(f64::MIN_POSITIVE).log10() - f64::from(first)).max(0.0)
                    / f64::from(last - first)
            }
        }
    }

    /// Returns whether it is logarithmic.
    pub(super) fn is_logarithmic(self) -> bool {
        matches!(self, Self::Logarithmic(..))
    }

    /// Returns the values of at most seven ticks.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(least, most) => {
                let power = 10_f64.powf(((most - least) / 5.0).log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
                let step = steps.into_iter().find(|step| (most - least) / step <= 5.0).unwrap_or(most);
                let first = (least / step).ceil();
                (0..=6).map(|tick| (first + f64::from(tick)) * step).filter(|tick| *tick <= most).collect()
            }
            Self::Logarithmic(first, last) => {
                let step = usize::try_from((last - first) / 6 + 1).unwrap_or(1);
                (first..=last).step_by(step).map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

/// Share of a linear axis that is free beyond the largest value.
const AIR: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_place_values_between_their_ends() {
        let scale = Scale::of([110.0, 53_000.0].into_iter(), true);
        assert!(matches!(scale, Scale::Logarithmic(2, 5)), "{scale:?}");
        assert!(scale.place(100.0).abs() < 1e-9 && (scale.place(100_000.0) - 100.0).abs() < 1e-9);
        assert!(scale.place(0.0).abs() < 1e-9);
        let scale = Scale::of([30.0, 100.0].into_iter(), false);
        assert!(scale.place(0.0).abs() < 1e-9 && scale.place(100.0) > 90.0 && scale.place(100.0) < 100.0);
    }

    #[test]
    fn ticks_are_few_and_inside() {
        for values in [[0.0, 107.0], [0.0, 0.035], [-3.0, 5.0], [0.0, 0.0]] {
            let scale = Scale::of(values.into_iter(), false);
            let ticks = scale.ticks();
            assert!((2..=7).contains(&ticks.len()), "{values:?}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (-1e-9..=100.0).contains(&scale.place(*tick))), "{ticks:?}");
        }
        assert_eq!(Scale::of([1.0, 100.0].into_iter(), true).ticks(), [1.0, 10.0, 100.0]);
        assert_eq!(Scale::of([5.0].into_iter(), true).ticks(), [1.0, 10.0]);
    }
}
