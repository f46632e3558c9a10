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

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use super::Session;
use super::engine::{Engine, RECEIVE_BATCH};
use super::inbound::Sink;
use crate::completion::Server;
use crate::executor::Executor;
use crate::fabric::QueuePair;

/// What the fabric was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Nothing,
    Solicited,
    All,
}

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

    /// Whether a future may wait for an answer.
    pub(super) fn has_listened(&self) -> bool {
        self.listened.load(Ordering::Relaxed)
    }

    /// Leaves it to the next thread that arms for the server to arm everything.
    fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
        self.listened.store(true, Ordering::Relaxed);
    }

    /// Engine only.
    fn takes_request(&self) -> bool {
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

impl<Q: QueuePair> Engine<Q> {
    /// Asks for what the sleeping server must be woken for. Returns whether it is the server's business: it is not while a caller
    /// sleeps in the channel.
    fn arm_for_server(&mut self, session: &Session<Q>) -> bool {
        if session.role.is_asleep() {
            return false;
        }
        let open = u32::from(session.calls.in_use());
        // SYNC: a waiter leaves the count before its slot is given back; pairs with the release of the slot.
        fence(Ordering::Acquire);
        let unattended = open > session.arming.waiters.load(Ordering::Relaxed);
        if !unattended {
            session.arming.listened.store(false, Ordering::Relaxed);
        }
        let requested = session.arming.takes_request();
        let unattended = requested || unattended && session.arming.listened.load(Ordering::Relaxed);
        self.arm(if unattended || !self.backlog.is_clear() { Armed::All } else { Armed::Solicited }, session);
        true
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Asks the fabric for an event. Poll once more before sleeping.
    pub fn arm(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.arm(Armed::All, self);
            engine.release();
        }
    }

    /// Takes that back, unless a caller relies on it: the event is then the caller's to take.
    pub fn disarm(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            if self.role.is_free() {
                engine.disarm([true; 2], self);
            }
            engine.release();
        }
    }

    /// The same for the one who holds the role, and has not slept, or was told of everything that ended the sleep.
    pub(super) fn disarm_as_poller(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.disarm([false; 2], self);
            engine.release();
        }
    }

    /// The server is about to sleep, or awake again, or polls for good. Before it does sleep, it looks once more at what has arrived.
    pub fn server(&self, state: Server, executor: &impl Executor) {
        if let Some(follower) = self.role.server_is(state) {
            self.wake_follower(follower, executor);
        }
        if matches!(state, Server::Sleeps) && self.role.is_free() {
            let _armed = self.with_engine(executor, |engine| {
                engine.note_heard(executor.now());
                let _armed = engine.arm_for_server(self);
            });
        }
    }

    /// A poller has left: if nobody polls any more and the server sleeps, what arrives from now on must wake it.
    pub(super) fn serve_again(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        let nobody = self.role.server_relies_on_channel() && self.role.is_free();
        if nobody && self.arming.armed() == Armed::Nothing {
            let moved = self.with_engine(executor, |engine| {
                let turn = engine.arm_for_server(self);
                turn.then(|| engine.turn(None, self, &mut || false, sink, executor).moved)
            });
            if moved.flatten().is_some_and(|moved| moved >= RECEIVE_BATCH) {
                // There may be more, and nobody else was told.
                executor.attend();
            }
        }
    }

    /// Has the server hear of a future's answer, also if it sleeps already: nobody polls for the future. Takes in what has arrived,
    /// unless the calling thread must not wait for the engine; then the server does so.
    pub fn listen(&self, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        self.ring_if_held(executor);
        let listening = self.with_engine(executor, |engine| {
            self.arming.listened.store(true, Ordering::Relaxed);
            if self.role.is_asleep() {
                // A caller sleeps in the channel, armed for everything: the event is its own to take.
                return;
            }
            if self.arming.armed() == Armed::Solicited {
                engine.arm(Armed::All, self);
            }
            engine.turn(None, self, &mut || false, sink, executor);
        });
        if listening.is_none() {
            self.arming.request();
            // SYNC: a server that is about to sleep finds the request when it arms, or is woken and arms again; pairs with the fence
            // between its word and its sources. The other fence is in `attend`.
            executor.attend();
        }
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
