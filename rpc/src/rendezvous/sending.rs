//! A send in progress: its offer, its grant, and a new grant after a change of link.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use pronto_core::fabric::{FabricError, Grant, GrantError, QueuePair, Region, Rights};
use pronto_core::session::{
    CallSpec, End, LeftSend, Lent, MAX_PIECES, OutgoingPayload, RoomFor, RoomRequest, RoomState, RoomTicket,
    SendError, Session, WaitOutcome, WhenDown,
};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, Class};

use super::error::{TransferError, sent};
use super::messages::{ByReference, EAGER_HEADER, Eager, Regrant, key_of};
use super::{poll_once, wait_as};
use crate::Message;
use crate::codec::encode_message;
use crate::error::CallRejection;
use crate::host::Host;
use crate::one_sided::RemoteMemory;

/// Interval at which a thread that waits for a send checks whether the link has changed.
const LINK_CHECK_INTERVAL: Nanos = Nanos::from_millis(20);
/// Length of the longest internal message about a send by reference, bytes: its fields, and 24 bytes for each piece.
const LONGEST: usize = 16 + 24 * MAX_PIECES;
/// Owner number of the ring space of an eager message, and of an offer of several pieces.
const OWNER: u32 = u32::MAX - 1;

/// A range of a region that is sent, alone or as a part of a message.
pub(super) struct Piece {
    region: Region,
    range: Range<u64>,
    /// The grant of the bytes to the peer, with the generation of its link. `None` for an eager message, and if there is no grant yet.
    grant: Option<(Grant, u16)>,
}

impl Piece {
    const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The pieces of a message, in order, without empty ones. One needs no list.
#[derive(Default)]
pub(super) struct Pieces {
    first: Option<Piece>,
    more: Vec<Piece>,
}

impl Pieces {
    /// Adds a piece, unless it is empty.
    pub(super) fn add(&mut self, region: &Region, range: Range<u64>) -> Result<(), SendError> {
        if range.start > range.end || range.end > region.len() as u64 {
            return Err(SendError::OutOfRegion);
        }
        let piece = (!range.is_empty()).then(|| Piece { region: region.clone(), range, grant: None });
        if self.first.is_none() {
            self.first = piece;
        } else {
            self.more.extend(piece);
        }
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.first.iter().chain(&self.more)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.first.iter_mut().chain(&mut self.more)
    }

    /// Returns the length of the message, bytes; none if it is more than a number of 64 bits.
    pub(super) fn len(&self) -> Option<u64> {
        self.iter().try_fold(0_u64, |len, piece| len.checked_add(piece.len()))
    }
}

/// A send in progress. Dropping it cancels the send.
///
/// The send continues if no thread waits for it. After a loss of the link it continues only once a thread waits for it or polls it: a
/// grant ends with its link, and only the wait or poll makes a new one. A task that awaits it is woken for that.
#[must_use = "dropping it cancels the send"]
pub struct Sending<H: Host> {
    pub(super) session: Arc<Session<H::Qp>>,
    pub(super) host: Arc<H>,
    /// `None` before the offer was sent, and after the end was taken.
    pub(super) call: Option<CallId>,
    /// The call of the offer, from when it was sent until its response was taken.
    pub(super) unanswered: Option<CallId>,
    pub(super) pieces: Pieces,
    pub(super) by_reference: bool,
    /// The link of the grants.
    pub(super) link: u16,
    pub(super) deadline: Nanos,
    pub(super) policy: WaitPolicy,
    /// The place in the queue for room, while a task must notify the peer of a new grant.
    pub(super) ticket: Option<RoomTicket>,
    /// Whether the grants end with this value, even if the peer may be reading. Otherwise they end when the call has its response.
    pub(super) revokes_early: bool,
    /// Whether the memory has lost its bytes, so that no other grant can be made.
    pub(super) is_unreadable: bool,
}

impl<H: Host> Sending<H> {
    /// Waits until the bytes are in the receiver's buffer, or until the peer has stored an eager message for a later receive.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn wait(mut self) -> Result<(), TransferError> {
        let Some(call) = self.call else { return Err(TransferError::Cancelled) };
        loop {
            let left = self.deadline.since(self.host.now());
            let slice = if self.by_reference { left.min(LINK_CHECK_INTERVAL) } else { left };
            match wait_as(&self.host, &self.session, call, slice, self.policy)? {
                WaitOutcome::Ended(end) => return self.ended(end),
                WaitOutcome::TimedOut if slice == left => return Err(TransferError::Deadline),
                WaitOutcome::TimedOut if self.lacks_grant() => {
                    self.grant_again(call);
                    if self.is_unreadable {
                        return Err(TransferError::Unreadable);
                    }
                }
                WaitOutcome::TimedOut => {}
            }
        }
    }

