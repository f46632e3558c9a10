//! Rendezvous: bytes of a region, sent into a region that their receiver has posted.
//!
//! Both sides go on computing meanwhile: a send returns a [`Sending`], a receive a [`Receive`], and the node moves the bytes
//! between them as its engine says. Short messages are carried along, long ones are granted and read by their receiver, chunk
//! by chunk; the caller sees no difference but the time. A message and a receive meet by their tag, in the order of arrival.
//! (PIOMan paper, section 3.1; what moves in which order stands in `comm-core/src/session/rendezvous`.)

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use pronto_core::executor::Asked;
use pronto_core::fabric::{Arrived, Grant, GrantError, QueuePair, Region, RemoteRange, Rights};
use pronto_core::session::{
    CallSpec, End, Inbound, Lent, NotReceived, Offered, OutgoingPayload, Refused, Session, TypeKey, Waited,
};
use pronto_core::{Nanos, WaitPolicy};
use pronto_wire::{CallId, Class, FailureCode, ServiceId};
use thiserror::Error;

use crate::Message;
use crate::codec::{decode_message, encode_message};
use crate::error::{CallError, Rejection};
use crate::host::{Host, MayWait};
use crate::one_sided::RemoteMemory;
use crate::peer::{Peer, nanos};
use crate::pending::with_bytes;

/// A message that travels by reference.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.offer", reply = (), class = bulk)]
pub(crate) struct ByReference {
    tag: u64,
    memory: RemoteMemory,
}

/// A message that is carried along: its bytes follow this.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.carried", reply = (), class = bulk)]
pub(crate) struct Carried {
    tag: u64,
}

/// The bytes of an offer, granted again on another link.
#[derive(Message, Debug)]
#[message(name = "pronto.rendezvous.regrant", class = bulk)]
pub(crate) struct Regrant {
    slot: u16,
    generation: u32,
    memory: RemoteMemory,
}

/// Length of a [`Carried`], bytes.
const CARRIED: usize = 8;
/// How often a thread that waits for a send looks whether its link is another one.
const LOOK_AT_LINK: Nanos = Nanos::from_millis(20);
/// Owner of ring space that a carried message takes.
const OWNER: u32 = u32::MAX - 1;

/// Which of the rendezvous' own messages a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An offer by reference.
    ByReference,
    /// A message that is carried along.
    Carried,
    /// Another grant for an offer.
    Regrant,
}

/// Takes one of the rendezvous' own messages in; for sinks. It runs no user's code, so any thread that polls may do it.
pub fn take_in<H: Host>(
    form: Form,
    inbound: Inbound<Arrived<<H::Qp as QueuePair>::Lease>>,
    session: &Session<H::Qp>,
    host: &H,
) {
    let (call, link, class) = (inbound.call, inbound.link, inbound.class);
    let malformed = |inbound: Inbound<_>| {
        drop(inbound);
        session.done_with(class, link, host);
        if let Some(call) = call {
            let answer = pronto_core::session::Answer::failure(FailureCode::Malformed);
            session.answer(call, link, class, answer, host);
        }
    };
    match form {
        Form::ByReference => match with_bytes(&inbound.payload, decode_message::<ByReference>) {
            Ok(ByReference { tag, memory }) => {
                session.take_offer(inbound, tag, Offered::ByReference(memory.into()), host);
            }
            Err(_) => malformed(inbound),
        },
        Form::Carried => {
            let mut tag = [0; CARRIED];
            if inbound.payload.copy_to(0, &mut tag).is_ok() {
                let offered = Offered::Carried { skip: CARRIED };
                session.take_offer(inbound, u64::from_le_bytes(tag), offered, host);
            } else {
                malformed(inbound);
            }
        }
        Form::Regrant => {
            if let Ok(regrant) = with_bytes(&inbound.payload, decode_message::<Regrant>) {
                let Regrant { slot, generation, memory } = regrant;
                session.take_regrant(CallId { slot, generation }, memory.into(), link, host);
            }
            drop(inbound);
            session.done_with(class, link, host);
        }
    }
}

