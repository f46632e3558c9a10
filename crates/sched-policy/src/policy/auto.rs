// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic P: adapts the weight of the past to measured waiting times while the program runs.
//!
//! The coscheduling paper leaves tuning P "while the distributed tasks are executing" as future work (section 5). Its
//! best values are near both ends, near 1 for NAS and near 0 for master and slaves (section 4). The method is ours:
//! measure with the current P, try a neighbour, keep the better one. Both are measured alternately, so a change of the
//! load affects both alike.
//!
//! Three rules damp the search. A difference of less than a sixteenth is no difference. If neither neighbour was
//! better, the next step is half as long. The longer nothing is gained, the rarer the trials become.

use super::share::Share;
use super::time::Nanos;

/// Initial P, between the paper's two best values.
pub const START: Share = Share::HALF;

/// Smallest P; [`MOST`] is the largest. With 0 nothing is remembered, with 1 nothing is learned. "P=0 and P=1 represent
/// values close to 0 and 1" (section 4.1).
pub const LEAST: Share = Share::millionths(15_625);
/// Largest P; [`LEAST`] gives the reason.
pub const MOST: Share = Share::millionths(984_375);

/// Steps of P: from a sixty-fourth to a quarter, initially an eighth. Chosen by us; no source.
const SHORT: Share = Share::millionths(15_625);
const FIRST: Share = Share::millionths(125_000);
const LONG: Share = Share::millionths(250_000);

/// Messages that an interval needs to be judged: with fewer, its mean fluctuates. Chosen by us; no source.
pub const ENOUGH: u64 = 64;

/// Part of a mean wait by which two intervals must differ: a sixteenth. Chosen by us; no source.
const SAME: u64 = 16;

/// Share of waits without a sleep by which two intervals must differ: a twentieth of all waits. Chosen by us; no
/// source.
const SAME_SHARE: Share = Share::percent(5);

/// Largest number of intervals between two trials. Chosen by us; no source.
const RAREST: u8 = 16;

/// Measurements while P was constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Number of messages waited for.
    pub messages: u64,
    /// Total time waited for them.
    pub waited: Nanos,
    /// Number of waits.
    pub waits: u64,
    /// Number of waits that ended without a sleep, because the other side ran at the same time.
    pub without_sleep: u64,
}

/// The metric of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Mean wait for a message; shorter is better.
    pub wait: Nanos,
    /// Share of waits that ended without a sleep; more is better. Decides if the mean waits are equal.
    pub without_sleep: Share,
}

/// The effect of an interval on P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// No change yet: too few messages. Continue and report the longer interval.
    TooFew,
    /// No change: P was measured again.
    Kept,
    /// A trial of a neighbour begins.
    Tries,
    /// The neighbour was better and becomes P.
    Moved,
    /// The neighbour was not better; P is restored.
    Returned,
}

/// State of the search for P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto {
    past: Share,
    step: Share,
    direction: Direction,
    /// Intervals between two trials, and how many of them are left.
    pause: u8,
    left: u8,
    trial: Option<Trial>,
    neighbours: Neighbours,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Neighbours at this distance that are still to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    Both,
    Last,
}

/// A trial of a neighbour, with the score that was measured just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    past: Share,
    against: Score,
}

impl Auto {
    /// Initial state, at [`START`].
    pub const NEW: Self = Self {
        past: START,
        step: FIRST,
        direction: Direction::Up,
        pause: 1,
        left: 1,
        trial: None,
        neighbours: Neighbours::Both,
    };

    /// Returns P for the next interval.
    pub fn past(&self) -> Share {
        self.trial.map_or(self.past, |trial| trial.past)
    }

    /// Returns P without a trial in progress, for human-readable output.
    pub const fn settled(&self) -> Share {
        self.past
    }

    /// Processes an interval that has ended, during which P was [`Self::past`].
    #[must_use]
    pub fn handle(self, interval: &Interval) -> (Self, Change) {
        let Some(score) = interval.score() else { return (self, Change::TooFew) };
        match self.trial {
            None => self.measured(score),
            Some(trial) => self.tried(trial, score),
        }
    }

    fn measured(self, score: Score) -> (Self, Change) {
        let left = self.left.saturating_sub(1);
        if left > 0 {
            return (Self { left, ..self }, Change::Kept);
        }
        let direction = self.open_direction();
        let past = direction.step(self.past, self.step);
        let trial = Some(Trial { past, against: score });
        (Self { direction, left, trial, ..self }, Change::Tries)
    }

