//! The handle through which callers use a peer.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::time::Duration;

use pronto_core::executor::{WaitRequest, expecting};
use pronto_core::fabric::{Gather, QueuePair, Region, SHORT_PAYLOAD};
use pronto_core::note::{Note, What};
use pronto_core::session::{
    AfterRefusal, CallSpec, End, Executed, OutgoingPayload, SendError, Session, TypeKey, TypeLookup,
    WaitOutcome,
};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, NodeId, ServiceId};

use crate::arrived::{Existing, Fresh};
use crate::awaiting::Refusal;
use crate::codec::encode_message;
use crate::encode::{NotEncoded, encode, encode_small, is_small};
use crate::error::{CallError, CallRejection, refused};
use crate::host::{Host, MayWait};
use crate::message::{Message, Request};
use crate::pending::Pending;

/// Timeout of calls that do not name one.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The lease on a payload that a host received.
pub(crate) type LeaseOf<H> = <<H as Host>::Qp as QueuePair>::Lease;

/// A handle to another node. Cheap to clone; any thread may use it.
pub struct Peer<H: Host> {
    pub(crate) ends: Arc<Ends<H>>,
    service: ServiceId,
    pub(crate) asked: WaitRequest,
}

/// The session and the host of a peer. They share one reference count, so that an open call needs only one reference.
pub(crate) struct Ends<H: Host> {
    pub(crate) session: Arc<Session<H::Qp>>,
    pub(crate) host: Arc<H>,
}

impl<H: Host> Ends<H> {
    /// Returns the error of a call that ended with its session.
    #[cold]
    pub(crate) fn down(&self, executed: Executed) -> CallError {
        CallError::PeerDown {
            peer: self.session.peer(),
            cause: self.session.down_cause(&*self.host),
            executed,
        }
    }

    /// Returns the error of a call whose connection ended before its response was read.
    #[cold]
    pub(crate) fn unread(&self) -> CallError {
        CallError::PeerDown { peer: self.session.peer(), cause: None, executed: Executed::Maybe }
    }
}

impl<H: Host> Peer<H> {
    /// Returns the handle for a session. Called by nodes.
    pub fn new(session: Arc<Session<H::Qp>>, host: Arc<H>) -> Self {
        let asked = host.wait_policy().into();
        Self { ends: Arc::new(Ends { session, host }), service: ServiceId(0), asked }
    }

    /// Returns the id of the peer's node.
    pub fn node(&self) -> NodeId {
        self.ends.session.peer()
    }

    /// Returns a handle to another service of this peer.
    #[must_use]
    pub fn service(&self, service: ServiceId) -> Self {
        Self { service, ..self.clone() }
    }

    /// Returns a handle whose calls wait by `policy`.
    #[must_use]
    pub fn waiting(&self, policy: WaitPolicy) -> Self {
        self.asking(self.asked.by(policy))
    }

    /// Returns a handle whose calls expect a reply about `after` the request. If `after` exceeds the polling limit, an adaptive wait
    /// sleeps immediately; otherwise it polls, regardless of past reply times. Waits with such a hint do not update the history. The hint
    /// does not apply to started calls; use [`Pending::expecting`] for these.
    #[must_use]
    pub fn expecting(&self, after: Duration) -> Self {
        self.asking(expecting(self.asked, after))
    }

    fn asking(&self, asked: WaitRequest) -> Self {
        Self { asked, ..self.clone() }
    }

    /// Returns whether the peer can be called now.
    pub fn is_up(&self) -> bool {
        self.ends.session.is_up()
    }

    /// Returns whether the peer handles a message type.
    pub fn handles<M: Message>(&self) -> bool {
        matches!(self.ends.session.knows(&self.key::<M>()), TypeLookup::As(_))
    }

    /// Calls the peer and waits for the reply, at most [`DEFAULT_TIMEOUT`].
    pub fn call<M: Request>(&self, request: &M) -> Result<M::Reply, CallError> {
        self.call_within(request, DEFAULT_TIMEOUT)
    }