    /// Polls once, without waiting. Returns `None` while there is no end, and also after the end was returned.
    pub fn poll(&mut self) -> Option<Result<(), TransferError>> {
        let call = self.call?;
        poll_once(&self.host, &self.session, call);
        if self.session.has_ended(call) {
            let end = self.session.take(call, &*self.host);
            return Some(self.ended(end));
        }
        if self.lacks_grant() {
            self.grant_again(call);
        }
        self.is_unreadable.then(|| self.gives_up())
    }

    /// Cancels a send whose bytes are gone. Returns its result.
    fn gives_up(&mut self) -> Result<(), TransferError> {
        if let Some(call) = self.call.take() {
            self.session.abandon(call, Class::Bulk, &*self.host);
        }
        Err(TransferError::Unreadable)
    }

    /// Returns the result of a send whose call has ended.
    fn ended(&mut self, end: End<<H::Qp as QueuePair>::Lease>) -> Result<(), TransferError> {
        self.call = None;
        if !matches!(end, End::Deadline { .. }) {
            self.unanswered = None;
        }
        sent::<H>(end)
    }

    /// Cancels the send.
    pub fn cancel(self) -> TransferError {
        TransferError::Cancelled
    }

    /// Returns the error of a send while there is no link. It ends when another link resumes the session.
    fn not_connected(&self) -> SendError {
        SendError::NotConnected { peer: self.session.peer() }
    }

    pub(super) fn carry(&self, tag: u64, timeout: Nanos) -> Result<CallId, TransferError> {
        let here = |refused| match refused {
            SendError::NoRing => CallRejection::Here(self.not_connected()),
            refused => CallRejection::Here(refused),
        };
        let len = self.pieces.len().and_then(|len| usize::try_from(len).ok()).unwrap_or(usize::MAX);
        let loan = self.session.loan_after_reaping(Class::Bulk, EAGER_HEADER + len, OWNER, &*self.host);
        let mut loan = loan.map_err(here)?;
        let (header, mut bytes) = loan.as_mut_slice().split_at_mut(EAGER_HEADER);
        header.copy_from_slice(&tag.to_le_bytes());
        for piece in self.pieces.iter() {
            let start = usize::try_from(piece.range.start).unwrap_or(usize::MAX);
            let (here_to, rest) = bytes.split_at_mut(usize::try_from(piece.len()).unwrap_or(usize::MAX));
            // The bounds were checked when the piece was added.
            piece.region.read(start, here_to).map_err(|_| TransferError::Unreadable)?;
            bytes = rest;
        }
        let spec = CallSpec { key: key_of::<Eager>(), class: Class::Bulk, timeout };
        let payload = OutgoingPayload::Frame(loan.finish());
        Ok(self.session.call(&spec, payload, &*self.host).map_err(here)?)
    }

    pub(super) fn offer(&mut self, tag: u64, timeout: Nanos) -> Result<CallId, TransferError> {
        self.by_reference = true;
        let (memory, more) = self.grant_now().map_err(|error| match error {
            GrantError::Failed(FabricError::Lost) => CallRejection::Here(self.not_connected()).into(),
            GrantError::Unreadable => TransferError::Unreadable,
            error => TransferError::from(error),
        })?;
        let spec = CallSpec { key: key_of::<ByReference>(), class: Class::Bulk, timeout };
        let payload = self.encode(&ByReference { tag, memory, more })?;
        Ok(self
            .session
            .call_with_grant(&spec, payload, self.link, &*self.host)
            .map_err(CallRejection::Here)?)
    }

    /// Returns the payload of an internal message. That about one piece is inline.
    fn encode<M: Message>(&self, message: &M) -> Result<OutgoingPayload, CallRejection> {
        let mut bytes = [0; LONGEST];
        let len = encode_message(message, &mut bytes).map_err(CallRejection::Encoding)?;
        if let Some(payload) = OutgoingPayload::inline(&bytes[..len]) {
            return Ok(payload);
        }
        let loan = self.session.loan_after_reaping(Class::Bulk, len, OWNER, &*self.host);
        let mut loan = loan.map_err(CallRejection::Here)?;
        loan.as_mut_slice().copy_from_slice(&bytes[..len]);
        Ok(OutgoingPayload::Frame(loan.finish()))
    }

    /// Grants all pieces on the current link. Returns the first one and the others. After an error, none is granted.
    fn grant_now(&mut self) -> Result<(RemoteMemory, Vec<RemoteMemory>), GrantError> {
        // Those of an earlier link have ended with it.
        self.take_grants_back();
        let mut link = None;
        let granted = self.pieces.iter_mut().try_for_each(|piece| {
            let range = piece.range.clone();
            let granted = self.session.grant_on_link(&piece.region, range, Rights::READ, &*self.host)?;
            piece.grant = Some(granted);
            // A message names grants of one link. If another one has come meanwhile, the next attempt grants all on it.
            if *link.get_or_insert(granted.1) == granted.1 { Ok(()) } else { Err(FabricError::Lost.into()) }
        });
        if let Err(error) = granted {
            self.take_grants_back();
            return Err(error);
        }
        self.link = link.expect("only an eager message is empty");
        let remote = |piece: &Piece| piece.grant.map(|(grant, _)| RemoteMemory::from(grant.remote));
        let mut granted = self.pieces.iter().filter_map(remote);
        let first = granted.next().expect("only an eager message is empty");
        Ok((first, granted.collect()))
    }

