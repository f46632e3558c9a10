//! One peer: the state that two nodes share, carried by one link after another.
//!
//! A session has two halves. Any thread reaches the *shared half* ([`Session`] itself: call slots, credits, the peer's types,
//! the submission queue) through `&self`. The *engine half* ([`Engine`]: links, receive side, timers) is behind one try-lock,
//! which every polling thread enters. A sender never waits for that lock: if another thread holds it, the sender puts the
//! message into the submission queue, and the holder looks there before it releases the lock and once more afterwards.
//!
//! # Order of calls
//! 1. [`Session::new`], then [`Session::install`] with each link that the greetings agreed on. [`Session::is_up`] is true from
//!    the first one until the session ends.
//! 2. While it is up: [`Session::call`] or [`Session::notify`] to send; [`Session::turn`] or [`Session::wait`] to receive and to
//!    make progress; [`Session::tick`] when [`Ticked::next_due`](engine::Ticked) has come, and every few milliseconds while a call is open.
//! 3. A call slot that [`Session::call`] returned is given back by exactly one of [`Session::take`] after the end, a
//!    [`Session::wait`] that returns the end, or [`Session::abandon`].
//! 4. Before a thread sleeps: [`Session::arm`], one more turn, and sleep only if that turn found nothing.
//! 5. [`Session::take_down`] ends the session. Another link may be installed afterwards.
//!
//! # A request's path through this folder
//! [`Session::call`] takes a slot and a credit. `outbound` writes the header and posts. On the other side, `inbound` checks the
//! message and hands it, with its [`RequestToken`], to the [`Sink`]; the response goes back through `outbound`. `inbound` ends the
//! call in its slot (`calls`), and the waiter takes the [`End`].

mod arming;
mod backlog;
mod by_slot;
mod calls;
mod credit;
mod doorbells;
mod end;
mod engine;
mod entering;
mod failing;
mod greeting;
mod growing;
mod idleness;
mod inbound;
mod learned;
mod lifecycle;
mod limits;
mod link;
mod loans;
mod one_sided;
mod outbound;
mod outgoing;
mod peer_types;
mod phase;
mod refusal;
mod rendezvous;
mod response_overflow;
mod room;
mod soon;
mod synchronous;
mod ticking;
mod token;
mod wait;
mod waiting;
mod work;

use core::fmt;

use pronto_ring::{Mpsc, mpsc};
use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pronto_sync::{Poisons, TryLock};
use pronto_wire::{CallId, Class, InlinePayload, Kind, NodeId};

pub use calls::{CallTable, Expects};
pub use credit::{Credit, Credits, Returned};
pub use doorbells::Doorbells;
pub use end::{End, Executed};
pub use engine::{Engine, Progress, Ticked};
pub use entering::Patience;
pub use greeting::{Agreement, Identity, agree, greet, introduce};
pub use inbound::{Answer, Inbound, Sink};
pub use learned::{Decision, Learned, Sleep};
pub use limits::{CONTROL_WINDOW, Limits};
pub use link::{DownCause, Event, LinkInfo, Links};
pub use one_sided::Access;
pub use outgoing::{Copied, Outgoing, OutgoingPayload};
pub use peer_types::{Known, PeerTypes, TypeKey};
pub use refusal::Refused;
pub use rendezvous::{Chunking, Lent, MAX_RECEIVES, MAX_SENDS, NotReceived, Offer, Offered, PARKED};
pub use room::RoomWait;
pub use soon::{Places, Soon};
pub use token::{Callee, DetachedToken, RequestToken, TokenSlot};
pub use wait::{LATE, RESCUE, Waited};
pub use waiting::Waiting;

use crate::buf::{PresentRing, RingStats};
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::stats::Stats;
use crate::time::Nanos;

use backlog::is_new;
use entering::Wanted;
use growing::Growing;
use outbound::NotPosted;
use outgoing::Submitted;

/// Messages that may wait in the submission queue while another thread holds the engine; beyond it a sender is refused.
const SUBMISSIONS: usize = 256;
/// Of these, for how many there is room before more were ever needed.
const FEW_SUBMISSIONS: usize = 8;

/// Calls that a peer may have open: what its greeting may ask for.
pub const MAX_CALLS: u16 = 1024;

