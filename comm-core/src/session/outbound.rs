//! What leaves: headers written, work requests posted, completions taken in.

use alloc::sync::Arc;
use alloc::vec::Vec;

use pronto_sync::atomic::Ordering;
use pronto_wire::{CallId, Class, Header, Kind, TypeId};

use super::arming::Armed;
use super::call::Expects;
use super::end::{End, Executed};
use super::engine::Engine;
use super::inbound::{KeptAnswer, SeenState};
use super::one_sided::CLASS;
use super::outgoing::{Copied, Outgoing, OutgoingPayload, Submitted};
use super::refusal::Refused;
use super::{CallSpec, Session};
use crate::buf::Posted;
use crate::executor::Executor;
use crate::fabric::{
    Completion, Gather, Operation, PostError, QueuePair, Region, SendWork, Signal, Status, WrId,
};
use crate::note::{Note, What};
use crate::time::Nanos;

/// A call of this side, as the engine knows it. Indexed by call slot.
#[derive(Debug, Default)]
pub(super) struct OpenCall {
    pub(super) generation: u32,
    /// An answer is expected.
    pub(super) live: bool,
    /// The waiter was told an end already.
    pub(super) ended: bool,
    /// Its place among all requests of this side.
    pub(super) order: u64,
    pub(super) timeout: Nanos,
    /// When it ends by its timeout; set by the first tick that sees it.
    pub(super) deadline: Option<Nanos>,
    pub(super) cancel_due: Option<Class>,
    /// The request, to be sent again on the session's next link.
    pub(super) kept: Option<KeptRequest>,
}

#[derive(Debug)]
pub(super) struct KeptRequest {
    pub(super) class: Class,
    pub(super) kind: Kind,
    /// None while the work request holds it.
    pub(super) payload: Option<OutgoingPayload>,
}

/// Work requests under way, each with what must live until it completes. Indexed by WR slot.
#[derive(Debug)]
pub(super) struct WorkTable {
    slots: Vec<Work>,
    free: Vec<u16>,
}

#[derive(Debug, Default)]
struct Work {
    generation: u32,
    /// What it was posted as.
    posted: Option<(Class, Kind)>,
    /// Its place among the messages of its connection.
    sequence: u16,
    holds: Option<Held>,
    /// The slot whose waiter waits for this completion.
    completes: Option<CallId>,
    /// The call whose request this is, or the slot of the peer whose answer: gets the payload back for sending again.
    keep_for: Option<KeepFor>,
}

#[derive(Debug)]
enum Held {
    Posted(Posted),
    Region { region: Region, offset: u64, len: u32 },
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum KeepFor {
    Request(CallId),
    Answer(CallId),
}

/// Owner of ring space that a resent message takes.
const OWNER_RESENT: u32 = u32::MAX;
/// Work requests with a completion that may be under way per peer, over both classes.
const WORK_SLOTS: u16 = 256;
/// Of these, for how many there is room before more were needed: most peers never need them.
const FEW_WORK_SLOTS: u16 = 4;
/// How many times as many there are each time that they were not enough.
const GROWTH: u16 = 4;

impl WorkTable {
    pub(super) fn new() -> Self {
        let mut this = Self { slots: Vec::new(), free: Vec::new() };
        this.grow(FEW_WORK_SLOTS);
        this
    }

    /// Makes room for so many.
    #[cold]
    fn grow(&mut self, slots: u16) {
        let first = u16::try_from(self.slots.len()).expect("slots are 16 bits");
        self.slots.reserve_exact(usize::from(slots - first));
        self.slots.resize_with(slots.into(), Work::default);
        self.free.reserve_exact(slots.into());
        self.free.extend((first..slots).rev());
    }

