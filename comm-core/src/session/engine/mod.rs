//! The engine half of a session: one turn of it moves everything that can move.
//!
//! # Invariants
//! 1. The work table holds the memory that a work request refers to until its completion, or until the link ends.
//! 2. No message waits in the backlog while an older one could be posted: the order of posting is the order of sending, per class.

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
mod progress;
mod rendezvous;
mod renew;
mod reply;
mod ticking;

pub(super) use outbound::NotPosted;
pub(super) use progress::CreditsAlone;
pub use progress::Progress;
pub(super) use reply::{NextMessage, Prefetched};

use arriving::{InlineInSlot, ShortInSlot};
use pronto_ring::mpsc;
use pronto_wire::Class;

use super::backlog::Backlog;
use super::by_slot::BySlot;
use super::calls::OpenCalls;
use super::idleness::Idleness;
use super::inbound::{LastCall, Sink};
use super::lane::{Lane, Link};
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

/// Messages taken from one connection per turn, so that a flood in one class does not starve the other.
pub(super) const RECEIVE_BATCH: usize = 64;

/// What a tick found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticked {
    /// When the next tick has something to do, if nothing happens before.
    pub next_due: Nanos,
    /// Work requests under way.
    pub work_in_flight: usize,
}

/// The engine half; see the module's documentation.
#[derive(Debug)]
pub struct Engine<Q: QueuePair> {
    pub(super) limits: Limits,
    pub(super) submissions: mpsc::Receiver<Submitted>,
    pub(super) backlog: Backlog,
    pub(super) phase: Phase<Q>,
    /// Generation of the present or last link, wrapping.
    pub(super) generation: u16,
    /// Generation of the session's first link.
    pub(super) session_start: u16,
    pub(super) calls: OpenCalls,
    pub(super) last_calls: BySlot<LastCall>,
    /// The message slot: the inline message that is being taken in.
    pub(super) inline: InlineMessage,
    /// The message slot: the short message that is being taken in.
    pub(super) short: ShortMessage,
    /// The outcome of the last poll before a turn, until the turn takes it: a message by value, one-sided work, or a failure.
    pub(super) prefetched: Result<PollOutcome<Q::Lease>, FabricError>,
    pub(super) work: WorkTable,
    pub(super) last_tick: Nanos,
    pub(super) idleness: Idleness,
    /// Messages received that wake a server which sleeps but for solicited events, wrapping.
    pub(super) solicited: usize,
    /// Of these, messages that carry nothing but credits and came after many like them, wrapping.
    pub(super) credits: usize,
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
            credits: 0,
            credits_alone: CreditsAlone::default(),
        }
    }

    pub(super) fn lane(&mut self, class: Class) -> &mut Lane<Q> {
        &mut self.phase.link_mut().expect("asked only while there is a link").lanes[class.index()]
    }

    /// Whether a turn would find nothing to do.
    #[inline(always)]
    pub(super) fn is_quiet(&self, shared: &Shared<Q::Lease>) -> bool {
        self.lanes_are_quiet() && !self.is_left(shared) && !shared.rendezvous.is_due()
    }

    /// Whether neither connection has anything to take in.
    #[inline(always)]
    pub(super) fn lanes_are_quiet(&self) -> bool {
        match self.phase.link() {
            Some(Link { lanes: [control, bulk], .. }) => control.is_quiet() && bulk.is_quiet(),
            None => true,
        }
    }

    /// Whether something waits to be sent.
    #[inline(always)]
    pub(super) fn is_left(&self, shared: &Shared<Q::Lease>) -> bool {
        !self.backlog.is_clear() || shared.work_is_left()
    }

    /// One turn: receive, complete, submit, give credit, ring the doorbells. It receives no more when the waiter has what it
    /// waits for: what is left is for the next turn. A prefetched message comes first.
    #[inline]
    pub(super) fn turn(
        &mut self,
        prefetched: Option<Prefetched>,
        turn: Turn<'_, Q::Lease, impl Executor>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
    ) -> Progress {
        let (mut moved, solicited, credits) = (0, self.solicited, self.credits);
        let received = turn.shared.stats.messages_received.count();
        if self.phase.is_linked() {
            // Before anything else is polled, which would take its place.
            let (most, mut turned) = match prefetched {
                None => (RECEIVE_BATCH, Ok(0)),
                // Both connections were polled just now.
                Some(Prefetched::Nothing) => (0, Ok(0)),
                Some(prefetched) => (RECEIVE_BATCH, self.receive_prefetched(prefetched, turn, waiter, sink)),
            };
            // Written out, so that each class is a constant of its own copy.
            if let Ok(before) = turned
                && (before == 0 || !waiter.is_done())
            {
                let control = self.turn_class(Class::Control, most, turn, waiter, sink);
                turned = control.map(|control| before + control);
            }
            if let Ok(before) = turned
                && (before == 0 || !waiter.is_done())
            {
                let is_quiet = before != 0 && self.lane(Class::Bulk).is_quiet();
                if before != 0 {
                    // A look at the other connection may be a system call, and what was answered does not wait for it.
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
        // A turn in which nothing happened owes nothing: credits become due, and room comes, by what moves.
        if moved == 0 && !left && self.backlog.is_clear() {
            return Progress::default();
        }
        let arrived = match turn.shared.arming.armed() {
            Armed::Nothing => 0,
            Armed::Solicited => self.solicited.wrapping_sub(solicited),
            Armed::All => moved,
        };
        let credits = self.credits.wrapping_sub(credits);
        let responses = match turn.shared.arming.has_listened() {
            true => credits,
            false => {
                let received = turn.shared.stats.messages_received.count().wrapping_sub(received);
                let received = usize::try_from(received).unwrap_or(usize::MAX);
                received.saturating_sub(self.solicited.wrapping_sub(solicited)) + credits
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

    /// Does the part of a turn that concerns one connection: receives at most `most` messages, then takes in completions.
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
        if self.lane(class).failed {
            // It may have failed for what the peer acknowledged.
            self.settle(class, turn.shared)?;
        }
        while moved < most {
            let link = self.phase.link_mut().expect("asked only while there is a link");
            let qp = &mut link.lanes[class.index()].qp;
            if moved != 0 && qp.is_quiet() {
                return Ok(moved);
            }
            // One match: a question mark would move the outcome before it is known what it is.
            match qp.poll(MessageSlot { inline: &mut self.inline, short: &mut self.short }) {
                Ok(PollOutcome::Nothing) => break,
                Ok(PollOutcome::Inline) => self.receive(class, InlineInSlot, turn, waiter, sink)?,
                Ok(PollOutcome::Short) => self.receive_short(class, turn, waiter, sink)?,
                Ok(PollOutcome::Leased(message)) => self.receive_large(class, message, turn, waiter, sink)?,
                Ok(PollOutcome::OneSided) => {
                    // Other threads get the engine in between.
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
        while let Some(completion) = self.lane(class).qp.poll_send() {
            if !self.completed(completion, turn) {
                return Err(PeerFault::Unasked.into());
            }
            moved += 1;
        }
        if self.lane(class).failed && moved == 0 {
            return Err(FabricError::Lost);
        }
        Ok(moved)
    }

    /// One connection has ended. What the peer had sent before on the other one counts: a goodbye, or answers.
    #[cold]
    #[inline(never)]
    pub(in crate::session) fn drain_after_loss(
        &mut self,
        turn: Turn<'_, Q::Lease, impl Executor>,
        sink: &mut impl Sink<Q::Lease>,
    ) {
        self.told([true; 2]);
        for class in Class::ALL {
            // Where it fails it has ended, too.
            let _taken = self.turn_class(class, RECEIVE_BATCH, turn, &mut || false, sink);
        }
    }

    /// Takes in what was polled before the turn. Returns the number of messages.
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

    /// The message in `short`.
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

    /// A message that may lie anywhere.
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

    /// Makes chunks of send memory ready where one is half full: a stream fills the rest of it long before the next tick.
    #[inline]
    pub(super) fn extend_rings(&mut self) {
        let Some(link) = self.phase.link_mut() else { return };
        for lane in &mut link.lanes {
            if lane.ring.as_ref().is_some_and(|ring| ring.is_filling()) {
                lane.extend_ring();
            }
        }
    }

    pub(super) fn arm(&mut self, events: Armed, shared: &Shared<Q::Lease>) {
        for lane in self.phase.link_mut().into_iter().flat_map(|link| &mut link.lanes) {
            lane.failed |= lane.qp.arm(events).is_err();
            lane.received_when_armed = lane.received;
        }
        shared.arming.set(events);
    }

    /// Takes back what was asked for, where somebody was told of an event or the peer would cause one. An event that the kernel
    /// knows of costs nobody anything, and whoever was not told of it need not look for it.
    pub(super) fn disarm(&mut self, told: [bool; 2], shared: &Shared<Q::Lease>) {
        let peer_wakes = self.peer_wakes();
        for (lane, told) in self.phase.link_mut().into_iter().flat_map(|link| &mut link.lanes).zip(told) {
            if told || peer_wakes {
                lane.failed |= lane.qp.arm(Armed::Nothing).is_err();
            }
        }
        shared.arming.set(Armed::Nothing);
    }

    /// Whether the fabric wakes a sleeper because the peer says so. Elsewhere the kernel knows whether something is there,
    /// and no wake-up can be lost.
    pub(super) fn peer_wakes(&self) -> bool {
        self.phase.link().is_some_and(|link| link.lanes[0].qp.capabilities().polls_without_syscalls)
    }

    /// See [`QueuePair::notify_woken`], by class.
    pub(in crate::session) fn told(&mut self, which: [bool; 2]) {
        for (lane, told) in self.phase.link_mut().into_iter().flat_map(|link| &mut link.lanes).zip(which) {
            if told {
                lane.qp.notify_woken();
            }
        }
    }

    /// For a caller that sleeps.
    pub(super) fn callers_channels(&self, owner: u64) -> Channels {
        let near = self.phase.link().and_then(|link| link.lanes[0].qp.channel()?.caller_epoll);
        Channels { owner, link: self.generation, each: self.channels(), near }
    }

    pub(super) fn channels(&self) -> [Option<Channel>; 2] {
        let channel = |lane: &Lane<Q>| {
            lane.qp.channel().map(|CompletionChannel { fd, interest, .. }| Channel { fd, interest })
        };
        self.phase.link().map_or([None; 2], |link| [channel(&link.lanes[0]), channel(&link.lanes[1])])
    }
}
