//! One wait, from its decision to its end: polling time, sleep, timeout, and the update of the history.

use super::history::{Decision, WaitHistory};
use super::sleep::SAFETY_NET;
use crate::executor::Polled;
use crate::time::Nanos;

/// One wait of one thread. The first call of [`Self::next`] begins it, so a wait that the first poll batch ends reads no clock.
#[derive(Debug)]
pub struct Wait {
    decision: Decision,
    timeout: Nanos,
    times: Option<Times>,
    slept: Slept,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    begun: Nanos,
    deadline: Nanos,
    /// Time when the current unsuccessful polling began.
    polling_since: Nanos,
}

/// A record of whether a wait has included a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// The thread has only polled.
    No,
    /// The thread has slept, or was about to.
    Yes,
}

/// The next step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Poll another batch.
    Poll,
    /// Arm, recheck and sleep, at most until this time.
    Sleep {
        /// The wait's deadline, or [`SAFETY_NET`] from now if that is earlier.
        until: Nanos,
    },
    /// The deadline has passed.
    TimedOut,
}

impl Wait {
    /// Returns a wait that ends `timeout` after the first call of [`Self::next`].
    #[inline]
    pub const fn new(decision: Decision, timeout: Nanos) -> Self {
        Self { decision, timeout, times: None, slept: Slept::No }
    }

    #[inline]
    fn times(&mut self, now: Nanos) -> &mut Times {
        let deadline = now + self.timeout;
        self.times.get_or_insert(Times { begun: now, deadline, polling_since: now })
    }

    /// Replaces the decision, which may change while the thread polls.
    #[inline]
    pub const fn decide_again(&mut self, decision: Decision) {
        self.decision = decision;
    }

    /// Returns the decision.
    #[inline]
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns whether the thread has slept.
    #[inline]
    pub const fn slept(&self) -> Slept {
        self.slept
    }

    /// Returns the next step after a poll batch that has not ended the wait.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Next {
        let polls_for = self.decision.polls_for();
        let &mut Times { deadline, polling_since, .. } = self.times(now);
        debug_assert!(polling_since <= now, "a wait's clock does not run backwards");
        if now >= deadline {
            Next::TimedOut
        } else if polls_for == Nanos::NEVER || now.since(polling_since) < polls_for {
            Next::Poll
        } else {
            Next::Sleep { until: deadline.min(now + SAFETY_NET) }
        }
    }

    /// Restarts the polling time. Called when something has arrived that does not end the wait.
    #[inline]
    pub fn something_came(&mut self, now: Nanos) {
        self.times(now).polling_since = now;
    }

    /// Records that the thread sleeps.
    pub const fn sleeps(&mut self) {
        self.slept = Slept::Yes;
    }

    /// Returns whether [`Self::next`] was called, so that the length of the wait is known.
    #[inline]
    pub const fn has_begun(&self) -> bool {
        self.times.is_some()
    }

    /// Adds a wait that ended at `now` to the history. A wait without a call of [`Self::next`] ended within the first poll batch.
    pub fn ended(&mut self, now: Nanos, history: &WaitHistory) {
        if self.has_begun() {
            let begun = self.times(now).begun;
            history.add(self.decision, now.since(begun), self.slept);
        } else {
            history.add_short(self.decision.history_update);
        }
    }
}

/// A stopwatch for polling with a time limit. It shows whether the thread has its CPU to itself.
#[derive(Debug, Default)]
pub struct PollWatch(Option<(Nanos, Polled)>);

impl PollWatch {
    /// The stopwatch of a thread that has not polled yet.
    pub const UNUSED: Self = Self(None);

    /// Records a reading of the clock between two poll batches. Returns the time since the previous reading, or zero for the first one.
    #[inline]
    pub fn clock_was_read(&mut self, now: Nanos) -> Nanos {
        let Some((last, polled)) = &mut self.0 else {
            self.0 = Some((now, Polled::default()));
            return Nanos::ZERO;
        };
        let since = now.since(*last);
        *last = now;
        *polled = Polled { lasted: polled.lasted + since, longest: polled.longest.max(since) };
        since
    }

    /// Returns the measurement since the first reading, and resets the stopwatch. Returns `None` if it was not running.
    pub fn stop(&mut self) -> Option<Polled> {
        self.0.take().map(|(_, polled)| polled)
    }

