//! The events for which a session's fabric is armed.
//!
//! Replies are unsolicited events. A sleeping serving thread arms only for solicited events. A reply for which a caller polls therefore
//! wakes no other thread, and a call needs no arming. The fabric is armed for all events in three cases: a future relies on the serving
//! thread for its reply, a message in the backlog waits for room, or a caller sleeps in the channels itself.
//!
//! # Invariants
//! 1. Only the holder of the engine writes the state. Other threads read it as a hint, or check it under the lock.
//! 2. A caller that sleeps in the channels has armed for all events. A thread that arms for the serving thread sees under the lock that the
//!    caller sleeps, and then changes nothing: arming for fewer events could leave the caller asleep although its reply has arrived.
//! 3. `waiters <= call slots in use`: a waiter is counted only while it owns a slot. If more slots are in use than there are waiters, some
//!    call has no waiting thread. That call can belong to a future only if `listen` was called since the two counts were last equal.
//!    Without this condition, several open calls of one thread, which waits for one at a time, would arm for all events, and each reply
//!    would cost the peer a wake-up.

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use crate::fabric::Armed;

/// The events for which the fabric is armed, and the number of threads that wait for their own calls.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    state: AtomicU32,
    /// Number of changes of `state`, wrapping. A change may consume pending events.
    changes: AtomicU32,
    waiters: AtomicU32,
    /// True if a future has called `listen` since every call last had a waiting thread.
    listened: AtomicBool,
    /// True if a future has called `listen` without the engine lock. The next thread that arms for the serving thread clears it and arms
    /// for all events: its reading of the number of open calls may be older than the future's call.
    requested: AtomicBool,
    /// True if the serving thread has armed, and could not poll afterwards because a caller with the poller role held the engine. The
    /// caller that leaves the role clears it and polls: a message that arrived before the arming causes no event.
    recheck_owed: AtomicBool,
}

/// A guard that counts a waiter until it is dropped.
pub(crate) struct CountedWaiter<'a>(&'a Arming);

impl Arming {
    pub(crate) fn armed(&self) -> Armed {
        match self.state.load(Ordering::Relaxed) {
            0 => Armed::Nothing,
            1 => Armed::Solicited,
            _ => Armed::All,
        }
    }

    /// Engine only: stores the events for which the fabric is armed.
    pub(crate) fn set(&self, armed: Armed) {
        self.state.store(armed as u32, Ordering::Relaxed);
        self.changes.store(self.changes().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of threads that wait for their own calls.
    pub(crate) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Engine only: records that a future waits for a reply (true), or that every call has a waiting thread (false).
    pub(crate) fn set_listened(&self, listened: bool) {
        self.listened.store(listened, Ordering::Relaxed);
    }

    /// Returns whether a future may wait for a reply.
    pub(crate) fn has_listened(&self) -> bool {
        self.listened.load(Ordering::Relaxed)
    }

    /// Requests that the next thread that arms for the serving thread arms for all events.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
        self.listened.store(true, Ordering::Relaxed);
    }

    /// Engine only: clears the request, and returns whether there was one.
    pub(crate) fn takes_request(&self) -> bool {
        let requested =
            self.requested.load(Ordering::Relaxed) && self.requested.swap(false, Ordering::Relaxed);
        if requested {
            self.listened.store(true, Ordering::Relaxed);
        }
        requested
    }

    /// Leaves the serving thread's poll after its arming to the caller that holds the poller role. The serving thread must check the role
    /// afterwards.
    pub(crate) fn owe_recheck(&self) {
        self.recheck_owed.store(true, Ordering::Relaxed);
        // SYNC: orders the store before the check of the role; pairs with the fence in `PollerRole::successor`.
        fence(Ordering::SeqCst);
    }

    /// Returns whether the serving thread's poll was left to a caller, and clears that.
    pub(crate) fn takes_owed_recheck(&self) -> bool {
        self.recheck_owed.load(Ordering::Relaxed) && self.recheck_owed.swap(false, Ordering::Relaxed)
    }

    /// Returns a count of changes. If it is unchanged, no thread has armed, disarmed or consumed events in between.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Counts a thread that waits for its own call. The thread must drop the guard before it frees the call's slot.
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
    fn an_owed_recheck_is_taken_once() {
        let arming = Arming::default();
        assert!(!arming.takes_owed_recheck());
        arming.owe_recheck();
        assert!(arming.takes_owed_recheck());
        assert!(!arming.takes_owed_recheck());
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
