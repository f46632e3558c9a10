//! The pseudo-random numbers of the NAS Parallel Benchmarks: x(k+1) = a x(k) mod 2^46 (NAS report RNR-94-007, section 2.3).

/// The multiplier a, 5^13.
pub const MULTIPLIER: u64 = 1_220_703_125;
/// The first state x(0).
pub const SEED: u64 = 314_159_265;

const MASK: u64 = (1 << 46) - 1;
/// 2^-46, exactly.
const SCALE: f64 = 1.0 / (1_u64 << 46) as f64;

/// A position in the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Returns the sequence that begins with `state`, which is not one of its numbers.
    pub const fn new(state: u64) -> Self {
        Self { state: state & MASK }
    }

    /// Returns the sequence without its first `count` numbers, in O(log count).
    #[must_use]
    pub const fn skip(self, count: u64) -> Self {
        let (mut factor, mut square, mut left) = (1, MULTIPLIER, count);
        while left > 0 {
            if left & 1 == 1 {
                factor = multiply(factor, square);
            }
            square = multiply(square, square);
            left >>= 1;
        }
        Self { state: multiply(self.state, factor) }
    }

    /// Returns the next number, x(k) 2^-46 in (0, 1).
    pub const fn next(&mut self) -> f64 {
        self.state = multiply(self.state, MULTIPLIER);
        self.state as f64 * SCALE
    }
}

/// Returns a b mod 2^46. Overflow changes only higher bits.
const fn multiply(a: u64, b: u64) -> u64 {
    a.wrapping_mul(b) & MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with integers of unlimited length.
    const KNOWN: [(u64, u64); 5] = [
        (1, 55_909_509_111_989),
        (2, 61_155_031_930_969),
        (3, 45_573_031_421_645),
        (1_000_000, 50_447_193_586_593),
        (268_435_456, 15_654_396_211_361),
    ];

    #[test]
    fn the_numbers_are_those_of_the_definition() {
        for (index, state) in KNOWN {
            assert_eq!(Random::new(SEED).skip(index).state, state, "x({index})");
        }
        assert_eq!(MULTIPLIER, 5_u64.pow(13));
    }

    #[test]
    fn skipping_and_stepping_agree() {
        let mut stepped = Random::new(SEED);
        for index in 0..1000 {
            assert_eq!(stepped, Random::new(SEED).skip(index));
            let number = stepped.next();
            assert!(number > 0.0 && number < 1.0);
        }
    }
}
