//! Which events a session's fabric is asked for.
//!
//! Replies are unsolicited events. The serving thread that sleeps asks for solicited events only, so a reply that a caller polls for
//! wakes no other thread, and calls come and go without arming anything. All events are asked for while a future relies on the serving
//! thread for its reply, while a message in the backlog waits for room, and by a caller that sleeps in the channels itself.
//!
//! # Invariants
//! 1. The engine's holder alone writes the state. Other threads read it as a hint, or confirm it under the lock.
//! 2. A caller that sleeps in the channels has armed all events. A thread that arms for the serving thread sees under the lock that the
//!    caller sleeps, and leaves the arming and what arrives to it: asking for less would leave it asleep next to its reply.
//! 3. `waiters <= call slots in use`: a waiter is counted only while it owns a slot. If more slots are in use than there are waiters, some
//!    call has no waiting thread. It can be a future's only if `listen` was called since the two counts were last equal. Several calls of
//!    one thread, which it waits for in turn, do not count as a future's: their replies would each cost their sender a wake-up.

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::fabric::Armed;

/// The events that the fabric was asked for, and the number of threads that wait for calls of their own.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    state: AtomicU32,
    /// Number of changes of `state`, wrapping. A change may consume the events that have come.
    changes: AtomicU32,
    waiters: AtomicU32,
    /// A future has listened since there was a call without a waiting thread.
    listened: AtomicBool,
    /// A future has listened without the engine. The next thread that arms for the serving thread takes it, and arms all events then: the
    /// number of open calls that it has read may be older.
    requested: AtomicBool,
}

/// A waiter, counted until this is dropped.
pub(crate) struct CountedWaiter<'a>(&'a Arming);

impl Arming {
    pub(crate) fn armed(&self) -> Armed {
        match self.state.load(Ordering::Relaxed) {
            0 => Armed::Nothing,
            1 => Armed::Solicited,
            _ => Armed::All,
        }
    }

    /// Engine only.
    pub(crate) fn set(&self, armed: Armed) {
        self.state.store(armed as u32, Ordering::Relaxed);
        self.changes.store(self.changes().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of threads that wait for calls of their own.
    pub(crate) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Engine only: a future waits for a reply, or every call has a waiting thread.
    pub(crate) fn set_listened(&self, listened: bool) {
        self.listened.store(listened, Ordering::Relaxed);
    }

    /// Returns whether a future may wait for a reply.
    pub(crate) fn has_listened(&self) -> bool {
        self.listened.load(Ordering::Relaxed)
    }

    /// Has the next thread that arms for the serving thread arm all events.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
        self.listened.store(true, Ordering::Relaxed);
    }

    /// Engine only.
    pub(crate) fn takes_request(&self) -> bool {
        let requested =
            self.requested.load(Ordering::Relaxed) && self.requested.swap(false, Ordering::Relaxed);
        if requested {
            self.listened.store(true, Ordering::Relaxed);
        }
        requested
    }

    /// Returns a number that differs from an earlier one if other events may have been asked for in between, and events consumed.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Counts a thread that waits for a call of its own. The thread drops the count before it gives the call's slot back.
    pub(crate) fn count_waiter(&self) -> CountedWaiter<'_> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        CountedWaiter(self)
    }
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        let before = self.0.waiters.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before != 0, "a waiter is counted while it waits");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_counted_while_they_wait() {
        let arming = Arming::default();
        assert_eq!(arming.armed(), Armed::Nothing);
        let (first, second) = (arming.count_waiter(), arming.count_waiter());
        drop(first);
        assert_eq!(arming.waiters(), 1);
        drop(second);
        assert_eq!(arming.waiters(), 0);
        for armed in [Armed::All, Armed::Solicited, Armed::Nothing] {
            let changes = arming.changes();
            arming.set(armed);
            assert_eq!(arming.armed(), armed);
            assert_ne!(arming.changes(), changes);
        }
    }

    #[test]
    fn a_request_to_arm_everything_is_taken_once() {
        let arming = Arming::default();
        assert!(!arming.takes_request() && !arming.has_listened());
        arming.request();
        arming.set_listened(false);
        assert!(arming.takes_request() && arming.has_listened());
        assert!(!arming.takes_request());
    }
}
