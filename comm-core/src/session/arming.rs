//! Which events the fabric is asked for, while the node's serving thread sleeps.
//!
//! Answers are unsolicited events. The server that sleeps asks for solicited ones alone, so that an answer which a caller
//! polls for wakes nobody else, and calls come and go without arming anything. Everything is asked for as long as somebody
//! relies on the server for an answer (a future) or for room (a stalled message), and by a caller that sleeps in the
//! channel itself.
//!
//! # Invariants
//! 1. The state is written by the engine's holder alone; what others read is a hint, or is confirmed under the lock.
//! 2. A caller that sleeps in the channel has armed everything, and whoever arms for the server sees under the lock that it
//!    sleeps, and leaves that and what arrives to it: asking for less would leave it asleep beside its answer.
//! 3. A waiter is counted while it has a call slot, and not beyond: so there are no more waiters than slots in use, and
//!    more slots than waiters say that there is a call which nobody polls for now. It may be a future's only if one has listened since there
//!    was none. Others are waited for in their turn, as where several calls are under way: were everything asked for meanwhile, each of their
//!    answers would cost its sender a wake-up.

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::fabric::Armed;

/// What the fabric was asked for, and how many wait for themselves.
#[derive(Debug, Default)]
pub(super) struct Arming {
    state: AtomicU32,
    /// How often that was set, wrapping. Whoever sets it may take the events that have come.
    changes: AtomicU32,
    waiters: AtomicU32,
    /// A future has listened since there was a call that nobody polled for.
    listened: AtomicBool,
    /// A future has listened without the engine. Taken by the next thread that arms for the server, which arms everything then: the
    /// number of open calls that it has read may be older.
    requested: AtomicBool,
}

/// A waiter, counted until this is dropped.
pub(super) struct Waiter<'a>(&'a Arming);

impl Arming {
    pub(super) fn armed(&self) -> Armed {
        match self.state.load(Ordering::Relaxed) {
            0 => Armed::Nothing,
            1 => Armed::Solicited,
            _ => Armed::All,
        }
    }

    /// Engine only.
    pub(super) fn set(&self, armed: Armed) {
        self.state.store(armed as u32, Ordering::Relaxed);
        self.changes.store(self.changes().wrapping_add(1), Ordering::Relaxed);
    }

    /// Threads that wait for calls of their own.
    pub(super) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Engine only: a future waits for an answer, or there is no call that nobody polls for.
    pub(super) fn set_listened(&self, listened: bool) {
        self.listened.store(listened, Ordering::Relaxed);
    }

    /// Whether a future may wait for an answer.
    pub(super) fn has_listened(&self) -> bool {
        self.listened.load(Ordering::Relaxed)
    }

    /// Leaves it to the next thread that arms for the server to arm everything.
    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
        self.listened.store(true, Ordering::Relaxed);
    }

    /// Engine only.
    pub(super) fn takes_request(&self) -> bool {
        let requested =
            self.requested.load(Ordering::Relaxed) && self.requested.swap(false, Ordering::Relaxed);
        if requested {
            self.listened.store(true, Ordering::Relaxed);
        }
        requested
    }

    /// Grows whenever something else may have been asked for, and what had been asked for taken.
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Counts a thread that waits for a call of its own. It gives the call's slot back after dropping this.
    pub(super) fn waiter(&self) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        Waiter(self)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_counted_while_they_wait() {
        let arming = Arming::default();
        assert_eq!(arming.armed(), Armed::Nothing);
        let (first, second) = (arming.waiter(), arming.waiter());
        drop(first);
        assert_eq!(arming.waiters.load(Ordering::Relaxed), 1);
        drop(second);
        assert_eq!(arming.waiters.load(Ordering::Relaxed), 0);
        for armed in [Armed::All, Armed::Solicited, Armed::Nothing] {
            let changes = arming.changes();
            arming.set(armed);
            assert_eq!(arming.armed(), armed);
            assert_ne!(arming.changes(), changes);
        }
    }
}
