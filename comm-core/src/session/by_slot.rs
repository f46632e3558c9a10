//! What the engine knows of each call slot: a table that takes memory for the slots that were ever used.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// A table by slot. It reads as a slice of the places that are there.
#[derive(Debug)]
pub(super) struct BySlot<T> {
    places: Vec<T>,
    slots: u16,
}

/// Places that are there when the first slot is used.
const FEW: usize = 4;

const _: () = assert!(FEW > 0, "some places stay when others are given back");

impl<T: Default> BySlot<T> {
    /// For so many slots.
    pub(super) const fn new(slots: u16) -> Self {
        Self { places: Vec::new(), slots }
    }

    /// The place of a slot, made now if it was not there; none beyond the last slot.
    #[inline]
    pub(super) fn at(&mut self, slot: u16) -> Option<&mut T> {
        let place = usize::from(slot);
        if place >= self.places.len() && slot < self.slots {
            self.grow(place);
        }
        self.places.get_mut(place)
    }

    /// How many slots there are.
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

    /// Gives back what lies behind the first few, if none of it is in use.
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
    fn it_grows_with_use_and_gives_back_what_is_not_in_use() {
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
