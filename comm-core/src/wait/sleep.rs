//! Arm, recheck, sleep: the only way in which a thread goes to sleep, whatever it sleeps on.
//!
//! ```text
//!   sleeper                                  producer of any source
//!   every source: ARMED       fence each     source = published
//!   every source empty?                      fence
//!   sleep on all of them                     the source's word ARMED? then wake
//! ```
//!
//! All sources are armed before the first one is rechecked: a source that was rechecked before another one was armed may be filled
//! meanwhile, but its own word is armed, so its producer wakes the sleeper. A producer that publishes without a fence and without
//! checking a word makes no event. A source whose channel is level-triggered needs no arming, because it ends any sleep immediately.

use pronto_sched_policy::policy::spin;

use crate::time::Nanos;

/// The longest sleep while an event is expected: a lost wake-up costs this much, and is counted (PIOMan's timer, section 3.4).
pub const SAFETY_NET: Nanos = Nanos(spin::SAFETY_NET_TIMEOUT.0);

/// The longest delay of a wake-up that is not lost. A sender wakes after a whole batch, and may be preempted before that.
pub const LATE: Nanos = Nanos::from_millis(20);

/// Everything that one thread sleeps on.
pub trait Sleeper {
    /// Asks every source for a wake-up. Returns `false` if that is impossible at the moment; the thread polls on then.
    fn arm(&mut self) -> bool;

    /// Polls every source once.
    fn recheck(&mut self) -> Recheck;

    /// Sleeps until a source wakes the thread, or until the sleeper's own time limit. May return early.
    fn sleep(&mut self) -> Woken;

    /// Looks for an event that should have ended the sleep and has not, before anything is disarmed. Gives its wake-up [`LATE`] to
    /// come, and counts a lost wake-up otherwise.
    fn check_safety_net(&mut self);

    /// Takes back what [`Self::arm`] asked for.
    fn disarm(&mut self);
}

/// The result of a recheck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// Nothing has come: the thread may sleep.
    Empty,
    /// Something has come, or another thread polls: the thread polls on.
    Found,
    /// The wait is over.
    Done,
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// By an event, a signal, or early.
    Early,
    /// By the time limit.
    Limit,
}

/// The result of an attempt to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The wait is over.
    Done,
    /// The thread polls on, after a sleep or without one.
    PollOn,
}

/// Arms, rechecks, sleeps and disarms. If the recheck ends the wait, the sources stay armed: the thread leaves, and the next thread that
/// waits or serves arms or disarms them anyway.
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

    /// Records its steps.
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
