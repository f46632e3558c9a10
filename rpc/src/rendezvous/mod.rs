//! Rendezvous: sending the bytes of a region into a region that the receiver has posted.
//!
//! Both sides can compute during the transfer. A send returns a [`Sending`], a receive a [`Receive`], and the node's engine
//! moves the bytes. A short message is sent eagerly, with its offer. For a long message the sender grants its memory, and the
//! receiver reads it chunk by chunk. The two differ only in time. A message and a receive match if they have the same tag, in
//! the order of arrival. (PIOMan paper, section 3.1. `comm-core/src/session/rendezvous` defines the order of transfers.)

mod borrowed;
mod error;
mod messages;
mod receive;
mod sending;
mod source;

use alloc::sync::Arc;
use core::ops::Range;
use core::time::Duration;

use pronto_core::executor::WaitRequest;
use pronto_core::fabric::{QueuePair, Region};
use pronto_core::session::{MAX_PIECES, RoomFor, SendError, Session, WaitOutcome, WhenDown};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::CallId;

pub use error::{ReceiveError, TransferError};
pub(crate) use messages::{ByReference, Eager, Regrant};
pub use messages::{Form, take_in};
pub use receive::Receive;
use sending::Pieces;
pub use sending::Sending;
pub use source::MessageSource;

use crate::error::CallRejection;
use crate::host::{Host, MayWait};
use crate::peer::{Peer, nanos};

impl<H: Host> Peer<H> {
    /// Posts a receive for the peer's next message with this tag, into `range` of the region. The region must not be used for anything
    /// else until the receive has ended. Receives with the same tag take messages in the order of posting.
    ///
    /// # Errors
    /// [`SendError::TooManyTransfers`] if the maximum number of receives is posted, and the errors of sending a call.
    pub fn post(&self, tag: u64, region: &Region, range: Range<u64>) -> Result<Receive<H>, ReceiveError> {
        self.may_transfer()?;
        let (session, host) = (Arc::clone(self.session()), Arc::clone(self.host()));
        let len = range.end.checked_sub(range.start).ok_or(CallRejection::Here(SendError::OutOfRegion))?;
        // If this registration fails, the first chunk registers the region.
        let _readied = session.register_region(region, &*host);
        let slot =
            session.post_receive(tag, region, (range.start, len), &*host).map_err(CallRejection::Here)?;
        host.expects_responses();
        Ok(Receive { session, host, slot: Some(slot), policy: self.policy() })
    }

