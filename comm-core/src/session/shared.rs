//! The shared half of a session, which any thread accesses without the engine lock, through atomics.

use core::fmt;

use pronto_ring::{Growing, mpsc};
use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pronto_wire::{CallId, Class, NodeId, TypeId};

use super::admission::Admission;
use super::calls::{CallTable, Expects};
use super::credit::{Credits, Returned};
use super::doorbells::Holds;
use super::end::End;
use super::last_down::LastDown;
use super::limits::{Limits, MAX_CALLS};
use super::link::DownCause;
use super::outgoing::Submitted;
use super::pausing::Demand;
use super::peer_types::{PeerTypes, TypeKey, TypeLookup};
use super::permissions::Permissions;
use super::pressure::{OwnPressure, PeerPressure};
use super::rendezvous::Rendezvous;
use super::response_overflow::ResponseOverflow;
use super::send_error::{MessageName, SendError};
use crate::buf::{Loan, PresentRing, RingStats};
use crate::executor::Executor;
use crate::fabric::Payload;
use crate::stats::Stats;
use crate::wait::arming::Arming;
use crate::wait::wanted::Wanted;
use crate::wait::{OverrideCell, PollerRole, WaitHistory};

/// The shared half of a session, for leases of type `L`. [`Session`](super::Session) dereferences to it.
pub struct Shared<L> {
    pub(super) peer: NodeId,
    pub(super) limits: Limits,
    pub(super) calls: CallTable<L>,
    pub(super) credits: [Credits; 2],
    pub(super) rings: [PresentRing; 2],
    pub(super) types: PeerTypes,
    pub(super) permissions: Permissions,
    /// Counts of finished requests of each class, which every header carries.
    pub(super) returned: [Returned; 2],
    /// Generation of the call that the peer cancelled last, by the peer's call slot.
    pub(super) cancelled: Growing<AtomicU32>,
    pub(super) up: AtomicBool,
    pub(super) last_down: LastDown,
    /// Flags by which threads without the engine ask for actions of its holder.
    pub(super) wanted: Wanted,
    pub(super) demand: Demand,
    /// Tasks that wait for room to send.
    pub(super) admission: Admission,
    /// Acks sent: the count of returned credits last reported to the peer, by class.
    pub(super) acks_sent: [AtomicU32; 2],
    /// True if the peer may grant more requests of a class than before, and was not asked since its last grant. Written by the engine.
    pub(super) may_ask: [AtomicBool; 2],
    /// Number of requests and notifications that this side has granted on the current link, by class.
    pub(super) granted: [AtomicU32; 2],
    /// Longest payload that the peer receives on the current or last link, by class, bytes.
    pub(super) max_payload: [AtomicU32; 2],
    /// Holds on doorbells.
    pub(super) holds: Holds,
    pub(super) submissions: mpsc::Sender<Submitted>,
    pub(super) response_overflow: ResponseOverflow,
    /// The poller role, and the followers that sleep meanwhile.
    pub(crate) role: PollerRole,
    pub(super) arming: Arming,
    pub(super) rendezvous: Rendezvous<L>,
    pub(super) wait_override: OverrideCell,
    /// History of waits for replies of the peer.
    pub(super) reply_waits: WaitHistory,
    /// History of waits for room to send.
    pub(super) room_waits: WaitHistory,
    pub(super) own_pressure: OwnPressure,
    pub(super) peer_pressure: PeerPressure,
    pub(super) stats: Stats,
}

