//! The engine half of a session. One turn of the engine processes all work that is available.
//!
//! # Invariants
//! 1. The work table holds the memory that a work request refers to until its completion, or until the link ends.
//! 2. No message waits in the backlog while an older one could be posted. In each class, messages are posted in the order of sending.

mod arming;
mod arriving;
mod backlog;
mod completions;
mod control;
mod doorbells;
mod inbound;
mod lifecycle;
mod one_sided;
mod outbound;
mod pausing;
mod pressure;
mod progress;
mod rendezvous;
mod renew;
mod reply;
mod ticking;

pub(super) use outbound::{NoCredit, NotPosted};
pub(super) use progress::CreditsAlone;
pub use progress::Progress;
pub(super) use reply::{NextMessage, Prefetched};

use arriving::{InlineInSlot, ShortInSlot};
use pronto_ring::mpsc;
use pronto_wire::Class;

use super::backlog::Backlog;
use super::by_slot::BySlot;
use super::calls::OpenCalls;
use super::connection::{Connection, Link};
use super::idleness::Idleness;
use super::inbound::{LastCall, Sink};
use super::limits::Limits;
use super::outgoing::Submitted;
use super::phase::Phase;
use super::shared::{Shared, Turn};
use super::waiter::Waiter;
use super::work::WorkTable;
use crate::executor::{Channel, Channels, Executor};
use crate::fabric::Armed;
use crate::fabric::{
    CompletionChannel, FabricError, InlineMessage, MessageSlot, PeerFault, PollOutcome, QueuePair, Received,
    ShortMessage,
};
use crate::time::Nanos;

/// Maximum number of messages received from one connection per turn, so that a flood in one class does not starve the other.
pub(super) const RECEIVE_BATCH: usize = 64;

/// The outcome of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// Time when the next tick is needed if nothing happens before.
    pub next_due: Nanos,
    /// Number of work requests in flight.
    pub work_in_flight: usize,
}

/// The engine half of a session, which the engine lock protects.
#[derive(Debug)]
pub struct Engine<Q: QueuePair> {
    pub(super) limits: Limits,
    pub(super) submissions: mpsc::Receiver<Submitted>,
    pub(super) backlog: Backlog,
    pub(super) phase: Phase<Q>,
    /// Generation of the current or last link, wrapping.
    pub(super) generation: u16,
    /// Generation of the session's first link.
    pub(super) session_start: u16,
    pub(super) calls: OpenCalls,
    pub(super) last_calls: BySlot<LastCall>,
    /// The message slot for inline messages.
    pub(super) inline: InlineMessage,
    /// The message slot for short messages.
    pub(super) short: ShortMessage,
    /// The outcome of a poll before the turn, until the turn takes it: a message by value, one-sided work, or an error.
    pub(super) prefetched: Result<PollOutcome<Q::Lease>, FabricError>,
    pub(super) work: WorkTable,
    pub(super) last_tick: Nanos,
    pub(super) idleness: Idleness,
    /// Number of received messages that wake a serving thread which is armed only for solicited events, wrapping.
    pub(super) solicited: usize,
    /// Number of these that nobody waits for, wrapping: heartbeats, and credits that directly followed many of the same kind.
    pub(super) unawaited: usize,
    pub(super) credits_alone: CreditsAlone,
}

impl<Q: QueuePair> Engine<Q> {
    pub(super) fn new(limits: Limits, submissions: mpsc::Receiver<Submitted>) -> Self {
        Self {
            limits,
            submissions,
            backlog: Backlog::default(),
            phase: Phase::Down,
            generation: 0,
            session_start: 0,
            calls: OpenCalls::new(limits.calls),
            last_calls: BySlot::new(0),
            inline: InlineMessage::default(),
            short: ShortMessage::default(),
            prefetched: Ok(PollOutcome::Nothing),
            work: WorkTable::new(),
            last_tick: Nanos::ZERO,
            idleness: Idleness::default(),
            solicited: 0,
            unawaited: 0,
            credits_alone: CreditsAlone::default(),
        }
    }

    pub(super) fn connection(&mut self, class: Class) -> &mut Connection<Q> {
        &mut self.phase.link_mut().expect("asked only while there is a link").connections[class.index()]
    }

    /// Returns whether a turn would find nothing to do.
    #[inline(always)]
    pub(super) fn is_quiet(&self, shared: &Shared<Q::Lease>) -> bool {
        self.connections_are_quiet() && !self.is_left(shared) && !shared.rendezvous.is_due()
    }

    /// Returns whether neither connection has anything to process.
    #[inline(always)]
    pub(super) fn connections_are_quiet(&self) -> bool {
        match self.phase.link() {
            Some(Link { connections: [control, bulk], .. }) => control.is_quiet() && bulk.is_quiet(),
            None => true,
        }
    }

