//! Getting into the engine: by a thread that has to have it, and past one that polls all the time.
//!
//! Whoever polls gives the engine back for a moment between two rows of looks. Another thread on the same processor would be let run in
//! one of these moments by chance alone, once in seconds. So it says that it wants to get in: that counts as work that was left, which
//! ends the row of looks, and after giving the engine back its holder gives its processor away as well.
//!
//! # Invariants
//! 1. Who wants the engine says so before each time that it gives its own processor away.
//! 2. Whoever gives the engine back looks at what is wanted afterwards, in [`Session::look_once_more`] or [`Session::serve_left`].

use pronto_sync::atomic::{AtomicU32, Ordering, fence};
use pronto_sync::{Poisons, TryLockGuard};

use super::Session;
use super::engine::Engine;
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::time::Nanos;

/// So many requests were given back since the peer was last told that it should be told again.
const CREDIT: u32 = 1;
/// A thread wants the engine that cannot leave its work to the holder.
const ENGINE: u32 = 2;
/// Attempts at an engine that another thread holds before a processor is given away.
const SPINS_PER_YIELD: u32 = 64;
/// How often a processor is given away for an engine that is wanted, but not at all costs.
const YIELDS: u32 = 4;

/// For so long a thread polls beside others before it gives its processor away. About what a wake-up costs: an answer that comes soon is
/// not missed for it.
const PATIENCE: Nanos = Nanos::from_micros(20);

/// The right to a session's engine. Given back by `release`; dropped by a panic, it poisons the engine's lock.
pub(super) type EngineGuard<'a, Q> = TryLockGuard<'a, Engine<Q>, Poisons>;

/// Since when a thread that polls has been kept from it, or has kept others waiting.
#[derive(Debug, Default)]
pub struct Patience(Option<Nanos>);

/// What others want of whoever holds the engine, beside what they have submitted.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    what: AtomicU32,
    /// Threads that are awake and wait for what whoever polls finds: they have given their processor away, or poll their own words.
    awaiting: AtomicU32,
}

/// A thread that waits awake, counted until this is dropped.
pub(super) struct Awaiting<'a>(&'a AtomicU32);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wanted {
    /// Whether there is anything.
    #[inline]
    pub(super) fn anything(&self) -> bool {
        self.what.load(Ordering::Relaxed) != 0
    }

    fn has(&self, what: u32) -> bool {
        self.what.load(Ordering::Relaxed) & what != 0
    }

    fn takes(&self, what: u32) -> bool {
        self.has(what) && self.what.fetch_and(!what, Ordering::Relaxed) & what != 0
    }

    /// Has the holder tell the peer about credits, and ring what doorbells are held.
    pub(super) fn credit(&self) {
        self.what.fetch_or(CREDIT, Ordering::Relaxed);
    }

    /// Engine only: the peer is told now.
    pub(super) fn credit_is_given(&self) {
        self.takes(CREDIT);
    }

    /// For a thread that finds taken what only the engine's holder has, or has for long: gives its processor to that one, which gives
    /// it back.
    pub(super) fn after_you(&self, executor: &impl Executor) {
        self.what.fetch_or(ENGINE, Ordering::Relaxed);
        self.give_away(executor);
    }

    fn give_away(&self, executor: &impl Executor) {
        let _awaits = self.awaits();
        executor.yield_now();
    }

    /// Counts the calling thread among those that wait awake.
    pub(super) fn awaits(&self) -> Awaiting<'_> {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(&self.awaiting)
    }

    /// Whether there is such a thread. It may share the processor of the one that polls, and then waits for its turn.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Relaxed) != 0
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Whether other threads wait awake for what whoever polls finds.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.wanted.is_awaited()
    }

    /// For a thread that polls, after a look: gives its processor away where for a while another one was at it, or others have waited
    /// awake for what this one finds. They may share the processor, and would have it only when the time slice is over.
    pub fn be_patient(
        &self,
        patience: &mut Patience,
        found_free: bool,
        now: Nanos,
        executor: &impl Executor,
    ) {
        if found_free && !self.wanted.is_awaited() {
            patience.0 = None;
        } else if now.since(*patience.0.get_or_insert(now)) >= PATIENCE {
            self.wanted.after_you(executor);
            patience.0 = None;
        }
    }

    /// Returns the engine as soon as its holder lets go. `None` where the calling thread must not wait for it: it may hold this engine
    /// itself, or another one whose next holder waits for this thread. `None` also if a holder panicked: the executor is
    /// notified, which has the session recovered.
    pub(super) fn enter(&self, executor: &impl Executor) -> Option<EngineGuard<'_, Q>> {
        loop {
            if let Some(engine) = self.spin() {
                return Some(engine);
            }
            if self.has_failed() {
                executor.engine_failed();
                return None;
            }
            if !executor.may_block() {
                return None;
            }
            if let Some(engine) = self.enter_soon(executor) {
                return Some(engine);
            }
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
    /// taken off its CPU.
    fn enter_soon(&self, executor: &impl Executor) -> Option<EngineGuard<'_, Q>> {
        for attempt in 0..YIELDS {
            if let Some(engine) = self.spin() {
                if attempt != 0 {
                    // Other waiting threads set the flag again.
                    self.wanted.takes(ENGINE);
                }
                return Some(engine);
            }
            if self.has_failed() {
                executor.engine_failed();
                return None;
            }
            // The holder may have been taken off the very CPU that this thread spins on.
            self.wanted.after_you(executor);
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
        let pending = || self.submissions.pending() || self.wanted.has(CREDIT);
        self.engine.serve(pending, |engine| engine.drain(self, executor));
        if self.has_failed() {
            executor.engine_failed();
        }
        // A thread that holds the engine all the while is an inline handler's: it is not given back yet.
        if !self.engine.is_locked() && self.wanted.takes(ENGINE) {
            self.wanted.give_away(executor);
        }
    }

    /// Whether others left something to do for whoever holds the engine.
    #[inline]
    pub(super) fn work_is_left(&self) -> bool {
        self.submissions.pending() || self.wanted.anything()
    }
}