    /// Calls the peer and waits for the reply, at most `timeout`. If there is no room to send, waits for room first, also at most
    /// `timeout`. If the peer goes down, an idempotent request is repeated as soon as the peer is back, for at most another `timeout`;
    /// any other request fails.
    pub fn call_within<M: Request>(&self, request: &M, timeout: Duration) -> Result<M::Reply, CallError> {
        self.call_for::<M, _>(request, timeout, &mut Fresh::default())
    }

    /// Calls the peer like [`Peer::call`], and decodes the reply into `reply`. Its vectors, boxed slices and strings keep their memory if it
    /// is long enough, so that nothing is allocated. If the call fails, `reply` may be partly overwritten.
    pub fn call_into<M: Request>(&self, request: &M, reply: &mut M::Reply) -> Result<(), CallError> {
        self.call_into_within(request, reply, DEFAULT_TIMEOUT)
    }

    /// Calls the peer like [`Peer::call_within`], and decodes the reply into `reply` like [`Peer::call_into`].
    pub fn call_into_within<M: Request>(
        &self,
        request: &M,
        reply: &mut M::Reply,
        timeout: Duration,
    ) -> Result<(), CallError> {
        self.call_for::<M, _>(request, timeout, &mut Existing(reply))
    }

    /// Sends a request and returns immediately. Wait for the reply, poll it or await it through the returned value. Fails if there is no
    /// room to send.
    pub fn start<M: Request>(&self, request: &M) -> Result<Pending<M, H>, CallError> {
        self.start_within(request, DEFAULT_TIMEOUT)
    }

    /// Sends a request and returns immediately, like [`Peer::start`]. The reply must arrive within `timeout`.
    pub fn start_within<M: Request>(
        &self,
        request: &M,
        timeout: Duration,
    ) -> Result<Pending<M, H>, CallError> {
        let timeout = nanos(timeout);
        self.check_fork()?;
        let call = self.try_start(request, timeout)?;
        self.ends.host.expects_responses();
        Ok(Pending::new(Arc::clone(&self.ends), call, timeout, self.policy()))
    }

    /// Sends a request that is already encoded in a region, and returns immediately, like [`Peer::start`]. If the transport supports it,
    /// the request travels by reference. Until the reply arrives, the call holds the region; its bytes must not change and it must not
    /// shrink. If the call ends without a reply, the peer may still read the bytes until [`Region::is_held_elsewhere`] is false.
    pub fn start_from<M: Request>(
        &self,
        region: &Region,
        range: Range<u64>,
    ) -> Result<Pending<M, H>, CallError> {
        let timeout = nanos(DEFAULT_TIMEOUT);
        self.check_fork()?;
        let spec = CallSpec { key: self.key::<M>(), class: M::CLASS, timeout };
        let call = self
            .ends
            .session
            .call(&spec, by_reference(region, range)?, &*self.ends.host)
            .map_err(refused::<M>)?;
        self.ends.host.expects_responses();
        Ok(Pending::new(Arc::clone(&self.ends), call, timeout, self.policy()))
    }

    /// Sends a notification that is already encoded in a region, like [`Peer::start_from`]. The peer does not report when it has read it.
    pub fn notify_from<M: Message>(&self, region: &Region, range: Range<u64>) -> Result<(), CallError> {
        self.check_fork()?;
        let payload = by_reference(region, range)?;
        self.ends.session.notify(&self.key::<M>(), M::CLASS, payload, &*self.ends.host).map_err(refused::<M>)
    }

    /// Sends a notification, a one-way message that is delivered at most once. Except over shared memory, a notification of a fast stream may
    /// leave together with later ones. The serving thread sends it if nothing follows.
    pub fn notify<M: Message>(&self, message: &M) -> Result<(), CallError> {
        self.check_fork()?;
        if self.notify_fast(message)? {
            return Ok(());
        }
        let payload = self.encode(message)?;
        self.ends.session.notify(&self.key::<M>(), M::CLASS, payload, &*self.ends.host).map_err(refused::<M>)
    }

