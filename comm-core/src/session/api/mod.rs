//! The session and its methods: the shared half, and the engine behind its lock.

mod admission;
mod arming;
mod deciding;
mod detached;
mod doorbells;
mod engine_lock;
mod failing;
mod fast_path;
mod loans;
mod one_sided;
mod operating;
mod pressure;
mod rendezvous;
mod room;
mod send;
mod sleep;
mod synchronous;
mod wait;

use core::fmt;
use core::ops::Deref;

use pronto_ring::{Mpsc, mpsc};
use pronto_sync::atomic::Ordering;
use pronto_sync::{Poisons, TryLock};
use pronto_wire::{CallId, Class, Kind, NodeId, TypeId};

pub use detached::{Callee, DetachedToken};
pub use fast_path::{FastOutcome, ReplySlots};
pub use room::{AfterRefusal, RoomWait};
pub use wait::WaitOutcome;

use super::backlog::is_new;
use super::credit::Credit;
use super::engine::Engine;
use super::engine::NotPosted;
use super::limits::Limits;
use super::outgoing::{Outgoing, Submitted};
use super::peer_types::{TypeKey, TypeLookup};
use super::send_error::SendError;
use super::shared::{Shared, Turn};
use crate::executor::Executor;
use crate::fabric::QueuePair;

/// Capacity of the submission queue, for messages of threads that find the engine locked. If it is full, a sender is refused.
const SUBMISSIONS: usize = 256;

/// Initial capacity of the submission queue.
const FEW_SUBMISSIONS: usize = 8;

/// The session with one peer, which all threads share.
pub struct Session<Q: QueuePair> {
    shared: Shared<Q::Lease>,
    /// The engine. A panic of its holder poisons the lock; see [`Session::fail`].
    engine: TryLock<Engine<Q>, Poisons>,
}

impl<Q: QueuePair> Deref for Session<Q> {
    type Target = Shared<Q::Lease>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Returns a session without a link.
    pub fn new(peer: NodeId, limits: Limits) -> Self {
        let (submissions, receiver) = Mpsc::growing(FEW_SUBMISSIONS, SUBMISSIONS);
        Self {
            shared: Shared::new(peer, limits, submissions),
            engine: TryLock::with(Engine::new(limits, receiver)),
        }
    }

    /// Posts the message directly if the engine is free, or else leaves it to the holder of the engine.
    fn send(&self, outgoing: Outgoing, executor: &impl Executor) -> Result<(), SendError> {
        if !outgoing.payload.is_within() {
            return Err(SendError::OutOfRegion);
        }
        // Checked before another thread may get the message to post: a connection fails if it is given a longer one.
        let max = self.max_payload[outgoing.class.index()].load(Ordering::Relaxed) as usize;
        if outgoing.payload.len() > max {
            return Err(SendError::TooLong { len: outgoing.payload.len(), max });
        }
        self.submit(Submitted::Message(outgoing), executor)
    }

    /// Claims a call slot. If no other is free, waits a bounded time for the engine, and takes one of its reserve.
    fn claim(&self, executor: &impl Executor) -> Result<CallId, SendError> {
        let claimed = self.calls.claim();
        let claimed = claimed.or_else(|| self.take_from_engine(executor, |_| self.calls.claim_in_engine()));
        claimed.ok_or_else(|| {
            // A slot becomes free when another call gets its response. The request of that call may be held, so its doorbell must be rung.
            self.ring_if_held(executor);
            SendError::NoCallSlot { capacity: self.limits.calls }
        })
    }

    /// Takes a credit. If no other is available, waits a bounded time for the engine, and takes one of its reserve or one that it has not
    /// processed yet.
    fn credit(&self, class: Class, executor: &impl Executor) -> Result<Credit, SendError> {
        let credits = &self.credits[class.index()];
        let taken = credits.try_take();
        let taken = taken.or_else(|| self.take_from_engine(executor, |engine| engine.credit(class, self)));
        taken.ok_or_else(|| self.no_credit(class, executor))
    }

    /// Returns the refusal of a message for which there is no credit. If that is because there is no link, asks the node for one.
    #[cold]
    fn no_credit(&self, class: Class, executor: &impl Executor) -> SendError {
        self.ring_if_held(executor);
        if self.demand.is_on_demand() && self.credits[class.index()].is_closed() {
            self.want_link(executor);
            return SendError::Connecting { peer: self.peer, class };
        }
        SendError::NoCredit { class }
    }

    /// Returns the peer's number of a message type. If there is none because the peer is not up, asks the node for a link.
    #[inline]
    fn type_of(&self, key: &TypeKey, executor: &impl Executor) -> Result<TypeId, SendError> {
        match self.types.find(key) {
            TypeLookup::As(number) => Ok(number),
            TypeLookup::OtherLayout | TypeLookup::BeingWritten | TypeLookup::No => {
                self.type_of_slow(key, executor)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn type_of_slow(&self, key: &TypeKey, executor: &impl Executor) -> Result<TypeId, SendError> {
        let number = self.number_of(key);
        if matches!(number, Err(SendError::NotConnected { .. })) {
            self.want_link(executor);
        }
        number
    }

    /// Asks the node for a link, if it makes links to this peer on demand and no other message has asked before.
    #[cold]
    pub fn want_link(&self, executor: &impl Executor) {
        if self.demand.want() {
            executor.wants_link(self.peer);
        }
    }

    /// Runs `use_it` on the engine if it is free. A sender must not wait for the engine, as an inline handler's own thread holds it.
    #[inline(always)]
    fn in_free_engine<R>(
        &self,
        executor: &impl Executor,
        use_it: impl FnOnce(&mut Engine<Q>) -> Option<R>,
    ) -> Option<R> {
        let mut engine = self.engine.try_lock()?;
        let used = use_it(&mut engine);
        engine.release();
        self.recheck(executor);
        used
    }

    /// Returns whether there is neither a link nor a session to resume. Returns false while another thread holds the engine.
    pub fn is_over(&self, executor: &impl Executor) -> bool {
        let over = |engine: &mut Engine<Q>| Some(engine.phase.is_down());
        self.in_free_engine(executor, over).unwrap_or(false)
    }

    fn submit(&self, mut submitted: Submitted, executor: &impl Executor) -> Result<(), SendError> {
        if let Some(mut engine) = self.engine.try_lock() {
            let posted = engine.post_now(submitted, Turn::new(self, executor));
            engine.release();
            self.recheck(executor);
            match posted {
                Ok(()) => return Ok(()),
                Err(NotPosted::Send(refused)) => return Err(refused),
                Err(NotPosted::BehindOthers(back)) => submitted = back,
            }
        }
        if let Err(mpsc::Full(submitted)) = self.submissions.push(submitted) {
            let Submitted::Message(response) = submitted else { return Err(SendError::Busy) };
            if is_new(&response) || matches!(response.kind, Kind::Cancel { .. }) {
                return Err(SendError::Busy);
            }
            self.response_overflow.push(response, executor).map_err(|_| SendError::Busy)?;
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
