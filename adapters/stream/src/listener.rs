//! Listeners: the streams that peers have opened and the program has not accepted yet.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_core::Stream;

use crate::endpoint::Core;
use crate::error::Refusal;
use crate::stream::PeerStream;

/// A listener for the streams of one service. If it is dropped, its peers are refused, and the streams that were not accepted are reset.
pub struct Listener {
    core: Arc<Core>,
    service: Box<str>,
    backlog: Arc<Backlog>,
}

impl Listener {
    pub(crate) const fn new(core: Arc<Core>, service: Box<str>, backlog: Arc<Backlog>) -> Self {
        Self { core, service, backlog }
    }

    /// Awaits the next stream. Dropping the future loses none.
    pub async fn accept(&mut self) -> PeerStream {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for the next stream. If there is none, the task that polled last is woken by the next one.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<PeerStream> {
        let waker = context.waker().clone();
        let mut held = self.backlog.lock();
        if let Some(stream) = held.streams.pop_front() {
            return Poll::Ready(stream);
        }
        let old = held.waker.replace(waker);
        drop(held);
        // A waker is code of the program, which must not run under the lock.
        drop(old);
        Poll::Pending
    }
}

/// The streams in the order in which they were opened. It has no end, and no errors.
impl Stream for Listener {
    type Item = io::Result<PeerStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_accept(context).map(|stream| Some(Ok(stream)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.core.listeners.lock().expect("no holder panics").remove(&self.service);
        let mut held = self.backlog.lock();
        held.state = State::Closed;
        let streams = core::mem::take(&mut held.streams);
        let waker = held.waker.take();
        drop(held);
        drop((streams, waker));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("service", &self.service).finish_non_exhaustive()
    }
}

/// The streams that were not accepted yet.
#[derive(Debug)]
pub(crate) struct Backlog {
    held: Mutex<Held>,
    limit: usize,
}

#[derive(Debug)]
struct Held {
    streams: VecDeque<PeerStream>,
    state: State,
    waker: Option<Waker>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl Backlog {
    pub(crate) const fn new(limit: usize) -> Self {
        let held = Held { streams: VecDeque::new(), state: State::Open, waker: None };
        Self { held: Mutex::new(held), limit }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no holder panics")
    }

    /// Adds a stream, or returns it with the reason why not.
    pub(crate) fn add(&self, stream: PeerStream) -> Result<(), (Refusal, PeerStream)> {
        let mut held = self.lock();
        if held.state == State::Closed {
            drop(held);
            return Err((Refusal::NoListener, stream));
        }
        if held.streams.len() >= self.limit {
            drop(held);
            return Err((Refusal::BacklogFull, stream));
        }
        held.streams.push_back(stream);
        let waker = held.waker.take();
        drop(held);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}
