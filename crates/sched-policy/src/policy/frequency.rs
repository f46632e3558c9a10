// SPDX-License-Identifier: MIT OR Apache-2.0
//! The predictor: how much a task communicates, remembered with a weight on the past.
//!
//! Coscheduling paper, section 3, formula 1: `freq = P * freq + (1 - P) * cur_freq`, where `cur_freq = rq + sq`. "Initially,
//! the first four values for task->freq are the mean of the obtained cur_freq values."
//!
//! The paper's form advances once per decision, that is per evaluation of `goodness()`: its memory depends on how often
//! the scheduler runs and on the number of tasks in its queue. [`Frequency`] is that form. [`Sampled`] advances once
//! per period of time, however often it is queried.
//!
//! # Invariants
//! 1. A frequency never exceeds the largest level it was given.
//! 2. [`Sampled`] at the end of a period is [`Frequency`] after one decision per period, but for rounding: less than a
//!    millionth of the level and a thousand-millionth per period.

use super::level::Level;
use super::share::Share;
use super::time::Nanos;

/// Values that are averaged before the formula begins (coscheduling paper, section 3).
pub const AVERAGED: u8 = 4;

/// Length of a period: a tick of the paper's kernel, "1 tick = 10 ms" (section 2), the longest that its scheduler goes
/// without a decision while anything runs.
pub const PERIOD: Nanos = Nanos::from_millis(10);

/// The predictor as the paper has it, advanced by every decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frequency {
    level: Level,
    /// Sum of the first values; no longer used once there are enough.
    sum: Level,
    seen: u8,
}

impl Frequency {
    /// Frequency of a task that has not communicated: "the initial value is 0" (section 2).
    pub const NEW: Self = Self { level: Level::ZERO, sum: Level::ZERO, seen: 0 };

    /// Returns the frequency after one more decision, at which the queues hold `current`; `past` is the paper's P.
    ///
    /// The k-th of the first four values is taken as the mean of the first k levels.
    #[must_use]
    pub fn advanced(self, current: Level, past: Share) -> Self {
        if self.seen >= AVERAGED {
            return Self { level: self.level.blend(past, current), ..self };
        }
        let seen = self.seen.saturating_add(1);
        let sum = self.sum.plus(current);
        Self { level: sum.part_of(u64::from(seen)), sum, seen }
    }

    /// Returns the prediction.
    pub const fn level(&self) -> Level {
        self.level
    }
}

/// The predictor by time: between samples, the level is assumed to be that of the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    frequency: Frequency,
    held: Level,
    begun: Nanos,
}

impl Sampled {
    /// Returns the predictor of a task that is observed from `now` on.
    pub const fn new(now: Nanos) -> Self {
        Self { frequency: Frequency::NEW, held: Level::ZERO, begun: now }
    }

    /// Adds the contents of the queues at `now`; periods that ended before count with the previous sample.
    #[must_use]
    pub fn sampled(self, current: Level, past: Share, now: Nanos) -> Self {
        Self { held: current, ..self.at(past, now) }
    }

    /// Advances to `now`, one step for each period that has ended since. The run time is bounded, however much time has
    /// passed.
    #[must_use]
    pub fn at(self, past: Share, now: Nanos) -> Self {
        let periods = now.since(self.begun).whole(PERIOD);
        let begun = self.begun.after(PERIOD.times(periods));
        let mut frequency = self.frequency;
        let averaged = periods.min(u64::from(AVERAGED.saturating_sub(frequency.seen)));
        for _ in 0..averaged {
            frequency = frequency.advanced(self.held, past);
        }
        let rest = periods.saturating_sub(averaged);
        if rest > 0 {
            frequency = frequency.advanced(self.held, power(past, rest));
        }
        Self { frequency, begun, ..self }
    }

    /// Returns the prediction as of the last period that ended.
    pub const fn level(&self) -> Level {
        self.frequency.level
    }
}

/// Returns `share` to the power of `exponent`, by squaring, in thousand-millionths.
fn power(share: Share, exponent: u64) -> Share {
    const BILLION: u64 = 1_000_000_000;
    let product = |a: u64, b: u64| a.saturating_mul(b) / BILLION;
    if exponent == 1 {
        return share;
    }
    let (mut power, mut square) =
        (BILLION, u64::from(share.as_millionths()).saturating_mul(BILLION / 1_000_000));
    let mut left = exponent;
    while left > 0 {
        if left % 2 == 1 {
            power = product(power, square);
        }
        square = product(square, square);
        left /= 2;
    }
    Share::millionths(u32::try_from(power / (BILLION / 1_000_000)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(levels: &[u64], past: Share) -> Level {
        levels.iter().fold(Frequency::NEW, |f, level| f.advanced(Level::packets(*level), past)).level()
    }

    #[test]
    fn the_first_four_are_averaged_and_the_formula_follows() {
        let half = Share::HALF;
        assert_eq!(after(&[8], half), Level::packets(8));
        assert_eq!(after(&[8, 0], half), Level::packets(4));
        assert_eq!(after(&[8, 0, 1], half), Level::packets(3));
        assert_eq!(after(&[8, 0, 1, 7], half), Level::packets(4), "not yet 3/2 + 7/2");
        assert_eq!(after(&[8, 0, 1, 7, 6], half), Level::packets(5), "4/2 + 6/2, no longer a mean");
        assert_eq!(after(&[8, 0, 1, 7, 8], Share::percent(75)), Level::packets(5), "12/4 + 8/4");
    }

    #[test]
    fn p_of_zero_sees_the_present_only_and_p_of_one_the_past_only() {
        assert_eq!(after(&[2, 2, 2, 2, 9], Share::NONE), Level::packets(9));
        assert_eq!(after(&[2, 2, 2, 2, 9, 9, 9], Share::ALL), Level::packets(2));
    }

    #[test]
    fn silence_is_forgotten_entirely() {
        let loud = Frequency::NEW.advanced(Level::PACKET, Share::ALL);
        let silent = (0..10_000).fold(loud, |f, _| f.advanced(Level::ZERO, Share::percent(99)));
        assert_eq!(silent.level(), Level::ZERO);
    }

    #[test]
    fn the_time_form_does_not_depend_on_the_number_of_queries() {
        let past = Share::percent(90);
        let ms = Nanos::from_millis;
        let begun = Sampled::new(Nanos::ZERO).sampled(Level::packets(5), past, Nanos::ZERO);
        let often = (1..=123).fold(begun, |f, now| f.at(past, ms(now)));
        let tenths = (1..=12).fold(begun, |f, now| f.at(past, ms(10 * now))).at(past, ms(123));
        assert_eq!(often, tenths);
        assert_eq!(begun.at(past, ms(9)).level(), Level::ZERO, "no period has ended");
        assert_eq!(begun.at(past, ms(10)).level(), Level::packets(5));
        let silent = often.sampled(Level::ZERO, past, ms(123)).at(past, ms(130));
        assert_eq!(silent.level(), often.level().blend(past, Level::ZERO), "one period with nothing");
    }

    #[test]
    fn powers_are_powers() {
        assert_eq!(power(Share::HALF, 3), Share::millionths(125_000));
        assert_eq!(power(Share::ALL, u64::MAX), Share::ALL);
        assert_eq!(power(Share::millionths(999_999), u64::MAX), Share::NONE);
        assert_eq!(power(Share::NONE, 7), Share::NONE);
    }
}
