//! The threads of an engine: one thread at a time is the role holder, and a spare thread takes over while that thread is blocked.
//!
//! # Invariants
//! 1. The thread that holds the role polls as the engine, sleeps on all sources, and calls the driver's ticks. It releases the role
//!    only while it runs tasklets.
//! 2. A spare takes the role only if the role is free and a call that may block is under way. It returns the role between two poll
//!    batches when the engine thread wants it.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use pronto_core::Nanos;

use crate::manager::{Engine, Manager, Shared};
use crate::run::{CLOSE_INTERVAL, CLOSE_POLLS, EngineDriver, POLL_BATCH, Role, TIMER_POLLS};
use crate::source::Trigger;
use crate::spares::without_role;

/// The post of a manager's engine, shared by the engine thread and its spares.
pub struct EngineThreads<K> {
    manager: Manager,
    role: Mutex<Role<K>>,
}

/// Thread that holds the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The engine thread.
    Own,
    /// A spare thread.
    Spare,
}

impl<K: EngineDriver> EngineThreads<K> {
    /// Creates a post that no thread serves yet.
    pub fn new(manager: Manager, driver: K) -> Self {
        Self { manager, role: Mutex::new(Role::new(driver)) }
    }

    /// Serves as the engine thread until the driver stops. Only one thread may call this.
    pub fn serve(&self) {
        let shared = self.shared();
        let role = shared.spares.handover.take_back(&self.role, shared);
        self.run_with_role(role, Holder::Own);
    }

    /// Serves as a spare: waits until the role holder is blocked, serves until the engine thread returns, and repeats this until
    /// spares are dismissed or the driver stops. For the threads that [`Manager::spares`] starts. They should have a low priority,
    /// so that they do not take CPU time from other threads.
    pub fn run_spare(&self) {
        let shared = self.shared();
        while !shared.spares.wait() {
            shared.reports.spares.add(1);
            if let Some(role) = shared.spares.handover.relieve(&self.role) {
                shared.reports.relieved.add(1);
                self.run_with_role(role, Holder::Spare);
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.manager.0
    }

    fn run_with_role(&self, role: MutexGuard<'_, Role<K>>, holder: Holder) {
        role.driver.after_sleep();
        match self.shared().engine {
            Engine::Idle => self.idle(role, holder),
            Engine::Timer(period) => self.on_time(role, period, true, holder),
            Engine::None => self.on_time(role, Nanos::NEVER, false, holder),
        }
    }

    fn goes_on(&self, role: &Role<K>, holder: Holder) -> bool {
        let is_relieved = holder == Holder::Spare && self.shared().spares.handover.is_wanted();
        !is_relieved && !role.driver.is_stopping()
    }

    /// Runs tasklets without the role. Returns `None` if another thread has the role afterwards.
    #[inline]
    fn tasklets<'a>(
        &'a self,
        role: MutexGuard<'a, Role<K>>,
        trigger: Trigger,
        holder: Holder,
    ) -> Option<(MutexGuard<'a, Role<K>>, usize)> {
        let shared = self.shared();
        if !shared.may_have_tasklets() {
            return Some((role, 0));
        }
        let turns = role.turns;
        drop(role);
        let ran = without_role(shared, || shared.run_tasklets(trigger));
        let handover = &shared.spares.handover;
        let role = match holder {
            Holder::Own => {
                let mut role = handover.take_back(&self.role, shared);
                role.turns += 1;
                role
            }
            Holder::Spare => handover.keep(&self.role, |role| role.turns == turns, shared)?,
        };
        Some((role, ran))
    }

    /// Runs an idle engine: polls while the driver lets it, and otherwise sleeps.
    fn idle<'a>(&'a self, mut role: MutexGuard<'a, Role<K>>, holder: Holder) {
        let shared = self.shared();
        while self.goes_on(&role, holder) {
            role.driver.refresh();
            let decision = role.driver.decide();
            // A thread that sleeps immediately polls once: a poll may be a system call, and the time of a boost is limited.
            let mut batch =
                shared.poll_batch(if decision.polls_for() == Nanos::ZERO { 1 } else { POLL_BATCH });
            let Some((back, ran)) = self.tasklets(role, Trigger::Idle, holder) else { return };
            role = back;
            batch.add(ran);
            role.after_batch(shared, batch, decision, holder);
        }
    }

    /// Runs a timer engine, or with `polls` false no engine: only time ends its sleeps, not events.
    fn on_time<'a>(&'a self, mut role: MutexGuard<'a, Role<K>>, period: Nanos, polls: bool, holder: Holder) {
        let shared = self.shared();
        while self.goes_on(&role, holder) {
            role.driver.refresh();
            let now = shared.clock.now();
            if polls && now >= role.due(now, period) {
                let mut all = 0;
                for _ in 0..TIMER_POLLS {
                    let Some(found) = shared.poll_on_time() else { break };
                    let Some((back, ran)) = self.tasklets(role, Trigger::Timer, holder) else { return };
                    role = back;
                    all += found + ran;
                    if found + ran == 0 {
                        break;
                    }
                }
                role.empty_rounds = if all == 0 { role.empty_rounds + 1 } else { 0 };
                let close = role.empty_rounds < CLOSE_POLLS && role.driver.is_expecting();
                // Counted from now: after a jump of the clock or a delay of the thread, missed periods are not made up for.
                role.next = Some(now + if close { CLOSE_INTERVAL.min(period) } else { period });
            }
            role.sleep_until_due(shared, period, holder);
        }
    }
}

impl<K> fmt::Debug for EngineThreads<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("manager", &self.manager).finish_non_exhaustive()
    }
}
