//! What waits have taught, kept where any thread may read it and add to it, and the decision that follows.

use pronto_sched_policy::policy::spin::{End, Reason, Spin, Wait};
use pronto_sched_policy::policy::time;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::waiting::Waiting;
use crate::executor::{Asked, Circumstances, Executor};
use crate::time::Nanos;

/// The history of waits for one peer, or of one thread that serves several.
///
/// Threads that add to it at the same time may lose what one of them adds: of hundreds of waits one less is as good.
#[derive(Debug)]
pub struct Learned(AtomicU64);

/// How a thread waits, this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How.
    pub wait: Wait,
    /// What a wake-up is taken to cost.
    bound: time::Nanos,
    pub(super) teaches: Teaches,
}

/// Whether the end of a wait is news of what is usual: not if its end was expected, nor if the thread polls for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teaches {
    Nothing,
    Something,
}

impl Decision {
    /// For how long the thread polls before it sleeps; `NEVER` if it never sleeps.
    #[inline]
    pub const fn polls_for(&self) -> Nanos {
        Nanos(self.wait.polls_for().0)
    }

    /// The bound that it was made for.
    pub const fn bound(&self) -> Nanos {
        Nanos(self.bound.0)
    }

    /// Whether it sleeps at once because waits were long.
    pub const fn is_learned(&self) -> bool {
        matches!(self.wait, Wait::Sleep(Reason::Learned))
    }
}

impl Default for Learned {
    fn default() -> Self {
        Self(AtomicU64::new(Spin::NEW.to_bits()))
    }
}

impl Learned {
    // SYNC: a history orders nothing; whoever reads an old one decides as if it had come sooner.
    #[inline]
    fn spin(&self) -> Spin {
        Spin::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// How to wait now, where that was said, and this asked besides.
    #[inline(always)]
    pub fn decide(&self, waiting: Waiting, asked: Asked, executor: &impl Executor) -> Decision {
        let mut here = executor.circumstances(waiting.policy);
        if let Some(bound) = waiting.bound {
            here.bound = time::Nanos(bound.0);
        }
        self.decide_here(asked.by(waiting.policy), here)
    }

    /// The same, under these circumstances.
    #[inline(always)]
    pub fn decide_here(&self, asked: Asked, here: Circumstances) -> Decision {
        let wait = self.spin().wait(asked, here);
        let is_usual = asked.expected().is_none() && wait != Wait::Poll;
        let teaches = if is_usual { Teaches::Something } else { Teaches::Nothing };
        Decision { wait, bound: here.bound, teaches }
    }

    /// The end came within the first looks of a wait that was decided so, before anybody read a clock.
    #[inline]
    pub(super) fn ended_at_once(&self, teaches: Teaches) {
        if teaches == Teaches::Something && !self.spin().takes_short_waits() {
            self.takes_short_wait();
        }
    }

    #[cold]
    fn takes_short_wait(&self) {
        self.0.store(self.spin().ended_at_once().to_bits(), Ordering::Relaxed);
    }

    /// The end came after such a time, of which the thread slept if it did `sleep`.
    pub fn ended(&self, decision: Decision, took: Nanos, sleep: Sleep) {
        if decision.teaches == Teaches::Something {
            let took = time::Nanos(took.0);
            let end = match sleep {
                Sleep::Slept => End::Slept(took),
                Sleep::Awake => End::Polled(took),
            };
            self.0.store(self.spin().ended(decision.wait, end, decision.bound).to_bits(), Ordering::Relaxed);
        }
    }

    /// How long waits are, lately; some 2 us for all that are shorter.
    pub fn gap(&self) -> Nanos {
        Nanos(self.spin().gap().0)
    }
}

/// What a thread did when its wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// It had not slept.
    Awake,
    /// It had.
    Slept,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use pronto_sync::atomic::AtomicU32;

    use super::*;
    use crate::executor::{Channels, WaitPolicy, alone};
    use crate::time::Clock;

    const BOUND: Nanos = Nanos::from_micros(20);

    /// Polls as it likes, for the bound.
    struct Alone;

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
            unreachable!("nobody waits")
        }

        fn wake(&self, _: &AtomicU32) {}

        fn yield_now(&self) {}

        fn back_off(&self, _: Nanos) {}

        fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
            unreachable!("nobody waits")
        }
    }

    fn decide(learned: &Learned, bound: Option<Nanos>, expected: Option<Nanos>) -> Decision {
        let asked = Asked::default();
        let asked = expected.map_or(asked, |expected| asked.expecting(time::Nanos(expected.0)));
        learned.decide(Waiting { policy: WaitPolicy::Adaptive, bound }, asked, &Alone)
    }

    fn slept(learned: &Learned, took: Nanos, times: u32) {
        for _ in 0..times {
            learned.ended(decide(learned, None, None), took, Sleep::Slept);
        }
    }

    #[test]
    fn long_waits_are_slept_through_and_short_ones_nobody_measures_bring_polling_back() {
        let learned = Learned::default();
        assert_eq!(decide(&learned, None, None).polls_for(), BOUND);
        slept(&learned, Nanos::from_millis(10), 32);
        let decision = decide(&learned, None, None);
        assert!(decision.is_learned() && decision.polls_for() == Nanos::ZERO);
        let gap = learned.gap();
        assert!(gap > Nanos::from_millis(7) && gap < Nanos::from_millis(10), "{gap:?}");
        for _ in 0..32 {
            learned.ended_at_once(decide(&learned, None, None).teaches);
        }
        assert_eq!(decide(&learned, None, None).polls_for(), BOUND);
    }

    #[test]
    fn what_was_expected_teaches_nothing() {
        let learned = Learned::default();
        let late = decide(&learned, None, Some(Nanos::from_millis(5)));
        assert_eq!(late.polls_for(), Nanos::ZERO);
        learned.ended(late, Nanos::from_millis(5), Sleep::Slept);
        assert_eq!(learned.gap(), Learned::default().gap());
        slept(&learned, Nanos::from_millis(10), 32);
        let (soon, gap) = (decide(&learned, None, Some(Nanos::ZERO)), learned.gap());
        assert_eq!(soon.polls_for(), BOUND);
        learned.ended_at_once(soon.teaches);
        learned.ended(soon, Nanos::ZERO, Sleep::Awake);
        assert_eq!(learned.gap(), gap);
    }

    #[test]
    fn who_said_for_how_long_to_poll_is_told_by_what_is_far_beyond_that() {
        let learned = Learned::default();
        slept(&learned, Nanos::from_millis(10), 32);
        let said = |bound| decide(&learned, Some(bound), None);
        assert_eq!(said(Nanos::from_millis(2)).polls_for(), Nanos::from_millis(2));
        assert!(said(Nanos::from_millis(1)).is_learned());
    }
}
