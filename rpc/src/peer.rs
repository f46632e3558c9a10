//! A peer as its callers see it.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::time::Duration;

use pronto_core::executor::{Asked, expecting};
use pronto_core::fabric::{Gather, InlineMessage, QueuePair, Region, SHORT_PAYLOAD};
use pronto_core::note::{Note, What};
use pronto_core::session::{
    AfterRefusal, CallSpec, End, Executed, Known, OutgoingPayload, Places, Refused, Session, Sink, Soon,
    TypeKey, Waited,
};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, NodeId, ServiceId};

use crate::codec::encode_message;
use crate::encode::{NotEncoded, encode, encode_small, is_small};
use crate::error::{CallError, Rejection};
use crate::host::{Host, MayWait};
use crate::message::{Message, Request};
use crate::pending::{Pending, decode_end, decode_reply, note_end};

/// How long a call waits if nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// What holds a payload that a host received.
type LeaseOf<H> = <<H as Host>::Qp as QueuePair>::Lease;

/// Another node, to be called. Cheap to clone; any thread may use it.
pub struct Peer<H: Host> {
    ends: Arc<Ends<H>>,
    service: ServiceId,
    asked: Asked,
}

/// Between whom calls go. One count is what each open call holds on to both.
pub(crate) struct Ends<H: Host> {
    pub(crate) session: Arc<Session<H::Qp>>,
    pub(crate) host: Arc<H>,
}

impl<H: Host> Peer<H> {
    /// The peer behind a session. Nodes make these.
    pub fn new(session: Arc<Session<H::Qp>>, host: Arc<H>) -> Self {
        let asked = host.wait_policy().into();
        Self { ends: Arc::new(Ends { session, host }), service: ServiceId(0), asked }
    }

    /// The node at the other end.
    pub fn node(&self) -> NodeId {
        self.ends.session.peer()
    }

    /// The same peer, another service of it.
    #[must_use]
    pub fn service(&self, service: ServiceId) -> Self {
        Self { service, ..self.clone() }
    }

    /// The same peer, waited for in another way.
    #[must_use]
    pub fn waiting(&self, policy: WaitPolicy) -> Self {
        self.asking(self.asked.by(policy))
    }

    /// The same peer, whose answers are expected so long after they were asked for. An adaptive wait that expects its answer later
    /// than polling pays sleeps at once; one that expects it sooner polls, whatever is usual. What is usual is not learned from such
    /// waits. Counts for calls that are waited for at once; of one that was started its [`Pending`] is told.
    #[must_use]
    pub fn expecting(&self, after: Duration) -> Self {
        self.asking(expecting(self.asked, after))
    }

    fn asking(&self, asked: Asked) -> Self {
        Self { asked, ..self.clone() }
    }

    /// Whether it can be called now.
    pub fn is_up(&self) -> bool {
        self.ends.session.is_up()
    }

    /// Whether it handles a type.
    pub fn handles<M: Message>(&self) -> bool {
        matches!(self.ends.session.knows(&self.key::<M>()), Known::As(_))
    }

    /// Calls and waits for the reply, at most [`DEFAULT_TIMEOUT`].
    pub fn call<M: Request>(&self, request: &M) -> Result<M::Reply, CallError> {
        self.call_within(request, DEFAULT_TIMEOUT)
    }

    /// Calls and waits for the reply, at most `timeout`; also for room to send, if there is none. An idempotent request whose
    /// peer goes away is sent again if the peer comes back, with as much time again; no other ever is.
    pub fn call_within<M: Request>(&self, request: &M, timeout: Duration) -> Result<M::Reply, CallError> {
        let timeout = nanos(timeout);
        match self.ends.host.may_wait() {
            MayWait::Freely => self.call_and_wait(request, timeout),
            MayWait::Never => Err(Rejection::InlineHandler.into()),
            MayWait::Forked => Err(Rejection::Forked.into()),
            MayWait::InPool => self
                .ends
                .host
                .while_waiting(|| self.waiting(self.policy().nested()).call_and_wait(request, timeout))
                .unwrap_or(Err(Rejection::NoWorker.into())),
        }
    }

    fn call_and_wait<M: Request>(&self, request: &M, timeout: Nanos) -> Result<M::Reply, CallError> {
        if !M::IDEMPOTENT {
            return self.call_once(request, timeout);
        }
        match self.call_once(request, timeout) {
            outcome @ Err(CallError::PeerDown { .. }) => self.call_again(request, timeout, outcome),
            outcome => outcome,
        }
    }

