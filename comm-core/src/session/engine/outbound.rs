//! Outgoing messages: writing headers and posting work requests.

use alloc::sync::Arc;

use pronto_sync::atomic::Ordering;
use pronto_wire::{Acks, CallId, Class, FirstWords, Header, Kind, RawHeader, ServiceId, TypeId};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{Gather, Operation, Payload, PostError, QueuePair, SendWork, Signal};
use crate::session::backlog::is_new;
use crate::session::calls::Resend;
use crate::session::connection::Connection;
use crate::session::credit::Credit;
use crate::session::doorbells::PendingDoorbell;
use crate::session::inbound::{CachedResponse, LastCallState};
use crate::session::outgoing::{Outgoing, OutgoingPayload, Submitted};
use crate::session::send_error::SendError;
use crate::session::shared::{Shared, Turn};
use crate::session::spec::{CallSpec, timeout_us};

/// The parts of a header that depend on the link, not on the message.
pub(in crate::session) type OfLink<'l> = (Acks, &'l FirstWords);

/// Owner of the send memory for resend copies.
const OWNER_RESENT: u32 = u32::MAX;

impl<Q: QueuePair> Engine<Q> {
    /// Posts a message or operation of a sender that holds the engine. Returns the reason if a new request or notification cannot be posted
    /// now.
    pub(in crate::session) fn post_now(
        &mut self,
        submitted: Submitted,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> Result<(), NotPosted> {
        self.take_submissions(turn);
        if turn.shared.submissions.has_unpopped() {
            // Another push is in progress. An earlier message of this sender may be behind it in the queue, and must not be overtaken.
            return Err(NotPosted::BehindOthers(submitted));
        }
        if let Submitted::Message(outgoing) = &submitted
            && is_new(outgoing)
        {
            if !self.backlog.is_empty(outgoing.class) {
                return Err(NotPosted::Send(SendError::Busy));
            }
            let Some(link) = self.phase.link() else {
                return Err(NotPosted::Send(SendError::NotConnected { peer: turn.shared.peer }));
            };
            if link.peer_draining {
                return Err(NotPosted::Send(SendError::Draining));
            }
            let max = link.connections[outgoing.class.index()].peer_window.max_payload as usize;
            if outgoing.payload.len() > max {
                return Err(NotPosted::Send(SendError::TooLong { len: outgoing.payload.len(), max }));
            }
        }
        // A hold on doorbells is meant for the sender's own requests. It does not delay a response.
        let responses = matches!(&submitted, Submitted::Message(outgoing) if !is_new(outgoing));
        let notification = match &submitted {
            Submitted::Message(Outgoing {
                class,
                kind: Kind::Notification { .. },
                payload,
                completes: None,
                ..
            }) => Some((*class, payload.len())),
            _ => None,
        };
        self.post_any(submitted, turn);
        for class in Class::ALL {
            match notification {
                Some((of, len)) if of == class => self.ring_for_notification(class, len, turn),
                _ if responses => self.ring(class, turn.shared),
                _ => self.ring_for_sender(class, turn.shared),
            }
        }
        Ok(())
    }

    /// Posts a request of a caller that holds the engine, from the caller's payload. Returns `None` if anything prevents this; the longer
    /// path then finds the reason.
    #[inline(always)]
    pub(in crate::session) fn call_small(
        &mut self,
        spec: &CallSpec,
        type_id: TypeId,
        payload: Gather<'_>,
        shared: &Shared<Q::Lease>,
    ) -> Option<CallId> {
        let &CallSpec { key, class, timeout } = spec;
        let resumable = self.may_post_now(class, payload, shared)?;
        let resend = match resumable {
            true => Some(Resend {
                type_id,
                service: key.service,
                payload: Some(resend_copy(payload, shared, class)?),
            }),
            false => None,
        };
        let call = shared.calls.claim_in_engine()?;
        if let Some(credit) = self.credit(class, shared) {
            let deadline_us = timeout_us(timeout);
            let header =
                |of_link: OfLink<'_>| RawHeader::request(call, type_id, key.service, deadline_us, of_link);
            let work = (Signal::Unsignalled, payload);
            if self.post_message(class, header, PendingDoorbell::SOLICITED, work, shared).is_ok() {
                self.calls.posted(call, class, timeout, resend);
                self.ring_for_sender(class, shared);
                return Some(call);
            }
            shared.credits[class.index()].put_back(credit);
        }
        shared.calls.put_in_reserve(call.slot);
        None
    }

    /// Posts a notification of a sender that holds the engine, from the sender's payload. Returns `Ok(false)` if anything but a missing
    /// credit prevents this; the longer path then finds the reason.
    #[inline(always)]
    pub(in crate::session) fn notify_small(
        &mut self,
        (type_id, service): (TypeId, ServiceId),
        class: Class,
        payload: Gather<'_>,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> Result<bool, NoCredit> {
        let shared = turn.shared;
        if self.may_post_now(class, payload, shared).is_none() {
            return Ok(false);
        }
        let Some(credit) = self.credit(class, shared) else {
            self.connection(class).stream.refused();
            return Err(NoCredit);
        };
        let header = |of_link: OfLink<'_>| RawHeader::notification(type_id, service, of_link);
        let work = (Signal::Unsignalled, payload);
        if self.post_message(class, header, PendingDoorbell::SOLICITED, work, shared).is_err() {
            shared.credits[class.index()].put_back(credit);
            return Ok(false);
        }
        self.connection(class).was_posted(&Kind::Notification { type_id, service });
        self.ring_for_notification(class, payload.len(), turn);
        Ok(true)
    }

    /// Returns `None` if a message of a sender that holds the engine cannot be posted from the sender's payload. It can if there is a link,
    /// the provider copies the payload, and no earlier message waits. Returns then whether the session survives the loss of the link.
    #[inline(always)]
    fn may_post_now(&self, class: Class, payload: Gather<'_>, shared: &Shared<Q::Lease>) -> Option<bool> {
        let link = self.phase.link()?;
        let connection = &link.connections[class.index()];
        let may_copy = match payload {
            Gather::Inline(_) => true,
            Gather::Short(bytes) => bytes.len() <= connection.qp.capabilities().copies as usize,
            Gather::Ring(_) | Gather::Region { .. } => false,
        };
        let is_free = !link.peer_draining
            && may_copy
            && payload.len() <= connection.peer_window.max_payload as usize
            && self.backlog.is_empty(class)
            && !shared.submissions.has_unpopped();
        is_free.then_some(link.resumable)
    }

    /// Takes a credit, including one that the peer has just returned and that is not processed yet.
    #[inline(always)]
    pub(in crate::session) fn credit(&mut self, class: Class, shared: &Shared<Q::Lease>) -> Option<Credit> {
        let credits = &shared.credits[class.index()];
        if let Some(credit) = credits.take_in_engine() {
            return Some(credit);
        }
        self.settle_early(shared);
        let credit = credits.take_in_engine();
        let may_ask = &shared.may_ask[class.index()];
        // Asked once until the peer grants more.
        if credit.is_none() && may_ask.load(Ordering::Relaxed) && self.ask_for_credit(class, shared).is_some()
        {
            may_ask.store(false, Ordering::Relaxed);
        }
        credit
    }

    /// Posts one message on the current link. Returns it as an error if there is no room.
    pub(in crate::session) fn try_post(
        &mut self,
        mut outgoing: Outgoing,
        shared: &Shared<Q::Lease>,
    ) -> Result<(), Outgoing> {
        let (class, kind) = (outgoing.class, outgoing.kind);
        let header = |(acks, first): OfLink<'_>| Header { kind, acks }.emit_with(first);
        // The common case has a separate copy, in which the variant of the payload is a constant.
        if let (OutgoingPayload::Inline(payload), None) = (&outgoing.payload, outgoing.completes) {
            let work = (Signal::Unsignalled, Gather::Inline(payload));
            let Ok(sequence) = self.post_message(class, header, PendingDoorbell::of(&kind), work, shared)
            else {
                return Err(outgoing);
            };
            self.connection(class).was_posted(&kind);
            self.remember_copied(outgoing, sequence);
            self.ring_if_per_message(class, shared);
            return Ok(());
        }
        let Some(link) = self.phase.link() else { return Err(outgoing) };
        let connection = &link.connections[class.index()];
        if !move_to_present_ring(&mut outgoing, connection) {
            return Err(outgoing);
        }
        let payload = outgoing.payload.gather(connection.qp.capabilities().copies as usize);
        // A copied payload needs no completion, unless a sender waits for it.
        let signal = if payload.copied().is_some() && outgoing.completes.is_none() {
            Signal::Unsignalled
        } else {
            let Some(wr) = self.work.claim(class) else { return Err(outgoing) };
            Signal::Signalled(wr)
        };
        let posted = self.post_message(class, header, PendingDoorbell::of(&kind), (signal, payload), shared);
        match (posted, signal) {
            (Ok(sequence), signal) => {
                self.connection(class).was_posted(&kind);
                match signal {
                    Signal::Unsignalled => self.remember_copied(outgoing, sequence),
                    Signal::Signalled(wr) => self.remember(outgoing, wr, sequence),
                }
                self.ring_if_per_message(class, shared);
                return Ok(());
            }
            (Err(_), Signal::Signalled(wr)) => self.work.unclaim(wr),
            (Err(_), Signal::Unsignalled) => {}
        }
        if posted == Err(PostError::Unsupported) {
            return self.try_post(copy_into_ring(outgoing, shared)?, shared);
        }
        Err(outgoing)
    }

    /// Posts one message on the current link and returns its sequence number. Fails with [`PostError::Full`] if there is no room, and with
    /// [`PostError::Unsupported`] if the provider cannot access the region of the payload.
    ///
    /// Always inlined, with the header made here, where the acknowledgements are known. A header that is composed in registers avoids store
    /// forwarding, and a constant variant of the payload leaves one branch of the provider's `post`.
    #[inline(always)]
    pub(in crate::session) fn post_message(
        &mut self,
        class: Class,
        header: impl FnOnce(OfLink<'_>) -> RawHeader,
        rings: PendingDoorbell,
        (signal, payload): (Signal, Gather<'_>),
        shared: &Shared<Q::Lease>,
    ) -> Result<u16, PostError> {
        let Some(link) = self.phase.link_mut() else { return Err(PostError::Full) };
        let connection = &mut link.connections[class.index()];
        let returned = shared.returned[class.index()].count();
        let acks = connection.acks(returned);
        let header = header((acks, &link.first_words));
        match connection.qp.post(SendWork { signal, operation: Operation::Send { header: &header, payload } })
        {
            Ok(()) => {}
            Err(PostError::Full) => return Err(PostError::Full),
            Err(PostError::Unsupported) if matches!(payload, Gather::Region { .. }) => {
                return Err(PostError::Unsupported);
            }
            // The queue pair is dead or refuses permanently. The next poll reports that. This link does not carry the message.
            Err(_) => {
                connection.failed = true;
                return Err(PostError::Full);
            }
        }
        shared.acks_sent[class.index()].store(returned.into(), Ordering::Relaxed);
        let sequence = connection.posted(acks, rings);
        link.has_sent = true;
        shared.stats.messages_sent.add_alone(1);
        shared.stats.bytes_sent.add_alone(payload.len() as u64);
        Ok(sequence)
    }

    /// Records that the response to a call was posted, and stores the copy that may have to be sent again. Returns whether the call is the
    /// last one of its slot.
    #[inline(always)]
    pub(in crate::session) fn note_response(
        &mut self,
        call: CallId,
        kept: impl FnOnce() -> Option<CachedResponse>,
    ) -> bool {
        let last_call = self.last_calls.get_mut(usize::from(call.slot));
        let Some(last_call) = last_call.filter(|last_call| last_call.generation == call.generation) else {
            return false;
        };
        debug_assert!(
            matches!(last_call.state, LastCallState::Executing { .. }),
            "a request has one response"
        );
        last_call.state = LastCallState::Responded(kept());
        true
    }

    /// Drops the payloads of responses that the peer has acknowledged.
    pub(in crate::session) fn trim_responses(&mut self, class: Class) {
        loop {
            let connection = self.connection(class);
            let Some(&(sequence, call)) = connection.responses.front() else { return };
            if !connection.is_acknowledged(sequence) {
                return;
            }
            connection.responses.pop_front();
            if let Some(last_call) = self.last_calls.get_mut(usize::from(call.slot))
                && last_call.generation == call.generation
            {
                last_call.state = LastCallState::Responded(None);
            }
        }
    }
}

/// Returns a copy of a short request, for posting it again on the session's next link. A payload of up to 40 bytes is copied by value, a
/// longer one to send memory. Returns `None` if there is no room.
#[inline(always)]
fn resend_copy<L: Payload>(payload: Gather<'_>, shared: &Shared<L>, class: Class) -> Option<OutgoingPayload> {
    if let Gather::Inline(payload) = payload {
        return Some(OutgoingPayload::Inline(*payload));
    }
    let bytes = payload.copied()?;
    let mut loan = shared.loan(class, bytes.len(), OWNER_RESENT).ok()?;
    loan.as_mut_slice().copy_from_slice(bytes);
    Some(OutgoingPayload::Frame(loan.finish()))
}

/// Moves a payload that was composed in the send ring of an earlier link to the ring of the current link. Returns false if there is no
/// room.
#[inline]
fn move_to_present_ring<Q: QueuePair>(outgoing: &mut Outgoing, connection: &Connection<Q>) -> bool {
    let (OutgoingPayload::Frame(frame), Some(ring)) = (&outgoing.payload, &connection.ring) else {
        return true;
    };
    if frame.is_of(ring) {
        return true;
    }
    let Ok(mut loan) = Arc::clone(ring).loan(frame.len(), OWNER_RESENT) else { return false };
    loan.as_mut_slice().copy_from_slice(frame.bytes());
    outgoing.payload = OutgoingPayload::Frame(loan.finish());
    true
}

/// The peer's window of requests is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct NoCredit;

/// The reason why a message was not posted by a sender that holds the engine.
#[derive(Debug)]
pub(in crate::session) enum NotPosted {
    /// The message was not taken.
    Send(SendError),
    /// The message must queue behind submissions that are still being pushed.
    BehindOthers(Submitted),
}

/// Copies a payload by reference to send memory, because the provider cannot access its region.
fn copy_into_ring<L: Payload>(outgoing: Outgoing, shared: &Shared<L>) -> Result<Outgoing, Outgoing> {
    let class = outgoing.class.index();
    let OutgoingPayload::Region { region, offset, len } = &outgoing.payload else { return Ok(outgoing) };
    let ring = shared.rings[class].ring();
    let Some(Ok(mut loan)) = ring.ok().flatten().map(|ring| ring.loan(*len as usize, OWNER_RESENT)) else {
        return Err(outgoing);
    };
    let Ok(offset) = usize::try_from(*offset) else { return Err(outgoing) };
    if region.read(offset, loan.as_mut_slice()).is_err() {
        return Err(outgoing);
    }
    Ok(Outgoing { payload: OutgoingPayload::Frame(loan.finish()), ..outgoing })
}
