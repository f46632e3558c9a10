//! The scale of an axis: positions in per cent, and ticks.

/// A scale between two values; those of a logarithmic one are powers of ten.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    Linear(f64, f64),
    Logarithmic(f64, f64),
}

impl Scale {
    /// Returns the scale of these lengths or heights: from zero, or from a power of ten to another.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Self {
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        if logarithmic {
            let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            let (first, last) = (least.log10().floor(), most.max(least).log10().ceil());
            return Self::Logarithmic(first, last.max(first + 1.0));
        }
        let least = values.fold(0.0, f64::min);
        Self::Linear(least, if most > least { most } else { least + 1.0 })
    }

    /// Returns the scale of these positions: from the least to the largest, with some air on both sides.
    pub(super) fn across(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Self {
        let scaled = values.filter(|value| !logarithmic || *value > 0.0);
        let scaled = scaled.map(|value| if logarithmic { value.log10() } else { value });
        let (least, most) =
            (scaled.clone().fold(f64::INFINITY, f64::min), scaled.fold(f64::NEG_INFINITY, f64::max));
        let air = if most > least { (most - least) * AIR } else { 1.0 };
        if logarithmic {
            Self::Logarithmic(least - air, most + air)
        } else {
            Self::Linear(least - air, most + air)
        }
    }

    /// Returns the scale with air above the largest value.
    pub(super) fn aired(self) -> Self {
        match self {
            Self::Linear(least, most) => Self::Linear(least, most + (most - least) * AIR),
            Self::Logarithmic(..) => self,
        }
    }

    /// Returns the position of a value in per cent. On a logarithmic scale, values that are not above its start are at the start.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear(least, most) => 100.0 * (value - least) / (most - least),
            Self::Logarithmic(first, last) => {
                100.0 * (value.max(f64::MIN_POSITIVE).log10() - first).max(0.0) / (last - first)
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
                let step = ((last - first) / 6.0).ceil();
                (0..=6)
                    .map(|tick| first + f64::from(tick) * step)
                    .filter(|power| *power <= last)
                    .map(|power| 10_f64.powf(power))
                    .collect()
            }
        }
    }
}

/// Share of an axis that is free beyond the values.
const AIR: f64 = 0.04;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_place_values_between_their_ends() {
        let scale = Scale::of([110.0, 53_000.0].into_iter(), true);
        assert!(scale.place(1_000.0) > 33.0 && scale.place(1_000.0) < 34.0, "{scale:?}");
        assert!(scale.place(100.0).abs() < 1e-9 && (scale.place(100_000.0) - 100.0).abs() < 1e-9);
        assert!(scale.place(0.0).abs() < 1e-9);
        let scale = Scale::of([30.0, 100.0].into_iter(), false);
        assert!(scale.place(0.0).abs() < 1e-9 && (scale.place(100.0) - 100.0).abs() < 1e-9);
        assert!(scale.aired().place(100.0) < 100.0);
        for logarithmic in [false, true] {
            let scale = Scale::across([64.0, 4096.0].into_iter(), logarithmic);
            assert!(
                scale.place(64.0) > 1.0 && scale.place(64.0) < 10.0 && scale.place(4096.0) > 90.0,
                "{scale:?}"
            );
            assert!((Scale::across([8.0].into_iter(), logarithmic).place(8.0) - 50.0).abs() < 1e-9);
        }
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
