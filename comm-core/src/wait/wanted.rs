//! Requests to the thread that holds a session's engine, next to the submission queue.
//!
//! A polling thread releases the engine only for a moment between two poll batches. A thread that wants the engine sets a flag here, which
//! counts as work that is left, so the poll batch ends.

use pronto_sync::atomic::{AtomicU32, Ordering};

use super::back_off::BackOff;
use crate::executor::Executor;

/// The peer is to be told about credits: half of the window was given back since the last message that told it.
const CREDIT: u32 = 1;

/// A thread wants the engine and cannot leave its work to the holder.
const ENGINE: u32 = 2;

/// Requests of other threads to the engine's holder.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    flags: AtomicU32,
    /// Threads that are awake and wait for something that a polling thread finds: they have yielded, or poll their own words.
    awaiting: AtomicU32,
}

/// A thread that waits awake, counted until this is dropped.
pub(crate) struct Awaiting<'a>(&'a AtomicU32);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wanted {
    /// Returns whether any flag is set.
    #[inline]
    pub(crate) fn anything(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn takes(&self, flag: u32) -> bool {
        self.has(flag) && self.flags.fetch_and(!flag, Ordering::Relaxed) & flag != 0
    }

    /// Asks the holder to tell the peer about credits, and to ring held doorbells.
    pub(crate) fn credit(&self) {
        self.flags.fetch_or(CREDIT, Ordering::Relaxed);
    }

    /// Returns whether the holder is to do so.
    pub(crate) fn wants_credit(&self) -> bool {
        self.has(CREDIT)
    }

    /// Clears the flag of threads that want the engine, and returns whether it was set. Threads that still wait set it again.
    pub(crate) fn takes_engine(&self) -> bool {
        self.takes(ENGINE)
    }

    /// Engine only: the peer is told about credits now.
    pub(crate) fn credit_is_given(&self) {
        self.takes(CREDIT);
    }

    /// Sets the wanted flag and yields to the lock holder, which yields back.
    pub(crate) fn yield_to_holder(&self, executor: &impl Executor) {
        self.flags.fetch_or(ENGINE, Ordering::Relaxed);
        self.yield_counted(executor);
    }

    /// Sets the wanted flag and lets the lock holder run, whatever the scheduling classes of the two threads: see [`BackOff`].
    pub(crate) fn wait_for_holder(&self, back_off: &mut BackOff, executor: &impl Executor) {
        self.flags.fetch_or(ENGINE, Ordering::Relaxed);
        let _awaits = self.awaits();
        back_off.pause(executor);
    }

    /// Yields, counted among the threads that wait awake.
    pub(crate) fn yield_counted(&self, executor: &impl Executor) {
        let _awaits = self.awaits();
        executor.yield_now();
    }

    /// Counts the calling thread among those that wait awake.
    pub(crate) fn awaits(&self) -> Awaiting<'_> {
        self.awaiting.fetch_add(1, Ordering::Relaxed);
        Awaiting(&self.awaiting)
    }

    /// Returns whether there is such a thread. It may share the CPU of the polling thread, and then waits for its turn.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaiting.load(Ordering::Relaxed) != 0
    }
}
