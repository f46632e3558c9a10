//! The futures of async handlers: where they are polled, and when they are dropped.
//!
//! A future has the duties of its request: when it ends, panics or is dropped, the call ends, its credit returns, and its place is free for
//! the next future. A cancellation, the end of the peer's session or the end of the node makes the future unwanted and wakes it; its next
//! poll drops it. So the program's code in it, also that of destructors, runs where the future is polled, and never under an engine lock.
//!
//! # Invariants
//! 1. A message of an async handler is listed from its arrival until its future was dropped, or it has failed without a future.
//! 2. An unwanted future is woken once more, or is not polled yet; so it is dropped by the next poll.
//! 3. No waker is called, cloned or dropped under a lock, as wakers are code of the program.

use core::fmt;
use core::ops::RangeInclusive;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use pronto_core::Executor as _;
use pronto_core::note::What;
use pronto_core::session::{DetachedToken, Response};
use pronto_rpc::Route;
use pronto_rpc::async_handler::ResponseFuture;
use pronto_rpc::handler::{Incoming, Origin};
use pronto_rpc::host::MayWait;
use pronto_wire::{CallId, FailureCode, NodeId, TypeId};

use crate::host::{NodeHost, as_handler};
use crate::recorder::flight;
use crate::serving::guard;
use crate::serving::pool::Place;
use crate::serving::sink::Job;
use crate::serving::worker_future::WorkerFuture;

/// Default of [`crate::Builder::max_futures`]: more than the calls that 16 peers can have open. Chosen by us; no source.
pub const MAX_FUTURES: usize = 1_024;

/// The future of an async handler, as an executor of the program gets it. It ends when the call has ended. If it is dropped before, the call
/// ends without a reply.
#[must_use = "dropping it ends the call without a reply"]
pub struct HandlerFuture {
    /// `None` after the end.
    handling: Option<Handling>,
}

/// A future and the possessions that it keeps until its end. Dropped in this order: the response follows the future's destructors.
struct Handling {
    future: ResponseFuture,
    token: DetachedToken<Origin<NodeHost>>,
    type_id: TypeId,
    listed: Listed,
    _place: Place,
}

/// A function of the program that makes its executor poll a future.
pub(crate) struct Spawn(Box<dyn Fn(HandlerFuture) + Send + Sync>);

/// The messages of async handlers that have arrived and not ended.
#[derive(Debug, Default)]
pub(crate) struct Futures {
    /// The executor of the program, set at the start if there is one.
    pub(crate) spawn: OnceLock<Spawn>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    open: BTreeMap<Key, Arc<Watch>>,
    next: u64,
    /// The node ends, so no future is wanted any more.
    closed: bool,
}

/// The sender of a message, its call unless it is a notification, and a number of this node.
type Key = (NodeId, Option<CallId>, u64);

/// Whether a message's future is wanted.
#[derive(Debug)]
struct Watch(Mutex<State>);

#[derive(Debug)]
enum State {
    /// With the waker of the last poll.
    Wanted(Option<Waker>),
    Unwanted,
}

/// The entry of a message in the list, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    host: Arc<NodeHost>,
    key: Key,
    watch: Arc<Watch>,
}

/// A message for an async handler that has a place.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) job: Job,
    pub(crate) listed: Listed,
    pub(crate) place: Place,
}

impl Spawn {
    pub(crate) fn new(spawn: impl Fn(HandlerFuture) + Send + Sync + 'static) -> Self {
        Self(Box::new(spawn))
    }
}

impl Futures {
    /// Lists a message that has arrived.
    pub(crate) fn list(host: &Arc<NodeHost>, peer: NodeId, call: Option<CallId>) -> Listed {
        let mut list = host.futures.lock();
        let key = (peer, call, list.next);
        list.next += 1;
        let state = if list.closed { State::Unwanted } else { State::Wanted(None) };
        let watch = Arc::new(Watch(Mutex::new(state)));
        list.open.insert(key, Arc::clone(&watch));
        Listed { host: Arc::clone(host), key, watch }
    }

    /// Ends the future of a call that its caller has cancelled. The calling thread may hold an engine lock.
    #[cold]
    pub(crate) fn cancel(&self, peer: NodeId, call: CallId, host: &NodeHost) {
        self.end((peer, Some(call), 0)..=(peer, Some(call), u64::MAX), host);
    }

    /// Ends the futures of all calls of a peer whose session has ended. Those of its notifications go on. The calling thread may hold an
    /// engine lock.
    #[cold]
    pub(crate) fn peer_down(&self, peer: NodeId, host: &NodeHost) {
        let [first, last] =
            [(0, 0), (u16::MAX, u32::MAX)].map(|(slot, generation)| Some(CallId { slot, generation }));
        self.end((peer, first, 0)..=(peer, last, u64::MAX), host);
    }

    /// Ends all futures, present and later ones, because the node ends. Those that workers poll were dropped when this returns, except
    /// those that are being polled.
    pub(crate) fn close(&self, host: &NodeHost) {
        self.lock().closed = true;
        self.end(
            (NodeId(0), None, 0)
                ..=(NodeId(u16::MAX), Some(CallId { slot: u16::MAX, generation: u32::MAX }), u64::MAX),
            host,
        );
    }