    /// Sends a short notification if that is possible immediately.
    #[inline]
    fn notify_fast<M: Message>(&self, message: &M) -> Result<bool, CallError> {
        let (session, host) = (&self.ends.session, &*self.ends.host);
        if is_small(message) {
            let small = encode_small(message).map_err(CallRejection::Encoding)?;
            Ok(session.notify_fast(&self.key::<M>(), M::CLASS, Gather::Inline(&small), host)?)
        } else if message.encoded_len() <= SHORT_PAYLOAD {
            let mut bytes = [0; SHORT_PAYLOAD];
            let len = encode_message(message, &mut bytes).map_err(CallRejection::Encoding)?;
            Ok(session.notify_fast(&self.key::<M>(), M::CLASS, Gather::Short(&bytes[..len]), host)?)
        } else {
            Ok(false)
        }
    }

    /// Sends a notification. Waits for room to send, at most `timeout`.
    pub fn notify_within<M: Message>(&self, message: &M, timeout: Duration) -> Result<(), CallError> {
        self.when_there_is_room(nanos(timeout), || self.notify(message))
    }

    /// Sends a notification and waits until its buffer may be reused, like the comm-layer paper's synchronous send. This does not mean
    /// that the peer has acknowledged the notification.
    pub fn notify_sync<M: Message>(&self, message: &M, timeout: Duration) -> Result<(), CallError> {
        match self.ends.host.may_wait() {
            MayWait::Freely | MayWait::InPool => {}
            MayWait::Never => return Err(CallRejection::InlineHandler.into()),
            MayWait::Forked => return Err(CallRejection::Forked.into()),
        }
        let timeout = nanos(timeout);
        let slot = self.when_there_is_room(timeout, || {
            let payload = self.encode(message)?;
            self.ends
                .session
                .notify_sync(&self.key::<M>(), M::CLASS, payload, &*self.ends.host)
                .map_err(refused::<M>)
        })?;
        let mut sink = self.ends.host.waiting_sink(&self.ends.session);
        match self.ends.session.wait_for_send(slot, timeout, self.policy(), &mut sink, &*self.ends.host) {
            WaitOutcome::Ended(End::Done(_)) => Ok(()),
            WaitOutcome::Ended(End::PeerDown { executed }) => Err(self.ends.down(executed)),
            WaitOutcome::Ended(_) => Err(self.ends.unread()),
            WaitOutcome::TimedOut => {
                self.ends.session.abandon_send(slot, &*self.ends.host);
                Err(CallError::Deadline { executed: Executed::Maybe })
            }
        }
    }

