//! What leaves: headers written, work requests posted.

use alloc::sync::Arc;

use pronto_sync::atomic::Ordering;
use pronto_wire::{Acks, CallId, Class, Header, Kind, RawHeader, TypeId};

use super::Engine;
use crate::executor::Executor;
use crate::fabric::{Gather, Operation, Payload, PostError, QueuePair, SendWork, Signal};
use crate::session::backlog::is_new;
use crate::session::calls::Resend;
use crate::session::credit::Credit;
use crate::session::doorbells::Unrung;
use crate::session::inbound::{KeptAnswer, SeenState};
use crate::session::outgoing::{Copied, Outgoing, OutgoingPayload, Submitted};
use crate::session::refusal::Refused;
use crate::session::shared::{Shared, Turn};
use crate::session::spec::{CallSpec, timeout_us};
use crate::time::Nanos;

/// Owner of ring space that a resent message takes.
const OWNER_RESENT: u32 = u32::MAX;

impl<Q: QueuePair> Engine<Q> {
    /// A message or operation of a sender that holds the engine. Refused as a value if there is no room for it.
    pub(in crate::session) fn post_now(
        &mut self,
        submitted: Submitted,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> Result<(), NotPosted> {
        self.take_submissions(turn);
        if turn.shared.submissions.has_unpopped() {
            // A push is under way. A message of this very sender may stand behind it, and must not be overtaken.
            return Err(NotPosted::BehindOthers(submitted));
        }
        if let Submitted::Message(outgoing) = &submitted
            && is_new(outgoing)
        {
            if !self.backlog.is_empty(outgoing.class) {
                return Err(NotPosted::Refused(Refused::Busy));
            }
            let Some(link) = self.phase.link() else {
                return Err(NotPosted::Refused(Refused::NotConnected { peer: turn.shared.peer }));
            };
            if link.peer_draining {
                return Err(NotPosted::Refused(Refused::Draining));
            }
            let max = link.lanes[outgoing.class.index()].peer_window.max_payload as usize;
            if outgoing.payload.len() > max {
                return Err(NotPosted::Refused(Refused::TooLong { len: outgoing.payload.len(), max }));
            }
        }
        // Whoever holds doorbells back means what it sends itself: somebody else's answer does not wait for that.
        let answers = matches!(&submitted, Submitted::Message(outgoing) if !is_new(outgoing));
        self.post_any(submitted, turn);
        for class in Class::ALL {
            if answers { self.ring(class, turn.shared) } else { self.ring_for_sender(class, turn.shared) }
        }
        Ok(())
    }

    /// A request of a caller that holds the engine, straight into its line. None if anything stands in the way: then it
    /// goes the longer way, which knows why.
    #[inline(always)]
    pub(in crate::session) fn call_small(
        &mut self,
        spec: &CallSpec,
        type_id: TypeId,
        payload: Copied<'_>,
        shared: &Shared<Q::Lease>,
    ) -> Option<CallId> {
        let &CallSpec { key, class, timeout } = spec;
        let present = self.phase.link()?;
        let lane = &present.lanes[class.index()];
        let may_copy = match payload {
            Copied::Line(_) => true,
            Copied::Short(bytes) => bytes.len() <= lane.qp.capabilities().copies as usize,
        };
        let free = !present.peer_draining
            && may_copy
            && payload.len() <= lane.peer_window.max_payload as usize
            && self.backlog.is_empty(class)
            && !shared.submissions.has_unpopped();
        if !free {
            return None;
        }
        let resend = match present.resumable {
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
            let header = |acks| RawHeader::request(call, type_id, key.service, deadline_us, acks);
            if self.post_copied(class, header, Unrung::SOLICITED, payload, shared) {
                self.calls.posted(call, class, timeout, resend);
                self.ring_for_sender(class, shared);
                return Some(call);
            }
            shared.credits[class.index()].put_back(credit);
        }
        shared.calls.set_aside(call.slot);
        None
    }

    /// A credit, also one that the peer has just given back.
    #[inline(always)]
    pub(in crate::session) fn credit(&mut self, class: Class, shared: &Shared<Q::Lease>) -> Option<Credit> {
        let credits = &shared.credits[class.index()];
        if let Some(credit) = credits.take_in_engine() {
            return Some(credit);
        }
        self.settle_early(shared);
        credits.take_in_engine()
    }

    /// Posts one message on the present link; gives it back if there is no room.
    pub(in crate::session) fn try_post(
        &mut self,
        outgoing: Outgoing,
        shared: &Shared<Q::Lease>,
    ) -> Result<(), Outgoing> {
        let class = outgoing.class;
        if let Some(small) = Small::of(&outgoing) {
            if !self.post_small(&small, shared) {
                return Err(outgoing);
            }
            self.ring_between(outgoing.class, shared);
            return Ok(());
        }
        let outgoing = self.move_to_present_ring(outgoing)?;
        let Some(wr) = self.work.claim() else { return Err(outgoing) };
        let resumable = self.phase.link().is_some_and(|link| link.resumable);
        let link = self.phase.link_mut().expect("posted only while there is a link");
        let lane = &mut link.lanes[class.index()];
        let returned = shared.returned[class.index()].count();
        let acks = lane.acks(returned);
        let header = Header { kind: outgoing.kind, acks }.emit();
        let copies = lane.qp.capabilities().copies as usize;
        let payload = match &outgoing.payload {
            OutgoingPayload::Inline(payload) => Gather::Inline(payload.as_slice()),
            OutgoingPayload::Frame(frame) if frame.len() <= copies => Gather::Inline(frame.bytes()),
            OutgoingPayload::Frame(frame) => Gather::Ring(frame.extent()),
            OutgoingPayload::Region { region, offset, len } => {
                Gather::Region { region, offset: *offset, len: *len }
            }
        };
        // What was copied needs no completion, unless somebody waits for it.
        let copied = matches!(payload, Gather::Inline(_)) && outgoing.completes.is_none();
        let signal = if copied { Signal::Unsignalled } else { Signal::Signalled(wr) };
        let len = payload.len();
        match lane.qp.post_send(SendWork { signal, operation: Operation::Send { header: &header, payload } })
        {
            Ok(()) => {}
            Err(PostError::Full) => {
                self.work.unclaim(wr);
                return Err(outgoing);
            }
            Err(PostError::Unsupported) if matches!(outgoing.payload, OutgoingPayload::Region { .. }) => {
                self.work.unclaim(wr);
                let outgoing = copy_into_ring(outgoing, shared)?;
                return self.try_post(outgoing, shared);
            }
            // The queue pair is dead or refuses for good; the next poll says so, and the link's end ends this message.
            Err(_) => lane.failed = true,
        }
        shared.told[class.index()].store(returned.into(), Ordering::Relaxed);
        let sequence = lane.posted(acks, Unrung::of(&outgoing.kind));
        lane.was_posted(&outgoing.kind);
        link.spoke = true;
        shared.stats.messages_sent.add_alone(1);
        shared.stats.bytes_sent.add_alone(len as u64);
        if copied {
            self.work.unclaim(wr);
            self.remember_copied(outgoing, sequence, resumable);
        } else {
            self.remember(outgoing, wr, sequence, resumable);
        }
        self.ring_between(class, shared);
        Ok(())
    }

    /// Posts a message that is copied meanwhile, if there is a link; false if there is no room. By far the most frequent kind:
    /// nothing of it is moved but into the line. Always inlined, with the header made where the acknowledgements are known: words that
    /// are put together in registers need not wait for the store buffer.
    #[inline(always)]
    pub(in crate::session) fn post_copied(
        &mut self,
        class: Class,
        header: impl FnOnce(Acks) -> RawHeader,
        rings: Unrung,
        payload: Copied<'_>,
        shared: &Shared<Q::Lease>,
    ) -> bool {
        let Some(link) = self.phase.link_mut() else { return false };
        let lane = &mut link.lanes[class.index()];
        let returned = shared.returned[class.index()].count();
        let acks = lane.acks(returned);
        let header = header(acks);
        let posted = match payload {
            Copied::Line(payload) => lane.qp.post_small(&header, payload),
            Copied::Short(bytes) => {
                let operation = Operation::Send { header: &header, payload: Gather::Inline(bytes) };
                lane.qp.post_send(SendWork { signal: Signal::Unsignalled, operation })
            }
        };
        match posted {
            Ok(()) => {}
            Err(PostError::Full) => return false,
            // The queue pair is dead or refuses for good; the next poll says so, and the link's end ends this message.
            Err(_) => lane.failed = true,
        }
        shared.told[class.index()].store(returned.into(), Ordering::Relaxed);
        lane.posted(acks, rings);
        link.spoke = true;
        shared.stats.messages_sent.add_alone(1);
        shared.stats.bytes_sent.add_alone(payload.len() as u64);
        true
    }

    /// The same for a message of any kind.
    fn post_small(&mut self, small: &Small<'_>, shared: &Shared<Q::Lease>) -> bool {
        let &Small { class, kind, payload, timeout } = small;
        let header = |acks| Header { kind, acks }.emit();
        if !self.post_copied(class, header, Unrung::of(&kind), payload, shared) {
            return false;
        }
        let Some(link) = self.phase.link_mut() else { return true };
        link.lanes[class.index()].was_posted(&kind);
        let resumable = link.resumable;
        match kind {
            Kind::Request { call, type_id, service, .. } => {
                let payload = match payload {
                    Copied::Line(payload) if resumable => Some(OutgoingPayload::Inline(*payload)),
                    _ => None,
                };
                let resend = payload.map(|payload| Resend { type_id, service, payload: Some(payload) });
                self.calls.posted(call, class, timeout, resend);
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => self.note_answer(call, small),
            _ => {}
        }
        true
    }

    /// An answer was posted.
    #[inline(always)]
    pub(in crate::session) fn note_answer(&mut self, call: CallId, small: &Small<'_>) {
        let resumable = self.phase.link().is_some_and(|link| link.resumable);
        if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
            && seen.generation == call.generation
        {
            seen.state = match small.payload {
                Copied::Line(payload) if resumable => {
                    let (class, kind, posted_on) = (small.class, small.kind, Some(self.generation));
                    let payload = OutgoingPayload::Inline(*payload);
                    SeenState::Answered(Some(KeptAnswer { class, kind, payload, posted_on }))
                }
                _ => SeenState::Answered(None),
            };
        }
    }

    /// The same message with its payload in the present link's ring, if it was composed in an earlier one's.
    #[inline]
    fn move_to_present_ring(&self, outgoing: Outgoing) -> Result<Outgoing, Outgoing> {
        let OutgoingPayload::Frame(frame) = &outgoing.payload else { return Ok(outgoing) };
        let lanes = self.phase.link().map(|link| &link.lanes);
        let Some(ring) = lanes.and_then(|lanes| lanes[outgoing.class.index()].ring.as_ref()) else {
            return Ok(outgoing);
        };
        if frame.is_of(ring) {
            return Ok(outgoing);
        }
        let Ok(mut loan) = Arc::clone(ring).loan(frame.len(), OWNER_RESENT) else { return Err(outgoing) };
        loan.as_mut_slice().copy_from_slice(frame.bytes());
        Ok(Outgoing { payload: OutgoingPayload::Frame(loan.finish()), ..outgoing })
    }

    /// The peer has acknowledged answers: their payloads need not be kept any longer.
    pub(in crate::session) fn trim_answers(&mut self, class: Class) {
        loop {
            let lane = self.lane(class);
            let Some(&(sequence, call)) = lane.answers.front() else { return };
            if !lane.is_acknowledged(sequence) {
                return;
            }
            lane.answers.pop_front();
            if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
                && seen.generation == call.generation
            {
                seen.state = SeenState::Answered(None);
            }
        }
    }
}

/// A copy of a short request, from which the session's next link can repeat it: a payload of up to 40 bytes as it is, a longer
/// one in send memory. None if there is no room for it.
#[inline(always)]
fn resend_copy<L: Payload>(payload: Copied<'_>, shared: &Shared<L>, class: Class) -> Option<OutgoingPayload> {
    let bytes = match payload {
        Copied::Line(payload) => return Some(OutgoingPayload::Inline(*payload)),
        Copied::Short(bytes) => bytes,
    };
    let mut loan = shared.loan(class, bytes.len(), OWNER_RESENT).ok()?;
    loan.as_mut_slice().copy_from_slice(bytes);
    Some(OutgoingPayload::Frame(loan.finish()))
}

/// A message that is copied while it is posted, and that nobody waits for the completion of.
#[derive(Debug)]
pub(in crate::session) struct Small<'a> {
    pub(in crate::session) class: Class,
    pub(in crate::session) kind: Kind,
    pub(in crate::session) payload: Copied<'a>,
    pub(in crate::session) timeout: Nanos,
}

impl<'a> Small<'a> {
    fn of(outgoing: &'a Outgoing) -> Option<Self> {
        let OutgoingPayload::Inline(payload) = &outgoing.payload else { return None };
        let payload = Copied::Line(payload);
        let &Outgoing { class, kind, timeout, completes: None, .. } = outgoing else { return None };
        Some(Self { class, kind, payload, timeout })
    }
}

/// Why a message was not posted by a sender that holds the engine.
#[derive(Debug)]
pub(in crate::session) enum NotPosted {
    /// It is not taken.
    Refused(Refused),
    /// It has to queue behind submissions that are still being made.
    BehindOthers(Submitted),
}

/// A payload by reference that this provider cannot reach: it travels as a copy.
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
