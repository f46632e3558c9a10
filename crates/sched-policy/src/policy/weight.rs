// SPDX-License-Identifier: MIT OR Apache-2.0
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

/// The weights that an actuator can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Those of nice values.
    Nice,
    /// Multiples of a twentieth of the ordinary weight, which is worth one packet.
    Fine,
}

/// A fine step, in hundredths.
const FINE: u32 = 5;

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

    /// Returns the next weight of a process that has this one, as its frequency is now: one of the steps, or `most`. It rises immediately,
    /// and falls late, so that a frequency that alternates about a step does not change it each time: in the steps of nice values if the
    /// frequency has fallen by more than a tenth, in fine ones if by a step. Chosen by us; no source.
    #[must_use]
    pub fn next(self, frequency: Level, most: Self, steps: Steps) -> Self {
        let exact = Self::of(frequency, most);
        let stepped = if exact >= most { most } else { exact.stepped(steps) };
        let falls_little = match steps {
            Steps::Nice => exact.0.saturating_mul(10) > self.0.saturating_mul(9),
            Steps::Fine => exact.0.saturating_add(FINE) > self.0,
        };
        if stepped < self && falls_little && self <= most {
            self
        } else {
            stepped
        }
    }

    /// Returns the largest step that is not above this one.
    fn stepped(self, steps: Steps) -> Self {
        if steps == Steps::Fine {
            return Self(FINE.saturating_mul(self.0 / FINE));
        }
        let below = NICE.iter().take_while(|weight| **weight <= self.0);
        below.last().map_or(Self::ORDINARY, |weight| Self(*weight))
    }

    /// Returns the weight in hundredths.
    pub const fn as_hundredths(self) -> u32 {
        self.0
    }

    /// Returns the number of nice values by which to raise an ordinary process, so that it has at most this weight.
    pub fn as_nice_steps(self) -> u8 {
        let reached = NICE.iter().skip(1).take_while(|weight| **weight <= self.0);
        reached.fold(0, |steps: u8, _| steps.saturating_add(1))
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
    fn weights_have_the_steps_of_nice_values_and_fall_late() {
        let next = |weight: u32, packets| {
            Weight(weight).next(Level::packets(packets), MOST, Steps::Nice).as_hundredths()
        };
        assert_eq!([0, 4, 5, 11, 12, 100].map(|packets| next(100, packets)), [100, 100, 125, 125, 156, 400]);
        // (20 + 10) / 20 is 150: less than 156, and more than nine tenths of it.
        assert_eq!((next(156, 10), next(156, 8)), (156, 125), "140 is below 140.4");
        assert_eq!(next(125, 0), 100);
        // A smaller bound takes effect immediately.
        assert_eq!(Weight(210).next(Level::packets(60), Weight(200), Steps::Nice), Weight(200));
        let mut weight = Weight::ORDINARY;
        let mut changes = 0;
        for round in 0..1_000 {
            // About a step: 124 and 126.
            let next =
                weight.next(Level::bytes(if round % 2 == 0 { 19_700 } else { 21_400 }), MOST, Steps::Nice);
            changes += u32::from(next != weight);
            weight = next;
        }
        assert_eq!(changes, 1, "it does not oscillate");
    }

    #[test]
    fn fine_steps_are_worth_a_packet_and_are_left_by_a_whole_one() {
        let next =
            |weight: u32, bytes| Weight(weight).next(Level::bytes(bytes), MOST, Steps::Fine).as_hundredths();
        // 3,277 and 4,096 bytes are worth 4 and 5 hundredths.
        assert_eq!(
            [0, 3_277, 4_096, 8_192, 1 << 30].map(|bytes| next(100, bytes)),
            [100, 100, 105, 110, 400]
        );
        assert_eq!([0, 3_277, 4_096].map(|bytes| next(105, bytes)), [100, 105, 105]);
        assert_eq!((next(400, 60 * 4_096), next(400, 58 * 4_096)), (400, 390));
    }

    #[test]
    fn nice_values_give_at_most_the_weight() {
        let steps = |hundredths| Weight::hundredths(hundredths).as_nice_steps();
        assert_eq!([100, 124, 125, 200, 400, 1_000].map(steps), [0, 0, 1, 3, 6, 10]);
    }
}