    /// Sends `range` of a [`Region`] or a [`Memory`](pronto_core::fabric::Memory) into the buffer of a receive with this tag. Waits for room to send, and until the bytes are in that buffer
    /// or the peer has stored an eager message for a later receive, together at most `timeout`.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn send(
        &self,
        tag: u64,
        source: &(impl MessageSource + ?Sized),
        range: Range<u64>,
        timeout: Duration,
    ) -> Result<(), TransferError> {
        self.send_within(timeout, |left| self.start_send(tag, source, range.clone(), left))
    }

    /// Sends like [`Peer::send`]. Awaits room and the end of the transfer, together at most `timeout`. Dropping the future cancels the send.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub async fn send_async(
        &self,
        tag: u64,
        source: &(impl MessageSource + ?Sized),
        range: Range<u64>,
        timeout: Duration,
    ) -> Result<(), TransferError> {
        let start = |left: Nanos| self.start_send(tag, source, range.clone(), Duration::from_nanos(left.0));
        self.await_room(RoomFor::Transfer, nanos(timeout), WhenDown::Fails, start).await?.await
    }

    /// Sends the bytes of several pieces as one message, in their order: ranges of regions or of memory of the program, at most
    /// [`MAX_PIECES`]. Waits as [`Peer::send`] does. The pieces may overlap, and may be empty. The receiver cannot tell such a message from one of a single range.
    ///
    /// # Errors
    /// See [`TransferError`], and [`SendError::TooManyPieces`].
    pub fn send_pieces(
        &self,
        tag: u64,
        pieces: &[(&(impl MessageSource + ?Sized), Range<u64>)],
        timeout: Duration,
    ) -> Result<(), TransferError> {
        self.send_within(timeout, |left| self.start_send_pieces(tag, pieces, left))
    }

    /// Starts to send the bytes of several pieces as one message, like [`Peer::send_pieces`]. Until the send has ended, it holds the memory,
    /// whose bytes must not change.
    ///
    /// # Errors
    /// Those of [`Peer::start_send`], and [`SendError::TooManyPieces`].
    pub fn start_send_pieces(
        &self,
        tag: u64,
        pieces: &[(&(impl MessageSource + ?Sized), Range<u64>)],
        timeout: Duration,
    ) -> Result<Sending<H>, TransferError> {
        if pieces.len() > MAX_PIECES {
            return Err(CallRejection::Here(SendError::TooManyPieces {
                pieces: pieces.len(),
                max: MAX_PIECES,
            })
            .into());
        }
        let mut all = Pieces::default();
        for (source, range) in pieces {
            all.add(source.region(), range.clone()).map_err(CallRejection::Here)?;
        }
        self.start_sending(tag, all, timeout, false)
    }

    /// Starts to send `range` of a region or of memory of the program. Until the send has ended, it holds the memory, whose bytes must not
    /// change.
    ///
    /// # Errors
    /// [`SendError::TooManyTransfers`] if the maximum number of sends is in progress, [`SendError::NotConnected`] also between two links of
    /// a session, [`TransferError::NotGranted`] if the transport cannot grant the memory, and the errors of sending a call.
    pub fn start_send(
        &self,
        tag: u64,
        source: &(impl MessageSource + ?Sized),
        range: Range<u64>,
        timeout: Duration,
    ) -> Result<Sending<H>, TransferError> {
        let mut pieces = Pieces::default();
        pieces.add(source.region(), range).map_err(CallRejection::Here)?;
        self.start_sending(tag, pieces, timeout, false)
    }

    /// Starts a send as soon as there is room, with the time that is left, and waits for its end.
    fn send_within(
        &self,
        timeout: Duration,
        start: impl Fn(Duration) -> Result<Sending<H>, TransferError>,
    ) -> Result<(), TransferError> {
        let (timeout, begun) = (nanos(timeout), self.host().now());
        let left = || Duration::from_nanos((begun + timeout).since(self.host().now()).0);
        self.when_there_is_room(timeout, || start(left()))?.wait()
    }

    /// Starts a send. With `revokes_early`, its grants end with the returned value, not with the response of the peer.
    fn start_sending(
        &self,
        tag: u64,
        pieces: Pieces,
        timeout: Duration,
        revokes_early: bool,
    ) -> Result<Sending<H>, TransferError> {
        self.may_transfer()?;
        let (session, host) = (Arc::clone(self.session()), Arc::clone(self.host()));
        let len = pieces.len().ok_or(CallRejection::Here(SendError::OutOfRegion))?;
        let timeout = nanos(timeout);
        session.enter_send().map_err(CallRejection::Here)?;
        let mut sending = Sending {
            session,
            host,
            call: None,
            unanswered: None,
            pieces,
            by_reference: false,
            link: 0,
            deadline: Nanos::NEVER,
            policy: self.policy(),
            ticket: None,
            revokes_early,
            is_unreadable: false,
        };
        sending.deadline = sending.host.now() + timeout;
        let call = if len <= sending.host.eager_limit(&sending.session) {
            sending.carry(tag, timeout)
        } else {
            sending.offer(tag, timeout)
        }?;
        (sending.call, sending.unanswered) = (Some(call), Some(call));
        sending.host.expects_responses();
        Ok(sending)
    }

    /// Returns the numbers of messages that wait for a receive, of receives that wait for a message, and of transfers in progress.
    pub fn transfers(&self) -> [usize; 3] {
        self.session().transfers(&**self.host())
    }

    /// Returns an error for an inline handler, whose thread holds the engine that a grant needs, and for a forked child, which has no
    /// connections.
    fn may_transfer(&self) -> Result<(), CallRejection> {
        match self.host().may_wait() {
            MayWait::Never => Err(CallRejection::InlineHandler),
            MayWait::Forked => Err(CallRejection::Forked),
            MayWait::Freely | MayWait::InPool => Ok(()),
        }
    }
}

/// Polls once for the end of `slot`, without waiting.
fn poll_once<H: Host>(host: &Arc<H>, session: &Arc<Session<H::Qp>>, slot: CallId) {
    if !session.has_ended(slot) {
        session.ring_if_held(&**host);
        let mut sink = host.waiting_sink(session);
        session.turn(1, || session.has_ended(slot), &mut sink, &**host);
    }
}

fn wait_as<H: Host>(
    host: &Arc<H>,
    session: &Arc<Session<H::Qp>>,
    slot: CallId,
    timeout: Nanos,
    policy: WaitPolicy,
) -> Result<WaitOutcome<<H::Qp as QueuePair>::Lease>, CallRejection> {
    let wait = |policy| {
        let mut sink = host.waiting_sink(session);
        session.wait(slot, timeout, WaitRequest::unlike_others(policy), &mut sink, &**host)
    };
    match host.may_wait() {
        MayWait::Freely => Ok(wait(policy)),
        MayWait::InPool => host.while_waiting(|| wait(policy.nested())).ok_or(CallRejection::NoWorker),
        MayWait::Never => Err(CallRejection::InlineHandler),
        MayWait::Forked => Err(CallRejection::Forked),
    }
}
