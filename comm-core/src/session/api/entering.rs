//! Getting into the engine: by a thread that has to have it, and past one that polls all the time.
//!
//! Whoever polls gives the engine back for a moment between two rows of looks. Another thread on the same processor would be let run in
//! one of these moments by chance alone, once in seconds. So it says that it wants to get in: that counts as work that was left, which
//! ends the row of looks, and after giving the engine back its holder gives its processor away as well.
//!
//! # Invariants
//! 1. Who wants the engine says so before each time that it gives its own processor away.
//! 2. Whoever gives the engine back looks at what is wanted afterwards, in [`Session::look_once_more`] or [`Session::serve_left`].

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

/// Attempts at an engine that another thread holds before a processor is given away.
const SPINS_PER_YIELD: u32 = 64;

/// The right to a session's engine. Given back by `release`; dropped by a panic, it poisons the engine's lock.
pub(super) type EngineGuard<'a, Q> = TryLockGuard<'a, Engine<Q>, Poisons>;

impl<Q: QueuePair> Session<Q> {
    /// Called by the serving thread after a poll batch: yields its CPU if another thread has waited awake for a while.
    pub fn yield_to_waiters(
        &self,
        yields: &mut YieldTimer,
        engine_was_free: bool,
        now: Nanos,
        executor: &impl Executor,
    ) {
        yields.after_poll(engine_was_free, &self.wanted, now, executor);
    }

    /// Returns the engine as soon as its holder lets go. `None` where the calling thread must not wait for it: it may hold this engine
    /// itself, or another one whose next holder waits for this thread. `None` also if a holder panicked: the executor is
    /// notified, which has the session recovered.
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

    /// Returns the engine if it is free, or given back within [`SPINS_PER_YIELD`] attempts.
    fn spin(&self) -> Option<EngineGuard<'_, Q>> {
        (0..SPINS_PER_YIELD).find_map(|_| {
            let engine = self.engine.try_lock();
            if engine.is_none() {
                pronto_sync::hint::spin_loop();
            }
            engine
        })
    }

    /// Tries for a bounded time to get the engine. `None` in an inline handler, whose own thread holds it, and where the holder was
    /// taken off its CPU, as by this thread if it is real-time: it may have to be refused, but does not sleep.
    fn enter_soon(&self, executor: &impl Executor) -> Option<EngineGuard<'_, Q>> {
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
            // The holder may have been taken off the very CPU that this thread spins on.
            self.wanted.yield_to_holder(executor);
        }
        None
    }

    /// What only the engine's holder has, for a sender that has found none elsewhere: one that is about to be refused waits a moment.
    pub(super) fn of_engine<R>(
        &self,
        executor: &impl Executor,
        take: impl FnOnce(&mut Engine<Q>) -> Option<R>,
    ) -> Option<R> {
        let mut engine = self.enter_soon(executor)?;
        let taken = take(&mut engine);
        engine.release();
        self.look_once_more(executor);
        taken
    }

    /// Uses the engine as soon as its holder lets go. `None`, and nothing was done, where [`Self::enter`] returns none.
    #[must_use = "nothing was done if the calling thread must not wait"]
    pub(super) fn with_engine<R>(
        &self,
        executor: &impl Executor,
        use_it: impl FnOnce(&mut Engine<Q>) -> R,
    ) -> Option<R> {
        let mut engine = self.enter(executor)?;
        let result = use_it(&mut engine);
        engine.release();
        self.look_once_more(executor);
        Some(result)
    }

    /// After giving the engine back: what was submitted while it was being given back must not be stranded.
    #[inline]
    pub(super) fn look_once_more(&self, executor: &impl Executor) {
        fence(Ordering::SeqCst);
        if self.work_is_left() {
            self.serve_left(executor);
        }
    }

    /// Has what was left done by this thread, if the engine is free, and lets those in who want it.
    pub(super) fn serve_left(&self, executor: &impl Executor) {
        let pending = || self.submissions.pending() || self.wanted.wants_credit();
        self.engine.serve(pending, |engine| engine.drain(Turn::new(self, executor)));
        if self.has_failed() {
            executor.engine_failed();
        }
        // A thread that holds the engine all the while is an inline handler's: it is not given back yet.
        if !self.engine.is_locked() && self.wanted.takes_engine() {
            self.wanted.yield_counted(executor);
        }
    }
}
