//! The post of the engine: one thread at a time is on duty, and a spare takes over while that thread is blocked.
//!
//! # Invariants
//! 1. Who holds the role polls as the engine, sleeps on all sources, and lets time pass. It is given up for the time in which
//!    tasklets run, and at no other.
//! 2. A spare takes the role only if it is free while a call is under way that may block, and gives it back between two looks when
//!    the engine's thread wants it.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use pronto_core::Nanos;

use crate::manager::{Engine, Manager, Shared};
use crate::run::{Keeper, LOOKS, NAP, NAPS, Role, TIMER_LOOKS};
use crate::source::Trigger;
use crate::spares::off_duty;

/// The post of a manager's engine, for the thread that has it and for its spares.
pub struct Post<K> {
    manager: Manager,
    role: Mutex<Role<K>>,
}

/// Who is on duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The engine's own thread.
    Own,
    /// A spare.
    Spare,
}

impl<K: Keeper> Post<K> {
    /// A post that nobody has yet.
    pub fn new(manager: Manager, keeper: K) -> Self {
        Self { manager, role: Mutex::new(Role::new(keeper)) }
    }

    /// Serves as the engine, until the keeper says that it is over. One thread.
    pub fn serve(&self) {
        let shared = self.shared();
        let role = shared.spares.handover.takes_back(&self.role, shared);
        self.on_duty(role, Who::Own);
    }

    /// Waits until the thread on duty is blocked, serves until it is back, and so on, until spares are dismissed or the keeper
    /// says that it is over. As many threads as were asked for ([`Manager::spares`]), which should have a low priority: they stand
    /// in, and the processor belongs to others.
    pub fn stand_in(&self) {
        let shared = self.shared();
        while !shared.spares.wait() {
            shared.reports.spares.add(1);
            if let Some(role) = shared.spares.handover.relieves(&self.role) {
                shared.reports.relieved.add(1);
                self.on_duty(role, Who::Spare);
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.manager.0
    }

    fn on_duty(&self, role: MutexGuard<'_, Role<K>>, who: Who) {
        role.keeper.after_sleep();
        match self.shared().engine {
            Engine::Idle => self.idle(role, who),
            Engine::Timer(period) => self.on_time(role, period, true, who),
            Engine::None => self.on_time(role, Nanos::NEVER, false, who),
        }
    }

    fn goes_on(&self, role: &Role<K>, who: Who) -> bool {
        let is_relieved = who == Who::Spare && self.shared().spares.handover.is_wanted();
        !is_relieved && !role.keeper.is_stopping()
    }

    /// Runs tasklets without the role. None if it is somebody else's now.
    #[inline]
    fn tasklets<'a>(
        &'a self,
        role: MutexGuard<'a, Role<K>>,
        trigger: Trigger,
        who: Who,
    ) -> Option<(MutexGuard<'a, Role<K>>, usize)> {
        let shared = self.shared();
        if !shared.may_have_tasklets() {
            return Some((role, 0));
        }
        let turns = role.turns;
        drop(role);
        let ran = off_duty(shared, || shared.run_tasklets(trigger));
        let handover = &shared.spares.handover;
        let role = match who {
            Who::Own => {
                let mut role = handover.takes_back(&self.role, shared);
                role.turns += 1;
                role
            }
            Who::Spare => handover.stays(&self.role, |role| role.turns == turns, shared)?,
        };
        Some((role, ran))
    }

    /// Polls while it may, and sleeps otherwise.
    fn idle<'a>(&'a self, mut role: MutexGuard<'a, Role<K>>, who: Who) {
        let shared = self.shared();
        while self.goes_on(&role, who) {
            role.keeper.refresh();
            let decision = role.keeper.decide();
            // Who is about to sleep looks once: each look may be a system call, and a boost is paid for by the time.
            let mut looked = shared.look(if decision.polls_for() == Nanos::ZERO { 1 } else { LOOKS });
            let Some((back, ran)) = self.tasklets(role, Trigger::Idle, who) else { return };
            role = back;
            looked.add(ran);
            role.looked(shared, looked, decision, who);
        }
    }

    /// Wakes for the time alone.
    fn on_time<'a>(&'a self, mut role: MutexGuard<'a, Role<K>>, period: Nanos, polls: bool, who: Who) {
        let shared = self.shared();
        while self.goes_on(&role, who) {
            role.keeper.refresh();
            let now = shared.clock.now();
            if polls && now >= role.due(now, period) {
                let mut all = 0;
                for _ in 0..TIMER_LOOKS {
                    let Some(found) = shared.look_on_time() else { break };
                    let Some((back, ran)) = self.tasklets(role, Trigger::Timer, who) else { return };
                    role = back;
                    all += found + ran;
                    if found + ran == 0 {
                        break;
                    }
                }
                role.naps = if all == 0 { role.naps + 1 } else { 0 };
                let close = role.naps < NAPS && role.keeper.is_expecting();
                // Of a clock that has jumped, or a thread that was late, nothing is caught up on.
                role.next = Some(now + if close { NAP.min(period) } else { period });
            }
            role.until(shared, period, who);
        }
    }
}

impl<K> fmt::Debug for Post<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("manager", &self.manager).finish_non_exhaustive()
    }
}
