//! Seeded randomness: the only source of randomness in the simulated world.

use pronto_core::Nanos;

/// The splitmix64 generator. A seed always gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless generator is not useful as an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Returns true once in `n` draws on average; never if `n` is 0.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n.into()) == 0
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns a random time within a span.
    pub fn within(&mut self, span: Span) -> Nanos {
        Nanos(span.min.0 + self.below(span.max.since(span.min).0.saturating_add(1)))
    }
}

/// A range of times, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Shortest time.
    pub min: Nanos,
    /// Longest time.
    pub max: Nanos,
}

impl Span {
    /// Returns a span from `min` to `max` microseconds.
    pub const fn micros(min: u64, max: u64) -> Self {
        Self { min: Nanos::from_micros(min), max: Nanos::from_micros(max) }
    }

    /// Returns a span from `min` to `max` milliseconds.
    pub const fn millis(min: u64, max: u64) -> Self {
        Self { min: Nanos::from_millis(min), max: Nanos::from_millis(max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bounds() {
        let mut random = Random::new(1);
        let span = Span::micros(3, 5);
        for _ in 0..1000 {
            assert!(random.below(7) < 7);
            let at = random.within(span);
            assert!(span.min <= at && at <= span.max);
        }
        assert_eq!(random.below(0), 0);
        assert!(!random.one_in(0));
        assert!(random.one_in(1));
    }
}
