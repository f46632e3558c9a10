//! Acquiring the engine lock, also while another thread polls.
//!
//! A poller releases the lock only for a moment between two poll batches. A thread on the same CPU would run in one of these moments
//! only by chance, once in seconds. Therefore a thread that needs the engine sets a "wanted" flag. The flag counts as pending work,
//! which ends the poll batch. The holder then releases the lock and yields.
//!
//! # Invariants
//! 1. A thread that needs the engine sets the flag before each time that it yields.
//! 2. A thread that has released the engine checks the flag afterwards, in [`Session::recheck`] or [`Session::serve_left`].

use pronto_sync::atomic::{Ordering, fence};
use pronto_sync::{Poisons, TryLockGuard};

use super::Session;
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::session::engine::Engine;
use crate::session::shared::Turn;
use crate::time::Nanos;
use crate::wait::YieldTimer;
use crate::wait::back_off::{BackOff, YIELDS};

/// Number of attempts to take the lock of an engine that another thread holds, before the waiting thread yields or sleeps. A model of loom
/// has fewer steps.
const SPINS_PER_YIELD: u32 = if cfg!(loom) { 1 } else { 64 };

/// The guard of a session's engine lock. `release` releases the lock; if a panic drops the guard, the lock is poisoned.
pub(super) type EngineGuard<'a, Q> = TryLockGuard<'a, Engine<Q>, Poisons>;

impl<Q: QueuePair> Session<Q> {
    /// Called by the serving thread after a poll batch: yields its CPU if for a while another thread has held the engine, or has waited
    /// without sleeping.
    pub fn yield_to_waiters(
        &self,
        yields: &mut YieldTimer,
        engine_was_free: bool,
        now: Nanos,
        executor: &impl Executor,
    ) {
        yields.after_poll(engine_was_free, &self.wanted, now, executor);
    }

    /// Waits for the engine lock. Returns `None` if the calling thread must not wait, because it may hold this engine or another one, so
    /// that waiting could deadlock. Also returns `None` if a holder has panicked. It then notifies the executor, so that the session is
    /// recovered.
    pub(super) fn enter(&self, executor: &impl Executor) -> Option<EngineGuard<'_, Q>> {
        let mut back_off = BackOff::default();
        loop {
            if let Some(engine) = self.spin() {
                if back_off.has_begun() {
                    // Other waiting threads set the flag again.
                    self.wanted.takes_engine();
                }
                return Some(engine);
            }
            if self.has_failed() {
                executor.engine_failed();
                return None;
            }
            if !executor.may_block() {
                return None;
            }
            self.wanted.wait_for_holder(&mut back_off, executor);
        }
    }

    /// Tries to take the engine lock, with up to [`SPINS_PER_YIELD`] attempts.
    fn spin(&self) -> Option<EngineGuard<'_, Q>> {
        (0..SPINS_PER_YIELD).find_map(|_| {
            let engine = self.engine.try_lock();
            if engine.is_none() {
                pronto_sync::hint::spin_loop();
            }
            engine
        })
    }

    /// Tries to take the engine lock; yields, but does not sleep. Returns `None` if the holder has not released it after [`YIELDS`]
    /// yields: it is this thread, in an inline handler, or it gets no CPU, or the lock is contended. Returns `None` also if the engine
    /// has failed; the executor is then notified.
    fn enter_briefly(&self, executor: &impl Executor) -> Option<EngineGuard<'_, Q>> {
        for attempt in 0..YIELDS {
            if let Some(engine) = self.spin() {
                if attempt != 0 {
                    // Other waiting threads set the flag again.
                    self.wanted.takes_engine();
                }
                return Some(engine);
            }
            if self.has_failed() {
                executor.engine_failed();
                return None;
            }
            // The holder may be preempted on the CPU on which this thread spins.
            self.wanted.yield_to_holder(executor);
        }
        None
    }

    /// Takes something from the engine, for a sender that would otherwise be refused. Waits a bounded time for the lock.
    pub(super) fn take_from_engine<R>(
        &self,
        executor: &impl Executor,
        take: impl FnOnce(&mut Engine<Q>) -> Option<R>,
    ) -> Option<R> {
        let mut engine = self.enter_briefly(executor)?;
        let taken = take(&mut engine);
        engine.release();
        self.recheck(executor);
        taken
    }

    /// Runs `use_it` on the engine after waiting for its lock. Returns `None` without running it if [`Self::enter`] returns `None`.
    #[must_use = "nothing was done if the calling thread must not wait"]
    pub(super) fn with_engine<R>(
        &self,
        executor: &impl Executor,
        use_it: impl FnOnce(&mut Engine<Q>) -> R,
    ) -> Option<R> {
        let mut engine = self.enter(executor)?;
        let result = use_it(&mut engine);
        engine.release();
        self.recheck(executor);
        Some(result)
    }

    /// Does work that was submitted while the engine lock was being released, gives room to tasks that wait for it, and yields if another
    /// thread wants the engine. Called after each release.
    #[inline]
    pub(super) fn recheck(&self, executor: &impl Executor) {
        // SYNC: also orders the room that the holder has freed before the flag of tasks that wait for it; pairs with the fence in
        // `join_queue`.
        fence(Ordering::SeqCst);
        if self.submissions.pending() || self.wanted.anything_or_room() {
            self.serve_left(executor);
        }
    }

    /// Does the pending work on this thread if the engine is free, gives room to tasks that wait for it, and yields if a thread wants the
    /// engine.
    pub(super) fn serve_left(&self, executor: &impl Executor) {
        let pending = || self.submissions.pending() || self.wanted.wants_credit();
        self.engine.serve(pending, |engine| engine.drain(Turn::new(self, executor)));
        if self.has_failed() {
            executor.engine_failed();
        }
        // After its release of the engine, `serve` has fenced.
        if self.wanted.wants_room() {
            self.admit(executor);
        }
        // If the engine is locked, the holder may be this thread, in an inline handler, and the lock is not released yet.
        if !self.engine.is_locked() && self.wanted.takes_engine() {
            self.wanted.yield_counted(executor);
        }
    }
}
