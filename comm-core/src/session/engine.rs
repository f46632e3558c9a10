//! The engine half of a session: one turn of it moves everything that can move.
//!
//! # Invariants
//! 1. A call of this side is `live` in `open` from the posting of its request until its answer came or its session ended.
//! 2. What a work request refers to is held by the work table until the completion, or the link's end.
//! 3. No message waits in `stalled` while an older one could be posted: order of post is order of sending, per class.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use pronto_ring::mpsc;
use pronto_sync::atomic::Ordering;
use pronto_wire::{CallId, Class, Kind};

use super::Session;
use super::arming::Armed;
use super::by_slot::BySlot;
use super::call::Expects;
use super::end::{End, Executed};
use super::idleness::Idleness;
use super::inbound::{InPlace, Seen, ShortInPlace, Sink};
use super::limits::Limits;
use super::link::{DownCause, Event, Lane, Link, LinkInfo, Links, LostLink};
use super::outbound::{KeptRequest, OpenCall, WorkTable};
use super::outgoing::{Outgoing, OutgoingPayload, Submitted};
use super::soon::Polled;
use super::wait::Waiter;
use crate::buf::{RingConfig, SendRing};
use crate::executor::{Channel, Executor};
use crate::fabric::{FabricError, PeerFault, QueuePair, Received, ShortMessage, SmallMessage};
use crate::time::Nanos;

/// Messages taken from one connection per turn, so that a flood in one class does not starve the other.
const RECEIVE_BATCH: usize = 64;

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages received, completions taken in, submissions posted.
    pub moved: usize,
    /// Of these, what a sleeper would have been woken for.
    pub arrived: usize,
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
    /// Messages that wait for room in the fabric, by class: bulk never holds control up.
    pub(super) stalled: [VecDeque<Submitted>; 2],
    pub(super) link: Option<Link<Q>>,
    lost: Option<LostLink>,
    pub(super) session: Option<LinkInfo>,
    /// Generation of the present or last link, wrapping.
    pub(super) generation: u16,
    /// Generation of the session's first link.
    pub(super) session_start: u16,
    pub(super) open: BySlot<OpenCall>,
    /// Requests posted so far, those sent again included.
    pub(super) requests_posted: u64,
    pub(super) seen: BySlot<Seen>,
    /// The small message that is being taken in.
    pub(super) small: SmallMessage,
    /// The short one.
    pub(super) short: ShortMessage,
    pub(super) work: WorkTable,
    last_tick: Nanos,
    idleness: Idleness,
    /// Messages received that wake a server which sleeps but for solicited events, wrapping.
    pub(super) solicited: usize,
}

impl<Q: QueuePair> Engine<Q> {
    pub(super) fn new(limits: Limits, submissions: mpsc::Receiver<Submitted>) -> Self {
        Self {
            limits,
            submissions,
            stalled: [VecDeque::new(), VecDeque::new()],
            link: None,
            lost: None,
            session: None,
            generation: 0,
            session_start: 0,
            open: BySlot::new(limits.calls),
            requests_posted: 0,
            seen: BySlot::new(0),
            small: SmallMessage::default(),
            short: ShortMessage::default(),
            work: WorkTable::new(),
            last_tick: Nanos::ZERO,
            idleness: Idleness::default(),
            solicited: 0,
        }
    }

    pub(super) fn lane(&mut self, class: Class) -> &mut Lane<Q> {
        &mut self.link.as_mut().expect("asked only while there is a link").lanes[class.index()]
    }

