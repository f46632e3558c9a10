//! The figures of chance alone: spreads and correlations of values that are exchanged at random.

use pronto_sched_sim::random::Random;

use crate::interval::Interval;
use crate::sample::approximate;

/// Number of random exchanges. The 99 % quantile is then the twentieth from the top.
pub(super) const SHUFFLES: u32 = 2_000;

/// Share of exchanges that an effect must exceed, as for the intervals of other claims.
const QUANTILE: f64 = 0.99;

/// Largest minus smallest mean over P.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spreads {
    /// As measured.
    pub(super) over_p: f64,
    /// 99 % quantile if the values of P are exchanged at random within each seed.
    pub(super) by_chance: f64,
}

/// Returns both spreads of `ratios`, which has a list for each P with a value for each seed.
pub(super) fn spreads(ratios: &[Vec<f64>]) -> Spreads {
    let mut random = Random::stream(1, 0);
    let mut shuffled = ratios.to_vec();
    let seeds = ratios.first().map_or(0, Vec::len);
    let mut by_chance: Vec<f64> = (0..SHUFFLES)
        .map(|_| {
            for seed in 0..seeds {
                let mut of_seed: Vec<f64> = shuffled.iter().map(|ratios| ratios[seed]).collect();
                shuffle(&mut of_seed, &mut random);
                for (ratios, value) in shuffled.iter_mut().zip(of_seed) {
                    ratios[seed] = value;
                }
            }
            spread(&shuffled)
        })
        .collect();
    by_chance.sort_by(f64::total_cmp);
    Spreads { over_p: spread(ratios), by_chance: quantile(&by_chance) }
}

/// Returns the largest minus the smallest mean.
fn spread(ratios: &[Vec<f64>]) -> f64 {
    let means = || ratios.iter().map(|ratios| Interval::of(ratios).mean);
    means().fold(f64::NEG_INFINITY, f64::max) - means().fold(f64::INFINITY, f64::min)
}

/// A rank correlation (Kendall's tau a: concordant minus discordant pairs, as a fraction of all pairs).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Correlation {
    /// As measured, from -1 to 1.
    pub(super) tau: f64,
    /// 99 % quantile of its magnitude if the pairs are formed at random.
    pub(super) by_chance: f64,
}

/// Returns the correlation of pairs.
pub(super) fn correlation(pairs: &[(f64, f64)]) -> Correlation {
    let mut random = Random::stream(1, 1);
    let mut seconds: Vec<f64> = pairs.iter().map(|(_, second)| *second).collect();
    let mut by_chance: Vec<f64> = (0..SHUFFLES)
        .map(|_| {
            shuffle(&mut seconds, &mut random);
            let pairs: Vec<_> = pairs.iter().map(|(first, _)| *first).zip(seconds.iter().copied()).collect();
            tau(&pairs).abs()
        })
        .collect();
    by_chance.sort_by(f64::total_cmp);
    Correlation { tau: tau(pairs), by_chance: quantile(&by_chance) }
}

fn tau(pairs: &[(f64, f64)]) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (index, a) in pairs.iter().enumerate() {
        for b in &pairs[..index] {
            let product = (a.0 - b.0) * (a.1 - b.1);
            sum += if product == 0.0 { 0.0 } else { product.signum() };
            count += 1;
        }
    }
    sum / approximate(count)
}

/// Puts `values` into a random order.
fn shuffle(values: &mut [f64], random: &mut Random) {
    for last in (1..values.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(0);
        values.swap(last, other);
    }
}

/// Returns the quantile of sorted values; NaN if there are none.
fn quantile(sorted: &[f64]) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is between zero and the number of values"
    )]
    let index = (QUANTILE * approximate(sorted.len() as u64)) as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_exceeds_chance_and_noise_does_not() {
        let noise = |p: u32, seed: u32| f64::from((p * 7 + seed * 5 + p * seed * 3) % 11) / 100.0;
        let ratios = |effect: f64| -> Vec<Vec<f64>> {
            (0..5).map(|p| (0..20).map(|seed| effect * f64::from(p) + noise(p, seed)).collect()).collect()
        };
        let (none, some) = (spreads(&ratios(0.0)), spreads(&ratios(0.05)));
        assert!(none.over_p < none.by_chance, "{none:?}");
        assert!(some.over_p > some.by_chance, "{some:?}");
        let equal = spreads(&vec![vec![0.9; 20]; 5]);
        assert!(equal.over_p == 0.0 && equal.by_chance.abs() < 1e-9, "{equal:?}");
    }

    #[test]
    fn an_order_is_a_correlation_and_a_mixture_is_none() {
        let falling: Vec<_> = (0..14).map(|index| (f64::from(index), f64::from(-index))).collect();
        let found = correlation(&falling);
        assert!((found.tau + 1.0).abs() < 1e-9 && found.by_chance < 0.7, "{found:?}");
        let mixed: Vec<_> = (0..14).map(|index| (f64::from(index), f64::from(index * 5 % 14))).collect();
        let found = correlation(&mixed);
        assert!(found.tau.abs() < found.by_chance, "{found:?}");
        let equal: Vec<_> = (0..14).map(|index| (f64::from(index), 0.0)).collect();
        assert_eq!(correlation(&equal).tau, 0.0);
    }
}