impl<L: Payload> Shared<L> {
    pub(super) fn new(peer: NodeId, limits: Limits, submissions: mpsc::Sender<Submitted>) -> Self {
        Self {
            peer,
            limits,
            calls: CallTable::new(limits.calls),
            credits: [Credits::default(), Credits::default()],
            rings: [PresentRing::new(), PresentRing::new()],
            types: PeerTypes::new(),
            permissions: Permissions::default(),
            returned: [Returned::default(), Returned::default()],
            cancelled: Growing::new(0, MAX_CALLS.into(), || AtomicU32::new(0)),
            up: AtomicBool::new(false),
            last_down: LastDown::new(),
            wanted: Wanted::default(),
            demand: Demand::default(),
            admission: Admission::default(),
            acks_sent: [AtomicU32::new(0), AtomicU32::new(0)],
            may_ask: [AtomicBool::new(false), AtomicBool::new(false)],
            granted: [AtomicU32::new(0), AtomicU32::new(0)],
            max_payload: [AtomicU32::new(u32::MAX), AtomicU32::new(u32::MAX)],
            holds: Holds::default(),
            submissions,
            response_overflow: ResponseOverflow::default(),
            role: PollerRole::new(limits.calls),
            arming: Arming::default(),
            rendezvous: Rendezvous::new(limits.calls),
            wait_override: OverrideCell::default(),
            reply_waits: WaitHistory::default(),
            room_waits: WaitHistory::default(),
            own_pressure: OwnPressure::default(),
            peer_pressure: PeerPressure::default(),
            stats: Stats::default(),
        }
    }

    /// Returns the peer's node.
    pub const fn peer(&self) -> NodeId {
        self.peer
    }

    /// Returns the session's limits.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the types of this side that the peer may use.
    #[inline(always)]
    pub const fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// Returns the session's counters.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the number of open calls.
    pub fn open_calls(&self) -> u16 {
        self.calls.in_use()
    }

    /// Returns whether this node has ever called the peer.
    pub fn was_called(&self) -> bool {
        self.calls.was_used()
    }

    /// Returns the number of request credits that are available now.
    pub fn credits(&self, class: Class) -> u32 {
        self.credits[class.index()].available()
    }

    /// Looks up the peer's number of a message type.
    pub fn knows(&self, key: &TypeKey) -> TypeLookup {
        self.types.find(key)
    }

    /// Returns the peer's number of a message type, or the reason why a message of this type cannot be sent.
    pub(super) fn number_of(&self, key: &TypeKey) -> Result<TypeId, SendError> {
        match self.types.find(key) {
            TypeLookup::As(number) => Ok(number),
            TypeLookup::OtherLayout => Err(SendError::OtherLayout { name: MessageName::Hash(key.name) }),
            TypeLookup::BeingWritten => Err(SendError::NotConnected { peer: self.peer }),
            TypeLookup::No => self.number_if_up(key),
        }
    }

    /// Looks up a message type again, of which the peer's table had no entry. The table is empty until the peer is up and after it was,
    /// and the session may have begun or ended after that lookup.
    #[cold]
    fn number_if_up(&self, key: &TypeKey) -> Result<TypeId, SendError> {
        // SYNC: sees the table of the session that is up; pairs with the Release in `Engine::install`.
        if !self.up.load(Ordering::Acquire) {
            return Err(SendError::NotConnected { peer: self.peer });
        }
        match self.types.find(key) {
            TypeLookup::As(number) => Ok(number),
            TypeLookup::OtherLayout => Err(SendError::OtherLayout { name: MessageName::Hash(key.name) }),
            TypeLookup::No if self.is_up() => {
                Err(SendError::NoHandler { name: MessageName::Hash(key.name), service: key.service })
            }
            TypeLookup::No | TypeLookup::BeingWritten => Err(SendError::NotConnected { peer: self.peer }),
        }
    }

    /// Returns the counters of the current link's send ring. Returns `None` without a link, and while other threads hold all references to
    /// the ring.
    pub fn ring_stats(&self, class: Class) -> Option<RingStats> {
        Some(self.rings[class.index()].ring().ok()??.stats())
    }

    /// Returns a buffer of the send ring for composing a payload of more than 40 bytes.
    ///
    /// # Errors
    /// [`SendError::Ring`] if the ring has no room, [`SendError::NoRing`] if there is no link.
    #[inline]
    pub fn loan(&self, class: Class, len: usize, owner: u32) -> Result<Loan, SendError> {
        match self.rings[class.index()].loan(len, owner) {
            Some(loan) => loan.map_err(SendError::Ring),
            None => Err(SendError::NoRing),
        }
    }

