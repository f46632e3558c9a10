//! Arm, recheck, sleep: the only way in which a thread goes to sleep.
//!
//! ```text
//!   sleeper                                  producer of any source
//!   every source: ARMED       fence each     source = published
//!   every source empty?                      fence
//!   sleep on all of them                     the source's word ARMED? then wake
//! ```
//!
//! All sources are armed before the first one is rechecked. If a source is filled after its recheck, its word is already armed, so the
//! producer wakes the sleeper. A producer that publishes without a fence, or without checking a word, causes no event. A source with a
//! level-triggered channel needs no arming, because it ends any sleep immediately.

use pronto_sched_policy::policy::spin;

use crate::time::Nanos;

/// The longest sleep while an event is expected. A lost wake-up causes at most this delay, and is counted (PIOMan's timer, section 3.4).
pub const SAFETY_NET: Nanos = Nanos(spin::SAFETY_NET_TIMEOUT.0);

/// The longest delay of a wake-up that is not lost. A sender wakes after a whole batch, and may be preempted before that.
pub const LATE: Nanos = Nanos::from_millis(20);

/// The sources on which one thread sleeps.
pub trait Sleeper {
    /// Arms every source. Returns `false` if that is not possible now; the thread then continues to poll.
    fn arm(&mut self) -> bool;

    /// Polls every source once.
    fn recheck(&mut self) -> Recheck;

    /// Sleeps until a source wakes the thread, or until the sleeper's own time limit. May return early.
    fn sleep(&mut self) -> Woken;

    /// Checks for an event that should have ended the sleep and has not, before disarming. Waits up to [`LATE`] for its wake-up, and
    /// otherwise counts a lost wake-up.
    fn check_safety_net(&mut self);

    /// Disarms every source.
    fn disarm(&mut self);
}

/// The result of a recheck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// Nothing has arrived, so that the thread may sleep.
    Empty,
    /// Something has arrived, or another thread polls. The thread continues to poll.
    Found,
    /// The wait is over.
    Done,
}

/// The reason why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// An event or a signal ended the sleep, or it returned early.
    Early,
    /// The time limit ended the sleep.
    Limit,
}

/// The result of an attempt to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The wait is over.
    Done,
    /// The thread continues to poll, whether it has slept or not.
    PollOn,
}

/// Arms, rechecks, sleeps and disarms. If the recheck ends the wait, the sources stay armed: the thread leaves, and the next thread that
/// waits or serves arms or disarms them.
#[inline]
pub fn arm_recheck_sleep(sleeper: &mut impl Sleeper) -> Outcome {
    if !sleeper.arm() {
        return Outcome::PollOn;
    }
    match sleeper.recheck() {
        Recheck::Done => return Outcome::Done,
        Recheck::Found => {}
        Recheck::Empty => {
            if sleeper.sleep() == Woken::Limit {
                sleeper.check_safety_net();
            }
        }
    }
    sleeper.disarm();
    Outcome::PollOn
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A sleeper that records its steps.
    struct Steps {
        arms: bool,
        recheck: Recheck,
        woken: Woken,
        taken: Vec<&'static str>,
    }

    impl Sleeper for Steps {
        fn arm(&mut self) -> bool {
            self.taken.push("arm");
            self.arms
        }

        fn recheck(&mut self) -> Recheck {
            self.taken.push("recheck");
            self.recheck
        }

        fn sleep(&mut self) -> Woken {
            self.taken.push("sleep");
            self.woken
        }

        fn check_safety_net(&mut self) {
            self.taken.push("check");
        }

        fn disarm(&mut self) {
            self.taken.push("disarm");
        }
    }

    fn steps(arms: bool, recheck: Recheck, woken: Woken) -> (Outcome, Vec<&'static str>) {
        let mut steps = Steps { arms, recheck, woken, taken: Vec::new() };
        (arm_recheck_sleep(&mut steps), steps.taken)
    }

    #[test]
    fn each_recheck_leads_to_its_outcome() {
        use Outcome::{Done, PollOn};
        let early = |arms, recheck| steps(arms, recheck, Woken::Early);
        assert_eq!(early(false, Recheck::Empty), (PollOn, ["arm"].into()));
        assert_eq!(early(true, Recheck::Done), (Done, ["arm", "recheck"].into()));
        assert_eq!(early(true, Recheck::Found), (PollOn, ["arm", "recheck", "disarm"].into()));
        assert_eq!(early(true, Recheck::Empty), (PollOn, ["arm", "recheck", "sleep", "disarm"].into()));
    }

    #[test]
    fn the_safety_net_is_checked_while_the_sources_are_armed() {
        let (_, taken) = steps(true, Recheck::Empty, Woken::Limit);
        assert_eq!(taken, ["arm", "recheck", "sleep", "check", "disarm"]);
    }
}
