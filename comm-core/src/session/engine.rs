//! The engine half of a session: one turn of it moves everything that can move.
//!
//! # Invariants
//! 1. The work table holds the memory that a work request refers to until its completion, or until the link ends.
//! 2. No message waits in the backlog while an older one could be posted: the order of posting is the order of sending, per class.

use pronto_ring::mpsc;
use pronto_wire::{Class, Kind};

use super::Session;
use super::arming::Armed;
use super::backlog::Backlog;
use super::by_slot::BySlot;
use super::calls::OpenCalls;
use super::idleness::Idleness;
use super::inbound::{InPlace, Seen, ShortInPlace, Sink};
use super::limits::Limits;
use super::link::{DownCause, Lane, Link, LinkInfo, Links};
use super::outgoing::{Outgoing, OutgoingPayload, Submitted};
use super::phase::Phase;
use super::soon::Polled;
use super::wait::Waiter;
use super::work::WorkTable;
use crate::executor::{Channel, Channels, Executor};
use crate::fabric::{FabricError, PeerFault, QueuePair, Received, ShortMessage, SmallMessage};
use crate::time::Nanos;

/// Messages taken from one connection per turn, so that a flood in one class does not starve the other.
pub(super) const RECEIVE_BATCH: usize = 64;

/// Messages with credits alone, in a row, from which on the serving thread has no business with them. They come to a side that sends, and
/// takes them in itself; where requests come in between, whoever is not woken for the one misses the other.
const CREDITS_ALONE: u32 = 8;

/// The present row of messages that carry nothing but credits.
#[derive(Debug, Default)]
pub(super) struct CreditsAlone {
    row: u32,
    /// How many solicited messages had come when the last one came.
    at: usize,
}