    /// Batches messages to this peer. Until the returned guard is dropped, [`Peer::start`] and [`Peer::notify`] post without ringing the
    /// doorbell. A wait flushes the batch if the batch contains the awaited call or at least half of the open calls, or if the first
    /// polls do not find the response. A caller that keeps a window of calls open, and waits for the oldest before it starts the next,
    /// therefore sends half a window at a time. The node's next tick flushes the rest, within 4 ms while calls are open. Messages of
    /// other threads to this peer may be delayed as long.
    pub fn together(&self) -> Together<'_, H> {
        self.ends.session.hold_doorbells();
        Together { peer: self }
    }

    /// Returns the session, which has the counters of this peer.
    pub fn session(&self) -> &Arc<Session<H::Qp>> {
        &self.ends.session
    }

    pub(crate) fn check_fork(&self) -> Result<(), CallRejection> {
        if self.ends.host.may_wait() == MayWait::Forked { Err(CallRejection::Forked) } else { Ok(()) }
    }

    pub(crate) const fn policy(&self) -> WaitPolicy {
        self.asked.preference
    }

    /// Returns the node that this handle belongs to.
    pub fn host(&self) -> &Arc<H> {
        &self.ends.host
    }

    #[inline]
    pub(crate) fn try_start<M: Request>(&self, request: &M, timeout: Nanos) -> Result<CallId, CallError> {
        let spec = CallSpec { key: self.key::<M>(), class: M::CLASS, timeout };
        let call = if is_small(request) {
            let small = encode_small(request).map_err(CallRejection::Encoding)?;
            self.ends.session.call_small(&spec, &small, &*self.ends.host).map_err(refused::<M>)?
        } else {
            let payload = self.encode(request)?;
            self.ends.session.call(&spec, payload, &*self.ends.host).map_err(refused::<M>)?
        };
        self.ends.host.note(Note { what: What::Called, peer: self.node(), call, more: 0 });
        Ok(call)
    }

    fn encode<M: Message>(&self, message: &M) -> Result<OutgoingPayload, CallError> {
        let owner = crate::encode::owner_of::<M>();
        let loan = |len| self.ends.session.loan_after_reaping(M::CLASS, len, owner, &*self.ends.host);
        encode(message, loan).map_err(|error| match error {
            NotEncoded::Send(SendError::NoRing) if self.is_up() && self.ends.session.is_on_demand() => {
                SendError::Connecting { peer: self.node(), class: M::CLASS }.into()
            }
            NotEncoded::Send(SendError::NoRing) => SendError::NotConnected { peer: self.node() }.into(),
            NotEncoded::Send(refused) => refused.into(),
            NotEncoded::Full(full) => CallRejection::Encoding(full).into(),
        })
    }

    pub(crate) fn key<M: Message>(&self) -> TypeKey {
        let (name, layout) = M::type_key();
        TypeKey { service: self.service, name, layout }
    }

    /// Returns whether the refusal ends by itself while both nodes are alive. A session that has lost its link and can resume is still up.
    pub(crate) fn waits_for_room(&self, refused: &SendError) -> bool {
        let is_or_will_be_up = || self.is_up() || self.ends.session.is_on_demand();
        refused.is_retryable() && (!matches!(refused, SendError::NotConnected { .. }) || is_or_will_be_up())
    }

    /// Repeats `attempt` while it fails for lack of room, for at most `timeout`, and makes progress in between.
    pub(crate) fn when_there_is_room<R, E: Refusal>(
        &self,
        timeout: Nanos,
        mut attempt: impl FnMut() -> Result<R, E>,
    ) -> Result<R, E> {
        let (host, session) = (&*self.ends.host, &*self.ends.session);
        let mut wait = None;
        loop {
            let outcome = attempt();
            let refusal = outcome.as_ref().err().and_then(E::refusal);
            let Some(refused) = refusal.filter(|refused| self.waits_for_room(refused)) else {
                if let Some(wait) = wait.filter(|_| outcome.is_ok()) {
                    session.room_came(wait, host);
                }
                return outcome;
            };
            if host.may_wait() == MayWait::Never {
                return outcome;
            }
            let begin = || session.begin_room_wait(self.requested_here(), timeout, host);
            let wait = wait.get_or_insert_with(begin);
            let mut sink = self.ends.host.waiting_sink(&self.ends.session);
            match session.wait_for_room(wait, &refused, host.now(), &mut sink, host) {
                AfterRefusal::Retry => {}
                AfterRefusal::Pause if refused.is_for_link() => host.pause_for_link(),
                AfterRefusal::Pause => host.pause(),
                AfterRefusal::GiveUp => return outcome,
            }
        }
    }

    /// Returns the wait request, adapted to the calling thread.
    fn requested_here(&self) -> WaitRequest {
        match self.ends.host.may_wait() {
            MayWait::InPool => self.asked.by(self.policy().nested()),
            MayWait::Freely | MayWait::Never | MayWait::Forked => self.asked,
        }
    }
}

/// A guard that batches messages to one peer until it is dropped: [`Peer::together`].
#[must_use = "dropping it flushes the batch"]
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

/// Returns a part of a region as a payload by reference.
fn by_reference(region: &Region, range: Range<u64>) -> Result<OutgoingPayload, SendError> {
    let len = range.end.checked_sub(range.start).and_then(|len| u32::try_from(len).ok());
    // Memory of the program is the source of messages into posted buffers only.
    let len = len.filter(|_| !region.is_read_only()).ok_or(SendError::OutOfRegion)?;
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
