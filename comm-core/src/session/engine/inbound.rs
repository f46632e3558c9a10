//! Received messages: checking, counting and passing them on.

use pronto_wire::{CallId, Class, Header, Kind, RawHeader, Request, ServiceId, TypeId};

use super::Engine;
use super::arriving::Arriving;
use super::outbound::OfLink;
use super::pausing::Answer;
use crate::buf::Frame;
use crate::executor::Executor;
use crate::fabric::{FabricError, Gather, PeerFault, QueuePair, Signal};
use crate::session::calls::{Cause, Ended, Report};
use crate::session::connection::Connection;
use crate::session::doorbells::PendingDoorbell;
use crate::session::end::End;
use crate::session::inbound::{CachedResponse, Inbound, LastCall, LastCallState, Sink};
use crate::session::outgoing::{Carrier, Outgoing, OutgoingPayload};
use crate::session::response::Response;
use crate::session::shared::{Shared, Turn};
use crate::session::token::TokenSlot;
use crate::session::waiter::Waiter;
use crate::time::Nanos;

/// The parts of a request's or notification's header that sinks need.
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

impl<Q: QueuePair> Engine<Q> {
    /// Processes one message of the peer. Always inlined into its callers, so that the message is not moved.
    #[inline(always)]
    pub(in crate::session) fn receive(
        &mut self,
        class: Class,
        message: impl Arriving<Q>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        let len = message.len(self);
        let header = message.header(self);
        let (acks, request) = (header.acks(), header.as_request());
        let link = self.phase.link_mut().expect("messages are polled from a link");
        link.has_received = true;
        link.connections[class.index()].count_received(acks);
        turn.shared.stats.messages_received.add_alone(1);
        turn.shared.stats.bytes_received.add_alone(len as u64);
        self.process(class, request, message, turn, waiter, sink)
    }

    /// Processes a message that was counted. `request` is the request that it is, if it is one.
    #[inline(always)]
    fn process(
        &mut self,
        class: Class,
        request: Option<Request>,
        message: impl Arriving<Q>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        if let Some(request) = request {
            self.solicited = self.solicited.wrapping_add(1);
            self.take_request(class, request, message, turn, sink)?;
            // The reply does not wait for the processing of acknowledgements.
            return self.settle(class, turn.shared);
        }
        if let Some(addressee) = message.header(self).as_notification() {
            self.solicited = self.solicited.wrapping_add(1);
            self.take_notification(class, addressee, message, turn, sink)?;
            return self.settle(class, turn.shared);
        }
        self.settle(class, turn.shared)?;
        let len = message.len(self);
        let Ok(Header { kind, .. }) = Header::check(message.header(self), len) else {
            return self.process_illegal(class, message, turn, waiter, sink);
        };
        let responses = matches!(kind, Kind::Reply { .. } | Kind::Failure { .. });
        self.solicited = self.solicited.wrapping_add(usize::from(!responses));
        match kind {
            Kind::Request { .. } | Kind::Notification { .. } => {
                unreachable!("requests and notifications were processed above")
            }
            Kind::Reply { call } => {
                let end = |engine: &Self| End::Reply(message.into_payload(engine));
                self.response_arrived(call, (class, len), end, turn, waiter);
            }
            Kind::Failure { call, code } => {
                let end = |engine: &Self| End::Failure { code, payload: message.into_payload(engine) };
                self.response_arrived(call, (class, len), end, turn, waiter);
            }
            Kind::Cancel { call } => {
                self.control_received(class);
                if usize::from(call.slot) < turn.shared.cancelled.len() {
                    let slot = turn.shared.cancelled.at(call.slot.into());
                    slot.store(call.generation, pronto_sync::atomic::Ordering::Relaxed);
                    turn.shared.rendezvous.offer_cancelled(call);
                    sink.cancelled(call);
                }
            }
            Kind::Credit => {
                self.control_received(class);
                self.credit_received();
            }
            Kind::Heartbeat => {
                self.control_received(class);
                self.unawaited = self.unawaited.wrapping_add(1);
            }
            kind => self.receive_rare(class, kind, turn)?,
        }
        Ok(())
    }

    /// Processes a message whose header is illegal, unless it is legal without the peer's pressure, on a link that carries that.
    ///
    /// Headers without pressure never get here, so the feature costs them nothing.
    #[cold]
    #[inline(never)]
    fn process_illegal(
        &mut self,
        class: Class,
        mut message: impl Arriving<Q>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        let plain = self.take_pressure(*message.header(self), message.len(self), turn.shared)?;
        message.set_header(self, plain);
        // The header is legal now, so this function is not called again.
        self.process(class, plain.as_request(), message, turn, waiter, sink)
    }

