//! The weight of a communicating process on today's kernels, whose schedulers share a CPU by weight.
//!
//! The coscheduling paper adds the frequency to `goodness()`, where a process without communication has its priority, 20 (section 2). The
//! order of `goodness()` does not exist any more. A weight keeps the proportion: a process with frequency `f` gets `(20 + f) / 20` of the
//! ordinary weight. A bound keeps local tasks from starving, as the spent counters of the paper do: with the largest weight `w`, `n` local
//! tasks on a CPU still get `n / (n + w)` of it.

use super::level::Level;

/// A weight, in hundredths of the ordinary one; as in `cpu.weight` of control groups, 100 is ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

/// Priority of a process in the paper ("Default value = 20", section 2).
const PRIORITY: u64 = 20;

/// Weights of the nice values from 0 to -19, in hundredths: each is about 1.25 times the one before (`sched_prio_to_weight` in
/// `kernel/sched/core.c`).
const NICE: [u32; 20] = [
    100, 125, 156, 191, 238, 305, 380, 477, 595, 733, 932, 1165, 1423, 1794, 2302, 2838, 3546, 4505, 5488,
    7007,
];

impl Weight {
    /// The weight of a process without communication.
    pub const ORDINARY: Self = Self(100);
    /// The largest maximum that can be configured.
    pub const LIMIT: Self = Self(1_000);

    /// Returns the weight of `hundredths` hundredths, limited to [`Self::ORDINARY`] and [`Self::LIMIT`].
    pub const fn hundredths(hundredths: u32) -> Self {
        if hundredths < Self::ORDINARY.0 {
            Self::ORDINARY
        } else if hundredths > Self::LIMIT.0 {
            Self::LIMIT
        } else {
            Self(hundredths)
        }
    }

    /// Returns the weight of a process with this frequency, at most `most`.
    pub fn of(frequency: Level, most: Self) -> Self {
        let hundred = Level::packets(u64::from(Self::ORDINARY.0));
        // In fixed point, so that fractions of a packet count: 100 + 5 per packet.
        let gained = frequency.times(u64::from(Self::ORDINARY.0)).part_of(PRIORITY);
        let weight = hundred.plus(gained).whole();
        Self(u32::try_from(weight).unwrap_or(u32::MAX)).min(most)
    }

    /// Returns the weight in hundredths.
    pub const fn as_hundredths(self) -> u32 {
        self.0
    }

    /// Returns the number of nice values by which to raise an ordinary process, so that it has at most this weight.
    pub fn as_nice_steps(self) -> u8 {
        let steps = NICE.iter().take_while(|weight| **weight <= self.0).count();
        u8::try_from(steps.saturating_sub(1)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Weight = Weight::hundredths(400);

    #[test]
    fn the_proportion_is_that_of_goodness() {
        assert_eq!(Weight::of(Level::ZERO, MOST), Weight::ORDINARY);
        assert_eq!(Weight::of(Level::packets(10), MOST).as_hundredths(), 150, "(20 + 10) / 20");
        assert_eq!(Weight::of(Level::packets(20), MOST).as_hundredths(), 200);
        assert_eq!(
            Weight::of(Level::bytes(2048), MOST).as_hundredths(),
            102,
            "half a packet is 2.5, rounded down"
        );
    }

    #[test]
    fn no_queue_gives_more_than_the_bound() {
        assert_eq!(Weight::of(Level::MOST, MOST), MOST);
        assert_eq!(Weight::of(Level::packets(1_000_000), MOST), MOST);
        assert_eq!(Weight::hundredths(1_000_000), Weight::LIMIT);
        assert_eq!(Weight::hundredths(1), Weight::ORDINARY);
    }

    #[test]
    fn nice_values_give_at_most_the_weight() {
        let steps = |hundredths| Weight::hundredths(hundredths).as_nice_steps();
        assert_eq!([100, 124, 125, 200, 400, 1_000].map(steps), [0, 0, 1, 3, 6, 10]);
    }
}
