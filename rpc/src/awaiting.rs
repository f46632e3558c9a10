//! Calls and messages of tasks, which await room to send instead of blocking a thread.
//!
//! A task that is refused joins the queue of its peer and class, and is woken when there is room for it. So is a task that finds others
//! waiting, which it must not overtake. The serving thread ends waits whose deadline has passed, with the ticks that end open calls.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::session::{Executed, RoomFor, RoomRequest, RoomState, RoomTicket, SendError, WhenDown};

use crate::error::{CallError, CallRejection};
use crate::host::Host;
use crate::message::{Message, Request};
use crate::peer::{DEFAULT_TIMEOUT, Peer, nanos};
use crate::pending::Pending;

impl<H: Host> Peer<H> {
    /// Calls the peer and awaits the reply, at most [`DEFAULT_TIMEOUT`], like [`Peer::call_async_within`].
    pub async fn call_async<M: Request>(&self, request: &M) -> Result<M::Reply, CallError> {
        self.call_async_within(request, DEFAULT_TIMEOUT).await
    }

    /// Calls the peer and awaits room to send and the reply, together at most `timeout`. Tasks that send messages of one class get room in
    /// the order of their arrival. If the peer goes down, an idempotent request is repeated as soon as the peer is back, for at most
    /// another `timeout`; any other request fails. Dropping the future cancels the call.
    pub async fn call_async_within<M: Request>(
        &self,
        request: &M,
        timeout: Duration,
    ) -> Result<M::Reply, CallError> {
        let outcome = self.start_async_within(request, timeout).await?.await;
        match outcome {
            Err(CallError::PeerDown { .. }) if M::IDEMPOTENT => {
                self.repeat(request, nanos(timeout), outcome).await
            }
            outcome => outcome,
        }
    }

    /// Awaits room to send, at most [`DEFAULT_TIMEOUT`], and sends a request, like [`Peer::start_async_within`].
    pub async fn start_async<M: Request>(&self, request: &M) -> Result<Pending<M, H>, CallError> {
        self.start_async_within(request, DEFAULT_TIMEOUT).await
    }

    /// Awaits room to send, and sends a request. The reply must arrive within `timeout` of the first poll of this future.
    pub async fn start_async_within<M: Request>(
        &self,
        request: &M,
        timeout: Duration,
    ) -> Result<Pending<M, H>, CallError> {
        self.start_when(request, nanos(timeout), WhenDown::Fails).await
    }

    /// Sends a notification like [`Peer::notify`]. Awaits room to send, at most [`DEFAULT_TIMEOUT`].
    pub async fn notify_async<M: Message>(&self, message: &M) -> Result<(), CallError> {
        self.notify_async_within(message, DEFAULT_TIMEOUT).await
    }

    /// Sends a notification like [`Peer::notify`]. Awaits room to send, at most `timeout`.
    pub async fn notify_async_within<M: Message>(
        &self,
        message: &M,
        timeout: Duration,
    ) -> Result<(), CallError> {
        let room = RoomFor::Notification(M::CLASS);
        self.await_room(room, nanos(timeout), WhenDown::Fails, |_| self.notify(message)).await
    }

