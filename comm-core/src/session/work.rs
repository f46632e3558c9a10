//! Posted work requests, each with the objects that must live until it completes.

use alloc::vec::Vec;

use pronto_wire::{CallId, Class, Kind};

use super::outgoing::OutgoingPayload;
use crate::buf::Posted;
use crate::fabric::{Region, WrId};

/// The posted work requests, each with the objects that must live until it completes. Indexed by WR slot.
#[derive(Debug)]
pub(super) struct WorkTable {
    slots: Vec<Work>,
    free: Vec<u16>,
}

/// One posted work request.
#[derive(Debug, Default)]
pub(super) struct Work {
    generation: u32,
    /// Class and kind of its message.
    pub(super) posted: Option<(Class, Kind)>,
    /// Its sequence number among the messages of its connection.
    pub(super) sequence: u16,
    pub(super) holds: Option<Held>,
    /// The slot whose waiter waits for this completion.
    pub(super) completes: Option<CallId>,
    /// The call whose request this is, or the peer's slot whose response this is. It gets the payload back, to send it again.
    pub(super) keep_for: Option<KeepFor>,
}

/// The memory to which a work request refers.
#[derive(Debug)]
pub(super) enum Held {
    Posted(Posted),
    Region { region: Region, offset: u64, len: u32 },
    Nothing,
}

/// The purpose for which a payload is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeepFor {
    Request(CallId),
    Response(CallId),
}

/// Number of work slots of a peer in use at which bulk messages and one-sided operations wait. The further slots are for control messages,
/// which never wait for bulk.
const BULK_SLOTS: u16 = 256;

/// Maximum number of posted work requests with a completion per peer: those of both classes, and as many again of class control.
const WORK_SLOTS: u16 = 2 * BULK_SLOTS;

/// Initial number of work slots, as most peers never need more.
const FEW_WORK_SLOTS: u16 = 4;

/// Factor by which the table grows when it is full.
const GROWTH: u16 = 4;

const _: () = assert!(FEW_WORK_SLOTS > 0 && FEW_WORK_SLOTS < BULK_SLOTS, "there is room to grow");
const _: () = assert!(GROWTH > 1, "each growth makes the table larger");

impl WorkTable {
    pub(super) fn new() -> Self {
        let mut this = Self { slots: Vec::new(), free: Vec::new() };
        this.grow(FEW_WORK_SLOTS);
        this
    }

    /// Grows the table to `slots` slots.
    #[cold]
    fn grow(&mut self, slots: u16) {
        let first = u16::try_from(self.slots.len()).expect("slots are 16 bits");
        assert!(first < slots && slots <= WORK_SLOTS, "the table grows to {slots} slots at most");
        self.slots.reserve_exact(usize::from(slots - first));
        self.slots.resize_with(slots.into(), Work::default);
        self.free.reserve_exact(slots.into());
        self.free.extend((first..slots).rev());
    }