    fn call_once<M: Request>(&self, request: &M, timeout: Nanos) -> Result<M::Reply, CallError> {
        let mut sink = self.ends.host.waiting_sink(&self.ends.session);
        let spec = CallSpec { key: self.key::<M>(), class: M::CLASS, timeout };
        let (mut inline, mut short, mut end) = (InlineMessage::default(), None, None);
        let places = Places {
            inline: &mut inline,
            short: |bytes: &[u8]| short = Some(decode_reply::<M>(bytes)),
            end: &mut end,
        };
        let soon = if is_small(request) {
            let small = encode_small(request).map_err(Rejection::Encoding)?;
            self.call_soon(&spec, Gather::Inline(&small), places, &mut sink)
        } else if request.encoded_len() <= SHORT_PAYLOAD {
            let mut bytes = [0; SHORT_PAYLOAD];
            let len = encode_message(request, &mut bytes).map_err(Rejection::Encoding)?;
            self.call_soon(&spec, Gather::Short(&bytes[..len]), places, &mut sink)
        } else {
            None
        };
        match soon {
            Some(Soon::Inline) => return decode_reply::<M>(inline.payload.as_slice()),
            Some(Soon::Short) => return short.expect("it was given the reply"),
            Some(Soon::Ended(call)) => {
                let waited = Waited::Ended(end.expect("its end is in its place"));
                note_end(&*self.ends.host, self.node(), call, &waited);
                return self.outcome::<M>(call, waited);
            }
            Some(Soon::Open(call)) => return self.wait_for::<M>(call, timeout, &mut sink),
            None => {}
        }
        let call = self.when_there_is_room(timeout, || self.try_start(request, timeout))?;
        self.wait_for::<M>(call, timeout, &mut sink)
    }

    #[inline]
    fn call_soon(
        &self,
        spec: &CallSpec,
        payload: Gather<'_>,
        places: Places<'_, LeaseOf<H>, impl FnOnce(&[u8])>,
        sink: &mut impl Sink<LeaseOf<H>>,
    ) -> Option<Soon> {
        self.ends.session.call_soon(spec, payload, self.asked, places, sink, &*self.ends.host)
    }

    fn wait_for<M: Request>(
        &self,
        call: CallId,
        timeout: Nanos,
        sink: &mut impl Sink<LeaseOf<H>>,
    ) -> Result<M::Reply, CallError> {
        let waited = self.ends.session.wait(call, timeout, self.asked, sink, &*self.ends.host);
        note_end(&*self.ends.host, self.node(), call, &waited);
        self.outcome::<M>(call, waited)
    }

    fn outcome<M: Request>(&self, call: CallId, waited: Waited<LeaseOf<H>>) -> Result<M::Reply, CallError> {
        match waited {
            Waited::Ended(end) => decode_end::<M, H>(end),
            Waited::TimedOut => {
                self.ends.session.abandon(call, M::CLASS, &*self.ends.host);
                Err(CallError::Deadline { executed: Executed::Maybe })
            }
        }
    }

    /// An idempotent request whose peer went away is sent again when the peer, or its next life, is back in time.
    fn call_again<M: Request>(
        &self,
        request: &M,
        timeout: Nanos,
        mut outcome: Result<M::Reply, CallError>,
    ) -> Result<M::Reply, CallError> {
        let deadline = self.ends.host.now() + timeout;
        while let Err(
            CallError::PeerDown { .. } | CallError::Rejected(Rejection::Here(Refused::NotConnected { .. })),
        ) = outcome
        {
            let left = deadline.since(self.ends.host.now());
            if left == Nanos::ZERO {
                break;
            }
            if self.is_up() {
                outcome = self.call_once(request, left);
            } else {
                self.ends.host.pause();
            }
        }
        outcome
    }

    /// Sends a request and returns at once; the reply is waited for, polled or awaited later. Without room to send, it is
    /// refused.
    pub fn start<M: Request>(&self, request: &M) -> Result<Pending<M, H>, CallError> {
        self.start_within(request, DEFAULT_TIMEOUT)
    }

    /// Like [`Peer::start`], for a reply within `timeout`.
    pub fn start_within<M: Request>(
        &self,
        request: &M,
        timeout: Duration,
    ) -> Result<Pending<M, H>, CallError> {
        let timeout = nanos(timeout);
        self.check_fork()?;
        let call = self.try_start(request, timeout)?;
        self.ends.host.expects_answers();
        Ok(Pending::new(Arc::clone(&self.ends), call, timeout, self.policy()))
    }