    /// Returns whether the caller of a request has cancelled it.
    pub fn is_cancelled(&self, call: CallId) -> bool {
        self.cancelled
            .get(usize::from(call.slot))
            .is_some_and(|g| g.load(Ordering::Relaxed) == call.generation)
    }

    /// Returns whether the peer can be called.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Returns why the last session with this peer ended. A caller whose call has ended `PeerDown` finds the cause of that end, or of a
    /// later one.
    pub fn down_cause(&self, executor: &impl Executor) -> Option<DownCause> {
        self.last_down.read(executor)
    }

    /// Lets the node make links only when messages need one, and end idle links, in agreement with the peer. Called before the first message.
    pub fn set_on_demand(&self) {
        self.demand.set_on_demand();
    }

    /// Returns whether the node makes links to this peer only when messages need one.
    pub fn is_on_demand(&self) -> bool {
        self.demand.is_on_demand()
    }

    /// Returns whether the node should make a link if there is none: it keeps one at all times, or a message needs one.
    pub fn wants_link(&self) -> bool {
        self.demand.is_wanted()
    }

    /// Withdraws the demand for a link to a peer that cannot be reached, unless tasks wait for it. A thread that waits asks again. Returns whether
    /// it was withdrawn.
    pub fn give_up_link(&self) -> bool {
        let gives_up = !self.wanted.wants_room();
        if gives_up {
            self.demand.is_met();
        }
        gives_up
    }

    /// Returns whether the call has ended.
    pub fn has_ended(&self, call: CallId) -> bool {
        self.calls.has_ended(call)
    }

    /// Registers a future's waker. Call [`Session::listen`](super::Session::listen) afterwards, and then check [`Self::has_ended`].
    pub fn register(&self, call: CallId, waker: &core::task::Waker) {
        self.calls.register(call, waker);
    }

    /// Returns whether other threads have left work for the holder of the engine.
    #[inline]
    pub(super) fn work_is_left(&self) -> bool {
        self.submissions.pending() || self.wanted.anything()
    }

    /// Returns whether other threads wait, awake, for messages that a polling thread receives.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.wanted.is_awaited()
    }

    /// Counts a request or notification that arrived on `link` in `class` as finished. Returns whether the holder of the engine must look if
    /// credits are due, which are more than half of the window. It alone knows how many requests inline handlers have finished: at most half
    /// of a window when it has looked last. With at most a quarter here, the peer has some credits left.
    pub(super) fn credit_returned(&self, class: Class, link: u16) -> bool {
        self.returned[class.index()].add(link);
        let acks_sent = self.acks_sent[class.index()].load(Ordering::Relaxed);
        let due =
            u32::from(self.returned[class.index()].count()).wrapping_sub(acks_sent) & u32::from(u16::MAX);
        due > self.granted[class.index()].load(Ordering::Relaxed) / 4
    }

    /// Ends a one-sided operation in the slot that waits for it: that of a call or of a chunk.
    pub(super) fn end_access(&self, slot: CallId, end: End<L>, executor: &impl Executor) {
        if let Err(end) = self.rendezvous.end_chunk(slot, end, executor) {
            self.calls.end(slot, end, Expects::Nothing, executor);
        }
    }

    /// Returns whether a one-sided operation's slot, that of a call or of a chunk, waits for its end. In a failed session all slots have
    /// ended.
    pub(super) fn is_unended(&self, slot: CallId) -> bool {
        self.rendezvous.chunk_is_unended(slot).unwrap_or_else(|| self.calls.is_unended(slot))
    }
}

impl<L: Payload> fmt::Debug for Shared<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("peer", &self.peer).field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// The context of an engine's turn: the shared half of the session, and the executor, which wakes threads and reads time.
pub(super) struct Turn<'t, L, X> {
    pub(super) shared: &'t Shared<L>,
    pub(super) executor: &'t X,
}

impl<'t, L, X> Turn<'t, L, X> {
    #[inline(always)]
    pub(super) const fn new(shared: &'t Shared<L>, executor: &'t X) -> Self {
        Self { shared, executor }
    }
}

impl<L, X> Clone for Turn<'_, L, X> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, X> Copy for Turn<'_, L, X> {}