    fn end(&self, keys: RangeInclusive<Key>, host: &NodeHost) {
        let unwanted: Vec<_> = self.lock().open.range(keys).map(|(_, watch)| Arc::clone(watch)).collect();
        // All are ended before one is woken, whose place a message would take that is unwanted as well.
        let wakers: Vec<_> = unwanted.iter().filter_map(|watch| watch.end()).collect();
        for waker in wakers {
            host.foreign(|| waker.wake());
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("no holder panics")
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }

    /// Makes the future unwanted. Returns its waker, if it has one.
    fn end(&self) -> Option<Waker> {
        match core::mem::replace(&mut *self.lock(), State::Unwanted) {
            State::Wanted(waker) => waker,
            State::Unwanted => None,
        }
    }

    /// Sets the waker of a future. Returns whether the future is wanted.
    fn wakes(&self, waker: &Waker) -> bool {
        match &*self.lock() {
            State::Unwanted => return false,
            State::Wanted(Some(old)) if old.will_wake(waker) => return true,
            State::Wanted(_) => {}
        }
        let mut waker = Some(waker.clone());
        let is_wanted = match &mut *self.lock() {
            State::Unwanted => false,
            State::Wanted(old) => {
                core::mem::swap(old, &mut waker);
                true
            }
        };
        drop(waker);
        is_wanted
    }
}

impl Listed {
    fn is_wanted(&self) -> bool {
        matches!(*self.watch.lock(), State::Wanted(_))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let listed = self.host.futures.lock().open.remove(&self.key);
        debug_assert!(listed.is_some(), "a message is listed until this is dropped");
        drop(listed);
    }
}

impl Beginning {
    /// Calls the handler, on a worker, and polls its future for the first time, unless an executor of the program does. A call that was
    /// cancelled or has reached its deadline fails instead.
    pub(crate) fn run(self, host: &Arc<NodeHost>) {
        let Self { job, listed, place } = self;
        let route = if listed.is_wanted() { job.route(host) } else { Err(FailureCode::Cancelled) };
        let Job { token, type_id, deadline, payload, .. } = job;
        let future = route.and_then(|route| {
            let session = &token.callee().session;
            let incoming = Incoming::new(token.call(), session, host, deadline);
            host.note(flight::of_message(What::Handles, session.peer(), token.call(), type_id));
            let begin = || route.begin(&incoming, payload);
            let begun = as_handler(MayWait::InPool, || guard::caught(begin));
            begun.unwrap_or_else(|| {
                panicked(&token, route, type_id);
                Err(FailureCode::HandlerPanicked)
            })
        });
        let future = match future {
            Ok(future) => future,
            Err(code) => return token.fail(code),
        };
        let class = token.class();
        let handling = Handling { future, token, type_id, listed, _place: place };
        let future = HandlerFuture { handling: Some(handling) };
        match host.futures.spawn.get() {
            None => WorkerFuture::run_new(host, class, future),
            Some(spawn) => spawn.call(future),
        }
    }
}

impl Spawn {
    fn call(&self, future: HandlerFuture) {
        if as_handler(MayWait::InPool, || guard::caught(|| (self.0)(future))).is_none() {
            tracing::error!("the executor of async handlers panicked when it was given a future");
        }
    }
}

impl Handling {
    /// Drops the future, and then sends the response. Without one, the call ends without a reply.
    fn end(self, response: Option<Response>) {
        let Self { future, token, type_id, listed, _place } = self;
        // The destructor of an unwanted future is code of the program.
        guard::caught(|| drop(future));
        listed.host.note(flight::of_message(
            What::Handled,
            token.callee().session.peer(),
            token.call(),
            type_id,
        ));
        if let Some(response) = response {
            token.respond(response);
        }
    }
}

impl Future for HandlerFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(handling) = &mut self.handling else { return Poll::Ready(()) };
        let response = if handling.listed.watch.wakes(context.waker()) {
            match guard::caught(|| handling.future.as_mut().poll(context)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(response)) => Some(response),
                None => {
                    let host = &handling.listed.host;
                    panicked(
                        &handling.token,
                        &host.routes()[usize::from(handling.type_id.0)],
                        handling.type_id,
                    );
                    Some(Response::failure(FailureCode::HandlerPanicked))
                }
            }
        } else {
            None
        };
        if let Some(handling) = self.handling.take() {
            handling.end(response);
        }
        Poll::Ready(())
    }
}

/// Records that a handler or its future panicked.
#[cold]
fn panicked(token: &DetachedToken<Origin<NodeHost>>, route: &Route<NodeHost>, type_id: TypeId) {
    let Origin { session, host } = token.callee();
    host.note(flight::of_message(What::Panicked, session.peer(), token.call(), type_id));
    tracing::error!(handler = route.name, "handler panicked");
}

impl fmt::Debug for HandlerFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.handling.as_ref().map(|handling| handling.listed.key);
        f.debug_struct("HandlerFuture").field("message", &key).finish_non_exhaustive()
    }
}

impl fmt::Debug for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawn")
    }
}

#[cfg(test)]
mod tests {
    use pronto_core::session::{Limits, Session, Sink as _};

    use super::*;
    use crate::Node;
    use crate::serving::sink::{ServingSink, WaitingSink};

    /// The serving thread or a caller that waits for another call receives the cancellation.
    #[test]
    fn a_cancellation_ends_the_future_of_its_call_in_whichever_thread_it_arrives() {
        let node = Node::builder(1).start().expect("it listens nowhere");
        let (host, peer) = (&node.host, NodeId(9));
        let session = Arc::new(Session::new(peer, Limits::default()));
        let calls = [1, 2, 3].map(|slot| CallId { slot, generation: 1 });
        let [served, waiting, other] = calls.map(|call| Futures::list(host, peer, Some(call)));
        ServingSink::new(host, &session).cancelled(calls[0]);
        assert_eq!([&served, &waiting, &other].map(Listed::is_wanted), [false, true, true]);
        WaitingSink { host, session: &session }.cancelled(calls[1]);
        assert_eq!([&served, &waiting, &other].map(Listed::is_wanted), [false, false, true]);
    }
}