/// Why a message did not get into a buffer of its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Not taken, here or there. Nothing was sent.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The region cannot be granted to the peer.
    #[error(transparent)]
    NotGranted(#[from] GrantError),
    /// The receive that it met has a shorter buffer.
    #[error("the receiver's buffer is shorter than the message")]
    TooLong,
    /// The receive that it met was cancelled.
    #[error("the receiver cancelled its receive")]
    ReceiveCancelled,
    /// The receiver's connection cannot read granted memory.
    #[error("this provider has no one-sided operations")]
    Unsupported,
    /// The deadline passed: no receive was posted, or it was not done in time.
    #[error("deadline passed before the message was received")]
    Deadline,
    /// The send was cancelled.
    #[error("cancelled; whether the message was received is not known")]
    Cancelled,
    /// The peer went away; it may or may not have received the message.
    #[error("peer down; it may or may not have received the message")]
    PeerDown,
}

/// Why a receive has no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Not taken.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The message that it met is longer than its buffer.
    #[error("a message of {len} bytes is longer than the buffer")]
    TooLong {
        /// Length of the message, bytes.
        len: u64,
    },
    /// It was cancelled.
    #[error("the receive was cancelled")]
    Cancelled,
    /// This connection cannot read granted memory.
    #[error("this provider has no one-sided operations")]
    Unsupported,
    /// The peer went away. A part of the message may be in the buffer.
    #[error("peer down")]
    PeerDown,
    /// Nothing in time. The receive is still posted.
    #[error("no message in time; the receive is still posted")]
    TimedOut,
    /// Its end was taken before.
    #[error("the end of this receive was taken before")]
    Taken,
}

impl<H: Host> Peer<H> {
    /// Posts a receive: the peer's next message with this tag goes to `range` of the region. The region must not be used
    /// otherwise until the receive has ended. Receives with one tag take messages in the order of posting.
    ///
    /// # Errors
    /// [`Refused::TooManyTransfers`] if as many are posted as may be, and what keeps a call from being sent.
    pub fn post(&self, tag: u64, region: &Region, range: Range<u64>) -> Result<Receive<H>, ReceiveError> {
        self.may_transfer()?;
        let (session, host) = (Arc::clone(self.session()), Arc::clone(self.host()));
        let len = range.end.checked_sub(range.start).ok_or(Rejection::Here(Refused::OutOfRegion))?;
        // Where memory is pinned, a region that is not readied is readied by the first chunk.
        let _readied = session.register_region(region, &*host);
        let slot = session.post_receive(tag, region, (range.start, len), &*host).map_err(Rejection::Here)?;
        host.expects_answers();
        Ok(Receive { session, host, slot: Some(slot), policy: self.policy() })
    }

    /// Sends `range` of a region into the buffer of a receive with this tag, and waits until it is there, or the peer has taken
    /// it along: at most `timeout`.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &self,
        tag: u64,
        region: &Region,
        range: Range<u64>,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.start_send(tag, region, range, timeout)?.wait()
    }

    /// Starts to send `range` of a region. Its bytes must not change until the send has ended; it is held until then.
    ///
    /// # Errors
    /// [`Refused::TooManyTransfers`] if as many are under way as may be, [`SendError::NotGranted`] for memory that the transport
    /// cannot grant, and what keeps a call from being sent.
    pub fn start_send(
        &self,
        tag: u64,
        region: &Region,
        range: Range<u64>,
        timeout: Duration,
    ) -> Result<Sending<H>, SendError> {
        self.may_transfer()?;
        let (session, host) = (Arc::clone(self.session()), Arc::clone(self.host()));
        let len = range.end.checked_sub(range.start).filter(|_| range.end <= region.len() as u64);
        let len = len.ok_or(Rejection::Here(Refused::OutOfRegion))?;
        let timeout = nanos(timeout);
        session.enter_send().map_err(Rejection::Here)?;
        let mut sending = Sending {
            session,
            host,
            call: None,
            sent: None,
            region: region.clone(),
            range,
            by_reference: false,
            grant: None,
            link: 0,
            deadline: Nanos::NEVER,
            policy: self.policy(),
        };
        sending.deadline = sending.host.now() + timeout;
        let call = if len <= sending.host.carries_up_to(&sending.session) {
            sending.carry(tag, timeout)
        } else {
            sending.offer(tag, timeout)
        }?;
        (sending.call, sending.sent) = (Some(call), Some(call));
        sending.host.expects_answers();
        Ok(sending)
    }

    /// The peer's messages that wait for a receive, receives that wait for a message, and transfers under way.
    pub fn transfers(&self) -> [usize; 3] {
        self.session().transfers(&**self.host())
    }

    /// An inline handler holds the engine that a grant needs; a fork has no connections.
    fn may_transfer(&self) -> Result<(), Rejection> {
        match self.host().may_wait() {
            MayWait::Never => Err(Rejection::InlineHandler),
            MayWait::Forked => Err(Rejection::Forked),
            MayWait::Freely | MayWait::InPool => Ok(()),
        }
    }
}