    /// Returns whether the link has changed since the grant.
    fn lacks_grant(&self) -> bool {
        self.by_reference && self.session.link_generation() != self.link && self.session.is_up()
    }

    /// Grants the bytes on the current link and notifies the peer. Returns whether that succeeded. If it fails for lack of room or of a
    /// link, the next wait or poll tries again.
    fn grant_again(&mut self, call: CallId) -> bool {
        let (before, mut is_unreadable) = (self.link, false);
        let granted = self.grant_now().inspect_err(|error| is_unreadable |= *error == GrantError::Unreadable);
        self.is_unreadable |= is_unreadable;
        let granted = granted.is_ok_and(|(memory, more)| {
            let CallId { slot, generation } = call;
            self.encode(&Regrant { slot, generation, memory, more }).is_ok_and(|payload| {
                let key = key_of::<Regrant>();
                self.session.notify_with_grant(&key, Class::Bulk, payload, self.link, &*self.host).is_ok()
            })
        });
        if !granted {
            self.take_grants_back();
            self.link = before;
        }
        granted
    }

    /// Grants the bytes on the current link as soon as there is room to notify the peer. Until then the task is in the queue.
    fn await_grant(&mut self, call: CallId, waker: &Waker) {
        if self.ticket.is_none() {
            let (room, deadline) = (RoomFor::Notification(Class::Bulk), self.deadline);
            let request = RoomRequest { room, deadline, when_down: WhenDown::Waits };
            let mut sink = self.host.waiting_sink(&self.session);
            self.ticket = Some(self.session.join_queue(request, &mut sink, &*self.host));
        }
        let mut refusals = 0;
        while let Some(ticket) = &self.ticket {
            if self.session.poll_queue(ticket, waker, &*self.host) != RoomState::Given {
                // A ticket expires with the call, whose end wakes the task.
                return;
            }
            if self.grant_again(call) || self.is_unreadable {
                return self.leave_queue();
            }
            if let Some(ticket) = &self.ticket {
                let refused = self.not_connected();
                self.session.rejoin_queue(ticket, &refused, refusals, &*self.host);
            }
            refusals += 1;
        }
    }

    fn leave_queue(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.session.leave_queue(&ticket, &*self.host);
        }
    }
}

impl<H: Host> Sending<H> {
    /// Ends grants of which the peer was not notified.
    fn take_grants_back(&mut self) {
        for (grant, link) in self.pieces.iter_mut().filter_map(|piece| piece.grant.take()) {
            self.session.revoke_on(link, grant.id, &*self.host);
        }
    }
}

impl<H: Host> Future for Sending<H> {
    type Output = Result<(), TransferError>;

    /// Polls the send, without receiving messages itself. The node makes progress. The thread that ends the send wakes the waker.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(call) = this.call else { return Poll::Ready(Err(TransferError::Cancelled)) };
        if !this.session.has_ended(call) {
            this.session.register(call, context.waker());
            this.session.listen(&mut this.host.waiting_sink(&this.session), &*this.host);
            // A new link wakes the task as the end does, so both are looked for after the waker is registered.
            if !this.session.has_ended(call) {
                if this.lacks_grant() {
                    this.await_grant(call, context.waker());
                }
                if this.is_unreadable {
                    this.leave_queue();
                    return Poll::Ready(this.gives_up());
                }
                return Poll::Pending;
            }
        }
        this.leave_queue();
        let end = this.session.take(call, &*this.host);
        Poll::Ready(this.ended(end))
    }
}

impl<H: Host> Unpin for Sending<H> {}

impl<H: Host> Drop for Sending<H> {
    fn drop(&mut self) {
        self.leave_queue();
        if let Some(call) = self.call.take() {
            self.session.abandon(call, Class::Bulk, &*self.host);
        }
        if self.revokes_early {
            self.take_grants_back();
        }
        let call = self.unanswered;
        let lent = |piece: Piece| {
            piece.grant.map(|(grant, link)| Lent { grant: grant.id, link, region: piece.region })
        };
        let Pieces { first, more } = core::mem::take(&mut self.pieces);
        let leave = |is_counted, lent| {
            self.session.leave_send(LeftSend { is_counted, call, lent }, &*self.host);
        };
        for lent in more.into_iter().filter_map(lent) {
            leave(false, Some(lent));
        }
        leave(true, first.and_then(lent));
    }
}

impl<H: Host> fmt::Debug for Sending<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending")
            .field("call", &self.call)
            .field("pieces", &self.pieces.iter().map(|piece| &piece.range).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