    /// Returns whether the stopwatch is running.
    #[inline]
    pub const fn is_running(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::executor::{WaitPolicy, alone};

    const BOUND: Nanos = Nanos::from_micros(20);

    fn wait(request: WaitPolicy, timeout: Nanos) -> Wait {
        Wait::new(WaitHistory::default().decide_here(request.into(), alone(BOUND)), timeout)
    }

    fn at(micros: u64) -> Nanos {
        Nanos::from_micros(1_000 + micros)
    }

    /// Shows: calls.adaptive
    #[test]
    fn an_adaptive_wait_polls_for_its_bound_and_sleeps_within_the_safety_net() {
        let mut wait = wait(WaitPolicy::Adaptive, Nanos::from_millis(6));
        assert!(!wait.has_begun());
        assert_eq!(wait.next(at(0)), Next::Poll);
        assert_eq!(wait.next(at(19)), Next::Poll);
        assert_eq!(wait.next(at(20)), Next::Sleep { until: at(20) + SAFETY_NET });
        assert_eq!(wait.next(at(4_000)), Next::Sleep { until: at(6_000) }, "the deadline comes first");
        assert_eq!(wait.next(at(6_000)), Next::TimedOut);
    }

    #[test]
    fn a_message_in_between_restarts_the_polling_time_but_not_the_wait() {
        let mut wait = wait(WaitPolicy::Adaptive, Nanos::from_micros(30));
        assert_eq!(wait.next(at(0)), Next::Poll);
        wait.something_came(at(15));
        assert_eq!(wait.next(at(29)), Next::Poll);
        assert_eq!(wait.next(at(30)), Next::TimedOut);
    }

    /// Shows: calls.policies
    #[test]
    fn a_spinning_wait_never_sleeps_and_a_blocking_one_never_polls() {
        let mut spins = wait(WaitPolicy::Spin, Nanos::NEVER);
        assert_eq!(spins.next(at(0)), Next::Poll);
        assert_eq!(spins.next(at(3_600_000_000)), Next::Poll);
        let mut blocks = wait(WaitPolicy::Block, Nanos::NEVER);
        assert_eq!(blocks.next(at(0)), Next::Sleep { until: at(0) + SAFETY_NET });
    }

    #[test]
    fn a_stopwatch_measures_from_its_first_reading_to_its_stop() {
        let mut watch = PollWatch::UNUSED;
        assert!(!watch.is_running() && watch.stop().is_none());
        assert_eq!(watch.clock_was_read(at(0)), Nanos::ZERO);
        assert!(watch.is_running());
        assert_eq!(watch.clock_was_read(at(3)), Nanos::from_micros(3));
        assert_eq!(watch.clock_was_read(at(5)), Nanos::from_micros(2));
        let polled = watch.stop().expect("it was running");
        assert_eq!([polled.lasted, polled.longest], [5, 3].map(Nanos::from_micros));
        assert!(!watch.is_running());
    }

    #[test]
    fn the_history_learns_the_length_of_a_wait_that_has_begun() {
        let history = WaitHistory::default();
        for _ in 0..32 {
            let mut wait = wait(WaitPolicy::Adaptive, Nanos::NEVER);
            wait.next(at(0));
            wait.sleeps();
            wait.ended(at(10_000), &history);
        }
        assert!(history.gap() > Nanos::from_millis(7), "{:?}", history.gap());
        for _ in 0..32 {
            wait(WaitPolicy::Adaptive, Nanos::NEVER).ended(at(0), &history);
        }
        assert!(history.gap() < Nanos::from_micros(20), "{:?}", history.gap());
    }

    #[test]
    fn a_watched_thread_reports_its_longest_gap() {
        let mut watch = PollWatch::default();
        assert_eq!(watch.stop(), None);
        assert_eq!(watch.clock_was_read(at(0)), Nanos::ZERO);
        assert_eq!(watch.clock_was_read(at(3)), Nanos::from_micros(3));
        assert_eq!(watch.clock_was_read(at(10)), Nanos::from_micros(7));
        let polled = Polled { lasted: Nanos::from_micros(10), longest: Nanos::from_micros(7) };
        assert_eq!(watch.stop(), Some(polled));
        assert!(!watch.is_running());
    }
}
