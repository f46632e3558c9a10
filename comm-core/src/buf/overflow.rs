//! The overflow arena: a few slots of a few sizes, which are used if no chunk has room.

use pronto_ring::Slots;

use super::config::{OVERFLOW_CLASSES, SlotClass};

/// Slots of one size.
#[derive(Debug)]
struct Class {
    /// Offset of the first slot from the base of the memory.
    at: u32,
    bytes: u32,
    /// Number of the first slot among all slots of the arena.
    first: u32,
    slots: Slots,
}

/// The arena.
#[derive(Debug)]
pub(super) struct Overflow {
    classes: [Class; OVERFLOW_CLASSES],
}

/// A claimed slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Offset from the base of the memory.
    pub(super) offset: u32,
    /// Number among all slots of the arena.
    pub(super) number: u32,
}

impl Overflow {
    /// Returns the arena that begins at `at`. The caller ensures that it ends within the memory.
    pub(super) fn new(mut at: u32, classes: [SlotClass; OVERFLOW_CLASSES]) -> Self {
        let mut first = 0;
        let classes = classes.map(|SlotClass { bytes, count }| {
            let class = Class { at, bytes, first, slots: Slots::new(count) };
            at += bytes * u32::from(count);
            first += u32::from(count);
            class
        });
        Self { classes }
    }

    /// Claims the smallest free slot that holds `len` bytes.
    pub(super) fn claim(&self, len: u32) -> Option<Slot> {
        self.classes.iter().filter(|class| class.bytes >= len).find_map(|class| {
            let slot = class.slots.claim()?;
            Some(Slot {
                offset: class.at + class.bytes * u32::from(slot),
                number: class.first + u32::from(slot),
            })
        })
    }

    /// Returns the number of the slot at `offset`.
    pub(super) fn number_of(&self, offset: u32) -> u32 {
        let (class, slot) = self.find(offset);
        class.first + u32::from(slot)
    }

    /// Frees the slot at `offset`.
    pub(super) fn release(&self, offset: u32) {
        let (class, slot) = self.find(offset);
        class.slots.release(slot);
    }

    /// Returns the number of slots in use.
    pub(super) fn in_use(&self) -> u32 {
        self.classes.iter().map(|class| u32::from(class.slots.in_use())).sum()
    }

    /// Returns the number of all slots.
    pub(super) fn len(&self) -> usize {
        self.classes.iter().map(|class| usize::from(class.slots.len())).sum()
    }

    /// Returns the longest buffer that fits a slot, bytes.
    pub(super) fn longest(&self) -> u32 {
        self.classes
            .iter()
            .filter(|class| !class.slots.is_empty())
            .map(|class| class.bytes)
            .max()
            .unwrap_or(0)
    }

    fn find(&self, offset: u32) -> (&Class, u16) {
        self.classes
            .iter()
            .filter(|class| !class.slots.is_empty())
            .filter_map(|class| {
                let slot = u16::try_from(offset.checked_sub(class.at)? / class.bytes).ok()?;
                (slot < class.slots.len()).then_some((class, slot))
            })
            .next()
            .expect("an overflow buffer is in the arena")
    }
}