/// One peer, as all its senders share it.
pub struct Session<Q: QueuePair> {
    peer: NodeId,
    limits: Limits,
    calls: CallTable<Q::Lease>,
    credits: [Credits; 2],
    rings: [PresentRing; 2],
    types: PeerTypes,
    /// Requests of each class that this side is done with; ride in every header.
    returned: [Returned; 2],
    /// By the peer's call slot: the generation of the call that it has cancelled last.
    cancelled: Growing<AtomicU32>,
    up: AtomicBool,
    /// By threads without the engine, of whoever has it.
    wanted: Wanted,
    /// What the peer was last told, by class.
    told: [AtomicU32; 2],
    /// Threads that hold doorbells back.
    held_doorbells: AtomicU32,
    submissions: mpsc::Sender<Submitted>,
    response_overflow: response_overflow::ResponseOverflow,
    /// A panic of its holder poisons it; see [`Session::fail`].
    engine: TryLock<Engine<Q>, Poisons>,
    /// Who polls, and who sleeps meanwhile.
    pub(crate) role: crate::completion::Role,
    arming: arming::Arming,
    rendezvous: rendezvous::Rendezvous<Q::Lease>,
    said: waiting::Said,
    /// How long callers wait for the peer's answers.
    learned: Learned,
    /// How long room to send takes to come.
    room: Learned,
    stats: Stats,
}

/// What a caller wants of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// The message type.
    pub key: TypeKey,
    /// The class that the request travels in.
    pub class: Class,
    /// How long the caller waits; `NEVER` for ever.
    pub timeout: Nanos,
}

impl<Q: QueuePair> Session<Q> {
    /// A session without a link yet.
    pub fn new(peer: NodeId, limits: Limits) -> Self {
        let (submissions, receiver) = Mpsc::growing(FEW_SUBMISSIONS, SUBMISSIONS);
        Self {
            peer,
            limits,
            calls: CallTable::new(limits.calls),
            credits: [Credits::default(), Credits::default()],
            rings: [PresentRing::new(), PresentRing::new()],
            types: PeerTypes::new(),
            returned: [Returned::default(), Returned::default()],
            cancelled: Growing::new(MAX_CALLS.into(), || AtomicU32::new(0)),
            up: AtomicBool::new(false),
            wanted: Wanted::default(),
            told: [AtomicU32::new(0), AtomicU32::new(0)],
            held_doorbells: AtomicU32::new(0),
            submissions,
            response_overflow: response_overflow::ResponseOverflow::default(),
            engine: TryLock::with(Engine::new(limits, receiver)),
            role: crate::completion::Role::new(limits.calls),
            arming: arming::Arming::default(),
            rendezvous: rendezvous::Rendezvous::new(limits.calls),
            said: waiting::Said::default(),
            learned: Learned::default(),
            room: Learned::default(),
            stats: Stats::default(),
        }
    }

    /// The node at the other end.
    pub const fn peer(&self) -> NodeId {
        self.peer
    }

    /// The session's sizes.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was counted.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Calls that are open.
    pub fn open_calls(&self) -> u16 {
        self.calls.in_use()
    }

    /// Whether this node has ever called the peer.
    pub fn was_called(&self) -> bool {
        self.calls.was_used()
    }

    /// Request credits that a sender could take now.
    pub fn credits(&self, class: Class) -> u32 {
        self.credits[class.index()].available()
    }

    /// What the peer says to a type.
    pub fn knows(&self, key: &TypeKey) -> Known {
        self.types.find(key)
    }

    /// What the send ring of the present link has to say about itself; none without a link.
    pub fn ring_stats(&self, class: Class) -> Option<RingStats> {
        Some(self.rings[class.index()].ring()?.stats())
    }