/// A receive that was posted. Dropped, it is cancelled; the buffer may be written to until the node has noticed.
#[must_use = "dropping it cancels the receive"]
pub struct Receive<H: Host> {
    session: Arc<Session<H::Qp>>,
    host: Arc<H>,
    slot: Option<CallId>,
    policy: WaitPolicy,
}

impl<H: Host> Receive<H> {
    /// Waits for the message, `timeout` at most. Returns its length, bytes.
    ///
    /// # Errors
    /// After [`ReceiveError::TimedOut`] it is still posted, and may be waited for again.
    pub fn wait(&mut self, timeout: Duration) -> Result<u64, ReceiveError> {
        let slot = self.slot.ok_or(ReceiveError::Taken)?;
        if self.session.has_ended(slot) {
            self.slot = None;
            return received::<H>(self.session.take(slot));
        }
        let (session, host) = (&self.session, &self.host);
        match wait_as(host, session, slot, nanos(timeout), self.policy)? {
            Waited::TimedOut => Err(ReceiveError::TimedOut),
            Waited::Ended(end) => {
                self.slot = None;
                received::<H>(end)
            }
        }
    }

    /// Looks once, without waiting.
    pub fn poll(&mut self) -> Option<Result<u64, ReceiveError>> {
        let slot = self.slot?;
        look(&self.host, &self.session, slot);
        self.session.has_ended(slot).then(|| {
            self.slot = None;
            received::<H>(self.session.take(slot))
        })
    }

    /// Cancels the receive. Wait for its end before the buffer is used for something else: the message may have been received
    /// just before, or be on its way.
    pub fn cancel(&mut self) {
        if let Some(slot) = self.slot {
            self.session.cancel_receive(slot, &*self.host);
        }
    }
}

/// Takes in what has come, without waiting.
fn look<H: Host>(host: &Arc<H>, session: &Arc<Session<H::Qp>>, slot: CallId) {
    if !session.has_ended(slot) {
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
) -> Result<Waited<<H::Qp as QueuePair>::Lease>, Rejection> {
    let wait = |policy| {
        let mut sink = host.waiting_sink(session);
        session.wait(slot, timeout, Asked::unlike_others(policy), &mut sink, &**host)
    };
    match host.may_wait() {
        MayWait::Freely => Ok(wait(policy)),
        MayWait::InPool => host.while_waiting(|| wait(policy.nested())).ok_or(Rejection::NoWorker),
        MayWait::Never => Err(Rejection::InlineHandler),
        MayWait::Forked => Err(Rejection::Forked),
    }
}

fn received<H: Host>(end: End<<H::Qp as QueuePair>::Lease>) -> Result<u64, ReceiveError> {
    match end {
        End::Done(len) => Ok(len),
        End::Failure { code: FailureCode::ReplyTooLarge, payload } => {
            let mut len = [0; 8];
            // The session put it there itself.
            let _there = payload.copy_to(0, &mut len);
            Err(ReceiveError::TooLong { len: u64::from_le_bytes(len) })
        }
        End::Failure { .. } => Err(ReceiveError::Cancelled),
        End::Unsupported => Err(ReceiveError::Unsupported),
        _ => Err(ReceiveError::PeerDown),
    }
}

impl<H: Host> Future for Receive<H> {
    type Output = Result<u64, ReceiveError>;

    /// The node makes the progress; the waker is woken by whoever ends the receive.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else { return Poll::Ready(Err(ReceiveError::Taken)) };
        if !self.session.has_ended(slot) {
            self.session.register(slot, context.waker());
            self.session.listen(&mut self.host.waiting_sink(&self.session), &*self.host);
            if !self.session.has_ended(slot) {
                return Poll::Pending;
            }
        }
        self.slot = None;
        Poll::Ready(received::<H>(self.session.take(slot)))
    }
}