    /// Whether a turn would find nothing to do.
    #[inline(always)]
    pub(super) fn is_quiet(&self, session: &Session<Q>) -> bool {
        let [control, bulk] = &self.stalled;
        let quiet = match &self.link {
            Some(Link { lanes: [control, bulk], .. }) => control.is_quiet() && bulk.is_quiet(),
            None => true,
        };
        quiet
            && control.is_empty()
            && bulk.is_empty()
            && !session.work_is_left()
            && !session.rendezvous.is_due()
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
        let (mut moved, solicited) = (0, self.solicited);
        if self.link.is_some() {
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
                let bulk = self.turn_class(Class::Bulk, session, waiter, sink, executor);
                turned = bulk.map(|bulk| before + bulk);
            }
            match turned {
                Ok(both) => moved = both,
                Err(error) => {
                    self.lose(error, session, sink, executor);
                    return Progress::default();
                }
            }
        }
        if session.rendezvous.wants(moved) {
            moved += self.move_rendezvous(session, executor);
        }
        let left = session.work_is_left();
        let [control, bulk] = &self.stalled;
        // A turn in which nothing happened owes nothing: credits become due, and room comes, by what moves.
        if moved == 0 && !left && control.is_empty() && bulk.is_empty() {
            return Progress::default();
        }
        let arrived = match session.arming.armed() {
            Armed::Nothing => 0,
            Armed::Solicited => self.solicited.wrapping_sub(solicited),
            Armed::All => moved,
        };
        self.extend_rings();
        if left || !self.stalled.iter().all(VecDeque::is_empty) {
            self.drain(session, executor);
        } else {
            self.give_credit(session);
            self.ring_doorbells(session);
        }
        Progress { moved: moved + usize::from(left), arrived }
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
        while moved < RECEIVE_BATCH {
            let link = self.link.as_mut().expect("asked only while there is a link");
            let qp = &mut link.lanes[class.index()].qp;
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
        Ok(moved)
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

    /// Tells the peer about credits where nothing else would.
    #[inline]
    pub(super) fn give_credit(&mut self, session: &Session<Q>) {
        let Some(Link { lanes: [control, bulk], .. }) = &self.link else { return };
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
    fn control(&mut self, class: Class, kind: Kind, session: &Session<Q>) -> bool {
        // What is stalled may wait for a credit that the peer gives when it has got one itself: these two wait for nothing. The
        // others keep their place behind the requests that they are about.
        let waits =
            !matches!(kind, Kind::Credit | Kind::Heartbeat) && !self.stalled[class.index()].is_empty();
        if waits || !self.lane(class).has_control_credit() {
            return false;
        }
        let (payload, timeout) = (OutgoingPayload::EMPTY, Nanos::NEVER);
        let outgoing = Outgoing { class, link: self.generation, kind, payload, completes: None, timeout };
        self.try_post(outgoing, session).is_ok()
    }

    /// Tells the callee about calls that were given up, as far as there is room.
    pub(super) fn send_cancels(&mut self, session: &Session<Q>) {
        if self.link.is_none() {
            return;
        }
        for slot in (0..self.limits.calls).take(self.open.len()) {
            let open = &self.open[usize::from(slot)];
            let Some(class) = open.cancel_due.filter(|_| open.live) else { continue };
            let call = CallId { slot, generation: open.generation };
            if !self.control(class, Kind::Cancel { call }, session) {
                return;
            }
            self.open[usize::from(slot)].cancel_due = None;
        }
    }

    /// A new link. It carries the held session on, or begins another one.
    fn install(
        &mut self,
        links: Links<Q>,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let Links { mut pairs, agreement } = links;
        if self.link.is_some() {
            self.lose(FabricError::Lost, session, sink, executor);
        }
        let resumed = agreement.resumed;
        if resumed && self.session.is_none_or(|held| held.session != agreement.session) {
            // The session ended while the greetings travelled. The peer would carry on what has begun anew here, so it
            // must greet again.
            pairs.iter_mut().for_each(QueuePair::close);
            return;
        }
        if !resumed {
            self.end_session(DownCause::Replaced, session, sink, executor);
        }
        self.generation = self.generation.wrapping_add(1);
        let mut link = Link::new(pairs, &agreement, executor.now());
        for class in Class::ALL {
            let lane = &mut link.lanes[class.index()];
            let pinned = lane.qp.capabilities().pins_memory;
            let config = if pinned { RingConfig::pinned() } else { RingConfig::default() };
            let ring = SendRing::new(lane.qp.send_memory(), config);
            for range in ring.initial() {
                lane.failed |= lane.qp.prepare(range).is_err();
            }
            let ring = Arc::new(ring);
            lane.ring = Some(Arc::clone(&ring));
            session.rings[class.index()].set(Some(ring));
            session.returned[class.index()].reset(self.generation);
            session.told[class.index()].store(0, Ordering::Relaxed);
        }
        if !resumed {
            self.session_start = self.generation;
            self.seen = BySlot::new(agreement.peer_windows[0].replies);
            session.types.replace(&agreement.types);
            // Another life of the peer uses the same slots and generations for other calls.
            session.cancelled.made().for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
        session.arming.set(Armed::Nothing);
        let info = link.info;
        self.session = Some(info);
        self.link = Some(link);
        let lost = self.lost.take();
        for class in Class::ALL {
            let window = agreement.peer_windows[class.index()].requests;
            session.credits[class.index()].reset(self.generation, window);
        }
        if resumed {
            self.resend(session, executor);
        }
        session.up.store(true, Ordering::Relaxed);
        if resumed {
            let notifications_lost = lost.map_or(0, |lost| lost.notifications);
            session.stats.notifications_lost.add_alone(notifications_lost.into());
            session.stats.links_resumed.add_alone(1);
            sink.event(Event::LinkResumed { peer: info.peer, notifications_lost });
        } else {
            sink.event(Event::PeerUp(info));
        }
        self.drain(session, executor);
    }

    /// Sends every unanswered request again, in the order in which they were first posted, and before what has waited to
    /// be posted since; the callee drops those that it saw. There may be more of them than credits, for a request gives
    /// its credit back before its answer is there: each takes one of this link, or waits for one.
    fn resend(&mut self, session: &Session<Q>, executor: &impl Executor) {
        let mut waiting = core::mem::take(&mut self.stalled);
        let mut unanswered: Vec<_> = (0..self.open.len()).filter(|slot| self.open[*slot].live).collect();
        unanswered.sort_unstable_by_key(|slot| self.open[*slot].order);
        for slot in unanswered {
            if let Some(outgoing) = self.unanswered_request(slot, session, executor.now()) {
                session.stats.requests_resent.add_alone(1);
                self.post(outgoing, session, executor);
            }
        }
        for (stalled, waiting) in self.stalled.iter_mut().zip(&mut waiting) {
            stalled.append(waiting);
        }
    }

    /// The request of a live call, to be sent again: none if its caller has an end already, or if it still waits to be
    /// sent again for an earlier loss.
    fn unanswered_request(&mut self, slot: usize, session: &Session<Q>, now: Nanos) -> Option<Outgoing> {
        let open = &mut self.open[slot];
        let timeout = remaining(open.timeout, open.deadline, now);
        let call =
            CallId { slot: u16::try_from(slot).expect("slots are 16 bits"), generation: open.generation };
        if open.ended {
            // Its slot waited only for an answer that the lost link took with it.
            open.live = false;
            open.kept = None;
            session.calls.settle(call);
            return None;
        }
        let KeptRequest { class, kind, payload } = open.kept.take()?;
        let Kind::Request { type_id, service, .. } = kind else { return None };
        let deadline_us = super::timeout_us(timeout);
        let kind = Kind::Request { call, type_id, service, resent: true, deadline_us };
        let link = self.generation.wrapping_sub(1);
        payload.map(|payload| Outgoing { class, link, kind, payload, completes: None, timeout })
    }

    /// Closes the link, with everything under way on it. Returns how many notifications that may have hit.
    fn close_link(&mut self, session: &Session<Q>, executor: &impl Executor) -> Option<(Link<Q>, u32)> {
        let mut link = self.link.take()?;
        session.stats.links_lost.add_alone(1);
        for class in Class::ALL {
            session.credits[class.index()].reset(self.generation, 0);
            session.rings[class.index()].set(None);
            let lane = &mut link.lanes[class.index()];
            lane.qp.close();
            while let Some(completion) = lane.qp.poll_send() {
                self.completed(completion, session, executor);
            }
        }
        self.flush_work(session, executor);
        let notifications = link.lanes.iter().map(|lane| lane.notifications.len()).sum::<usize>();
        Some((link, u32::try_from(notifications).unwrap_or(u32::MAX)))
    }

    /// The link is gone. The session waits for another one, if it can.
    fn lose(
        &mut self,
        error: FabricError,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let Some((link, notifications)) = self.close_link(session, executor) else { return };
        let corrupt = matches!(error, FabricError::Peer(_));
        if corrupt {
            session.stats.corrupt_peers.add_alone(1);
        }
        if link.peer_draining {
            self.end_session(DownCause::Goodbye, session, sink, executor);
        } else if corrupt {
            self.end_session(DownCause::Corrupt(error), session, sink, executor);
        } else if !link.resumable {
            self.end_session(DownCause::Died, session, sink, executor);
        } else {
            self.lost = Some(LostLink { since: executor.now(), notifications });
            sink.event(Event::LinkLost { peer: link.info.peer, error });
        }
    }

    /// Every open call ends; the peer is down until another session begins.
    fn end_session(
        &mut self,
        cause: DownCause,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let Some(info) = self.session.take() else { return };
        session.up.store(false, Ordering::Relaxed);
        session.types.replace(&[]);
        if let Some(lost) = self.lost.take() {
            session.stats.notifications_lost.add_alone(lost.notifications.into());
        }
        for class in Class::ALL {
            while let Some(submitted) = self.stalled[class.index()].pop_front() {
                self.post_any(submitted, session, executor);
            }
        }
        self.drain(session, executor);
        for slot in 0..self.open.len() {
            let open = &mut self.open[slot];
            if !core::mem::take(&mut open.live) {
                continue;
            }
            open.kept = None;
            let (ended, generation) = (open.ended, open.generation);
            let call = CallId { slot: u16::try_from(slot).expect("slots are 16 bits"), generation };
            if ended {
                session.calls.settle(call);
            } else {
                session.calls.end(
                    call,
                    End::PeerDown { executed: Executed::Maybe },
                    Expects::Nothing,
                    executor,
                );
            }
        }
        self.end_rendezvous(session, executor);
        self.seen = BySlot::new(0);
        sink.event(Event::PeerDown { peer: info.peer, epoch: info.epoch, cause });
    }

    /// Deadlines, heartbeats, liveness. `slept` is how long the caller meant to be away since the last tick: what was
    /// longer is this node's own lateness, and not the peer's silence.
    fn tick(
        &mut self,
        session: &Session<Q>,
        now: Nanos,
        slept: Nanos,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        let late =
            if self.last_tick == Nanos::ZERO { Nanos::ZERO } else { now.since(self.last_tick).since(slept) };
        let before = core::mem::replace(&mut self.last_tick, now);
        self.pass_deadlines(session, now, executor);
        self.send_cancels(session);
        if let Some(link) = &mut self.link {
            if core::mem::take(&mut link.heard) {
                link.last_heard = now;
            } else if late > LATENESS {
                link.last_heard = link.last_heard + late;
            }
            if core::mem::take(&mut link.spoke) {
                // At some time since the last tick: others may have sent it long ago.
                link.last_spoke = link.last_spoke.max(before);
            }
            if now.since(link.last_heard) >= self.limits.liveness + LATENESS {
                self.lose_for(DownCause::Silent, session, sink, executor);
                return;
            }
            // Together with others rather than when it is due: ticks are rare when all is quiet, and each may be a wake-up
            // at the other side.
            if now.since(link.last_spoke).0 >= self.limits.heartbeat.0 / 2 {
                link.last_spoke = now;
                self.control(Class::Control, Kind::Heartbeat, session);
                for class in Class::ALL {
                    // The peer keeps its answers until it knows that they have arrived.
                    if self.lane(class).has_untold_answers() {
                        self.control(class, Kind::Credit, session);
                    }
                }
                // The heartbeat itself is no reason to be silent for longer.
                self.link.as_mut().expect("still there").spoke = false;
            }
        } else if let Some(lost) = &mut self.lost {
            if late > LATENESS {
                lost.since = lost.since + late;
            }
            if now.since(lost.since) >= self.limits.liveness {
                self.end_session(DownCause::Silent, session, sink, executor);
            }
        }
        self.trim_rings(now);
        if self.idleness.passed(now, session.stats.messages_sent.count()) {
            self.give_back();
        }
        self.ring_doorbells(session);
    }

    /// Gives back memory that a busier session needed.
    fn give_back(&mut self) {
        self.open.give_back(|open| open.live);
        self.work.give_back();
        for stalled in &mut self.stalled {
            stalled.shrink_to_fit();
        }
        for lane in self.link.iter_mut().flat_map(|link| &mut link.lanes) {
            lane.give_back();
        }
    }

    /// Before a sleep, which may be long: what was heard since the last tick was heard by now, and not at its end.
    pub(super) fn note_heard(&mut self, now: Nanos) {
        if let Some(link) = &mut self.link
            && core::mem::take(&mut link.heard)
        {
            link.last_heard = now;
        }
    }

    /// When the next tick has something to do, if nothing happens before: a heartbeat is due, or the peer is overdue.
    fn next_due(&self) -> Nanos {
        match (&self.link, &self.lost) {
            (Some(link), _) => {
                (link.last_spoke + self.limits.heartbeat).min(link.last_heard + self.limits.liveness)
            }
            (None, Some(lost)) => lost.since + self.limits.liveness,
            (None, None) => Nanos::NEVER,
        }
    }

    /// Ends link and session for a reason that is not the link's.
    fn lose_for(
        &mut self,
        cause: DownCause,
        session: &Session<Q>,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) {
        self.close_link(session, executor);
        self.end_session(cause, session, sink, executor);
    }

    fn pass_deadlines(&mut self, session: &Session<Q>, now: Nanos, executor: &impl Executor) {
        for slot in 0..self.open.len() {
            let open = &mut self.open[slot];
            if !open.live || open.ended || open.timeout == Nanos::NEVER {
                continue;
            }
            if *open.deadline.get_or_insert(now + open.timeout) <= now {
                open.ended = true;
                open.cancel_due = Some(open.kept.as_ref().map_or(Class::Control, |kept| kept.class));
                let call = CallId {
                    slot: u16::try_from(slot).expect("slots are 16 bits"),
                    generation: open.generation,
                };
                session.calls.end(
                    call,
                    End::Deadline { executed: Executed::Maybe },
                    Expects::Answer,
                    executor,
                );
            }
        }
    }

    /// Makes chunks of send memory ready where one is half full: a stream fills the rest of it long before the next tick.
    #[inline]
    pub(super) fn extend_rings(&mut self) {
        let Some(link) = &mut self.link else { return };
        for lane in &mut link.lanes {
            if lane.ring.as_ref().is_some_and(|ring| ring.is_filling()) {
                lane.extend_ring();
            }
        }
    }

    /// Makes chunks of send memory ready ahead of need, and gives idle ones back.
    fn trim_rings(&mut self, now: Nanos) {
        let Some(link) = &mut self.link else { return };
        for lane in &mut link.lanes {
            let Some(ring) = lane.ring.clone() else { continue };
            ring.tick(now);
            if lane.extend_ring() {
                continue;
            }
            if let Some(chunk) = ring.trim() {
                // Memory that cannot be given back stays committed; it is no longer used all the same.
                lane.failed |= lane.qp.retire(chunk.range()).is_err();
                ring.close(chunk);
            } else if lane.qp.capabilities().ready_when_touched
                && let Some(chunk) = ring.trim_first()
            {
                lane.failed |= lane.qp.retire(chunk.range()).is_err();
                ring.open_clean(chunk);
            }
        }
    }

    pub(super) fn arm(&mut self, events: Armed, session: &Session<Q>) {
        for lane in self.link.iter_mut().flat_map(|link| &mut link.lanes) {
            let armed = match events {
                Armed::Nothing => continue,
                Armed::Solicited => lane.qp.arm_solicited(),
                Armed::All => lane.qp.arm(),
            };
            lane.failed |= armed.is_err();
        }
        session.arming.set(events);
    }

    pub(super) fn disarm(&mut self, session: &Session<Q>) {
        for lane in self.link.iter_mut().flat_map(|link| &mut link.lanes) {
            lane.qp.disarm();
        }
        session.arming.set(Armed::Nothing);
    }

    /// Whether the fabric wakes a sleeper because the peer says so. Elsewhere the kernel knows whether something is there,
    /// and no wake-up can be lost.
    pub(super) fn peer_wakes(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.lanes[0].qp.capabilities().polls_without_syscalls)
    }

    pub(super) fn channels(&self) -> [Option<Channel>; 2] {
        let channel =
            |lane: &Lane<Q>| lane.qp.channel().map(|fd| Channel { fd, interest: lane.qp.interest() });
        self.link.as_ref().map_or([None; 2], |link| [channel(&link.lanes[0]), channel(&link.lanes[1])])
    }
}

/// What the node does to a session, beyond polling it. These wait for the engine, which is held for moments only.
impl<Q: QueuePair> Session<Q> {
    /// A new link: it carries the held session on, or begins another one.
    pub fn install(&self, links: Links<Q>, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        self.with_engine(executor, |engine| engine.install(links, self, sink, executor));
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
        drop(engine);
        self.look_once_more(executor);
        Some(ticked)
    }

    /// The link is gone, as somebody outside noticed: the peer's process ended, or this node shuts down.
    pub fn take_down(&self, cause: DownCause, sink: &mut impl Sink<Q::Lease>, executor: &impl Executor) {
        self.with_engine(executor, |engine| engine.lose_for(cause, self, sink, executor));
    }

    /// Tells the peer that this node takes no new requests. Returns whether it could be told.
    pub fn goodbye(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| {
            let told = engine.link.is_some() && engine.control(Class::Control, Kind::Goodbye, self);
            engine.ring_doorbells(self);
            told
        })
    }

    /// Who is at the other end, while there is a session.
    pub fn info(&self, executor: &impl Executor) -> Option<LinkInfo> {
        self.with_engine(executor, |engine| engine.session)
    }

    /// Whether there is a link now.
    pub fn is_linked(&self, executor: &impl Executor) -> bool {
        self.with_engine(executor, |engine| engine.link.is_some())
    }

    /// Work requests under way.
    pub fn work_in_flight(&self, executor: &impl Executor) -> usize {
        self.with_engine(executor, |engine| engine.work.in_flight())
    }

    /// The descriptors that have an event when something arrives, control and bulk.
    pub fn channels(&self, executor: &impl Executor) -> [Option<Channel>; 2] {
        self.with_engine(executor, |engine| engine.channels())
    }

    pub(super) fn with_engine<R>(
        &self,
        executor: &impl Executor,
        use_it: impl FnOnce(&mut Engine<Q>) -> R,
    ) -> R {
        loop {
            for _ in 0..SPINS_PER_YIELD {
                if let Some(mut engine) = self.engine.try_lock() {
                    let result = use_it(&mut engine);
                    drop(engine);
                    self.look_once_more(executor);
                    return result;
                }
                pronto_sync::hint::spin_loop();
            }
            // The holder may have been taken off the very processor that this thread spins on.
            executor.yield_now();
        }
    }
}

/// What is left of a timeout that began before a link was lost.
fn remaining(timeout: Nanos, deadline: Option<Nanos>, now: Nanos) -> Nanos {
    deadline.map_or(timeout, |deadline| deadline.since(now))
}

/// Attempts at an engine that another thread holds before its processor is given away.
const SPINS_PER_YIELD: u32 = 64;

/// Lateness below this is ordinary scheduling, and well within the liveness limit. It comes on top of that limit, which is
/// a heartbeat's interval and one second: without it, an idle peer that was stopped for a second and whose next heartbeat
/// met a slow network would be taken for dead.
const LATENESS: Nanos = Nanos::from_millis(100);
