//! Seeded random numbers, the only source of randomness: one stream for each task and one for the cluster.

use pronto_sched_policy::policy::time::Nanos;

/// The splitmix64 generator. A seed always gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the stream numbered `stream` of a run's seed. An additional task does not change the numbers of the
    /// others.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        let state = mixed.draw();
        Self(state)
    }

    /// Returns the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw().checked_rem(bound).unwrap_or(0)
    }

    /// Returns a time below `bound`.
    pub fn time_below(&mut self, bound: Nanos) -> Nanos {
        Nanos(self.below(bound.0))
    }

    /// Returns a time within `spread` of `centre`, on either side.
    pub fn about(&mut self, centre: Nanos, spread: Nanos) -> Nanos {
        centre.after(self.time_below(spread.times(2).after(Nanos(1)))).since(spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_numbers_stay_within_their_bounds() {
        let (mut one, mut two) = (Random::stream(1, 1), Random::stream(1, 2));
        assert_ne!(one.draw(), two.draw());
        for _ in 0..1000 {
            assert!(one.below(7) < 7);
            let about = one.about(Nanos(10), Nanos(3));
            assert!((Nanos(7)..=Nanos(13)).contains(&about));
        }
        assert_eq!(one.below(0), 0);
    }
}
