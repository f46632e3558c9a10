//! What arrives: checked, counted, and handed on.

use pronto_wire::{CallId, Class, FailureCode, Header, Kind, RawHeader, Request, ServiceId, TypeId};

use super::Session;
use super::calls::{Cause, Ended, Report};
use super::end::End;
use super::engine::Engine;
use super::link::{Event, Lane, Unrung};
use super::outbound::Small;
use super::outgoing::{Copied, Outgoing, OutgoingPayload};
use super::token::{RequestToken, TokenSlot};
use super::wait::Waiter;
use crate::executor::Executor;
use crate::fabric::{Arrived, FabricError, PeerFault, QueuePair, Received};
use crate::time::Nanos;

/// A request or notification that passed all checks of the session.
#[derive(Debug)]
pub struct Inbound<'turn, P> {
    /// The duties that it leaves this side with: its response, and its credit.
    pub token: RequestToken<'turn>,
    /// This node's number for its type.
    pub type_id: TypeId,
    /// Addressed service.
    pub service: ServiceId,
    /// It was sent before, on an earlier link: what it says of that link's grants is over.
    pub resent: bool,
    /// How long the caller goes on waiting from now; `NEVER` for ever.
    pub timeout: Nanos,
    /// What it carries.
    pub payload: P,
}

/// The header of a request or notification, as far as sinks need it.
struct Addressed {
    type_id: TypeId,
    service: ServiceId,
    resent: bool,
    timeout: Nanos,
}

impl Addressed {
    #[inline(always)]
    fn inbound<'turn, P>(&self, slot: &'turn mut TokenSlot, payload: P) -> Inbound<'turn, P> {
        let &Self { type_id, service, resent, timeout } = self;
        Inbound { token: slot.token(), type_id, service, resent, timeout, payload }
    }
}

/// The response to a request.
#[derive(Debug)]
pub enum Answer {
    /// The handler's reply.
    Reply {
        /// The class that the reply travels in.
        class: Class,
        /// What it carries.
        payload: OutgoingPayload,
    },
    /// A failure.
    Failure {
        /// Why.
        code: FailureCode,
        /// A handler's own error, encoded.
        payload: OutgoingPayload,
    },
}

impl Answer {
    /// A failure without payload.
    pub const fn failure(code: FailureCode) -> Self {
        Self::Failure { code, payload: OutgoingPayload::EMPTY }
    }

    /// Returns the message that answers a call that came in `class`.
    #[inline]
    pub(super) fn into_message(self, call: CallId, class: Class) -> (Class, Kind, OutgoingPayload) {
        match self {
            Self::Reply { class, payload } => (class, Kind::Reply { call }, payload),
            Self::Failure { code, payload } => (class, Kind::Failure { call, code }, payload),
        }
    }
}

/// Where a session's engine hands what arrives.
pub trait Sink<L> {
    /// Takes a request or notification. The sink decides whether its handler runs here: the sink of a waiting caller
    /// queues everything. A sink that does not answer here detaches the token.
    fn request(&mut self, inbound: Inbound<'_, Arrived<L>>);

    /// Like [`Self::request`], for a payload in an engine-owned buffer, valid only during this call. Returns `false`, and
    /// leaves the token alone, if the handler does not run here; the sink then gets an owned payload through
    /// [`Self::request`].
    #[inline]
    fn request_here(&mut self, inbound: Inbound<'_, &[u8]>) -> bool {
        let _ = inbound;
        false
    }

    /// Something happened to the peer.
    fn event(&mut self, event: Event);
}

/// What this side knows of the last call in one of the peer's slots: the duplicate filter, and the reply cache.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) generation: u32,
    pub(super) state: SeenState,
}

#[derive(Debug, Default)]
pub(super) enum SeenState {
    /// No call yet.
    #[default]
    Never,
    /// Its handler has not responded yet. The response goes out if this link, on which the request came last, is still there.
    Executing {
        /// The link's generation.
        link: u16,
    },
    /// Answered. The answer is kept on links that a session outlives, until the peer has acknowledged it.
    Answered(Option<KeptAnswer>),
}

/// An answer that the peer may not have.
#[derive(Debug)]
pub(super) struct KeptAnswer {
    pub(super) class: Class,
    pub(super) kind: Kind,
    pub(super) payload: OutgoingPayload,
    /// The link on which it went out last: there it need not go out again, and there is no room for a second one.
    pub(super) posted_on: Option<u16>,
}

