//! The history of waits of one kind, and the decision about the next wait.

use pronto_sched_policy::policy::spin::{End, Reason, Spin, Wait as Choice};
use pronto_sched_policy::policy::time;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::attempt::Slept;
use super::wait_override::WaitOverride;
use crate::executor::{Circumstances, Executor, WaitRequest};
use crate::time::Nanos;

/// The lengths of past waits of one kind: for replies of one peer, for room to send to it, or of a serving thread for any message.
///
/// Any thread reads it and adds to it without a lock. If two threads add at the same time, one wait may be lost, which hardly changes the
/// mean of many waits.
#[derive(Debug)]
pub struct WaitHistory(AtomicU64);

/// A decision about one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    choice: Choice,
    /// The assumed cost of a wake-up.
    bound: time::Nanos,
    pub(crate) history_update: HistoryUpdate,
}

/// The effect of a wait on the history. Its length is not added if the caller gave a hint about its length, or if the thread polls without
/// a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryUpdate {
    Nothing,
    Something,
}

impl Decision {
    /// Returns the decision of a thread without a history: it polls for `span`, and then sleeps. For zero it sleeps immediately, for
    /// `NEVER` it polls without a limit.
    pub const fn without_history(span: Nanos) -> Self {
        let choice = match span {
            Nanos::ZERO => Choice::Sleep(Reason::Requested),
            Nanos::NEVER => Choice::Poll,
            span => Choice::PollFor(time::Nanos(span.0)),
        };
        Self { choice, bound: time::Nanos(span.0), history_update: HistoryUpdate::Nothing }
    }

    /// Returns the time for which the thread polls before it sleeps; `NEVER` if it never sleeps.
    #[inline]
    pub const fn polls_for(&self) -> Nanos {
        Nanos(self.choice.polls_for().0)
    }

    /// Returns the polling limit on which the decision is based.
    pub const fn bound(&self) -> Nanos {
        Nanos(self.bound.0)
    }

    /// Returns whether the thread sleeps immediately because past waits were long.
    pub const fn is_from_history(&self) -> bool {
        matches!(self.choice, Choice::Sleep(Reason::Learned))
    }

    /// Returns whether the thread polls for a limited time, and then sleeps.
    #[inline]
    pub const fn is_bounded(&self) -> bool {
        matches!(self.choice, Choice::PollFor(_))
    }
}

impl Default for WaitHistory {
    fn default() -> Self {
        Self(AtomicU64::new(Spin::NEW.to_bits()))
    }
}