    /// Processes a message without payload of a kind that is rare. Not inlined, to keep it off the path of requests.
    #[cold]
    #[inline(never)]
    fn receive_rare(
        &mut self,
        class: Class,
        kind: Kind,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) -> Result<(), FabricError> {
        self.control_received(class);
        match kind {
            Kind::CreditRequest => self.grant_more(class, turn.shared),
            Kind::WindowUpdate { requests } => self.granted(class, requests, turn.shared)?,
            Kind::Pause => self.pause_asked(class, turn)?,
            Kind::PauseAccepted => self.pause_answered(class, Answer::Accepted, turn.shared)?,
            Kind::PauseDeclined => self.pause_answered(class, Answer::Declined, turn.shared)?,
            Kind::Goodbye => {
                self.phase.link_mut().expect("the link still exists").peer_draining = true;
                turn.shared.up.store(false, pronto_sync::atomic::Ordering::Relaxed);
                turn.shared.types.replace(&[]);
            }
            Kind::Request { .. }
            | Kind::Notification { .. }
            | Kind::Reply { .. }
            | Kind::Failure { .. }
            | Kind::Cancel { .. }
            | Kind::Credit
            | Kind::Heartbeat => unreachable!("these are processed where they are received"),
        }
        Ok(())
    }

    /// Processes a request, and sends its response if the handler runs inline.
    #[inline(always)]
    fn take_request(
        &mut self,
        class: Class,
        request: Request,
        message: impl Arriving<Q>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        let Request { call, type_id, service, resent, deadline_us } = request;
        self.count_request(class, turn.shared)?;
        if self.seen_before(call, resent)? {
            self.respond_again(call, class, turn);
            return Ok(());
        }
        let timeout = if deadline_us == 0 { Nanos::NEVER } else { Nanos::from_micros(deadline_us.into()) };
        let addressed = Addressed { type_id, service, resent, timeout };
        let mut slot = TokenSlot::new(Some(call), self.generation, class);
        self.hand_over(&addressed, message, &mut slot, sink);
        self.respond_now(call, class, &mut slot, turn);
        Ok(())
    }

    /// Processes a notification.
    #[inline(always)]
    fn take_notification(
        &mut self,
        class: Class,
        (type_id, service): (TypeId, ServiceId),
        message: impl Arriving<Q>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        self.count_request(class, turn.shared)?;
        let addressed = Addressed { type_id, service, resent: false, timeout: Nanos::NEVER };
        let mut slot = TokenSlot::new(None, self.generation, class);
        self.hand_over(&addressed, message, &mut slot, sink);
        if !slot.is_detached() {
            self.done_here(class, turn.shared);
        }
        Ok(())
    }

    /// Passes a request or notification to the sink: in place if its handler runs inline, otherwise as an owned payload.
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

    /// Processes the latest acknowledgements of the peer: frees kept responses and takes returned credits.
    #[inline]
    pub(in crate::session) fn settle(
        &mut self,
        class: Class,
        shared: &Shared<Q::Lease>,
    ) -> Result<(), FabricError> {
        let Some(link) = self.phase.link_mut() else { return Ok(()) };
        let given = link.connections[class.index()].acknowledge()?;
        if link.connections.iter().any(Connection::is_ignored) {
            return Err(PeerFault::Unacknowledged.into());
        }
        if !link.connections[class.index()].responses.is_empty() {
            self.trim_responses(class);
        }
        if given != 0 {
            shared.credits[class.index()].give(given);
        }
        Ok(())
    }

    /// Processes the latest acknowledgements of both connections outside of a turn, if there are new ones. The next turn reports errors.
    pub(in crate::session) fn settle_early(&mut self, shared: &Shared<Q::Lease>) {
        for class in Class::ALL {
            let is_settled =
                self.phase.link().is_none_or(|link| link.connections[class.index()].is_settled());
            if !is_settled && self.settle(class, shared).is_err() {
                self.connection(class).failed = true;
            }
        }
    }

    /// Counts a request of the peer. Fails if the peer exceeds the granted window.
    #[inline]
    fn count_request(&mut self, class: Class, shared: &Shared<Q::Lease>) -> Result<(), FabricError> {
        let connection = self.connection(class);
        connection.requests_received = connection.requests_received.wrapping_add(1);
        let in_hand = connection.in_hand(shared.returned[class.index()].count());
        if in_hand > connection.granted { Err(PeerFault::Overrun.into()) } else { Ok(()) }
    }

    /// Returns the credit of a request or notification that needs no handler any more.
    #[inline]
    fn done_here(&mut self, class: Class, shared: &Shared<Q::Lease>) {
        self.connection(class).done_here(|| shared.returned[class.index()].count());
    }

    fn control_received(&mut self, class: Class) {
        let connection = self.connection(class);
        connection.control_acks_due = connection.control_acks_due.saturating_add(1);
    }

    /// Asks the duplicate filter about a request: returns whether the call, or a later one in its slot, was received before. A later one
    /// was if the cached response of the earlier call was sent on the new link before its request was resent, and the caller has used the
    /// slot again since.
    #[inline]
    fn seen_before(&mut self, call: CallId, resent: bool) -> Result<bool, FabricError> {
        let fault = PeerFault::Length { len: call.slot.into(), max: self.last_calls.slots().into() };
        let last_call = self.last_calls.at(call.slot).ok_or(fault)?;
        let is_later = matches!(call.generation.wrapping_sub(last_call.generation), 1..=0x7fff_ffff);
        if !is_later && !matches!(last_call.state, LastCallState::Never) {
            return if resent { Ok(true) } else { Err(PeerFault::Unasked.into()) };
        }
        *last_call = LastCall {
            generation: call.generation,
            state: LastCallState::Executing { link: self.generation },
        };
        Ok(false)
    }