impl<H: Host> Unpin for Receive<H> {}

impl<H: Host> Drop for Receive<H> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.session.cancel_receive(slot, &*self.host);
            self.session.abandon_send(slot);
        }
    }
}

impl<H: Host> fmt::Debug for Receive<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// A send under way. Dropped, it is cancelled.
///
/// It goes on while nobody waits for it, but over a loss of the link only as far as this is waited for or polled: what was
/// granted ends with the link, and is granted again here.
#[must_use = "dropping it cancels the send"]
pub struct Sending<H: Host> {
    session: Arc<Session<H::Qp>>,
    host: Arc<H>,
    /// None before it was sent, and once the end was taken.
    call: Option<CallId>,
    /// The call of the offer, once it was sent.
    sent: Option<CallId>,
    region: Region,
    range: Range<u64>,
    by_reference: bool,
    /// Its bytes, granted to the peer: none if they are carried along, or could not be granted on the present link yet.
    grant: Option<Grant>,
    /// The link of the grant.
    link: u16,
    deadline: Nanos,
    policy: WaitPolicy,
}

impl<H: Host> Sending<H> {
    /// Waits for the end: the bytes are in the receiver's buffer, or were carried along and wait there for a receive.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn wait(mut self) -> Result<(), SendError> {
        let Some(call) = self.call else { return Err(SendError::Cancelled) };
        loop {
            let left = self.deadline.since(self.host.now());
            let slice = if self.by_reference { left.min(LOOK_AT_LINK) } else { left };
            match wait_as(&self.host, &self.session, call, slice, self.policy)? {
                Waited::Ended(end) => {
                    self.call = None;
                    return sent::<H>(end);
                }
                Waited::TimedOut if slice == left => return Err(SendError::Deadline),
                Waited::TimedOut => self.grant_again(call),
            }
        }
    }

    /// Looks once, without waiting.
    pub fn poll(&mut self) -> Option<Result<(), SendError>> {
        let call = self.call?;
        look(&self.host, &self.session, call);
        if self.session.has_ended(call) {
            self.call = None;
            return Some(sent::<H>(self.session.take(call)));
        }
        self.grant_again(call);
        None
    }

    /// Gives the send up.
    pub fn cancel(self) -> SendError {
        SendError::Cancelled
    }

    fn carry(&self, tag: u64, timeout: Nanos) -> Result<CallId, SendError> {
        let here = |refused| Rejection::Here(refused);
        let len = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let loan = self.session.loan_after_reaping(Class::Bulk, CARRIED + len, OWNER, &*self.host);
        let mut loan = loan.map_err(here)?;
        let (header, bytes) = loan.as_mut_slice().split_at_mut(CARRIED);
        header.copy_from_slice(&tag.to_le_bytes());
        let start = usize::try_from(self.range.start).unwrap_or(usize::MAX);
        self.region.read(start, bytes).map_err(|_| here(Refused::OutOfRegion))?;
        let spec = CallSpec { key: key_of::<Carried>(), class: Class::Bulk, timeout };
        let payload = OutgoingPayload::Frame(loan.finish());
        Ok(self.session.call(&spec, payload, &*self.host).map_err(here)?)
    }

    fn offer(&mut self, tag: u64, timeout: Nanos) -> Result<CallId, SendError> {
        self.by_reference = true;
        let memory = self.grant_now()?;
        let mut bytes = [0; 40];
        let len = encode_message(&ByReference { tag, memory }, &mut bytes).map_err(Rejection::Encoding)?;
        let spec = CallSpec { key: key_of::<ByReference>(), class: Class::Bulk, timeout };
        let payload = OutgoingPayload::inline(&bytes[..len]).expect("within a line");
        Ok(self.session.call(&spec, payload, &*self.host).map_err(Rejection::Here)?)
    }

    fn grant_now(&mut self) -> Result<RemoteMemory, GrantError> {
        self.link = self.session.link_generation();
        let grant = self.session.grant(&self.region, self.range.clone(), Rights::READ, &*self.host)?;
        self.grant = Some(grant);
        Ok(RemoteRange::into(grant.remote))
    }

    /// Grants the bytes again if the link is another one than they were granted on, and says so. What fails now, for want of
    /// room or of a link, is tried again at the next look.
    fn grant_again(&mut self, call: CallId) {
        let link = self.session.link_generation();
        if !self.by_reference || link == self.link || !self.session.is_up() {
            return;
        }
        let before = self.link;
        let told = self.grant_now().is_ok_and(|memory| {
            let CallId { slot, generation } = call;
            let mut bytes = [0; 40];
            let regrant = Regrant { slot, generation, memory };
            let payload = encode_message(&regrant, &mut bytes).ok();
            let payload = payload.and_then(|len| OutgoingPayload::inline(&bytes[..len]));
            payload.is_some_and(|payload| {
                self.session.notify(&key_of::<Regrant>(), Class::Bulk, payload, &*self.host).is_ok()
            })
        });
        if !told {
            self.take_grant_back();
            self.link = before;
        }
    }
}