impl WaitHistory {
    // SYNC: Relaxed, as no other data is published through a history. A thread that reads an old one decides as if it had read earlier.
    #[inline]
    fn spin(&self) -> Spin {
        Spin::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Decides about a wait that begins now. `configured` has the policy, of the operator's override or else of the caller's request, and
    /// the bound.
    #[inline(always)]
    pub fn decide(
        &self,
        configured: WaitOverride,
        request: WaitRequest,
        executor: &impl Executor,
    ) -> Decision {
        let mut here = executor.circumstances(configured.policy);
        if let Some(bound) = configured.bound {
            here.bound = time::Nanos(bound.0);
        }
        self.decide_here(request.by(configured.policy), here)
    }

    /// Decides like [`Self::decide`], but under the given circumstances.
    #[inline(always)]
    pub fn decide_here(&self, request: WaitRequest, here: Circumstances) -> Decision {
        let choice = self.spin().wait(request, here);
        let is_usual = request.expected().is_none() && choice != Choice::Poll;
        let history_update = if is_usual { HistoryUpdate::Something } else { HistoryUpdate::Nothing };
        Decision { choice, bound: here.bound, history_update }
    }

    /// Adds a wait that ended within its first poll batch, before the clock was read.
    #[inline]
    pub(crate) fn add_short(&self, history_update: HistoryUpdate) {
        if history_update == HistoryUpdate::Something && !self.spin().takes_short_waits() {
            self.store_short();
        }
    }

    #[cold]
    fn store_short(&self) {
        self.0.store(self.spin().ended_immediately().to_bits(), Ordering::Relaxed);
    }

    /// Adds a wait of length `took`, which includes the wake-up if the thread has slept.
    pub fn add(&self, decision: Decision, took: Nanos, slept: Slept) {
        if decision.history_update == HistoryUpdate::Something {
            let took = time::Nanos(took.0);
            let end = match slept {
                Slept::Yes => End::Slept(took),
                Slept::No => End::Polled(took),
            };
            self.0
                .store(self.spin().ended(decision.choice, end, decision.bound).to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the mean length of recent waits. All shorter than about 2 us count as about 2 us.
    pub fn gap(&self) -> Nanos {
        Nanos(self.spin().gap().0)
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use pronto_sync::atomic::AtomicU32;

    use super::*;
    use crate::executor::{Channels, WaitPolicy, alone};
    use crate::time::Clock;

    pub(crate) const BOUND: Nanos = Nanos::from_micros(20);

    /// An executor for a thread with a CPU of its own, which may poll for [`BOUND`].
    pub(crate) struct Alone;

    impl Clock for Alone {
        fn now(&self) -> Nanos {
            unreachable!("a decision reads no clock")
        }
    }

    impl Executor for Alone {
        fn circumstances(&self, _: WaitPolicy) -> Circumstances {
            alone(BOUND)
        }

        fn sleep(&self, _: &AtomicU32, _: Nanos) {
            unreachable!("no thread waits")
        }

        fn wake(&self, _: &AtomicU32) {}

        fn yield_now(&self) {}

        fn back_off(&self, _: Nanos) {}

        fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
            unreachable!("no thread waits")
        }
    }

    fn decide(history: &WaitHistory, bound: Option<Nanos>, expected: Option<Nanos>) -> Decision {
        let request = WaitRequest::default();
        let request = expected.map_or(request, |expected| request.expecting(time::Nanos(expected.0)));
        history.decide(WaitOverride { policy: WaitPolicy::Adaptive, bound }, request, &Alone)
    }

    fn slept(history: &WaitHistory, took: Nanos, times: u32) {
        for _ in 0..times {
            history.add(decide(history, None, None), took, Slept::Yes);
        }
    }

    /// Shows: calls.sleeps-after-long
    #[test]
    fn long_waits_sleep_immediately_and_unmeasured_short_ones_restore_polling() {
        let history = WaitHistory::default();
        assert_eq!(decide(&history, None, None).polls_for(), BOUND);
        slept(&history, Nanos::from_millis(10), 32);
        let decision = decide(&history, None, None);
        assert!(decision.is_from_history() && decision.polls_for() == Nanos::ZERO);
        let gap = history.gap();
        assert!(gap > Nanos::from_millis(7) && gap < Nanos::from_millis(10), "{gap:?}");
        for _ in 0..32 {
            history.add_short(decide(&history, None, None).history_update);
        }
        assert_eq!(decide(&history, None, None).polls_for(), BOUND);
    }

    #[test]
    fn a_wait_with_a_hint_does_not_change_the_history() {
        let history = WaitHistory::default();
        let late = decide(&history, None, Some(Nanos::from_millis(5)));
        assert_eq!(late.polls_for(), Nanos::ZERO);
        history.add(late, Nanos::from_millis(5), Slept::Yes);
        assert_eq!(history.gap(), WaitHistory::default().gap());
        slept(&history, Nanos::from_millis(10), 32);
        let (soon, gap) = (decide(&history, None, Some(Nanos::ZERO)), history.gap());
        assert_eq!(soon.polls_for(), BOUND);
        history.add_short(soon.history_update);
        history.add(soon, Nanos::ZERO, Slept::No);
        assert_eq!(history.gap(), gap);
    }

    #[test]
    fn a_configured_limit_is_kept_until_waits_are_far_longer() {
        let history = WaitHistory::default();
        slept(&history, Nanos::from_millis(10), 32);
        let limit = |bound| decide(&history, Some(bound), None);
        assert_eq!(limit(Nanos::from_millis(2)).polls_for(), Nanos::from_millis(2));
        assert!(limit(Nanos::from_millis(1)).is_from_history());
    }

    #[test]
    fn only_a_poll_with_a_limit_is_bounded() {
        let history = WaitHistory::default();
        let polls = decide(&history, None, None);
        assert!(polls.polls_for() == BOUND && polls.is_bounded());
        slept(&history, Nanos::from_millis(10), 32);
        let sleeps = decide(&history, None, None);
        assert!(sleeps.polls_for() == Nanos::ZERO && !sleeps.is_bounded());
        let spins = Decision::without_history(Nanos::NEVER);
        assert!(spins.polls_for() == Nanos::NEVER && !spins.is_bounded());
    }
}