    /// Shrinks the table to its initial size, if no work is in flight.
    pub(super) fn give_back(&mut self) {
        if self.in_flight() == 0 && self.slots.len() > usize::from(FEW_WORK_SLOTS) {
            self.slots.truncate(FEW_WORK_SLOTS.into());
            self.slots.shrink_to_fit();
            self.free = (0..FEW_WORK_SLOTS).rev().collect();
            assert!(self.in_flight() == 0, "all slots that are left are free");
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Frees a slot whose work was not posted.
    pub(super) fn unclaim(&mut self, wr: WrId) {
        debug_assert!(self.is_claimed(wr), "an unposted slot is freed once");
        self.free.push(wr.slot);
    }

    /// Returns whether a slot is claimed for this work request, which is not posted yet.
    fn is_claimed(&self, wr: WrId) -> bool {
        let work = &self.slots[usize::from(wr.slot)];
        work.generation == wr.generation && work.holds.is_none() && !self.free.contains(&wr.slot)
    }

    /// Returns the slot that is claimed for a work request. The caller stores in it the memory to which the message refers.
    pub(super) fn claimed(&mut self, wr: WrId) -> &mut Work {
        debug_assert!(self.is_claimed(wr), "a work request is posted once");
        &mut self.slots[usize::from(wr.slot)]
    }

    /// Records a posted one-sided operation.
    pub(super) fn hold_access(&mut self, wr: WrId, region: Option<Region>, completes: CallId) {
        let work = self.claimed(wr);
        work.holds = Some(region.map_or(Held::Nothing, |region| Held::Region { region, offset: 0, len: 0 }));
        work.completes = Some(completes);
    }

    /// Claims a slot for a work request of a class. Returns `None` if the class may use no more slots now.
    pub(super) fn claim(&mut self, class: Class) -> Option<WrId> {
        if class == Class::Bulk && self.in_flight() >= usize::from(BULK_SLOTS) {
            return None;
        }
        if self.free.is_empty() && self.slots.len() < usize::from(WORK_SLOTS) {
            let slots = u16::try_from(self.slots.len()).expect("slots are 16 bits");
            self.grow((slots * GROWTH).min(WORK_SLOTS));
        }
        let slot = self.free.pop()?;
        let work = &mut self.slots[usize::from(slot)];
        debug_assert!(work.holds.is_none(), "a free slot holds no memory");
        work.generation = work.generation.wrapping_add(1);
        Some(WrId { slot, generation: work.generation })
    }

    /// Takes the work that a completion names out of its slot. Returns `None` if no such work is in flight.
    pub(super) fn complete(&mut self, wr: WrId) -> Option<Work> {
        let work = self.slots.get_mut(usize::from(wr.slot))?;
        if work.generation != wr.generation || work.holds.is_none() {
            return None;
        }
        debug_assert!(!self.free.contains(&wr.slot), "a slot is freed once");
        self.free.push(wr.slot);
        let generation = work.generation;
        Some(core::mem::replace(work, Work { generation, ..Work::default() }))
    }

    /// Takes all work in flight, when a link ends.
    pub(super) fn take_all(&mut self) -> Vec<Work> {
        let slots = u16::try_from(self.slots.len()).expect("slots are 16 bits");
        let taken = (0..slots)
            .filter_map(|slot| {
                let generation = self.slots[usize::from(slot)].generation;
                self.complete(WrId { slot, generation })
            })
            .collect();
        assert!(self.in_flight() == 0, "no work outlives its link");
        taken
    }
}

impl Held {
    /// Returns the payload, which the transport no longer uses.
    pub(super) fn into_payload(self) -> Option<OutgoingPayload> {
        Some(match self {
            Self::Posted(posted) => OutgoingPayload::Frame(posted.completed()),
            Self::Region { region, offset, len } => OutgoingPayload::Region { region, offset, len },
            Self::Nothing => return None,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hold(table: &mut WorkTable, wr: WrId) {
        let work = table.claimed(wr);
        work.holds = Some(Held::Nothing);
        work.sequence = wr.slot;
    }

    #[test]
    fn work_completes_once_and_frees_its_slot() {
        let mut table = WorkTable::new();
        let first = table.claim(Class::Control).expect("there is room");
        hold(&mut table, first);
        assert_eq!(table.in_flight(), 1);
        assert!(table.complete(first).is_some_and(|work| work.sequence == first.slot));
        assert!(table.complete(first).is_none() && table.in_flight() == 0);
        let next = table.claim(Class::Control).expect("there is room");
        assert_eq!((next.slot, next.generation), (first.slot, first.generation + 1));
        assert!(table.complete(next).is_none(), "the work was not posted");
        hold(&mut table, next);
        assert!(table.complete(first).is_none(), "the completion belongs to earlier work");
        assert!(table.complete(WrId { slot: WORK_SLOTS, generation: 1 }).is_none());
        assert_eq!(table.in_flight(), 1);
    }

    #[test]
    fn a_slot_whose_work_was_not_posted_is_free_again() {
        let mut table = WorkTable::new();
        let wr = table.claim(Class::Control).expect("there is room");
        table.unclaim(wr);
        assert_eq!(table.in_flight(), 0);
        assert_eq!(core::iter::from_fn(|| table.claim(Class::Control)).count(), usize::from(WORK_SLOTS));
    }

    #[test]
    fn a_link_that_ends_takes_all_work_with_it() {
        let mut table = WorkTable::new();
        for _ in 0..3 * FEW_WORK_SLOTS {
            let wr = table.claim(Class::Control).expect("there is room");
            hold(&mut table, wr);
        }
        table.give_back();
        assert_eq!(table.in_flight(), usize::from(3 * FEW_WORK_SLOTS), "work in flight keeps its slots");
        assert_eq!(table.take_all().len(), usize::from(3 * FEW_WORK_SLOTS));
        assert!(table.take_all().is_empty() && table.in_flight() == 0);
        table.give_back();
        assert_eq!(table.slots.len(), usize::from(FEW_WORK_SLOTS));
        assert_eq!(core::iter::from_fn(|| table.claim(Class::Control)).count(), usize::from(WORK_SLOTS));
    }

    #[test]
    fn bulk_leaves_slots_for_control() {
        let mut table = WorkTable::new();
        assert_eq!(core::iter::from_fn(|| table.claim(Class::Bulk)).count(), usize::from(BULK_SLOTS));
        let control = core::iter::from_fn(|| table.claim(Class::Control)).count();
        assert_eq!(control, usize::from(WORK_SLOTS - BULK_SLOTS));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "an unposted slot is freed once")]
    fn a_slot_is_not_freed_twice() {
        let mut table = WorkTable::new();
        let wr = table.claim(Class::Control).expect("there is room");
        table.unclaim(wr);
        table.unclaim(wr);
    }
}