    fn tried(self, trial: Trial, score: Score) -> (Self, Change) {
        let back = Self { trial: None, left: 1, direction: self.direction.turned(), ..self };
        if score.beats(&trial.against) {
            let step = self.step.plus(self.step).min(LONG);
            let (direction, neighbours) = (self.direction, Neighbours::Both);
            return (Self { past: trial.past, step, direction, pause: 1, neighbours, ..back }, Change::Moved);
        }
        if self.neighbours == Neighbours::Both {
            return (Self { neighbours: Neighbours::Last, ..back }, Change::Returned);
        }
        // Neither neighbour is better: P is near its optimum, or the step crosses it, or the step is too short to show
        // a difference. The step cycles through all lengths, so that the search cannot alternate between two of them
        // for ever.
        let half = Share::millionths(self.step.as_millionths() / 2);
        let step = if half < SHORT { LONG } else { half };
        let pause = self.pause.saturating_mul(2).min(RAREST);
        (Self { step, pause, left: pause, neighbours: Neighbours::Both, ..back }, Change::Returned)
    }

    /// Returns the direction, reversed if P is at its limit there.
    fn open_direction(&self) -> Direction {
        match self.direction {
            Direction::Up if self.past >= MOST => Direction::Down,
            Direction::Down if self.past <= LEAST => Direction::Up,
            open => open,
        }
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self::NEW
    }
}

impl Interval {
    /// Returns the metric, if the interval has enough messages.
    pub fn score(&self) -> Option<Score> {
        if self.messages < ENOUGH {
            return None;
        }
        let wait = Nanos(self.waited.0.checked_div(self.messages).unwrap_or(0));
        Some(Score { wait, without_sleep: Share::ratio(self.without_sleep, self.waits) })
    }
}

impl Score {
    /// Returns whether this is better than `other` by more than the noise margins.
    fn beats(&self, other: &Self) -> bool {
        let margin = Nanos(other.wait.0 / SAME);
        let shorter = self.wait.after(margin) < other.wait;
        let longer = self.wait > other.wait.after(margin);
        shorter || !longer && self.without_sleep > other.without_sleep.plus(SAME_SHARE)
    }
}

impl Direction {
    const fn turned(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    fn step(self, past: Share, step: Share) -> Share {
        match self {
            Self::Up => past.plus(step).min(MOST),
            Self::Down => past.minus(step).max(LEAST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an interval of a program whose waits are shortest at `best`, and longer by `slope` percent per percent
    /// of distance from it.
    fn interval(past: Share, best: Share, slope: u64) -> Interval {
        let off = u64::from(past.as_millionths().abs_diff(best.as_millionths()));
        let wait = 100_000 + off * slope / 10;
        Interval { messages: ENOUGH, waited: Nanos(wait * ENOUGH), waits: 1, without_sleep: 0 }
    }

    fn run(mut auto: Auto, best: Share, intervals: usize) -> Auto {
        for _ in 0..intervals {
            auto = auto.handle(&interval(auto.past(), best, 4)).0;
        }
        auto
    }

    #[test]
    fn the_search_finds_and_follows_the_best_p() {
        let mut auto = Auto::NEW;
        for best in [98, 2, 50, 75, 20, 95, 5].map(Share::percent) {
            auto = run(auto, best, 150);
            let off = auto.past.as_millionths().abs_diff(best.as_millionths());
            assert!(off <= 60_000, "{best:?}: {auto:?}");
        }
    }

    #[test]
    fn if_p_makes_no_difference_it_stays_and_trials_become_rare() {
        let mut auto = Auto::NEW;
        let mut trials = 0;
        for _ in 0..200 {
            let (next, change) = auto.handle(&interval(START, START, 0));
            trials += usize::from(change == Change::Tries);
            auto = next;
        }
        assert_eq!(auto.past, START);
        assert!((10..=30).contains(&trials), "{trials} trials");
    }

    #[test]
    fn the_share_of_waits_without_sleep_decides_where_the_waits_are_the_same() {
        let seen = |without_sleep| Interval { without_sleep, waits: 100, ..interval(START, START, 0) };
        let (auto, change) = Auto::NEW.handle(&seen(50));
        assert_eq!(change, Change::Tries);
        assert_eq!(auto.handle(&seen(56)).1, Change::Moved);
        assert_eq!(auto.handle(&seen(52)).1, Change::Returned);
        assert_eq!(auto.handle(&seen(40)).1, Change::Returned);
    }

    #[test]
    fn intervals_with_few_messages_are_not_judged() {
        let few = Interval { messages: ENOUGH - 1, ..interval(START, START, 0) };
        assert_eq!(Auto::NEW.handle(&few), (Auto::NEW, Change::TooFew));
    }
}
