//! A table of fixed length whose parts are allocated at their first use, as most sessions never have more than a few open calls.

use alloc::boxed::Box;
use core::fmt;

use pronto_sync::OnceBox;

/// Number of places in a part.
const PART: usize = 8;

/// A table that any thread reads. The first thread that uses a part allocates it, and it stays.
pub(super) struct Growing<T> {
    parts: Box<[OnceBox<[T; PART]>]>,
    len: usize,
    make: fn() -> T,
}

impl<T> Growing<T> {
    /// Returns a table of `len` places, whose values `make` returns.
    pub(super) fn new(len: usize, make: fn() -> T) -> Self {
        Self { parts: (0..len.div_ceil(PART)).map(|_| OnceBox::new()).collect(), len, make }
    }

    /// Returns the number of places, allocated or not.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns a place, and allocates its part if needed.
    ///
    /// # Panics
    /// If the place is in no part of the table.
    #[inline(always)]
    pub(super) fn at(&self, place: usize) -> &T {
        let part = &self.parts[place / PART];
        match part.get() {
            Some(part) => &part[place % PART],
            None => &self.made_now(part)[place % PART],
        }
    }

    #[cold]
    fn made_now<'a>(&self, part: &'a OnceBox<[T; PART]>) -> &'a [T; PART] {
        part.get_or_make(|| core::array::from_fn(|_| (self.make)()))
    }

    /// Returns a place, if it is allocated.
    pub(super) fn get(&self, place: usize) -> Option<&T> {
        self.parts.get(place / PART)?.get().map(|part| &part[place % PART])
    }

    /// Returns every allocated place.
    pub(super) fn made(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().filter_map(OnceBox::get).flatten()
    }
}

impl<T> fmt::Debug for Growing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growing").field("len", &self.len).field("made", &self.made().count()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_used_place_stays_allocated() {
        let table = Growing::new(3 * PART, || core::cell::Cell::new(0));
        assert_eq!((table.len(), table.made().count()), (3 * PART, 0));
        table.at(PART + 2).set(7);
        assert_eq!(table.get(PART + 2).map(core::cell::Cell::get), Some(7));
        assert!(table.get(PART).is_some() && table.get(0).is_none() && table.get(3 * PART).is_none());
        assert_eq!(table.made().count(), PART);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_place_beyond_the_end_panics() {
        Growing::new(PART, || 0).at(PART);
    }
}