    /// Sends a request. The call's slot is returned; wait with [`Self::wait`], poll, or register a waker.
    pub fn call(
        &self,
        spec: &CallSpec,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<CallId, Refused> {
        let type_id = self.number_of(&spec.key)?;
        self.call_later(spec, type_id, payload, executor)
    }

    /// The same for a payload that fits the message's line.
    #[inline]
    pub fn call_small(
        &self,
        spec: &CallSpec,
        payload: &InlinePayload,
        executor: &impl Executor,
    ) -> Result<CallId, Refused> {
        let type_id = self.number_of(&spec.key)?;
        match self.call_at_once(spec, type_id, payload, executor) {
            Some(call) => Ok(call),
            None => self.call_later(spec, type_id, OutgoingPayload::Inline(*payload), executor),
        }
    }

    fn call_later(
        &self,
        spec: &CallSpec,
        type_id: pronto_wire::TypeId,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<CallId, Refused> {
        let call = self.claim(executor)?;
        let credit = self.credit(spec.class, executor).inspect_err(|_| self.calls.unclaim(call))?;
        if self.calls.has_ended(call) {
            // The session failed after the slot was claimed, and the credit may be of its next link.
            self.credits[spec.class.index()].put_back(credit);
            self.calls.unclaim(call);
            return Err(Refused::NotConnected { peer: self.peer });
        }
        let deadline_us = timeout_us(spec.timeout);
        let kind = Kind::Request { call, type_id, service: spec.key.service, resent: false, deadline_us };
        let outgoing = Outgoing {
            class: spec.class,
            link: credit.link,
            kind,
            payload,
            completes: None,
            timeout: spec.timeout,
        };
        self.send(outgoing, executor).inspect_err(|_| {
            self.credits[spec.class.index()].put_back(credit);
            self.calls.unclaim(call);
        })?;
        Ok(call)
    }

    /// Sends a notification and does not wait.
    pub fn notify(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<(), Refused> {
        self.notification(key, class, payload, None, executor)
    }

    /// Sends a notification synchronously: the returned slot ends with [`End::Done`] when its buffer may be used again;
    /// wait with [`Self::wait_for_send`].
    pub fn notify_sync(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        executor: &impl Executor,
    ) -> Result<CallId, Refused> {
        let slot = self.claim(executor)?;
        match self.notification(key, class, payload, Some(slot), executor) {
            Ok(()) => Ok(slot),
            Err(refused) => {
                self.calls.unclaim(slot);
                Err(refused)
            }
        }
    }

    fn notification(
        &self,
        key: &TypeKey,
        class: Class,
        payload: OutgoingPayload,
        completes: Option<CallId>,
        executor: &impl Executor,
    ) -> Result<(), Refused> {
        let type_id = self.number_of(key)?;
        let credit = self.credit(class, executor)?;
        let kind = Kind::Notification { type_id, service: key.service };
        let outgoing = Outgoing { class, link: credit.link, kind, payload, completes, timeout: Nanos::NEVER };
        self.send(outgoing, executor).inspect_err(|_| self.credits[class.index()].put_back(credit))
    }

    /// Whether the caller of a request has cancelled it.
    pub fn is_cancelled(&self, call: CallId) -> bool {
        self.cancelled
            .get(usize::from(call.slot))
            .is_some_and(|g| g.load(Ordering::Relaxed) == call.generation)
    }

    /// Whether the peer can be called.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Whether the call has ended.
    pub fn has_ended(&self, call: CallId) -> bool {
        self.calls.has_ended(call)
    }

    /// The table of calls, for waiters.
    pub(crate) const fn calls(&self) -> &CallTable<Q::Lease> {
        &self.calls
    }

    /// Registers a future's waker; [`Session::listen`] and look at [`Session::has_ended`] after it.
    pub fn register(&self, call: CallId, waker: &core::task::Waker) {
        self.calls.register(call, waker);
    }

    /// Takes the end of a call that has ended.
    pub fn take(&self, call: CallId) -> End<Q::Lease> {
        self.calls.take(call)
    }

    /// Stops waiting for a call. The callee is told, if it may still be at it.
    pub fn abandon(&self, call: CallId, class: Class, executor: &impl Executor) {
        if self.calls.is_unleft(call) && self.calls.leave(call) {
            let kind = Kind::Cancel { call };
            let payload = OutgoingPayload::EMPTY;
            let outgoing = Outgoing { class, link: 0, kind, payload, completes: None, timeout: Nanos::NEVER };
            // If it finds no room, the next tick sees that the waiter has left.
            let _refused = self.send(outgoing, executor);
        }
    }

    /// Stops waiting for a synchronous send. Its slot is free again after its completion.
    pub fn abandon_send(&self, slot: CallId) {
        self.calls.leave(slot);
    }

    fn number_of(&self, key: &TypeKey) -> Result<pronto_wire::TypeId, Refused> {
        match self.types.find(key) {
            Known::As(number) => Ok(number),
            Known::OtherLayout => Err(Refused::OtherLayout { name: key.name }),
            Known::No if !self.is_up() => Err(Refused::NotConnected { peer: self.peer }),
            Known::No => Err(Refused::NoHandler { name: key.name, service: key.service }),
        }
    }

    /// Posts directly if the engine is free, else leaves the message for whoever holds it.
    fn send(&self, outgoing: Outgoing, executor: &impl Executor) -> Result<(), Refused> {
        if !outgoing.payload.is_within() {
            return Err(Refused::OutOfRegion);
        }
        self.submit(Submitted::Message(outgoing), executor)
    }

    /// A request that fits its line, if the engine is free and nothing stands in the way.
    #[inline]
    fn call_at_once(
        &self,
        spec: &CallSpec,
        type_id: pronto_wire::TypeId,
        payload: &InlinePayload,
        executor: &impl Executor,
    ) -> Option<CallId> {
        self.in_free_engine(executor, |engine| engine.call_small(spec, type_id, Copied::Line(payload), self))
    }

    /// A call slot; when none is left also the one that is set aside for whoever holds the engine, if that can be had soon.
    fn claim(&self, executor: &impl Executor) -> Result<CallId, Refused> {
        let claimed = self.calls.claim();
        let claimed = claimed.or_else(|| self.of_engine(executor, |_| self.calls.claim_in_engine()));
        claimed.ok_or_else(|| {
            // There is room when others have been answered, which may be held back.
            self.ring_if_held(executor);
            Refused::NoCallSlot { capacity: self.limits.calls }
        })
    }

    /// A credit; when none is left also one that the engine has set aside, or not taken in yet, if that can be had soon.
    fn credit(&self, class: Class, executor: &impl Executor) -> Result<Credit, Refused> {
        let credits = &self.credits[class.index()];
        let taken = credits.try_take();
        let taken = taken.or_else(|| self.of_engine(executor, |engine| engine.credit(class, self)));
        taken.ok_or_else(|| {
            self.ring_if_held(executor);
            Refused::NoCredit { class }
        })
    }

    /// Uses the engine if it is free. A sender must not wait for it: an inline handler runs while its own thread holds it.
    #[inline(always)]
    fn in_free_engine<R>(
        &self,
        executor: &impl Executor,
        use_it: impl FnOnce(&mut Engine<Q>) -> Option<R>,
    ) -> Option<R> {
        let mut engine = self.engine.try_lock()?;
        let used = use_it(&mut engine);
        engine.release();
        self.look_once_more(executor);
        used
    }

    /// Whether there is neither a link nor a session to be carried on. False while another thread is at it.
    pub fn is_over(&self, executor: &impl Executor) -> bool {
        let over = |engine: &mut Engine<Q>| Some(engine.phase.is_down());
        self.in_free_engine(executor, over).unwrap_or(false)
    }

    fn submit(&self, mut submitted: Submitted, executor: &impl Executor) -> Result<(), Refused> {
        if let Some(mut engine) = self.engine.try_lock() {
            let posted = engine.post_now(submitted, self, executor);
            engine.release();
            self.look_once_more(executor);
            match posted {
                Ok(()) => return Ok(()),
                Err(NotPosted::Refused(refused)) => return Err(refused),
                Err(NotPosted::BehindOthers(back)) => submitted = back,
            }
        }
        if let Err(mpsc::Full(submitted)) = self.submissions.push(submitted) {
            let Submitted::Message(response) = submitted else { return Err(Refused::Busy) };
            if is_new(&response) || matches!(response.kind, Kind::Cancel { .. }) {
                return Err(Refused::Busy);
            }
            self.response_overflow.push(response, executor).map_err(|_| Refused::Busy)?;
            self.wanted.credit();
        }
        self.serve_left(executor);
        Ok(())
    }
}

impl<Q: QueuePair> fmt::Debug for Session<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// A timeout as it travels: microseconds, at least one if there is a timeout at all, 0 for none.
fn timeout_us(timeout: Nanos) -> u32 {
    if timeout == Nanos::NEVER {
        return 0;
    }
    u32::try_from(timeout.0 / 1_000).unwrap_or(u32::MAX).max(1)
}