    /// Handles a duplicate request: sends the cached response again, if the handler has responded.
    fn respond_again(&mut self, call: CallId, class: Class, turn: Turn<'_, Q::Lease, impl Executor>) {
        turn.shared.stats.duplicates_dropped.add_alone(1);
        self.done_here(class, turn.shared);
        let link = self.generation;
        let last_call = &mut self.last_calls[usize::from(call.slot)];
        if last_call.generation != call.generation {
            return;
        }
        match &mut last_call.state {
            LastCallState::Responded(kept) => {
                let Some(kept) = kept.take_if(|kept| kept.posted_on != Some(link)) else { return };
                last_call.state = LastCallState::Executing { link };
                turn.shared.stats.replies_resent.add_alone(1);
                let CachedResponse { class, kind, payload, .. } = kept;
                self.post_response_now(class, kind, payload, turn);
            }
            state => *state = LastCallState::Executing { link },
        }
    }

    /// Does the duties of a request whose token the sink has not detached.
    #[inline(always)]
    fn respond_now(
        &mut self,
        call: CallId,
        class: Class,
        slot: &mut TokenSlot,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        if slot.is_detached() {
            return;
        }
        self.done_here(class, turn.shared);
        if let Some(Response::Reply { class, payload }) = slot.response()
            && self.backlog.is_empty(*class)
        {
            let is_posted = match payload {
                OutgoingPayload::Inline(payload) => {
                    self.post_reply(call, *class, Gather::Inline(payload), turn.shared)
                }
                OutgoingPayload::Frame(frame) => self.post_short_reply(call, *class, frame, turn.shared),
                OutgoingPayload::Region { .. } => false,
            };
            if is_posted {
                return;
            }
        }
        let (class, kind, payload) = slot.take_response().into_message(call, class, &turn.shared.max_payload);
        self.post_response_now(class, kind, payload, turn);
    }

    /// Posts a reply whose payload the provider copies. Returns false if there is no room.
    #[inline(always)]
    fn post_reply(
        &mut self,
        call: CallId,
        class: Class,
        payload: Gather<'_>,
        shared: &Shared<Q::Lease>,
    ) -> bool {
        let (header, work) =
            (|of_link: OfLink<'_>| RawHeader::reply(call, of_link), (Signal::Unsignalled, payload));
        if self.post_message(class, header, PendingDoorbell::UNSOLICITED, work, shared).is_err() {
            return false;
        }
        let resumable = self.phase.link().is_some_and(|link| link.resumable);
        let (kind, posted_on) = (Kind::Reply { call }, Some(self.generation));
        self.note_response(call, || match payload {
            Gather::Inline(payload) if resumable => {
                let payload = OutgoingPayload::Inline(*payload);
                Some(CachedResponse { class, kind, payload, posted_on })
            }
            _ => None,
        });
        self.ring_if_per_message(class, shared);
        true
    }

    /// Posts a reply that was composed in send memory and that the provider copies. Returns false if it must take the longer path. Separate
    /// from [`Self::post_reply`], in which the variant of the payload is a constant.
    #[inline(never)]
    fn post_short_reply(
        &mut self,
        call: CallId,
        class: Class,
        frame: &Frame,
        shared: &Shared<Q::Lease>,
    ) -> bool {
        let Some(link) = self.phase.link() else { return false };
        let connection = &link.connections[class.index()];
        let copies = connection.qp.capabilities().copies.min(connection.peer_window.max_payload) as usize;
        // On a resumable link, this path would leave no copy for sending the reply again.
        !link.resumable
            && frame.len() <= copies
            && self.post_reply(call, class, Gather::Short(frame.bytes()), shared)
    }

    fn post_response_now(
        &mut self,
        class: Class,
        kind: Kind,
        payload: OutgoingPayload,
        turn: Turn<'_, Q::Lease, impl Executor>,
    ) {
        let (link, timeout) = (self.generation, Nanos::NEVER);
        let outgoing =
            Outgoing { class, link, kind, payload, carrier: Carrier::AnyLink, completes: None, timeout };
        self.post(outgoing, turn);
    }

    /// Processes a response to a call of this side.
    #[inline]
    fn response_arrived(
        &mut self,
        call: CallId,
        (class, len): (Class, usize),
        end: impl FnOnce(&Self) -> End<Q::Lease>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
    ) {
        self.connection(class).respond_to_received(len);
        let Some(Ended { report, .. }) = self.calls.end(call, Cause::Response) else {
            turn.shared.stats.stale_replies.add_alone(1);
            return;
        };
        if matches!(report, Report::End(..)) && waiter.waits_for(call) {
            waiter.catch(end(self));
            if waiter.leaves_its_slot() {
                turn.shared.calls.put_in_reserve(call.slot);
            }
        } else if !self.report(call, report, |_| end(self), turn) {
            turn.shared.stats.stale_replies.add_alone(1);
        }
    }
}