/// A message that was polled, wherever it lies. Its payload is moved once, to where it is wanted.
pub(super) trait Arriving<Q: QueuePair> {
    /// The payload, if it lies in the engine's own place.
    fn bytes<'a>(&self, engine: &'a Engine<Q>) -> Option<&'a [u8]>;

    fn header<'a>(&'a self, engine: &'a Engine<Q>) -> &'a RawHeader;
    fn len(&self, engine: &Engine<Q>) -> usize;
    fn into_payload(self, engine: &Engine<Q>) -> Arrived<Q::Lease>;
}

impl<Q: QueuePair> Arriving<Q> for Received<Q::Lease> {
    fn bytes<'a>(&self, _: &'a Engine<Q>) -> Option<&'a [u8]> {
        None
    }

    fn header<'a>(&'a self, _: &'a Engine<Q>) -> &'a RawHeader {
        &self.header
    }

    fn len(&self, _: &Engine<Q>) -> usize {
        self.payload.len()
    }

    fn into_payload(self, _: &Engine<Q>) -> Arrived<Q::Lease> {
        self.payload
    }
}

/// The message in the engine's own place for small ones.
pub(super) struct InPlace;

impl<Q: QueuePair> Arriving<Q> for InPlace {
    #[inline]
    fn bytes<'a>(&self, engine: &'a Engine<Q>) -> Option<&'a [u8]> {
        Some(engine.small.payload.as_slice())
    }

    #[inline]
    fn header<'a>(&'a self, engine: &'a Engine<Q>) -> &'a RawHeader {
        &engine.small.header
    }

    #[inline]
    fn len(&self, engine: &Engine<Q>) -> usize {
        engine.small.payload.len().into()
    }

    #[inline]
    fn into_payload(self, engine: &Engine<Q>) -> Arrived<Q::Lease> {
        Arrived::Inline(engine.small.payload)
    }
}

/// The message in the engine's own place for short ones, of a connection of this class.
pub(super) struct ShortInPlace(pub(super) Class);