impl CreditsAlone {
    /// One has come, as the last of so many solicited messages. Whether it is one of many without anything else in between.
    pub(super) fn came(&mut self, solicited: usize) -> bool {
        let follows = self.at.wrapping_add(1) == solicited;
        self.row = if follows { self.row.saturating_add(1) } else { 0 };
        self.at = solicited;
        self.row >= CREDITS_ALONE
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages received, completions taken in, submissions posted, one-sided operations of the peer carried out.
    pub moved: usize,
    /// Of these, what a sleeper would have been woken for.
    pub arrived: usize,
    /// Answers to calls whose callers look for them themselves, none while a future waits for one; and credits where nothing else comes,
    /// which senders look for.
    pub answers: usize,
}

impl Progress {
    /// What two turns did.
    pub(super) const fn and(self, other: Self) -> Self {
        let Self { moved, arrived, answers } = other;
        Self { moved: self.moved + moved, arrived: self.arrived + arrived, answers: self.answers + answers }
    }
}

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
    pub(super) seen: BySlot<Seen>,
    /// The small message that is being taken in.
    pub(super) small: SmallMessage,
    /// The short one.
    pub(super) short: ShortMessage,
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
            seen: BySlot::new(0),
            small: SmallMessage::default(),
            short: ShortMessage::default(),
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
    pub(super) fn is_quiet(&self, session: &Session<Q>) -> bool {
        self.lanes_are_quiet() && !self.is_left(session) && !session.rendezvous.is_due()
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
    pub(super) fn is_left(&self, session: &Session<Q>) -> bool {
        !self.backlog.is_clear() || session.work_is_left()
    }

    /// One turn: receive, complete, submit, give credit, ring the doorbells. It receives no more when the waiter has what it
    /// waits for: what is left is for the next turn. A message that was `polled` already comes first.
    #[inline]
    pub(super) fn turn(
        &mut self,
        polled: Option<Polled>,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Progress {
        let (mut moved, solicited, credits) = (0, self.solicited, self.credits);
        let received = session.stats.messages_received.count();
        if self.phase.is_linked() {
            // Before anything else is polled, which would take its place.
            let mut turned = match polled {
                Some(polled) => self.receive_polled(polled, session, waiter, sink, executor).map(|()| 1),
                None => Ok(0),
            };
            // Written out, so that each class is a constant of its own copy.
            if let Ok(before) = turned
                && (before == 0 || !waiter.is_done())
            {
                let control = self.turn_class(Class::Control, session, waiter, sink, executor);
                turned = control.map(|control| before + control);
            }
            if let Ok(before) = turned
                && (before == 0 || !waiter.is_done())
            {
                let is_quiet = before != 0 && self.lane(Class::Bulk).is_quiet();
                if before != 0 {
                    // A look at the other connection may be a system call, and what was answered does not wait for it.
                    self.ring(Class::Control, session);
                }
                let bulk = match is_quiet {
                    true => Ok(0),
                    false => self.turn_class(Class::Bulk, session, waiter, sink, executor),
                };
                turned = bulk.map(|bulk| before + bulk);
            }
            match turned {
                Ok(both) => moved = both,
                Err(error) => {
                    if error == FabricError::Lost {
                        self.take_last_words(session, sink, executor);
                    }
                    self.lose(error, session, sink, executor);
                    return Progress::default();
                }
            }
        }
        if session.rendezvous.wants(moved) {
            moved += self.move_rendezvous(session, executor);
        }
        let left = session.work_is_left();
        // A turn in which nothing happened owes nothing: credits become due, and room comes, by what moves.
        if moved == 0 && !left && self.backlog.is_clear() {
            return Progress::default();
        }
        let arrived = match session.arming.armed() {
            Armed::Nothing => 0,
            Armed::Solicited => self.solicited.wrapping_sub(solicited),
            Armed::All => moved,
        };
        let credits = self.credits.wrapping_sub(credits);
        let answers = match session.arming.has_listened() {
            true => credits,
            false => {
                let received = session.stats.messages_received.count().wrapping_sub(received);
                let received = usize::try_from(received).unwrap_or(usize::MAX);
                received.saturating_sub(self.solicited.wrapping_sub(solicited)) + credits
            }
        };
        self.extend_rings();
        if left || !self.backlog.is_clear() {
            self.drain(session, executor);
        } else {
            self.give_credit(session);
            self.ring_due(session);
        }
        Progress { moved: moved + usize::from(left), arrived, answers }
    }

    #[inline(always)]
    fn turn_class(
        &mut self,
        class: Class,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Result<usize, FabricError> {
        let mut moved = 0;
        if self.lane(class).failed {
            // It may have failed for what the peer acknowledged.
            self.settle(class, session)?;
        }
        while moved < RECEIVE_BATCH {
            let link = self.phase.link_mut().expect("asked only while there is a link");
            let qp = &mut link.lanes[class.index()].qp;
            if moved != 0 && qp.is_quiet() {
                return Ok(moved);
            }
            if qp.poll_small(&mut self.small) {
                self.receive(class, InPlace, session, waiter, sink, executor)?;
            } else if qp.poll_short(&mut self.short) {
                self.receive_short(class, session, waiter, sink, executor)?;
            } else {
                let Some(message) = qp.poll_recv()? else { break };
                self.receive_large(class, message, session, waiter, sink, executor)?;
            }
            moved += 1;
            if waiter.is_done() {
                return Ok(moved);
            }
        }
        while let Some(completion) = self.lane(class).qp.poll_send() {
            if !self.completed(completion, session, executor) {
                return Err(PeerFault::Unasked.into());
            }
            moved += 1;
        }
        if self.lane(class).failed && moved == 0 {
            return Err(FabricError::Lost);
        }
        // Others get at the engine in between.
        moved += usize::from(self.lane(class).qp.has_answered());
        Ok(moved)
    }

    /// One connection has ended. What the peer had sent before on the other one counts: a goodbye, or answers.
    #[cold]
    #[inline(never)]
    fn take_last_words(
        &mut self,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        self.told([true; 2]);
        for class in Class::ALL {
            // Where it fails it has ended, too.
            let _taken = self.turn_class(class, session, &mut || false, sink, executor);
        }
    }

    /// A message that was polled already.
    #[inline(never)]
    fn receive_polled(
        &mut self,
        polled: Polled,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Result<(), FabricError> {
        match polled {
            Polled::Small(class) => self.receive(class, InPlace, session, waiter, sink, executor),
            Polled::Short(class) => self.receive_short(class, session, waiter, sink, executor),
        }
    }

    /// The message in `short`.
    #[inline(never)]
    fn receive_short(
        &mut self,
        class: Class,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Result<(), FabricError> {
        self.receive(class, ShortInPlace(class), session, waiter, sink, executor)
    }

    /// A message that may lie anywhere.
    #[inline(never)]
    fn receive_large(
        &mut self,
        class: Class,
        message: Received<Q::Lease>,
        session: &Session<Q>,
        waiter: &mut impl Waiter<Q::Lease>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Result<(), FabricError> {
        self.receive(class, message, session, waiter, sink, executor)
    }

    /// A message with credits and nothing else has come. Apart, as requests are taken in beside it.
    #[inline(never)]
    pub(super) fn credit_received(&mut self) {
        let alone = self.credits_alone.came(self.solicited);
        self.credits = self.credits.wrapping_add(usize::from(alone));
    }

    /// Tells the peer about credits where nothing else would.
    #[inline]
    pub(super) fn give_credit(&mut self, session: &Session<Q>) {
        let Some(Link { lanes: [control, bulk], .. }) = self.phase.link() else { return };
        let [returned, returned_bulk] = &session.returned;
        let (owes, owes_bulk) =
            (control.owes_credit(returned.count()), bulk.owes_credit(returned_bulk.count()));
        if owes {
            self.control(Class::Control, Kind::Credit, session);
        }
        if owes_bulk {
            self.control(Class::Bulk, Kind::Credit, session);
        }
    }

    /// Sends a message without payload, if the peer has room for one; it is asked for again otherwise.
    pub(super) fn control(&mut self, class: Class, kind: Kind, session: &Session<Q>) -> bool {
        // A message in the backlog may wait for a credit that the peer returns only after it has received one itself, so credits and
        // heartbeats do not wait. The other kinds keep their place behind the requests that they concern.
        let waits = !matches!(kind, Kind::Credit | Kind::Heartbeat) && !self.backlog.is_empty(class);
        if waits {
            return false;
        }
        if !self.lane(class).has_control_credit() {
            self.settle_early(session);
            if !self.lane(class).has_control_credit() {
                return false;
            }
        }
        let (payload, timeout) = (OutgoingPayload::EMPTY, Nanos::NEVER);
        let outgoing = Outgoing { class, link: self.generation, kind, payload, completes: None, timeout };
        self.try_post(outgoing, session).is_ok()
    }

    /// Tells the callee about calls that were given up, as far as there is room.
    pub(super) fn send_cancels(&mut self, session: &Session<Q>) {
        if !self.phase.is_linked() {
            return;
        }
        let mut slot = 0;
        while let Some((call, class)) = self.calls.next_cancel(slot) {
            if !self.control(class, Kind::Cancel { call }, session) {
                return;
            }
            self.calls.cancel_sent(call);
            slot = call.slot + 1;
        }
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

    pub(super) fn arm(&mut self, events: Armed, session: &Session<Q>) {
        for lane in self.phase.link_mut().into_iter().flat_map(|link| &mut link.lanes) {
            let armed = match events {
                Armed::Nothing => continue,
                Armed::Solicited => lane.qp.arm_solicited(),
                Armed::All => lane.qp.arm(),
            };
            lane.failed |= armed.is_err();
        }
        session.arming.set(events);
    }

    /// Takes back what was asked for, where somebody was told of an event or the peer would cause one. An event that the kernel
    /// knows of costs nobody anything, and whoever was not told of it need not look for it.
    pub(super) fn disarm(&mut self, told: [bool; 2], session: &Session<Q>) {
        let peer_wakes = self.peer_wakes();
        for (lane, told) in self.phase.link_mut().into_iter().flat_map(|link| &mut link.lanes).zip(told) {
            if told || peer_wakes {
                lane.qp.disarm();
            }
        }
        session.arming.set(Armed::Nothing);
    }

    /// Whether the fabric wakes a sleeper because the peer says so. Elsewhere the kernel knows whether something is there,
    /// and no wake-up can be lost.
    pub(super) fn peer_wakes(&self) -> bool {
        self.phase.link().is_some_and(|link| link.lanes[0].qp.capabilities().polls_without_syscalls)
    }

    /// See [`QueuePair::told`], by class.
    fn told(&mut self, which: [bool; 2]) {
        for (lane, told) in self.phase.link_mut().into_iter().flat_map(|link| &mut link.lanes).zip(which) {
            if told {
                lane.qp.told();
            }
        }
    }

    /// For a caller that sleeps.
    pub(super) fn callers_channels(&self, owner: u64) -> Channels {
        let near = self.phase.link().and_then(|link| link.lanes[0].qp.near_channel());
        Channels { owner, link: self.generation, each: self.channels(), near }
    }

    pub(super) fn channels(&self) -> [Option<Channel>; 2] {
        let channel =
            |lane: &Lane<Q>| lane.qp.channel().map(|fd| Channel { fd, interest: lane.qp.interest() });
        self.phase.link().map_or([None; 2], |link| [channel(&link.lanes[0]), channel(&link.lanes[1])])
    }
}

/// What the node does to a session, beyond polling it. These wait for the engine, which is held for moments only; in an inline handler
/// they do not wait, and say how they end without it.
impl<Q: QueuePair> Session<Q> {
    /// Installs a new link: it carries the held session on, or begins another one. Closes it instead in an inline handler.
    pub fn install(&self, links: Links<Q>, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        let Some(mut engine) = self.enter_recovered(sink, executor) else { return };
        engine.install(links, self, sink, executor);
        engine.release();
        self.look_once_more(executor);
    }

    /// Deadlines, heartbeats, liveness. `slept` is how long the caller meant to be away since its last tick. None while
    /// another thread holds the engine: it is skipped, and soon to be tried again.
    pub fn tick(
        &self,
        now: Nanos,
        slept: Nanos,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Option<Ticked> {
        let mut engine = self.engine.try_lock()?;
        engine.tick(self, now, slept, sink, executor);
        let ticked = Ticked { next_due: engine.next_due(), work_in_flight: engine.work.in_flight() };
        engine.release();
        self.look_once_more(executor);
        Some(ticked)
    }

    /// Ends the link for a reason that somebody outside noticed: the peer's process ended, or this node shuts down. Returns false, and
    /// nothing was done, in an inline handler.
    pub fn take_down(
        &self,
        cause: DownCause,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> bool {
        let Some(mut engine) = self.enter_recovered(sink, executor) else { return false };
        if cause == DownCause::Died && engine.phase.is_linked() {
            // Its end may be noticed sooner than what it had said before.
            engine.take_last_words(self, sink, executor);
        }
        let said_so = engine.phase.link().is_some_and(|link| link.peer_draining);
        let cause = if cause == DownCause::Died && said_so { DownCause::Goodbye } else { cause };
        engine.lose_for(cause, self, sink, executor);
        engine.release();
        self.look_once_more(executor);
        true
    }

    /// Tells the peer that this node takes no new requests. Returns whether it could be told.
    pub fn goodbye(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| {
            let told = engine.phase.is_linked() && engine.control(Class::Control, Kind::Goodbye, self);
            engine.ring_doorbells(self);
            told
        })
        .unwrap_or(false)
    }

    /// Returns the peer at the other end, while there is a session. In an inline handler `None` may also mean that the engine is busy.
    pub fn info(&self, executor: &impl Executor) -> Option<LinkInfo> {
        self.with_engine(executor, |engine| engine.phase.info().copied()).flatten()
    }

    /// Returns whether there is a link now. In an inline handler false may also mean that the engine is busy.
    pub fn is_linked(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| engine.phase.is_linked()).unwrap_or(false)
    }

    /// Returns the number of work requests under way; 0 in an inline handler if the engine is busy.
    pub fn work_in_flight(&self, executor: &impl Executor) -> usize {
        self.with_engine(executor, |engine| engine.work.in_flight()).unwrap_or(0)
    }

    /// A thread was woken by these channels, by class, in place of the serving thread.
    pub(super) fn told(&self, which: [bool; 2], executor: &impl Executor) {
        // A thread that has slept on channels may block.
        let _told = self.with_engine(executor, |engine| engine.told(which));
    }

    /// Returns the descriptors that have an event when something arrives, control and bulk; none in an inline handler if the engine is
    /// busy.
    pub fn channels(&self, executor: &impl Executor) -> [Option<Channel>; 2] {
        self.with_engine(executor, |engine| engine.channels()).unwrap_or([None; 2])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn credits_are_alone_after_many_with_nothing_else_in_between() {
        let mut credits = CreditsAlone::default();
        let mut solicited = usize::MAX - 3;
        let mut comes = |others: usize| {
            solicited = solicited.wrapping_add(others + 1);
            credits.came(solicited)
        };
        assert!(!comes(5));
        let told = (0..CREDITS_ALONE + 3).map(|_| comes(0));
        assert_eq!(told.filter(|&alone| alone).count(), 4, "all after the first eight");
        assert!(!comes(1), "a request came in between");
        assert!(!comes(0));
    }
}