impl<H: Host> Sending<H> {
    /// Ends a grant that the peer was not told of.
    fn take_grant_back(&mut self) {
        if let Some(grant) = self.grant.take() {
            // Refused if the link, and with it the grant, has ended since.
            let _ended = self.session.revoke(grant.id, &*self.host);
        }
    }
}

fn key_of<M: Message>() -> TypeKey {
    let (name, layout) = M::type_key();
    TypeKey { service: ServiceId(0), name, layout }
}

fn sent<H: Host>(end: End<<H::Qp as QueuePair>::Lease>) -> Result<(), SendError> {
    match end {
        End::Reply(_) => Ok(()),
        End::Failure { code: FailureCode::HandlerError, payload } => {
            let mut why = [0];
            // A peer that gives no reason, or none that we know, has cancelled it for all we can tell.
            let _there = payload.copy_to(0, &mut why);
            Err(match NotReceived::from_wire(why[0]) {
                Some(NotReceived::TooLong) => SendError::TooLong,
                Some(NotReceived::Unsupported) => SendError::Unsupported,
                _ => SendError::ReceiveCancelled,
            })
        }
        End::Failure { code, .. } => Err(match CallError::from_failure(code, &[]) {
            CallError::Deadline { .. } => SendError::Deadline,
            CallError::Rejected(rejection) => rejection.into(),
            _ => SendError::Cancelled,
        }),
        End::Deadline { .. } => Err(SendError::Deadline),
        _ => Err(SendError::PeerDown),
    }
}

impl<H: Host> Drop for Sending<H> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.session.abandon(call, Class::Bulk, &*self.host);
        }
        let (link, region, call) = (self.link, self.region.clone(), self.sent);
        let lent = self.grant.take().map(|grant| Lent { grant: grant.id, link, region, call });
        self.session.leave_send(lent, &*self.host);
    }
}

impl<H: Host> fmt::Debug for Sending<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending")
            .field("call", &self.call)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
