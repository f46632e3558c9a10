//! The mapped address ranges of a process. The origin's table is authoritative; other nodes keep what they have learned.

use crate::page::{Address, PAGE_SIZE};

/// A mapped range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte, at the start of a page.
    pub start: Address,
    /// Length in bytes, a multiple of the page size.
    pub length: u64,
    /// Whether tasks may write to the range.
    pub writable: bool,
    /// Name of what is mapped.
    pub path: String,
}

impl Range {
    /// Returns whether all of `length` bytes from `address` lie in the range.
    #[must_use]
    pub fn holds(&self, address: Address, length: u64) -> bool {
        let offset = address.0.checked_sub(self.start.0);
        let end = offset.and_then(|offset| offset.checked_add(length));
        end.is_some_and(|end| end <= self.length)
    }
}

/// The ranges that a node knows.
#[derive(Debug)]
pub struct Ranges {
    known: Vec<Range>,
    next: Address,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { known: Vec::new(), next: Address(FIRST) }
    }
}

impl Ranges {
    /// Maps `length` bytes at the origin, rounded up to whole pages. Returns `None` if the address space is full.
    pub fn map(&mut self, length: u64, writable: bool, path: String) -> Option<&Range> {
        let length = length.max(1).checked_next_multiple_of(PAGE_SIZE as u64)?;
        let end = self.next.0.checked_add(length).filter(|end| *end <= LIMIT)?;
        let start = core::mem::replace(&mut self.next, Address(end));
        self.known.push(Range { start, length, writable, path });
        self.known.last()
    }

    /// Stores a range that the origin reported, at another node.
    pub fn learn(&mut self, range: Range) {
        if self.find(range.start).is_none() {
            self.known.push(range);
        }
    }

    /// Returns the range that contains `address`.
    #[must_use]
    pub fn find(&self, address: Address) -> Option<&Range> {
        self.known.iter().find(|range| range.holds(address, 1))
    }

    /// Returns the start of the first range.
    #[must_use]
    pub fn first() -> Address {
        Address(FIRST)
    }

    /// Returns whether a page at `address` can exist at all.
    #[must_use]
    pub fn is_possible(address: Address) -> bool {
        (FIRST..LIMIT).contains(&address.0)
    }
}

/// Start of the first range. The first mebibyte is never mapped, so that invalid addresses are detected.
const FIRST: u64 = 1 << 20;

/// End of the address space, 1 GiB. It bounds what a home stores, whatever its peers request.
const LIMIT: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_pages_and_do_not_overlap() {
        let mut ranges = Ranges::default();
        let one = ranges.map(1, true, "one".into()).unwrap().clone();
        let two = ranges.map(4097, true, "two".into()).unwrap().clone();
        assert_eq!((one.length, two.length), (4096, 8192));
        assert_eq!(two.start, one.start.plus(4096));
        assert_eq!(ranges.find(one.start.plus(4095)), Some(&one));
        assert_eq!(ranges.find(one.start.plus(4096)), Some(&two));
        assert_eq!(ranges.find(Address(0)), None);
    }

    #[test]
    fn the_address_space_is_bounded() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.map(u64::MAX, true, String::new()), None);
        assert_eq!(ranges.map(LIMIT, true, String::new()), None);
        assert!(ranges.map(LIMIT - FIRST, true, String::new()).is_some());
        assert_eq!(ranges.map(1, true, String::new()), None);
    }

    #[test]
    fn a_range_holds_only_pages_wholly_inside() {
        let range = Range { start: Address(4096), length: 4096, writable: true, path: String::new() };
        assert!(range.holds(Address(4096), 4096));
        assert!(!range.holds(Address(4096), 4097));
        assert!(!range.holds(Address(4095), 1));
        assert!(!range.holds(Address(8191), u64::MAX));
    }

    #[test]
    fn a_range_learned_twice_is_stored_once() {
        let mut ranges = Ranges::default();
        let range = Range { start: Address(1 << 21), length: 4096, writable: false, path: String::new() };
        ranges.learn(range.clone());
        ranges.learn(range);
        assert_eq!(ranges.known.len(), 1);
    }
}
