//! A future that workers poll: its waker queues it for the next free worker.
//!
//! # Invariants
//! 1. A future is in the ready queue at most once: it is queued exactly when it becomes [`State::Queued`].
//! 2. The future is dropped without the lock of its state, because its destructors may wake it.

use core::pin::Pin;
use core::task::{Context, Waker};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Wake;

use pronto_rpc::host::MayWait;
use pronto_wire::Class;

use crate::host::{NodeHost, as_handler};
use crate::serving::futures::HandlerFuture;
use crate::serving::guard;
use crate::serving::pool::Work;

/// A future that workers poll. Its wakers own it.
#[derive(Debug)]
pub(crate) struct WorkerFuture {
    host: Arc<NodeHost>,
    /// Class of its message, in whose ready queue it waits.
    class: Class,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// It waits to be woken.
    Idle(HandlerFuture),
    /// It waits for a worker.
    Queued(HandlerFuture),
    /// A worker polls it.
    Polled(WokenMeanwhile),
    /// It was dropped.
    Over,
}

/// Whether a future was woken since its poll began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WokenMeanwhile {
    No,
    Yes,
}

impl WorkerFuture {
    /// Polls a new future on the calling worker.
    pub(crate) fn run_new(host: &Arc<NodeHost>, class: Class, future: HandlerFuture) {
        let state = Mutex::new(State::Polled(WokenMeanwhile::No));
        Arc::new(Self { host: Arc::clone(host), class, state }).poll(future);
    }

    /// Returns the class in whose ready queue the future waits.
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    /// Polls a queued future on the calling worker.
    pub(crate) fn run(self: Arc<Self>) {
        if let Some(future) = self.take(State::Polled(WokenMeanwhile::No)) {
            self.poll(future);
        }
    }

    /// Drops a queued future, because the pool has stopped.
    pub(crate) fn discard(&self) {
        let future = self.take(State::Over);
        guard::caught(|| drop(future));
    }

    /// Takes a queued future out, and sets the next state.
    fn take(&self, next: State) -> Option<HandlerFuture> {
        let mut state = self.lock();
        match core::mem::replace(&mut *state, next) {
            State::Queued(future) => Some(future),
            other => {
                *state = other;
                None
            }
        }
    }

    fn poll(self: Arc<Self>, mut future: HandlerFuture) {
        let waker = Waker::from(Arc::clone(&self));
        let mut poll = || Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        let polled = as_handler(MayWait::InPool, || guard::caught(&mut poll));
        if polled.is_none_or(|polled| polled.is_ready()) {
            *self.lock() = State::Over;
            guard::caught(|| drop(future));
            return;
        }
        let mut state = self.lock();
        let queues = matches!(*state, State::Polled(WokenMeanwhile::Yes));
        *state = if queues { State::Queued(future) } else { State::Idle(future) };
        drop(state);
        if queues {
            self.queue();
        }
    }

    fn queue(self: Arc<Self>) {
        let host = Arc::clone(&self.host);
        host.pool.submit(None, Work::Poll(self));
        host.pool.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Wake for WorkerFuture {
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        match core::mem::replace(&mut *state, State::Over) {
            State::Idle(future) => {
                *state = State::Queued(future);
                drop(state);
                self.queue();
            }
            State::Polled(_) => *state = State::Polled(WokenMeanwhile::Yes),
            other => *state = other,
        }
    }
}