    /// Gives back the room that few need not have, when nothing is under way.
    pub(super) fn give_back(&mut self) {
        if self.in_flight() == 0 && self.slots.len() > usize::from(FEW_WORK_SLOTS) {
            self.slots.truncate(FEW_WORK_SLOTS.into());
            self.slots.shrink_to_fit();
            self.free = (0..FEW_WORK_SLOTS).rev().collect();
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives back a slot whose work was not posted.
    pub(super) fn unclaim(&mut self, wr: WrId) {
        self.free.push(wr.slot);
    }

    /// A posted one-sided operation.
    pub(super) fn hold_access(&mut self, wr: WrId, region: Option<Region>, completes: CallId) {
        let work = &mut self.slots[usize::from(wr.slot)];
        work.holds = Some(region.map_or(Held::Nothing, |region| Held::Region { region, offset: 0, len: 0 }));
        work.completes = Some(completes);
    }

    pub(super) fn claim(&mut self) -> Option<WrId> {
        if self.free.is_empty() && self.slots.len() < usize::from(WORK_SLOTS) {
            let slots = u16::try_from(self.slots.len()).expect("slots are 16 bits");
            self.grow((slots * GROWTH).min(WORK_SLOTS));
        }
        let slot = self.free.pop()?;
        let work = &mut self.slots[usize::from(slot)];
        work.generation = work.generation.wrapping_add(1);
        Some(WrId { slot, generation: work.generation })
    }

    /// The work that a completion names, taken out of its slot; none for a completion of no work under way.
    fn complete(&mut self, wr: WrId) -> Option<Work> {
        let work = self.slots.get_mut(usize::from(wr.slot))?;
        if work.generation != wr.generation || work.holds.is_none() {
            return None;
        }
        self.free.push(wr.slot);
        let generation = work.generation;
        Some(core::mem::replace(work, Work { generation, ..Work::default() }))
    }

    /// Everything under way, when a link ends.
    fn take_all(&mut self) -> Vec<Work> {
        let slots = u16::try_from(self.slots.len()).expect("slots are 16 bits");
        (0..slots)
            .filter_map(|slot| {
                let generation = self.slots[usize::from(slot)].generation;
                self.complete(WrId { slot, generation })
            })
            .collect()
    }
}

impl Held {
    /// The payload, back from the transport.
    fn into_payload(self) -> Option<OutgoingPayload> {
        Some(match self {
            Self::Posted(posted) => OutgoingPayload::Frame(posted.completed()),
            Self::Region { region, offset, len } => OutgoingPayload::Region { region, offset, len },
            Self::Nothing => return None,
        })
    }
}

impl<Q: QueuePair> Engine<Q> {
    /// A message or operation of a sender that holds the engine. Refused as a value if there is no room for it.
    pub(super) fn post_now(
        &mut self,
        submitted: Submitted,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Result<(), NotPosted> {
        self.take_submissions(session, executor);
        if session.submissions.has_unpopped() {
            // A push is under way. A message of this very sender may stand behind it, and must not be overtaken.
            return Err(NotPosted::BehindOthers(submitted));
        }
        if let Submitted::Message(outgoing) = &submitted
            && is_new(outgoing)
        {
            if !self.stalled[outgoing.class.index()].is_empty() {
                return Err(NotPosted::Refused(Refused::Busy));
            }
            let Some(link) = &self.link else {
                return Err(NotPosted::Refused(Refused::NotConnected { peer: session.peer }));
            };
            if link.peer_draining {
                return Err(NotPosted::Refused(Refused::Draining));
            }
            let max = link.lanes[outgoing.class.index()].peer_window.max_payload as usize;
            if outgoing.payload.len() > max {
                return Err(NotPosted::Refused(Refused::TooLong { len: outgoing.payload.len(), max }));
            }
        }
        self.post_any(submitted, session, executor);
        for class in Class::ALL {
            self.ring_for_sender(class, session);
        }
        Ok(())
    }

    /// A request of a caller that holds the engine, straight into its line. None if anything stands in the way: then it
    /// goes the longer way, which knows why.
    #[inline(always)]
    pub(super) fn call_small(
        &mut self,
        spec: &CallSpec,
        type_id: TypeId,
        payload: Copied<'_>,
        session: &Session<Q>,
    ) -> Option<CallId> {
        let &CallSpec { key, class, timeout } = spec;
        let present = self.link.as_ref()?;
        let lane = &present.lanes[class.index()];
        let may_copy = match payload {
            Copied::Line(_) => true,
            // Nothing of it is left for sending it again.
            Copied::Short(bytes) => {
                !present.resumable && bytes.len() <= lane.qp.capabilities().copies as usize
            }
        };
        let free = !present.peer_draining
            && may_copy
            && payload.len() <= lane.peer_window.max_payload as usize
            && self.stalled[class.index()].is_empty()
            && !session.submissions.has_unpopped();
        if !free {
            return None;
        }
        let call = session.calls.claim_in_engine()?;
        if let Some(credit) = session.credits[class.index()].take_in_engine() {
            let deadline_us = super::timeout_us(timeout);
            let kind = Kind::Request { call, type_id, service: key.service, resent: false, deadline_us };
            if self.post_small(&Small { class, kind, payload, timeout }, session) {
                self.ring_for_sender(class, session);
                return Some(call);
            }
            session.credits[class.index()].put_back(credit);
        }
        session.calls.set_aside(call.slot);
        None
    }

    /// Everything that others left to do while the engine was held: messages, credits that are due, doorbells.
    pub(super) fn drain(&mut self, session: &Session<Q>, executor: &impl Executor) {
        if self.link.is_some() {
            for class in Class::ALL {
                if !self.stalled[class.index()].is_empty() {
                    self.retry_stalled(class, session, executor);
                }
            }
        }
        if session.work_is_left() {
            self.take_submissions(session, executor);
            session.credit_due.store(false, Ordering::Relaxed);
        }
        self.give_credit(session);
        self.ring_doorbells(session);
    }

    /// Messages that senders left while the engine was held. They come before anything that is posted from now on: a
    /// sender's own earlier message may be among them.
    fn take_submissions(&mut self, session: &Session<Q>, executor: &impl Executor) {
        while let Some(submitted) = self.submissions.pop() {
            self.post_any(submitted, session, executor);
        }
    }

    /// Posts a message or operation, or keeps it for when there is room.
    pub(super) fn post_any(&mut self, submitted: Submitted, session: &Session<Q>, executor: &impl Executor) {
        match submitted {
            Submitted::Message(outgoing) => self.post(outgoing, session, executor),
            Submitted::OneSided(_) => self.post_or_stall(CLASS, submitted, session, executor),
            Submitted::Move => drop(self.move_rendezvous(session, executor)),
        }
    }

    /// Posts a message, or keeps it for when there is room.
    pub(super) fn post(&mut self, outgoing: Outgoing, session: &Session<Q>, executor: &impl Executor) {
        let of_this_link = outgoing.link == self.generation && self.link.is_some() && self.session.is_some();
        if of_this_link && !matches!(outgoing.kind, Kind::Cancel { .. }) {
            self.post_or_stall(outgoing.class, Submitted::Message(outgoing), session, executor);
        } else if let Some(outgoing) = self.admit(outgoing, session, executor) {
            self.post_or_stall(outgoing.class, Submitted::Message(outgoing), session, executor);
        }
    }

    fn post_or_stall(
        &mut self,
        class: Class,
        submitted: Submitted,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        if !self.stalled[class.index()].is_empty() {
            self.stall(class, submitted, session, executor);
        } else if let Err(submitted) = self.try_any(submitted, session, executor) {
            session.stats.stalled.add_alone(1);
            self.stall(class, submitted, session, executor);
        }
    }

    /// Something waits for a completion, or for a credit that may come with an answer: if the server sleeps, it must hear
    /// of those too. What came before that is taken in here.
    fn stall(&mut self, class: Class, submitted: Submitted, session: &Session<Q>, executor: &impl Executor) {
        self.stalled[class.index()].push_back(submitted);
        executor.note(Note::of_peer(What::Stalls, session.peer));
        if self.link.is_none() || session.arming.armed() != Armed::Solicited {
            return;
        }
        self.arm(Armed::All, session);
        for class in Class::ALL {
            while let Some(completion) = self.lane(class).qp.poll_send() {
                let known = self.completed(completion, session, executor);
                self.lane(class).failed |= !known;
            }
            self.retry_stalled(class, session, executor);
        }
    }

    fn try_any(
        &mut self,
        submitted: Submitted,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Result<(), Submitted> {
        match submitted {
            Submitted::Message(outgoing) => self.try_post(outgoing, session).map_err(Submitted::Message),
            Submitted::OneSided(work) => self.try_access(work, session, executor),
            Submitted::Move => Ok(()),
        }
    }

    /// Posts what had no room, or no credit on this link, before.
    fn retry_stalled(&mut self, class: Class, session: &Session<Q>, executor: &impl Executor) {
        while let Some(mut submitted) = self.stalled[class.index()].pop_front() {
            if self.has_ended_meanwhile(&submitted, session) {
                continue;
            }
            if let Submitted::Message(outgoing) = &mut submitted
                && is_new(outgoing)
                && outgoing.link != self.generation
            {
                let Some(credit) = session.credits[class.index()].take_in_engine() else {
                    self.stalled[class.index()].push_front(submitted);
                    return;
                };
                outgoing.link = credit.link;
            }
            if let Err(submitted) = self.try_any(submitted, session, executor) {
                self.stalled[class.index()].push_front(submitted);
                return;
            }
        }
    }

    /// Whether the message is a request to be sent again that need not be: its call was answered, or its caller had its
    /// deadline, while it waited for that. Its credit, if it has one, is there for the next one.
    fn has_ended_meanwhile(&mut self, submitted: &Submitted, session: &Session<Q>) -> bool {
        let Submitted::Message(outgoing) = submitted else { return false };
        let Kind::Request { call, resent: true, .. } = outgoing.kind else { return false };
        let Some(open) = self.open.get_mut(usize::from(call.slot)) else { return false };
        let is_open = open.live && open.generation == call.generation;
        if is_open && !open.ended {
            return false;
        }
        if is_open {
            open.live = false;
            session.calls.settle(call);
        }
        if outgoing.link == self.generation {
            session.credits[outgoing.class.index()].give(1);
        }
        true
    }

    /// Whether the present link may carry the message; ends it if not.
    fn admit(
        &mut self,
        mut outgoing: Outgoing,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> Option<Outgoing> {
        let same_session = outgoing.link.wrapping_sub(self.session_start) < 1 << 15 && self.session.is_some();
        match outgoing.kind {
            Kind::Cancel { call } => {
                let open = self.open.get_mut(usize::from(call.slot))?;
                if open.live && open.generation == call.generation {
                    open.cancel_due = Some(outgoing.class);
                }
                self.send_cancels(session);
                None
            }
            Kind::Reply { .. } | Kind::Failure { .. } if same_session && self.link.is_some() => {
                Some(outgoing)
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                if same_session && let Some(seen) = self.seen.get_mut(usize::from(call.slot)) {
                    // The link is lost for now: the answer waits in the reply cache for the request to come again.
                    let Outgoing { class, kind, payload, .. } = outgoing;
                    if seen.generation == call.generation {
                        seen.state =
                            SeenState::Answered(Some(KeptAnswer { class, kind, payload, posted_on: None }));
                    }
                } else {
                    session.stats.replies_lost.add_alone(1);
                }
                None
            }
            Kind::Request { .. } if same_session && self.link.is_none() => {
                // The link is lost for now: the next one carries it, as those that were under way.
                self.keep_request(outgoing);
                None
            }
            Kind::Request { call, .. } if !same_session => {
                session.calls.end(call, End::PeerDown { executed: Executed::No }, Expects::Nothing, executor);
                None
            }
            Kind::Notification { .. } if self.link.is_none() || !same_session => {
                session.stats.notifications_lost.add_alone(1);
                self.end_send(outgoing.completes, Status::Flushed, session, executor);
                None
            }
            Kind::Request { .. } | Kind::Notification { .. } if outgoing.link != self.generation => {
                // Its credit went with an earlier link of the session: it takes one of this link, or waits for one.
                match session.credits[outgoing.class.index()].take_in_engine() {
                    Some(credit) => outgoing.link = credit.link,
                    None => {
                        self.stall(outgoing.class, Submitted::Message(outgoing), session, executor);
                        return None;
                    }
                }
                Some(outgoing)
            }
            _ => Some(outgoing),
        }
    }

    /// Notes a call whose request waits for the session's next link.
    fn keep_request(&mut self, outgoing: Outgoing) {
        let Outgoing { class, kind, payload, timeout, .. } = outgoing;
        let Kind::Request { call, .. } = kind else { return };
        if let Some(open) = self.open.at(call.slot) {
            let kept = Some(KeptRequest { class, kind, payload: Some(payload) });
            let generation = call.generation;
            *open = OpenCall { generation, live: true, timeout, kept, ..OpenCall::default() };
        }
    }

    /// Posts one message on the present link; gives it back if there is no room.
    pub(super) fn try_post(&mut self, outgoing: Outgoing, session: &Session<Q>) -> Result<(), Outgoing> {
        let class = outgoing.class;
        if let Some(small) = Small::of(&outgoing) {
            if !self.post_small(&small, session) {
                return Err(outgoing);
            }
            self.ring_between(outgoing.class, session);
            return Ok(());
        }
        let outgoing = self.move_to_present_ring(outgoing)?;
        let Some(wr) = self.work.claim() else { return Err(outgoing) };
        let resumable = self.link.as_ref().is_some_and(|link| link.resumable);
        let link = self.link.as_mut().expect("posted only while there is a link");
        let lane = &mut link.lanes[class.index()];
        let returned = session.returned[class.index()].count();
        let acks = lane.acks(returned);
        let header = Header { kind: outgoing.kind, acks }.emit();
        let copies = lane.qp.capabilities().copies as usize;
        let payload = match &outgoing.payload {
            OutgoingPayload::Inline(payload) => Gather::Inline(payload.as_slice()),
            OutgoingPayload::Frame(frame) if frame.len() <= copies => Gather::Inline(frame.bytes()),
            OutgoingPayload::Frame(frame) => Gather::Ring(frame.extent()),
            OutgoingPayload::Region { region, offset, len } => {
                Gather::Region { region, offset: *offset, len: *len }
            }
        };
        // What was copied needs no completion, unless somebody waits for it.
        let copied = matches!(payload, Gather::Inline(_)) && outgoing.completes.is_none();
        let signal = if copied { Signal::Unsignalled } else { Signal::Signalled(wr) };
        let len = payload.len();
        match lane.qp.post_send(SendWork { signal, operation: Operation::Send { header: &header, payload } })
        {
            Ok(()) => {}
            Err(PostError::Full) => {
                self.work.unclaim(wr);
                return Err(outgoing);
            }
            Err(PostError::Unsupported) if matches!(outgoing.payload, OutgoingPayload::Region { .. }) => {
                self.work.unclaim(wr);
                let outgoing = copy_into_ring(outgoing, session)?;
                return self.try_post(outgoing, session);
            }
            // The queue pair is dead or refuses for good; the next poll says so, and the link's end ends this message.
            Err(_) => lane.failed = true,
        }
        session.told[class.index()].store(returned.into(), Ordering::Relaxed);
        let sequence = lane.posted(&outgoing.kind, acks);
        link.spoke = true;
        session.stats.messages_sent.add_alone(1);
        session.stats.bytes_sent.add_alone(len as u64);
        if copied {
            self.work.unclaim(wr);
            self.remember_copied(outgoing, sequence, resumable);
        } else {
            self.remember(outgoing, wr, sequence, resumable);
        }
        self.ring_between(class, session);
        Ok(())
    }

    /// Posts a message that is copied meanwhile, if there is a link; false if there is no room. By far the most frequent kind:
    /// nothing of it is moved but into the line.
    #[inline(always)]
    pub(super) fn post_small(&mut self, small: &Small<'_>, session: &Session<Q>) -> bool {
        let &Small { class, kind, payload, timeout } = small;
        let Some(link) = &mut self.link else { return false };
        let lane = &mut link.lanes[class.index()];
        let returned = session.returned[class.index()].count();
        let acks = lane.acks(returned);
        let header = Header { kind, acks }.emit();
        let posted = match payload {
            Copied::Line(payload) => lane.qp.post_small(&header, payload),
            Copied::Short(bytes) => {
                let operation = Operation::Send { header: &header, payload: Gather::Inline(bytes) };
                lane.qp.post_send(SendWork { signal: Signal::Unsignalled, operation })
            }
        };
        match posted {
            Ok(()) => {}
            Err(PostError::Full) => return false,
            // The queue pair is dead or refuses for good; the next poll says so, and the link's end ends this message.
            Err(_) => lane.failed = true,
        }
        session.told[class.index()].store(returned.into(), Ordering::Relaxed);
        lane.posted(&kind, acks);
        link.spoke = true;
        session.stats.messages_sent.add_alone(1);
        session.stats.bytes_sent.add_alone(payload.len() as u64);
        let resumable = link.resumable;
        match kind {
            Kind::Request { call, .. } => {
                self.note_request(call, timeout);
                if resumable {
                    self.keep_small(small);
                }
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
                    && seen.generation == call.generation
                {
                    seen.state = SeenState::Answered(None);
                    if resumable {
                        self.keep_small(small);
                    }
                }
            }
            _ => {}
        }
        true
    }

    /// A request was posted: its call is open.
    #[inline]
    fn note_request(&mut self, call: CallId, timeout: Nanos) {
        self.requests_posted += 1;
        if let Some(open) = self.open.at(call.slot) {
            open.generation = call.generation;
            open.live = true;
            open.ended = false;
            open.order = self.requests_posted;
            open.timeout = timeout;
            open.deadline = None;
            open.cancel_due = None;
            open.kept = None;
        }
    }

    /// The session outlives its link: what may have to be sent again is kept.
    fn keep_small(&mut self, small: &Small<'_>) {
        let &Small { class, kind, payload: Copied::Line(payload), .. } = small else { return };
        let payload = OutgoingPayload::Inline(*payload);
        match kind {
            Kind::Request { call, .. } => {
                if let Some(open) = self.open.get_mut(usize::from(call.slot)) {
                    open.kept = Some(KeptRequest { class, kind, payload: Some(payload) });
                }
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                let posted_on = Some(self.generation);
                let kept = KeptAnswer { class, kind, payload, posted_on };
                self.seen[usize::from(call.slot)].state = SeenState::Answered(Some(kept));
            }
            _ => {}
        }
    }

    /// Notes what must be known later about a message that was copied while it was posted. Its buffer is free again, unless it
    /// may have to be sent once more.
    fn remember_copied(&mut self, outgoing: Outgoing, sequence: u16, resumable: bool) {
        let Outgoing { class, kind, payload, timeout, .. } = outgoing;
        match kind {
            Kind::Request { call, .. } => {
                self.note_request(call, timeout);
                if resumable && let Some(open) = self.open.get_mut(usize::from(call.slot)) {
                    open.kept = Some(KeptRequest { class, kind, payload: Some(payload) });
                }
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
                    && seen.generation == call.generation
                {
                    let posted_on = Some(self.generation);
                    let kept = resumable.then(|| KeptAnswer { class, kind, payload, posted_on });
                    seen.state = SeenState::Answered(kept);
                    if resumable {
                        self.lane(class).answers.push_back((sequence, call));
                    }
                }
            }
            _ => {}
        }
    }

    /// Notes what must be known about a posted message later.
    fn remember(&mut self, outgoing: Outgoing, wr: WrId, sequence: u16, resumable: bool) {
        let Outgoing { class, kind, payload, completes, timeout, .. } = outgoing;
        let mut keep_for = None;
        let held = match payload {
            OutgoingPayload::Inline(_) => Held::Nothing,
            OutgoingPayload::Frame(frame) => Held::Posted(frame.post()),
            OutgoingPayload::Region { region, offset, len } => Held::Region { region, offset, len },
        };
        match kind {
            Kind::Request { call, .. } => {
                self.note_request(call, timeout);
                if resumable && let Some(open) = self.open.get_mut(usize::from(call.slot)) {
                    open.kept = Some(KeptRequest { class, kind, payload: None });
                    keep_for = Some(KeepFor::Request(call));
                }
            }
            Kind::Reply { call } | Kind::Failure { call, .. } => {
                if resumable {
                    self.lane(class).answers.push_back((sequence, call));
                    keep_for = Some(KeepFor::Answer(call));
                }
                if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
                    && seen.generation == call.generation
                {
                    seen.state = SeenState::Answered(None);
                }
            }
            _ => {}
        }
        let work = &mut self.work.slots[usize::from(wr.slot)];
        work.holds = Some(held);
        work.completes = completes;
        work.keep_for = keep_for;
        work.posted = Some((class, kind));
        work.sequence = sequence;
    }

    /// The same message with its payload in the present link's ring, if it was composed in an earlier one's.
    #[inline]
    fn move_to_present_ring(&self, outgoing: Outgoing) -> Result<Outgoing, Outgoing> {
        let OutgoingPayload::Frame(frame) = &outgoing.payload else { return Ok(outgoing) };
        let lanes = self.link.as_ref().map(|link| &link.lanes);
        let Some(ring) = lanes.and_then(|lanes| lanes[outgoing.class.index()].ring.as_ref()) else {
            return Ok(outgoing);
        };
        if frame.is_of(ring) {
            return Ok(outgoing);
        }
        let Ok(mut loan) = Arc::clone(ring).loan(frame.len(), OWNER_RESENT) else { return Err(outgoing) };
        loan.as_mut_slice().copy_from_slice(frame.bytes());
        Ok(Outgoing { payload: OutgoingPayload::Frame(loan.finish()), ..outgoing })
    }

    /// The peer has acknowledged answers: their payloads need not be kept any longer.
    pub(super) fn trim_answers(&mut self, class: Class) {
        loop {
            let lane = self.lane(class);
            let Some(&(sequence, call)) = lane.answers.front() else { return };
            if !lane.is_acknowledged(sequence) {
                return;
            }
            lane.answers.pop_front();
            if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
                && seen.generation == call.generation
            {
                seen.state = SeenState::Answered(None);
            }
        }
    }

    /// One completion.
    pub(super) fn completed(
        &mut self,
        completion: Completion,
        session: &Session<Q>,
        executor: &impl Executor,
    ) -> bool {
        let Some(work) = self.work.complete(completion.wr) else { return false };
        self.finish(work, completion.status, session, executor);
        true
    }

    /// Everything under way ends with its link.
    pub(super) fn flush_work(&mut self, session: &Session<Q>, executor: &impl Executor) {
        for work in self.work.take_all() {
            self.finish(work, Status::Flushed, session, executor);
        }
    }

    fn finish(&mut self, work: Work, status: Status, session: &Session<Q>, executor: &impl Executor) {
        let Work { holds, completes, keep_for, posted, sequence, .. } = work;
        self.end_send(completes, status, session, executor);
        let lanes = self.link.as_ref().map(|link| &link.lanes);
        let acknowledged = |class: Class, sequence| {
            lanes.is_some_and(|lanes| lanes[class.index()].is_acknowledged(sequence))
        };
        let Some(payload) = holds.and_then(Held::into_payload) else { return };
        match keep_for {
            Some(KeepFor::Request(call)) => {
                if let Some(open) = self.open.get_mut(usize::from(call.slot))
                    && open.live
                    && open.generation == call.generation
                    && let Some(kept) = &mut open.kept
                {
                    kept.payload = Some(payload);
                }
            }
            Some(KeepFor::Answer(call)) => {
                let posted_on = Some(self.generation);
                if let Some(seen) = self.seen.get_mut(usize::from(call.slot))
                    && seen.generation == call.generation
                    && let Some((class, kind)) = posted
                    && !acknowledged(class, sequence)
                {
                    seen.state = SeenState::Answered(Some(KeptAnswer { class, kind, payload, posted_on }));
                }
            }
            None => {}
        }
    }

    fn end_send(
        &self,
        completes: Option<CallId>,
        status: Status,
        session: &Session<Q>,
        executor: &impl Executor,
    ) {
        if let Some(slot) = completes {
            let end = match status {
                Status::Done(value) => End::Done(value),
                Status::Flushed => End::Flushed,
                Status::AccessRefused => End::AccessRefused,
            };
            session.end_access(slot, end, executor);
        }
    }
}

/// A message that is copied while it is posted, and that nobody waits for the completion of.
#[derive(Debug)]
pub(super) struct Small<'a> {
    pub(super) class: Class,
    pub(super) kind: Kind,
    pub(super) payload: Copied<'a>,
    pub(super) timeout: Nanos,
}

impl<'a> Small<'a> {
    fn of(outgoing: &'a Outgoing) -> Option<Self> {
        let OutgoingPayload::Inline(payload) = &outgoing.payload else { return None };
        let payload = Copied::Line(payload);
        let &Outgoing { class, kind, timeout, completes: None, .. } = outgoing else { return None };
        Some(Self { class, kind, payload, timeout })
    }
}

/// Why a message was not posted by a sender that holds the engine.
#[derive(Debug)]
pub(super) enum NotPosted {
    /// It is not taken.
    Refused(Refused),
    /// It has to queue behind submissions that are still being made.
    BehindOthers(Submitted),
}

/// Messages that take a request credit.
const fn is_new(outgoing: &Outgoing) -> bool {
    matches!(outgoing.kind, Kind::Request { .. } | Kind::Notification { .. })
}

/// A payload by reference that this provider cannot reach: it travels as a copy.
fn copy_into_ring<Q: QueuePair>(outgoing: Outgoing, session: &Session<Q>) -> Result<Outgoing, Outgoing> {
    let class = outgoing.class.index();
    let OutgoingPayload::Region { region, offset, len } = &outgoing.payload else { return Ok(outgoing) };
    let ring = session.rings[class].ring();
    let Some(Ok(mut loan)) = ring.map(|ring| ring.loan(*len as usize, OWNER_RESENT)) else {
        return Err(outgoing);
    };
    let Ok(offset) = usize::try_from(*offset) else { return Err(outgoing) };
    if region.read(offset, loan.as_mut_slice()).is_err() {
        return Err(outgoing);
    }
    Ok(Outgoing { payload: OutgoingPayload::Frame(loan.finish()), ..outgoing })
}