    /// Like [`Peer::start`], for a request that lies encoded in a region: where the transport can, it travels by reference. The
    /// region's bytes must not change before the reply has come, nor the region shrink; it is held until then. If the call ends without a
    /// reply, the peer may still read the bytes until [`Region::is_held_elsewhere`] is false.
    pub fn start_from<M: Request>(
        &self,
        region: &Region,
        range: Range<u64>,
    ) -> Result<Pending<M, H>, CallError> {
        let timeout = nanos(DEFAULT_TIMEOUT);
        self.check_fork()?;
        let spec = CallSpec { key: self.key::<M>(), class: M::CLASS, timeout };
        let call = self.ends.session.call(&spec, by_reference(region, range)?, &*self.ends.host)?;
        self.ends.host.expects_answers();
        Ok(Pending::new(Arc::clone(&self.ends), call, timeout, self.policy()))
    }

    /// Sends a notification that lies encoded in a region, as [`Peer::start_from`] does. Nobody says when the peer has read it.
    pub fn notify_from<M: Message>(&self, region: &Region, range: Range<u64>) -> Result<(), CallError> {
        self.check_fork()?;
        let payload = by_reference(region, range)?;
        Ok(self.ends.session.notify(&self.key::<M>(), M::CLASS, payload, &*self.ends.host)?)
    }

    /// Sends a notification: one way, at most once.
    pub fn notify<M: Message>(&self, message: &M) -> Result<(), CallError> {
        self.check_fork()?;
        let payload = self.encode(message)?;
        Ok(self.ends.session.notify(&self.key::<M>(), M::CLASS, payload, &*self.ends.host)?)
    }

    /// Sends a notification, waiting for room to send at most `timeout`.
    pub fn notify_within<M: Message>(&self, message: &M, timeout: Duration) -> Result<(), CallError> {
        self.when_there_is_room(nanos(timeout), || self.notify(message))
    }

    /// Sends a notification and waits until its buffer may be used again, as the comm-layer paper's synchronous send does.
    /// That is no acknowledgement by the peer.
    pub fn notify_sync<M: Message>(&self, message: &M, timeout: Duration) -> Result<(), CallError> {
        match self.ends.host.may_wait() {
            MayWait::Freely | MayWait::InPool => {}
            MayWait::Never => return Err(Rejection::InlineHandler.into()),
            MayWait::Forked => return Err(Rejection::Forked.into()),
        }
        let timeout = nanos(timeout);
        let slot = self.when_there_is_room(timeout, || {
            let payload = self.encode(message)?;
            Ok(self.ends.session.notify_sync(&self.key::<M>(), M::CLASS, payload, &*self.ends.host)?)
        })?;
        let mut sink = self.ends.host.waiting_sink(&self.ends.session);
        match self.ends.session.wait_for_send(slot, timeout, self.policy(), &mut sink, &*self.ends.host) {
            Waited::Ended(End::Done(_)) => Ok(()),
            Waited::Ended(_) => Err(CallError::PeerDown { executed: Executed::Maybe }),
            Waited::TimedOut => {
                self.ends.session.abandon_send(slot);
                Err(CallError::Deadline { executed: Executed::Maybe })
            }
        }
    }

