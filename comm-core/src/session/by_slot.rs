//! A table of the engine's data on each call slot, with memory only for the slots that were used.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A table indexed by slot. It dereferences to a slice of the allocated places.
#[derive(Debug)]
pub(super) struct BySlot<T> {
    places: Vec<T>,
    slots: u16,
}

/// Number of places that the first use of a slot allocates.
const FEW: usize = 4;

const _: () = assert!(FEW > 0, "some places stay when others are freed");

impl<T: Default> BySlot<T> {
    /// Returns a table for `slots` slots.
    pub(super) const fn new(slots: u16) -> Self {
        Self { places: Vec::new(), slots }
    }

    /// Returns the place of a slot, and allocates it if needed. Returns `None` beyond the last slot.
    #[inline]
    pub(super) fn at(&mut self, slot: u16) -> Option<&mut T> {
        let place = usize::from(slot);
        if place >= self.places.len() && slot < self.slots {
            self.grow(place);
        }
        self.places.get_mut(place)
    }

    /// Returns the number of slots.
    pub(super) const fn slots(&self) -> u16 {
        self.slots
    }

    #[cold]
    fn grow(&mut self, place: usize) {
        let wanted = (place + 1).next_power_of_two().max(FEW).min(self.slots.into());
        assert!(place < wanted && self.places.len() < wanted, "a table grows until it has the place");
        self.places.reserve_exact(wanted - self.places.len());
        self.places.resize_with(wanted, T::default);
    }

    /// Frees all places except the first few, if none of the others is in use.
    pub(super) fn give_back(&mut self, is_in_use: impl Fn(&T) -> bool) {
        if self.places.len() > FEW && !self.places[FEW..].iter().any(is_in_use) {
            self.places.truncate(FEW);
            self.places.shrink_to_fit();
        }
    }
}

impl<T> Deref for BySlot<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.places
    }
}

impl<T> DerefMut for BySlot<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.places
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_table_grows_with_use_and_frees_unused_places() {
        let mut table = BySlot::<u32>::new(56);
        assert!(table.is_empty());
        *table.at(0).unwrap() = 7;
        assert_eq!(table.len(), FEW);
        *table.at(20).unwrap() = 8;
        assert_eq!(table.len(), 32);
        assert!(table.at(55).is_some() && table.at(56).is_none());
        assert_eq!((table[0], table[20], table.len()), (7, 8, 56));
        table.give_back(|place| *place == 8);
        assert_eq!(table.len(), 56, "one of them is in use");
        table[20] = 0;
        table.give_back(|place| *place == 8);
        assert_eq!((table.len(), table[0]), (FEW, 7));
    }
}