impl<Q: QueuePair> Arriving<Q> for ShortInPlace {
    #[inline]
    fn bytes<'a>(&self, engine: &'a Engine<Q>) -> Option<&'a [u8]> {
        Some(engine.short.payload())
    }

    #[inline]
    fn header<'a>(&'a self, engine: &'a Engine<Q>) -> &'a RawHeader {
        &engine.short.header
    }

    #[inline]
    fn len(&self, engine: &Engine<Q>) -> usize {
        engine.short.payload().len()
    }

    fn into_payload(self, engine: &Engine<Q>) -> Arrived<Q::Lease> {
        let link = engine.phase.link().expect("messages are polled from a link");
        Arrived::Buffer(link.lanes[self.0.index()].qp.keep(engine.short.payload()))
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// One message from the peer. Always inlined into the one place that polls, so that the message is not moved there.
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        class: Class,
        message: impl Arriving<Q>,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Result<(), FabricError> {
        let len = message.len(self);
        let header = message.header(self);
        let (acks, request) = (header.acks(), header.as_request());
        let link = self.phase.link_mut().expect("messages are polled from a link");
        link.heard = true;
        link.lanes[class.index()].hear(acks);
        session.stats.messages_received.add_alone(1);
        session.stats.bytes_received.add_alone(len as u64);
        if let Some(request) = request {
            self.solicited = self.solicited.wrapping_add(1);
            self.take_request(class, request, message, session, sink, executor)?;
            // The answer does not wait for this.
            return self.settle(class, session);
        }
        self.settle(class, session)?;
        let kind = Header::check(message.header(self), len).map_err(PeerFault::Header)?.kind;
        let answers = matches!(kind, Kind::Reply { .. } | Kind::Failure { .. });
        self.solicited = self.solicited.wrapping_add(usize::from(!answers));
        match kind {
            Kind::Request { .. } => unreachable!("it was taken in above"),
            Kind::Notification { type_id, service } => {
                self.count_request(class, session)?;
                let addressed = Addressed { type_id, service, resent: false, timeout: Nanos::NEVER };
                let mut slot = TokenSlot::new(None, self.generation, class);
                self.hand_over(&addressed, message, &mut slot, sink);
                if !slot.is_detached() {
                    self.done_here(class);
                }
            }
            Kind::Reply { call } => {
                let end = |engine: &Self| End::Reply(message.into_payload(engine));
                self.answered(call, (class, len), end, session, waiter, executor);
            }
            Kind::Failure { call, code } => {
                let end = |engine: &Self| End::Failure { code, payload: message.into_payload(engine) };
                self.answered(call, (class, len), end, session, waiter, executor);
            }
            Kind::Cancel { call } => {
                self.control_received(class);
                if usize::from(call.slot) < session.cancelled.len() {
                    let slot = session.cancelled.at(call.slot.into());
                    slot.store(call.generation, pronto_sync::atomic::Ordering::Relaxed);
                    session.rendezvous.offer_cancelled(call);
                }
            }
            Kind::Credit => {
                self.control_received(class);
                self.credit_received();
            }
            Kind::Heartbeat => self.control_received(class),
            Kind::Goodbye => {
                self.control_received(class);
                self.phase.link_mut().expect("still there").peer_draining = true;
                session.up.store(false, pronto_sync::atomic::Ordering::Relaxed);
                session.types.replace(&[]);
            }
        }
        Ok(())
    }

    /// A request, and its answer if its handler runs right here.
    #[inline(always)]
    fn take_request(
        &mut self,
        class: Class,
        request: Request,
        message: impl Arriving<Q>,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Result<(), FabricError> {
        let Request { call, type_id, service, resent, deadline_us } = request;
        self.count_request(class, session)?;
        if self.seen_before(call, resent)? {
            self.answer_again(call, class, session, executor);
            return Ok(());
        }
        let timeout = if deadline_us == 0 { Nanos::NEVER } else { Nanos::from_micros(deadline_us.into()) };
        let addressed = Addressed { type_id, service, resent, timeout };
        let mut slot = TokenSlot::new(Some(call), self.generation, class);
        self.hand_over(&addressed, message, &mut slot, sink);
        self.answer_now(call, class, &mut slot, session, executor);
        Ok(())
    }

    /// Hands a request or notification to the sink: where its payload lies, if its handler runs right here.
    #[inline(always)]
    fn hand_over(
        &self,
        addressed: &Addressed,
        message: impl Arriving<Q>,
        slot: &mut TokenSlot,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let here = message.bytes(self).map(|payload| sink.request_here(addressed.inbound(slot, payload)));
        if here != Some(true) {
            sink.request(addressed.inbound(slot, message.into_payload(self)));
        }
    }

    /// Takes in what the peer said last that it has taken, and gives back.
    #[inline]
    pub(super) fn settle(&mut self, class: Class, session: &Session<Q>) -> Result<(), FabricError> {
        let Some(link) = self.phase.link_mut() else { return Ok(()) };
        let given = link.lanes[class.index()].acknowledge()?;
        if link.lanes.iter().any(Lane::is_ignored) {
            return Err(PeerFault::Unacknowledged.into());
        }
        if !link.lanes[class.index()].answers.is_empty() {
            self.trim_answers(class);
        }
        if given != 0 {
            session.credits[class.index()].give(given);
        }
        Ok(())
    }

    /// The same beside a turn, which reports what is wrong with it, where there is anything to take in.
    pub(super) fn settle_early(&mut self, session: &Session<Q>) {
        for class in Class::ALL {
            let is_settled = self.phase.link().is_none_or(|link| link.lanes[class.index()].is_settled());
            if !is_settled && self.settle(class, session).is_err() {
                self.lane(class).failed = true;
            }
        }
    }

    /// Requests beyond the granted window are a flood, not load.
    #[inline]
    fn count_request(&mut self, class: Class, session: &Session<Q>) -> Result<(), FabricError> {
        let lane = self.lane(class);
        lane.requests_received = lane.requests_received.wrapping_add(1);
        let returned = lane.returned(session.returned[class.index()].count());
        let in_hand = lane.requests_received.wrapping_sub(returned);
        if in_hand > lane.window.requests { Err(PeerFault::Overrun.into()) } else { Ok(()) }
    }

    /// A request or notification needs no handler any more: its credit goes back.
    #[inline]
    fn done_here(&mut self, class: Class) {
        let lane = self.lane(class);
        lane.answered_here = lane.answered_here.wrapping_add(1);
    }

    fn control_received(&mut self, class: Class) {
        let lane = self.lane(class);
        lane.control_untold = lane.control_untold.saturating_add(1);
    }

    /// The duplicate filter: whether this very call was taken in before, or a later one in its slot. The latter when its
    /// answer went out on the new link before the request came again, and the caller has used the slot since.
    #[inline]
    fn seen_before(&mut self, call: CallId, resent: bool) -> Result<bool, FabricError> {
        let fault = PeerFault::Length { len: call.slot.into(), max: self.seen.slots().into() };
        let seen = self.seen.at(call.slot).ok_or(fault)?;
        let is_later = matches!(call.generation.wrapping_sub(seen.generation), 1..=0x7fff_ffff);
        if !is_later && !matches!(seen.state, SeenState::Never) {
            return if resent { Ok(true) } else { Err(PeerFault::Unasked.into()) };
        }
        *seen = Seen { generation: call.generation, state: SeenState::Executing { link: self.generation } };
        Ok(false)
    }

    /// A call that came again: its answer goes out again, or is still being made.
    fn answer_again(&mut self, call: CallId, class: Class, session: &Session<Q>, executor: &impl Executor) {
        session.stats.duplicates_dropped.add_alone(1);
        self.done_here(class);
        let link = self.generation;
        let seen = &mut self.seen[usize::from(call.slot)];
        if seen.generation != call.generation {
            return;
        }
        match &mut seen.state {
            SeenState::Answered(kept) => {
                let Some(kept) = kept.take_if(|kept| kept.posted_on != Some(link)) else { return };
                seen.state = SeenState::Executing { link };
                session.stats.replies_resent.add_alone(1);
                let KeptAnswer { class, kind, payload, .. } = kept;
                self.post_answer(class, kind, payload, session, executor);
            }
            state => *state = SeenState::Executing { link },
        }
    }

    /// Does the duties of a request whose token the sink has not detached.
    #[inline(always)]
    fn answer_now(
        &mut self,
        call: CallId,
        class: Class,
        slot: &mut TokenSlot,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        if slot.is_detached() {
            return;
        }
        self.done_here(class);
        if let Some(Answer::Reply { class, payload }) = slot.answer()
            && let Some(payload) = self.copied(*class, payload)
        {
            let (class, header) = (*class, |acks| RawHeader::reply(call, acks));
            if self.post_copied(class, header, Unrung::UNSOLICITED, payload, session) {
                let (kind, timeout) = (Kind::Reply { call }, Nanos::NEVER);
                self.note_answer(call, &Small { class, kind, payload, timeout });
                self.ring_between(class, session);
                return;
            }
        }
        let (class, kind, payload) = slot.take_answer().into_message(call, class);
        self.post_answer(class, kind, payload, session, executor);
    }

    /// An answer's payload, if it is copied while it is posted and nothing goes before it.
    #[inline(always)]
    fn copied<'a>(&self, class: Class, payload: &'a OutgoingPayload) -> Option<Copied<'a>> {
        if !self.backlog.is_empty(class) {
            return None;
        }
        match payload {
            OutgoingPayload::Inline(payload) => Some(Copied::Line(payload)),
            OutgoingPayload::Frame(frame) => {
                let link = self.phase.link()?;
                // Nothing of it would be left for sending it again.
                let copies = link.lanes[class.index()].qp.capabilities().copies as usize;
                (!link.resumable && frame.len() <= copies).then(|| Copied::Short(frame.bytes()))
            }
            OutgoingPayload::Region { .. } => None,
        }
    }

    fn post_answer(
        &mut self,
        class: Class,
        kind: Kind,
        payload: OutgoingPayload,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        let (link, timeout) = (self.generation, Nanos::NEVER);
        let outgoing = Outgoing { class, link, kind, payload, completes: None, timeout };
        self.post(outgoing, session, executor);
    }

    /// An answer to a call of this side.
    #[inline]
    fn answered(
        &mut self,
        call: CallId,
        (class, len): (Class, usize),
        end: impl FnOnce(&Self) -> End<Q::Lease>,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        executor: &impl Executor,
    ) {
        self.lane(class).answer_received(len);
        let Some(Ended { report, .. }) = self.calls.end(call, Cause::Response) else {
            session.stats.stale_replies.add_alone(1);
            return;
        };
        if matches!(report, Report::End(..)) && waiter.waits_for(call) {
            waiter.catch(end(self));
            if waiter.leaves_its_slot() {
                session.calls.set_aside(call.slot);
            }
        } else if !self.report(call, report, |_| end(self), session, executor) {
            session.stats.stale_replies.add_alone(1);
        }
    }
}