    /// Several messages to this peer that are to leave together: until the returned value is dropped, nothing that is started or
    /// notified rings a doorbell of its own. A wait lets them leave if its own call is among them, or at least half of all open calls are,
    /// or its answer is not here: who keeps a window of calls open, and waits for the oldest before it starts the next, sends half of
    /// a window at a time. What nobody waits for leaves with the node's next tick, 4 ms later while calls are open. Messages of other threads to this
    /// peer may be held up as long.
    pub fn together(&self) -> Together<'_, H> {
        self.ends.session.hold_doorbells();
        Together { peer: self }
    }

    /// What the session counted and holds.
    pub fn session(&self) -> &Arc<Session<H::Qp>> {
        &self.ends.session
    }

    fn check_fork(&self) -> Result<(), Rejection> {
        if self.ends.host.may_wait() == MayWait::Forked { Err(Rejection::Forked) } else { Ok(()) }
    }

    pub(crate) const fn policy(&self) -> WaitPolicy {
        self.asked.preference
    }

    /// The node that calls it.
    pub fn host(&self) -> &Arc<H> {
        &self.ends.host
    }

    #[inline]
    fn try_start<M: Request>(&self, request: &M, timeout: Nanos) -> Result<CallId, CallError> {
        let spec = CallSpec { key: self.key::<M>(), class: M::CLASS, timeout };
        let call = if is_small(request) {
            let small = encode_small(request).map_err(Rejection::Encoding)?;
            self.ends.session.call_small(&spec, &small, &*self.ends.host)?
        } else {
            let payload = self.encode(request)?;
            self.ends.session.call(&spec, payload, &*self.ends.host)?
        };
        self.ends.host.note(Note { what: What::Called, peer: self.node(), call, more: 0 });
        Ok(call)
    }

    fn encode<M: Message>(&self, message: &M) -> Result<OutgoingPayload, CallError> {
        let owner = crate::encode::owner_of::<M>();
        let loan = |len| self.ends.session.loan_after_reaping(M::CLASS, len, owner, &*self.ends.host);
        encode(message, loan).map_err(|error| match error {
            NotEncoded::Refused(Refused::NoRing) => Refused::NotConnected { peer: self.node() }.into(),
            NotEncoded::Refused(refused) => refused.into(),
            NotEncoded::Full(full) => Rejection::Encoding(full).into(),
        })
    }

    fn key<M: Message>(&self) -> TypeKey {
        let (name, layout) = M::type_key();
        TypeKey { service: self.service, name, layout }
    }

    /// Refusals that end by themselves while both sides live. A session without a link at the moment is up all the same.
    fn waits_for_room(&self, refused: &Refused) -> bool {
        refused.is_retryable() && (!matches!(refused, Refused::NotConnected { .. }) || self.is_up())
    }

    /// Tries until it is not refused for want of room any more, making what progress there is.
    fn when_there_is_room<R>(
        &self,
        timeout: Nanos,
        mut attempt: impl FnMut() -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let (host, session) = (&*self.ends.host, &*self.ends.session);
        let mut wait = None;
        loop {
            match attempt() {
                Err(CallError::Rejected(Rejection::Here(refused))) if self.waits_for_room(&refused) => {
                    if host.may_wait() == MayWait::Never {
                        return Err(refused.into());
                    }
                    let begin = || session.begin_room_wait(self.asked_here(), timeout, host);
                    let wait = wait.get_or_insert_with(begin);
                    let mut sink = self.ends.host.waiting_sink(&self.ends.session);
                    match session.wait_for_room(wait, &refused, host.now(), &mut sink, host) {
                        AfterRefusal::Retry => {}
                        AfterRefusal::Pause => host.pause(),
                        AfterRefusal::GiveUp => return Err(refused.into()),
                    }
                }
                outcome => {
                    if let Some(wait) = wait.filter(|_| outcome.is_ok()) {
                        session.room_came(wait, host);
                    }
                    return outcome;
                }
            }
        }
    }

    /// How the calling thread is to wait.
    fn asked_here(&self) -> Asked {
        match self.ends.host.may_wait() {
            MayWait::InPool => self.asked.by(self.policy().nested()),
            MayWait::Freely | MayWait::Never | MayWait::Forked => self.asked,
        }
    }
}

/// Messages to one peer that leave together, when this is dropped: [`Peer::together`].
#[must_use = "dropping it lets the messages leave"]
pub struct Together<'a, H: Host> {
    peer: &'a Peer<H>,
}

impl<H: Host> Drop for Together<'_, H> {
    fn drop(&mut self) {
        self.peer.ends.session.release_doorbells(&*self.peer.ends.host);
    }
}

impl<H: Host> fmt::Debug for Together<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("peer", self.peer).finish()
    }
}

/// A part of a region as a payload.
fn by_reference(region: &Region, range: Range<u64>) -> Result<OutgoingPayload, Refused> {
    let len = range.end.checked_sub(range.start).and_then(|len| u32::try_from(len).ok());
    let len = len.ok_or(Refused::OutOfRegion)?;
    Ok(OutgoingPayload::Region { region: region.clone(), offset: range.start, len })
}

pub(crate) fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

impl<H: Host> Clone for Peer<H> {
    fn clone(&self) -> Self {
        Self { ends: Arc::clone(&self.ends), service: self.service, asked: self.asked }
    }
}

impl<H: Host> fmt::Debug for Peer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("node", &self.node())
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}
