//! A peer as a service.
//!
//! # Invariants
//! 1. `queued` counts the calls of a client and its clones that wait for room to send. The client is ready while it is 0.
//! 2. A client has at most one waker in `wakers`, which it takes with it when it is dropped.

use core::fmt;
use core::future::{Future, ready};
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pronto::{CallError, DEFAULT_TIMEOUT, Peer, Pending, Request};
use tower::Service;

/// A peer as a `tower::Service` of the requests `M`.
///
/// The service is ready unless a call of this client or a clone waits for room to send: for a credit of the peer, a call slot or send
/// memory. So a layer that sheds load does so when the peer or this node is busy, and not before. The call that waits has its place in
/// the queue of the peer. Dropping the future of a call cancels it.
pub struct Client<M> {
    peer: Peer,
    timeout: Duration,
    room: Arc<Room>,
    id: u64,
    requests: PhantomData<fn(M)>,
}

impl<M: Request> Client<M> {
    /// Returns a client whose calls have [`DEFAULT_TIMEOUT`].
    pub fn new(peer: Peer) -> Self {
        let room = Arc::new(Room::default());
        let id = room.next_id();
        Self { peer, timeout: DEFAULT_TIMEOUT, room, id, requests: PhantomData }
    }

    /// Returns this client with another deadline of each call, which begins when it is made.
    #[must_use]
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<M> Clone for Client<M> {
    fn clone(&self) -> Self {
        let (peer, room, id) = (self.peer.clone(), Arc::clone(&self.room), self.room.next_id());
        Self { peer, timeout: self.timeout, room, id, requests: PhantomData }
    }
}

impl<M> Drop for Client<M> {
    fn drop(&mut self) {
        let waker = self.room.lock().wakers.remove(&self.id);
        drop(waker);
    }
}

impl<M> fmt::Debug for Client<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("peer", &self.peer.node())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl<M: Request + Sync> Service<M> for Client<M> {
    type Response = M::Reply;
    type Error = CallError;
    type Future = Calling<M>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let waker = context.waker().clone();
        let mut state = self.room.lock();
        if state.queued == 0 {
            return Poll::Ready(Ok(()));
        }
        let old = state.wakers.insert(self.id, waker);
        drop(state);
        // A waker is code of the program, which must not run under the lock.
        drop(old);
        Poll::Pending
    }

    fn call(&mut self, request: M) -> Calling<M> {
        let state = match self.peer.start_within(&request, self.timeout) {
            Ok(pending) => State::Sent(pending),
            Err(error)
                if error.is_retryable() && (self.peer.is_up() || self.peer.session().is_on_demand()) =>
            {
                let (peer, timeout) = (self.peer.clone(), self.timeout);
                let queued = Queued::new(Arc::clone(&self.room));
                State::Queued(Box::pin(async move {
                    let outcome = peer.start_async_within(&request, timeout).await;
                    drop(queued);
                    outcome
                }))
            }
            Err(error) => State::Queued(Box::pin(ready(Err(error)))),
        };
        Calling { state }
    }
}

/// A call in progress.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Calling<M: Request> {
    state: State<M>,
}

enum State<M: Request> {
    Queued(Pin<Box<dyn Future<Output = Result<Pending<M>, CallError>> + Send>>),
    Sent(Pending<M>),
}

impl<M: Request> Future for Calling<M> {
    type Output = Result<M::Reply, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.state {
                State::Sent(pending) => return Pin::new(pending).poll(context),
                State::Queued(starting) => match starting.as_mut().poll(context) {
                    Poll::Ready(Ok(pending)) => self.state = State::Sent(pending),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}

impl<M: Request> fmt::Debug for Calling<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Queued(_) => "Calling(queued)",
            State::Sent(_) => "Calling(sent)",
        })
    }
}

/// The calls that wait for room, and the tasks that wait until there are none.
#[derive(Debug, Default)]
struct Room {
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    queued: usize,
    next_id: u64,
    wakers: HashMap<u64, Waker>,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().expect("no holder panics")
    }

    fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.next_id += 1;
        state.next_id
    }
}

/// A call that waits for room, until it is dropped.
#[derive(Debug)]
struct Queued {
    room: Arc<Room>,
}

impl Queued {
    fn new(room: Arc<Room>) -> Self {
        room.lock().queued += 1;
        Self { room }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.room.lock();
        state.queued -= 1;
        let woken = if state.queued == 0 { core::mem::take(&mut state.wakers) } else { HashMap::new() };
        drop(state);
        woken.into_values().for_each(Waker::wake);
    }
}
