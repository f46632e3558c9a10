//! What other threads want of whoever holds the engine, beside what they have submitted.
//!
//! Whoever polls gives the engine back for a moment between two rows of looks. A thread that wants it says so here: that counts as work
//! that was left, which ends the row of looks.

use pronto_sync::atomic::{AtomicU32, Ordering};

use crate::back_off::BackOff;
use crate::executor::Executor;

/// So many requests were given back since the peer was last told that it should be told again.
const CREDIT: u32 = 1;

/// A thread wants the engine that cannot leave its work to the holder.
const ENGINE: u32 = 2;

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

    /// Whether the holder is to do so.
    pub(super) fn wants_credit(&self) -> bool {
        self.has(CREDIT)
    }

    /// Takes back that a thread wants the engine. Whether one did; others that still wait say so again.
    pub(super) fn takes_engine(&self) -> bool {
        self.takes(ENGINE)
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

    /// Sets the wanted flag and lets the lock holder run, whatever the scheduling classes of the two threads: see [`BackOff`].
    pub(super) fn wait_for_holder(&self, back_off: &mut BackOff, executor: &impl Executor) {
        self.what.fetch_or(ENGINE, Ordering::Relaxed);
        let _awaits = self.awaits();
        back_off.pause(executor);
    }

    pub(super) fn give_away(&self, executor: &impl Executor) {
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
