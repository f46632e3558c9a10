//! Work requests under way: what must live until each of them completes, and what its completion means.

use alloc::vec::Vec;

use pronto_wire::{CallId, Class, Kind};

use super::Session;
use super::calls::Resend;
use super::end::End;
use super::engine::Engine;
use super::inbound::{KeptAnswer, SeenState};
use super::outgoing::{Outgoing, OutgoingPayload};
use crate::buf::Posted;
use crate::executor::Executor;
use crate::fabric::{Completion, QueuePair, Region, Status, WrId};

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
    /// Notes what must be known later about a message that was copied while it was posted. Its buffer is free again, unless it
    /// may have to be sent once more.
    pub(super) fn remember_copied(&mut self, outgoing: Outgoing, sequence: u16, resumable: bool) {
        let Outgoing { class, kind, payload, timeout, .. } = outgoing;
        match kind {
            Kind::Request { call, type_id, service, .. } => {
                let resend = resumable.then(|| Resend { type_id, service, payload: Some(payload) });
                self.calls.posted(call, class, timeout, resend);
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
    pub(super) fn remember(&mut self, outgoing: Outgoing, wr: WrId, sequence: u16, resumable: bool) {
        let Outgoing { class, kind, payload, completes, timeout, .. } = outgoing;
        let mut keep_for = None;
        let held = match payload {
            OutgoingPayload::Inline(_) => Held::Nothing,
            OutgoingPayload::Frame(frame) => Held::Posted(frame.post()),
            OutgoingPayload::Region { region, offset, len } => Held::Region { region, offset, len },
        };
        match kind {
            Kind::Request { call, type_id, service, .. } => {
                let resend = resumable.then_some(Resend { type_id, service, payload: None });
                keep_for = resumable.then_some(KeepFor::Request(call));
                self.calls.posted(call, class, timeout, resend);
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
        let lanes = self.phase.link().map(|link| &link.lanes);
        let acknowledged = |class: Class, sequence| {
            lanes.is_some_and(|lanes| lanes[class.index()].is_acknowledged(sequence))
        };
        let Some(payload) = holds.and_then(Held::into_payload) else { return };
        match keep_for {
            Some(KeepFor::Request(call)) => self.calls.payload_back(call, payload),
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

    pub(super) fn end_send(
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
