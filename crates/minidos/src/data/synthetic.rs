//! Points generated from a seed: clouds around a few centres.

use super::Points;
use crate::random::Random;

/// Generates `rows` points of `dims` numbers in [`CLOUDS`] clouds, as many as there are digits.
pub(super) fn make(rows: usize, dims: usize, seed: u64) -> Points {
    let (rows, dims) = (rows.max(1), dims.max(1));
    let mut random = Random::new(seed);
    let centres: Vec<f64> = (0..CLOUDS * dims).map(|_| random.unit() * SPREAD).collect();
    let mut values = Vec::with_capacity(rows * dims);
    for _ in 0..rows {
        let cloud = random.below(CLOUDS);
        for centre in &centres[cloud * dims..(cloud + 1) * dims] {
            // A sum of four uniform numbers is close enough to a normal distribution, and the same on every machine.
            let noise: f64 = (0..4).map(|_| random.unit() - 0.5).sum();
            values.push(centre + noise * SPREAD / 4.0);
        }
    }
    Points { values, dims, labels: None }
}

const CLOUDS: usize = 10;
const SPREAD: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(make(50, 3, 7), make(50, 3, 7));
        assert_ne!(make(50, 3, 7), make(50, 3, 8));
        let points = make(50, 3, 7);
        assert_eq!((points.rows(), points.dims, points.values.len()), (50, 3, 150));
    }
}