    /// Returns whether no message or operation of this side is in flight or waits. A session without a link is at rest only if the node keeps
    /// it and makes links on demand.
    pub(super) fn is_at_rest(&self, shared: &Shared<Q::Lease>) -> bool {
        (self.phase.is_linked() || shared.demand.is_on_demand())
            && self.work.in_flight() == 0
            && !self.is_left(shared)
    }

    /// Returns whether any message waits to be sent.
    #[inline(always)]
    pub(super) fn is_left(&self, shared: &Shared<Q::Lease>) -> bool {
        !self.backlog.is_clear() || shared.work_is_left()
    }

    /// Runs one turn: receives, processes completions and submissions, returns credits, and rings the doorbells. Stops receiving when the
    /// waiter has its end; the next turn receives the rest. A prefetched message comes first.
    #[inline]
    pub(super) fn turn(
        &mut self,
        prefetched: Option<Prefetched>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Progress {
        let (mut moved, solicited, unawaited) = (0, self.solicited, self.unawaited);
        let received = turn.shared.stats.messages_received.count();
        if self.phase.is_linked() {
            // The prefetched outcome comes first, because another poll would overwrite it.
            let (most, mut turned) = match prefetched {
                None => (RECEIVE_BATCH, Ok(0)),
                // Both connections were polled a moment ago.
                Some(Prefetched::Nothing) => (0, Ok(0)),
                Some(prefetched) => (RECEIVE_BATCH, self.receive_prefetched(prefetched, turn, waiter, sink)),
            };
            // Not a loop, so that the class is a constant in each copy.
            if let Ok(before) = turned
                && (before == 0 || !waiter.is_done())
            {
                let control = self.turn_class(Class::Control, most, turn, waiter, sink);
                turned = control.map(|control| before + control);
            }
            if let Ok(before) = turned
                && (before == 0 || !waiter.is_done())
            {
                let is_quiet = before != 0 && self.connection(Class::Bulk).is_quiet();
                if before != 0 {
                    // Polling the other connection may be a system call. The responses that were just posted do not wait for it.
                    self.ring(Class::Control, turn.shared);
                }
                let bulk = match is_quiet {
                    true => Ok(0),
                    false => self.turn_class(Class::Bulk, most, turn, waiter, sink),
                };
                turned = bulk.map(|bulk| before + bulk);
            }
            match turned {
                Ok(both) => moved = both,
                Err(error) => {
                    if error == FabricError::Lost {
                        self.drain_after_loss(turn, sink);
                    }
                    self.lose(error, turn, sink);
                    return Progress::default();
                }
            }
        }
        if turn.shared.rendezvous.wants(moved) {
            moved += self.move_rendezvous(turn);
        }
        let left = turn.shared.work_is_left();
        // If nothing has moved, nothing is due: only progress makes credits due or frees room.
        if moved == 0 && !left && self.backlog.is_clear() {
            return Progress::default();
        }
        let arrived = match turn.shared.arming.armed() {
            Armed::Nothing => 0,
            Armed::Solicited => self.solicited.wrapping_sub(solicited),
            Armed::All => moved,
        };
        let unawaited = self.unawaited.wrapping_sub(unawaited);
        let responses = match turn.shared.arming.has_listened() {
            true => unawaited,
            false => {
                let received = turn.shared.stats.messages_received.count().wrapping_sub(received);
                let received = usize::try_from(received).unwrap_or(usize::MAX);
                received.saturating_sub(self.solicited.wrapping_sub(solicited)) + unawaited
            }
        };
        self.extend_rings();
        if left || !self.backlog.is_clear() {
            self.drain(turn);
        } else {
            self.give_credit(turn.shared);
            self.ring_if_due(turn.shared);
        }
        Progress { moved: moved + usize::from(left), arrived, responses }
    }

    /// Runs the part of a turn for one connection: receives at most `most` messages, then processes completions.
    #[inline(always)]
    fn turn_class(
        &mut self,
        class: Class,
        most: usize,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<usize, FabricError> {
        let mut moved = 0;
        if self.connection(class).failed {
            // The connection may have failed because of an acknowledgement that was already stored. `settle` then returns that error.
            self.settle(class, turn.shared)?;
        }
        while moved < most {
            let link = self.phase.link_mut().expect("asked only while there is a link");
            let qp = &mut link.connections[class.index()].qp;
            if moved != 0 && qp.is_quiet() {
                return Ok(moved);
            }
            // A single `match`: the `?` operator would move the outcome before its variant is known.
            match qp.poll(MessageSlot { inline: &mut self.inline, short: &mut self.short }) {
                Ok(PollOutcome::Nothing) => break,
                Ok(PollOutcome::Inline) => self.receive(class, InlineInSlot, turn, waiter, sink)?,
                Ok(PollOutcome::Short) => self.receive_short(class, turn, waiter, sink)?,
                Ok(PollOutcome::Leased(message)) => self.receive_large(class, message, turn, waiter, sink)?,
                Ok(PollOutcome::OneSided) => {
                    // The turn ends here, so that other threads get the engine in between.
                    moved += 1;
                    break;
                }
                Err(error) => return Err(error),
            }
            moved += 1;
            if waiter.is_done() {
                return Ok(moved);
            }
        }
        while let Some(completion) = self.connection(class).qp.poll_send() {
            if !self.completed(completion, turn) {
                return Err(PeerFault::Unasked.into());
            }
            moved += 1;
        }
        if self.connection(class).failed && moved == 0 {
            return Err(FabricError::Lost);
        }
        Ok(moved)
    }

    /// Drains both connections after one of them has ended. Messages that the peer sent before count: a goodbye, or responses.
    #[cold]
    #[inline(never)]
    pub(in crate::session) fn drain_after_loss(
        &mut self,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        self.notify_woken([true; 2]);
        for class in Class::ALL {
            // If this fails, the other connection has ended, too.
            let _taken = self.turn_class(class, RECEIVE_BATCH, turn, &mut || false, sink);
        }
    }

    /// Processes the outcome of a poll before the turn. Returns the number of messages.
    #[inline(never)]
    fn receive_prefetched(
        &mut self,
        prefetched: Prefetched,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<usize, FabricError> {
        match prefetched {
            Prefetched::Nothing => return Ok(0),
            Prefetched::Inline(class) => self.receive(class, InlineInSlot, turn, waiter, sink)?,
            Prefetched::Short(class) => self.receive_short(class, turn, waiter, sink)?,
            Prefetched::Outcome(class) => {
                let outcome = core::mem::replace(&mut self.prefetched, Ok(PollOutcome::Nothing));
                if let PollOutcome::Leased(message) = outcome? {
                    self.receive_large(class, message, turn, waiter, sink)?;
                }
            }
        }
        Ok(1)
    }

    /// Processes the message in `short`.
    #[inline(never)]
    fn receive_short(
        &mut self,
        class: Class,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        self.receive(class, ShortInSlot(class), turn, waiter, sink)
    }

    /// Processes a message in a receive buffer.
    #[inline(never)]
    fn receive_large(
        &mut self,
        class: Class,
        message: Received<Q::Lease>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Result<(), FabricError> {
        self.receive(class, message, turn, waiter, sink)
    }

    /// Makes another chunk of send memory ready if the last one is half full. A stream would fill the rest long before the next tick.
    #[inline]
    pub(super) fn extend_rings(&mut self) {
        let Some(link) = self.phase.link_mut() else { return };
        for connection in &mut link.connections {
            if connection.ring.as_ref().is_some_and(|ring| ring.is_filling()) && !connection.lacks_memory {
                connection.extend_ring();
            }
        }
    }

    pub(super) fn arm(&mut self, events: Armed, shared: &Shared<Q::Lease>) {
        for connection in self.phase.link_mut().into_iter().flat_map(|link| &mut link.connections) {
            connection.failed |= connection.qp.arm(events).is_err();
            connection.received_when_armed = connection.received;
        }
        shared.arming.set(events);
    }

    /// Disarms the connections on which an event has woken a thread, or for which the peer would cause an event. Where the kernel alone
    /// knows of the event, staying armed costs nothing, and a thread that was not woken need not consume the event.
    pub(super) fn disarm(&mut self, notify_woken: [bool; 2], shared: &Shared<Q::Lease>) {
        let peer_wakes = self.peer_wakes();
        for (connection, notify_woken) in
            self.phase.link_mut().into_iter().flat_map(|link| &mut link.connections).zip(notify_woken)
        {
            if notify_woken || peer_wakes {
                connection.failed |= connection.qp.arm(Armed::Nothing).is_err();
            }
        }
        shared.arming.set(Armed::Nothing);
    }

    /// Returns whether the peer's doorbell wakes a sleeper. On other transports the kernel knows whether data is available, and no wake-up
    /// can be lost.
    pub(super) fn peer_wakes(&self) -> bool {
        self.phase.link().is_some_and(|link| link.connections[0].qp.capabilities().polls_without_syscalls)
    }

    /// Reports to both queue pairs which of their channels, by class, have woken the calling thread; see [`QueuePair::notify_woken`].
    pub(in crate::session) fn notify_woken(&mut self, which: [bool; 2]) {
        for (connection, notify_woken) in
            self.phase.link_mut().into_iter().flat_map(|link| &mut link.connections).zip(which)
        {
            if notify_woken {
                connection.qp.notify_woken();
            }
        }
    }

    /// Returns the channels in which a caller sleeps.
    pub(super) fn callers_channels(&self, owner: u64) -> Channels {
        let near = self.phase.link().and_then(|link| link.connections[0].qp.channel()?.caller_epoll);
        Channels { owner, link: self.generation, each: self.channels(), near }
    }

    pub(super) fn channels(&self) -> [Option<Channel>; 2] {
        let channel = |connection: &Connection<Q>| {
            connection.qp.channel().map(|CompletionChannel { fd, interest, .. }| Channel { fd, interest })
        };
        self.phase
            .link()
            .map_or([None; 2], |link| [channel(&link.connections[0]), channel(&link.connections[1])])
    }
}
