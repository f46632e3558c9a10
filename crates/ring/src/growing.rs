//! A table of fixed length whose parts are allocated at their first use, as most tables are never full.
//!
//! The first places lie in one part, which exists from the beginning: reading one costs what reading a slice costs. Further parts follow
//! at their first use. Each is at least as long as all before it together, so that few parts cover a long table.

use alloc::boxed::Box;
use core::array::from_fn;
use core::fmt;

use pronto_sync::OnceBox;

/// Length of the first further part of a table without first places.
const LEAST: usize = 8;
/// Number of further parts: those of the longest table. A model of loom creates each of them.
const PARTS: usize = if cfg!(loom) { 1 } else { 14 };
/// Maximum number of places of a table, which 16 bits count.
pub const MAX_PLACES: usize = 1 << 16;

const _: () = assert!(cfg!(loom) || LEAST << (PARTS - 1) >= MAX_PLACES, "the parts cover the longest table");

/// A table that any thread reads. The first thread that uses a part allocates it, and it stays.
pub struct Growing<T> {
    first: Box<[T]>,
    further: [OnceBox<Box<[T]>>; PARTS],
    len: usize,
    make: fn() -> T,
}

impl<T> Growing<T> {
    /// Returns a table of `len` places, of which the first `few` exist from the beginning. `make` returns their initial values.
    ///
    /// # Panics
    /// If `len` is more than [`MAX_PLACES`].
    pub fn new(few: usize, len: usize, make: fn() -> T) -> Self {
        assert!(len <= MAX_PLACES, "16 bits count the places of a table");
        let first = (0..few.min(len)).map(|_| make()).collect();
        Self { first, further: from_fn(|_| OnceBox::new()), len, make }
    }

    /// Returns the number of places, allocated or not.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of places that exist from the beginning.
    pub const fn few(&self) -> usize {
        self.first.len()
    }

    /// Returns whether the table has no places at all.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a place, and allocates its part if needed.
    ///
    /// # Panics
    /// If the place is not in the table.
    #[inline(always)]
    pub fn at(&self, place: usize) -> &T {
        match self.first.get(place) {
            Some(place) => place,
            None => self.further_at(place),
        }
    }

    // Cold, so that the callers keep their registers for the first places.
    #[cold]
    fn further_at(&self, place: usize) -> &T {
        assert!(place < self.len, "place {place} is out of bounds: the table has {}", self.len);
        let (part, start) = self.part_of(place);
        let values = self.further[part].get_or_make(|| {
            let len = self.part_len(part).min(self.len - start);
            (0..len).map(|_| (self.make)()).collect()
        });
        &values[place - start]
    }

    /// Returns a place, if it is allocated.
    pub fn get(&self, place: usize) -> Option<&T> {
        if let Some(place) = self.first.get(place) {
            return Some(place);
        }
        if place >= self.len {
            return None;
        }
        let (part, start) = self.part_of(place);
        self.further[part].get()?.get(place - start)
    }

    /// Returns every allocated place with its index.
    pub fn made(&self) -> impl Iterator<Item = (usize, &T)> {
        let further = self.further.iter().enumerate().filter_map(|(part, values)| {
            let start = self.start_of(part);
            Some(values.get()?.iter().enumerate().map(move |(index, value)| (start + index, value)))
        });
        self.first.iter().enumerate().chain(further.flatten())
    }

    /// Returns the length of the first further part.
    fn unit(&self) -> usize {
        self.first.len().max(LEAST)
    }

    /// Returns the length of a further part, except the last one, which ends with the table.
    fn part_len(&self, part: usize) -> usize {
        self.unit() << part
    }

    /// Returns the index of the first place of a further part.
    fn start_of(&self, part: usize) -> usize {
        self.first.len() + self.unit() * ((1 << part) - 1)
    }

    /// Returns the further part with a place, and the index of its first place.
    fn part_of(&self, place: usize) -> (usize, usize) {
        let part = ((place - self.first.len()) / self.unit() + 1).ilog2() as usize;
        (part, self.start_of(part))
    }
}

impl<T> fmt::Debug for Growing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growing").field("len", &self.len).field("made", &self.made().count()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;
    use core::cell::Cell;

    use super::*;

    #[test]
    fn a_used_place_stays_allocated() {
        let table = Growing::new(0, 24, || Cell::new(0));
        assert_eq!((table.len(), table.made().count()), (24, 0));
        table.at(LEAST + 2).set(7);
        assert_eq!(table.get(LEAST + 2).map(Cell::get), Some(7));
        assert!(table.get(LEAST).is_some() && table.get(0).is_none() && table.get(24).is_none());
        assert_eq!(table.made().count(), 2 * LEAST, "the second further part is twice as long as the first");
    }

    #[test]
    fn each_place_lies_in_one_part_and_is_allocated_by_its_first_use_only() {
        for (few, len) in [(0, 1), (0, MAX_PLACES), (1, 100), (5, 23), (64, 4096), (64, 64), (100, 7)] {
            let table = Growing::new(few, len, || Cell::new(usize::MAX));
            assert_eq!(table.made().count(), few.min(len));
            (0..len).for_each(|place| table.at(place).set(place));
            let made: Vec<_> = table.made().map(|(index, value)| (index, value.get())).collect();
            assert!(made.iter().map(|(index, _)| *index).eq(0..len), "{few} of {len}");
            assert!(made.iter().all(|(index, value)| index == value), "{few} of {len}");
        }
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_place_beyond_the_end_panics() {
        Growing::new(8, 12, || 0).at(12);
    }

    #[test]
    #[should_panic(expected = "16 bits count the places")]
    fn a_table_has_a_greatest_length() {
        Growing::new(0, MAX_PLACES + 1, || 0);
    }
}
