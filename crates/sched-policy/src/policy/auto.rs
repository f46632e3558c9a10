//! P by itself: the weight of the past follows how long messages are waited for, while the program runs.
//!
//! The coscheduling paper leaves it as future work to tune P by metrics "while the distributed tasks are executing"
//! (section 5); its own best values lie at both ends, near 1 for NAS and near 0 for master and slaves (section 4). The
//! way there is ours: measure with P as it is, try a neighbour, stay with the better one. Measuring both again and
//! again, in alternation, makes a load that changes look the same to both.
//!
//! Damped threefold: what differs by less than a sixteenth is the same; where neither neighbour was better the next
//! step is half as long; and the longer nothing is gained, the rarer are the trials.

use super::share::Share;
use super::time::Nanos;

/// P to begin with: between the paper's two best values.
pub const START: Share = Share::HALF;

/// P stays between these: with 0 nothing is remembered, with 1 nothing is learned. "P=0 and P=1 represent values close
/// to 0 and 1" (section 4.1).
pub const LEAST: Share = Share::millionths(15_625);
/// See [`LEAST`].
pub const MOST: Share = Share::millionths(984_375);

/// Steps of P: from a sixty-fourth to a quarter, an eighth at first. Ours.
const SHORT: Share = Share::millionths(15_625);
const FIRST: Share = Share::millionths(125_000);
const LONG: Share = Share::millionths(250_000);

/// Messages that an interval needs before it says anything: fewer make means that jump. Ours.
pub const ENOUGH: u64 = 64;

/// The part of a mean wait by which two intervals must differ: a sixteenth. Ours.
const SAME: u64 = 16;

/// The same for the share of waits that ended without a sleep: a twentieth of all waits. Ours.
const SAME_SHARE: Share = Share::percent(5);

/// Most intervals between two trials. Ours.
const RAREST: u8 = 16;

/// What was seen while P stood still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Messages waited for.
    pub messages: u64,
    /// Time that was waited for them, all together.
    pub waited: Nanos,
    /// Waits.
    pub waits: u64,
    /// Waits that ended without a sleep: the other side ran at the same time.
    pub without_sleep: u64,
}

/// The metric of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Mean wait for a message; less is better.
    pub wait: Nanos,
    /// Share of waits that ended without a sleep; more is better, and decides where the waits are the same.
    pub without_sleep: Share,
}

/// What an interval changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: too few messages yet. Go on and report the longer interval.
    TooFew,
    /// Nothing: P was measured again.
    Kept,
    /// A neighbour is tried.
    Tries,
    /// The neighbour was better; P stays there.
    Moved,
    /// The neighbour was not better; P is what it was.
    Returned,
}

/// P, and where it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto {
    past: Share,
    step: Share,
    direction: Direction,
    /// Intervals until the next trial, and how many are left of them.
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

/// Which neighbours at this distance are still to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    Both,
    Last,
}

/// A neighbour that is tried, against what was measured just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    past: Share,
    against: Score,
}

impl Auto {
    /// At [`START`].
    pub const NEW: Self = Self {
        past: START,
        step: FIRST,
        direction: Direction::Up,
        pause: 1,
        left: 1,
        trial: None,
        neighbours: Neighbours::Both,
    };

    /// P for the next interval.
    pub fn past(&self) -> Share {
        self.trial.map_or(self.past, |trial| trial.past)
    }

    /// P as the trials have left it, whether or not a neighbour is being tried: what is shown to people.
    pub const fn settled(&self) -> Share {
        self.past
    }

    /// An interval has ended, during which P was [`Self::past`].
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
        // Neither is better: P is near its best, or the step leads across it, or is too short to show. All lengths
        // have their turn, so that no two of them can take turns for ever.
        let half = Share::millionths(self.step.as_millionths() / 2);
        let step = if half < SHORT { LONG } else { half };
        let pause = self.pause.saturating_mul(2).min(RAREST);
        (Self { step, pause, left: pause, neighbours: Neighbours::Both, ..back }, Change::Returned)
    }

    /// The direction, unless P cannot go further there.
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
    /// The metric, if there is enough to say anything.
    pub fn score(&self) -> Option<Score> {
        if self.messages < ENOUGH {
            return None;
        }
        let wait = Nanos(self.waited.0.checked_div(self.messages).unwrap_or(0));
        Some(Score { wait, without_sleep: Share::ratio(self.without_sleep, self.waits) })
    }
}

impl Score {
    /// Whether this is better than `other` by more than chance may make it.
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

    /// A program whose waits are shortest at `best` and grow by so many per cent per per cent beside it.
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
    fn it_finds_the_best_p_wherever_it_is_and_follows_it() {
        let mut auto = Auto::NEW;
        for best in [98, 2, 50, 75, 20, 95, 5].map(Share::percent) {
            auto = run(auto, best, 150);
            let off = auto.past.as_millionths().abs_diff(best.as_millionths());
            assert!(off <= 60_000, "{best:?}: {auto:?}");
        }
    }

    #[test]
    fn where_p_makes_no_difference_it_stays_and_trials_become_rare() {
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
    fn few_messages_say_nothing() {
        let few = Interval { messages: ENOUGH - 1, ..interval(START, START, 0) };
        assert_eq!(Auto::NEW.handle(&few), (Auto::NEW, Change::TooFew));
    }
}