    fn start_when<'a, M: Request>(
        &'a self,
        request: &'a M,
        timeout: Nanos,
        when_down: WhenDown,
    ) -> impl Future<Output = Result<Pending<M, H>, CallError>> {
        self.await_room(RoomFor::Call(M::CLASS), timeout, when_down, move |left| {
            self.start_within(request, Duration::from_nanos(left.0))
        })
    }

    /// Repeats an idempotent request whose peer went down. Returns `outcome`, of the last attempt, if the peer is not back within `timeout`.
    async fn repeat<M: Request>(
        &self,
        request: &M,
        timeout: Nanos,
        mut outcome: Result<M::Reply, CallError>,
    ) -> Result<M::Reply, CallError> {
        let deadline = self.host().now() + timeout;
        while matches!(outcome, Err(CallError::PeerDown { .. })) {
            let left = deadline.since(self.host().now());
            match self.start_when(request, left, WhenDown::Waits).await {
                Ok(pending) => outcome = pending.await,
                Err(CallError::Deadline { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        outcome
    }

    /// Returns a future that makes an attempt to send as soon as there is room. `attempt` gets the time left.
    pub(crate) const fn await_room<R, E, F>(
        &self,
        room: RoomFor,
        timeout: Nanos,
        when_down: WhenDown,
        attempt: F,
    ) -> AwaitRoom<'_, H, F>
    where
        E: Refusal,
        F: FnMut(Nanos) -> Result<R, E>,
    {
        AwaitRoom { peer: self, room, timeout, when_down, ticket: None, attempt }
    }
}

/// An error that may be a refusal for lack of room.
pub(crate) trait Refusal: From<CallRejection> {
    /// Returns the refusal, if the error is one of this node.
    fn refusal(&self) -> Option<SendError>;

    /// Returns the error of a message that was not sent before its deadline.
    fn not_sent() -> Self;
}

impl Refusal for CallError {
    fn refusal(&self) -> Option<SendError> {
        match self {
            Self::Rejected(CallRejection::Here(refused)) => Some(*refused),
            _ => None,
        }
    }

    fn not_sent() -> Self {
        Self::Deadline { executed: Executed::No }
    }
}

/// A future that repeats an attempt to send until it is not refused for lack of room.
#[must_use = "futures do nothing unless they are awaited"]
pub(crate) struct AwaitRoom<'p, H: Host, F> {
    peer: &'p Peer<H>,
    room: RoomFor,
    timeout: Nanos,
    when_down: WhenDown,
    /// The place in the queue, from the first refusal on.
    ticket: Option<RoomTicket>,
    attempt: F,
}

impl<H: Host, F> AwaitRoom<'_, H, F> {
    /// Returns the refusal of an attempt, if it ends by itself.
    fn waits<R, E: Refusal>(&self, outcome: &Result<R, E>) -> Option<SendError> {
        let refused = outcome.as_ref().err()?.refusal()?;
        let waits = match self.when_down {
            WhenDown::Fails => self.peer.waits_for_room(&refused),
            WhenDown::Waits => refused.is_retryable(),
        };
        waits.then_some(refused)
    }

    fn joins(&self) -> RoomTicket {
        let (host, session) = (self.peer.host(), self.peer.session());
        let deadline = host.now() + self.timeout;
        let request = RoomRequest { room: self.room, deadline, when_down: self.when_down };
        let ticket = session.join_queue(request, &mut host.waiting_sink(session), &**host);
        host.expects_responses();
        ticket
    }

    /// Removes the task from the queue.
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.peer.session().leave_queue(&ticket, &**self.peer.host());
        }
    }
}

impl<R, E, H, F> Future for AwaitRoom<'_, H, F>
where
    E: Refusal,
    H: Host,
    F: FnMut(Nanos) -> Result<R, E>,
{
    type Output = Result<R, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let peer = this.peer;
        peer.check_fork()?;
        let (host, session) = (&**peer.host(), peer.session());
        if this.ticket.is_none() && !session.is_room_awaited() {
            let outcome = (this.attempt)(this.timeout);
            if this.waits(&outcome).is_none() {
                return Poll::Ready(outcome);
            }
        }
        if this.ticket.is_none() {
            this.ticket = Some(this.joins());
        }
        let mut refusals = 0;
        loop {
            let ticket = this.ticket.as_ref().expect("the task has joined the queue");
            match session.poll_queue(ticket, context.waker(), host) {
                RoomState::Waiting => return Poll::Pending,
                RoomState::Expired => {
                    let left = ticket.request().deadline.since(host.now());
                    this.ticket = None;
                    // Before its deadline, a ticket ends with the node. The refusal of an attempt says so.
                    let over = left == Nanos::ZERO;
                    return Poll::Ready(if over { Err(E::not_sent()) } else { (this.attempt)(left) });
                }
                RoomState::Given => {}
            }
            let left = ticket.request().deadline.since(host.now());
            if left == Nanos::ZERO {
                this.leave();
                return Poll::Ready(Err(E::not_sent()));
            }
            let outcome = (this.attempt)(left);
            let Some(refused) = this.waits(&outcome) else {
                this.leave();
                return Poll::Ready(outcome);
            };
            let ticket = this.ticket.as_ref().expect("the task has joined the queue");
            session.rejoin_queue(ticket, &refused, refusals, host);
            refusals += 1;
        }
    }
}

impl<H: Host, F> Unpin for AwaitRoom<'_, H, F> {}

impl<H: Host, F> Drop for AwaitRoom<'_, H, F> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<H: Host, F> fmt::Debug for AwaitRoom<'_, H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitRoom")
            .field("room", &self.room)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
