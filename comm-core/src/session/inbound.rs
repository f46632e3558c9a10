//! What arrives: checked, counted, and handed on.

use pronto_wire::{CallId, Class, FailureCode, Header, Kind, RawHeader, Request, ServiceId, TypeId};

use super::Session;
use super::call::Expects;
use super::end::End;
use super::engine::Engine;
use super::link::{Event, Lane, Unrung};
use super::outbound::Small;
use super::outgoing::{Copied, Outgoing, OutgoingPayload};
use super::wait::Waiter;
use crate::executor::Executor;
use crate::fabric::{Arrived, FabricError, PeerFault, QueuePair, Received};
use crate::time::Nanos;

/// A request or notification that passed all checks of the session.
#[derive(Clone, Debug)]
pub struct Inbound<P> {
    /// The call to answer; none for a notification.
    pub call: Option<CallId>,
    /// The link that it came on; goes back with [`Session::answer`] and [`Session::done_with`].
    pub link: u16,
    /// The class that it came in.
    pub class: Class,
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

impl<P> Inbound<P> {
    /// The same with another payload.
    #[inline(always)]
    const fn with<O>(&self, payload: O) -> Inbound<O> {
        let &Self { call, link, class, type_id, service, resent, timeout, .. } = self;
        Inbound { call, link, class, type_id, service, resent, timeout, payload }
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Answer {
    /// Somebody will answer later, with [`Session::answer`], and say [`Session::done_with`].
    Later,
    /// It was a notification, and is done.
    Done,
    /// The handler's reply.
    Reply {
        /// The class that the reply travels in.
        class: Class,
        /// What it carries.
        payload: OutgoingPayload,
    },
    /// Any other answer.
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

    /// The message that answers a call that came in `class`, if this is an answer at all.
    pub(super) fn into_message(self, call: CallId, class: Class) -> Option<(Class, Kind, OutgoingPayload)> {
        match self {
            Self::Later | Self::Done => None,
            Self::Reply { class, payload } => Some((class, Kind::Reply { call }, payload)),
            Self::Failure { code, payload } => Some((class, Kind::Failure { call, code }, payload)),
        }
    }
}

/// Where a session's engine hands what arrives.
pub trait Sink<L> {
    /// A request or notification. Whether its handler may run right here is the sink's to know: a waiting caller's sink
    /// queues everything.
    fn request(&mut self, inbound: Inbound<Arrived<L>>) -> Answer;

    /// The same for a payload that lies in the engine's own place and is gone after this. False for a handler that does not run
    /// right here: the sink gets the request with a payload that it may keep. The answer is written where it will be read: moved on
    /// the way of every message, it would be waited for.
    #[inline]
    fn request_here(&mut self, inbound: &Inbound<&[u8]>, answer: &mut Answer) -> bool {
        let _ = (inbound, answer);
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
    /// In hand.
    Executing,
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
        let link = engine.link.as_ref().expect("messages are polled from a link");
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
        let link = self.link.as_mut().expect("messages are polled from a link");
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
                let (call, link, resent, timeout) = (None, self.generation, false, Nanos::NEVER);
                let inbound = Inbound { call, link, class, type_id, service, resent, timeout, payload: () };
                let mut answer = Answer::Later;
                self.hand_over(&inbound, message, &mut answer, sink);
                if !matches!(answer, Answer::Later) {
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
                }
            }
            Kind::Credit => {
                self.control_received(class);
                self.credit_received();
            }
            Kind::Heartbeat => self.control_received(class),
            Kind::Goodbye => {
                self.control_received(class);
                self.link.as_mut().expect("still there").peer_draining = true;
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
        let (call_id, link) = (Some(call), self.generation);
        let inbound = Inbound { call: call_id, link, class, type_id, service, resent, timeout, payload: () };
        let mut answer = Answer::Later;
        self.hand_over(&inbound, message, &mut answer, sink);
        self.answer_now(call, class, &mut answer, session, executor);
        Ok(())
    }

    /// Hands a request or notification to the sink: where its payload lies, if its handler runs right here.
    #[inline(always)]
    fn hand_over(
        &self,
        inbound: &Inbound<()>,
        message: impl Arriving<Q>,
        answer: &mut Answer,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        let here = message.bytes(self).map(|payload| sink.request_here(&inbound.with(payload), answer));
        if here != Some(true) {
            *answer = sink.request(inbound.with(message.into_payload(self)));
        }
    }

    /// Takes in what the peer said last that it has taken, and gives back.
    #[inline]
    pub(super) fn settle(&mut self, class: Class, session: &Session<Q>) -> Result<(), FabricError> {
        let Some(link) = &mut self.link else { return Ok(()) };
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
            let is_settled = self.link.as_ref().is_none_or(|link| link.lanes[class.index()].is_settled());
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
        *seen = Seen { generation: call.generation, state: SeenState::Executing };
        Ok(false)
    }

    /// A call that came again: its answer goes out again, or is still being made.
    fn answer_again(&mut self, call: CallId, class: Class, session: &Session<Q>, executor: &impl Executor) {
        session.stats.duplicates_dropped.add_alone(1);
        self.done_here(class);
        let present = Some(self.generation);
        let seen = &mut self.seen[usize::from(call.slot)];
        if seen.generation == call.generation
            && let SeenState::Answered(kept) = &mut seen.state
            && let Some(kept) = kept.take_if(|kept| kept.posted_on != present)
        {
            session.stats.replies_resent.add_alone(1);
            let KeptAnswer { class, kind, payload, .. } = kept;
            self.post_answer(class, kind, payload, session, executor);
        }
    }

    /// What the sink said at once.
    #[inline(always)]
    fn answer_now(
        &mut self,
        call: CallId,
        class: Class,
        answer: &mut Answer,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        if matches!(answer, Answer::Later) {
            return;
        }
        self.done_here(class);
        if let Answer::Reply { class, payload } = answer
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
        let answer = match core::mem::replace(answer, Answer::Later) {
            Answer::Done => Answer::failure(FailureCode::NoReply),
            answer => answer,
        };
        if let Some((class, kind, payload)) = answer.into_message(call, class) {
            self.post_answer(class, kind, payload, session, executor);
        }
    }

    /// An answer's payload, if it is copied while it is posted and nothing goes before it.
    #[inline(always)]
    fn copied<'a>(&self, class: Class, payload: &'a OutgoingPayload) -> Option<Copied<'a>> {
        if !self.stalled[class.index()].is_empty() {
            return None;
        }
        match payload {
            OutgoingPayload::Inline(payload) => Some(Copied::Line(payload)),
            OutgoingPayload::Frame(frame) => {
                let link = self.link.as_ref()?;
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
        let open = self.open.get_mut(usize::from(call.slot));
        let Some(open) = open.filter(|open| open.live && open.generation == call.generation) else {
            session.stats.stale_replies.add_alone(1);
            return;
        };
        open.live = false;
        open.kept = None;
        if open.ended {
            session.stats.stale_replies.add_alone(1);
            session.calls.settle(call);
        } else if waiter.waits_for(call) {
            waiter.catch(end(self));
            if waiter.leaves_its_slot() {
                session.calls.set_aside(call.slot);
            }
        } else if !session.calls.end(call, end(self), Expects::Nothing, executor) {
            session.stats.stale_replies.add_alone(1);
        }
    }
}
