//! Pages, their addresses, and the checksum that reveals damaged contents.

use core::fmt;

use pronto::{NodeId, Payload};

/// Bytes of a page, as on x86-64 and most other architectures.
pub const PAGE_SIZE: usize = 4096;

/// Address of a byte in the shared address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct Address(pub u64);

impl Address {
    /// Returns the page of this address.
    #[must_use]
    pub fn page(self) -> PageNumber {
        PageNumber(self.0 / BYTES)
    }

    /// Returns the offset within the page.
    #[must_use]
    pub fn offset(self) -> usize {
        usize::try_from(self.0 % BYTES).expect("less than a page")
    }

    /// Returns the address `bytes` bytes further on.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// Number of a page in the shared address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// Returns the address of the page's first byte.
    #[must_use]
    pub fn address(self) -> Address {
        Address(self.0.wrapping_mul(BYTES))
    }

    /// Returns the page's home, which keeps its directory entry. Homes alternate page by page, to distribute the load.
    #[must_use]
    pub fn home(self, nodes: u16) -> NodeId {
        let turn = u16::try_from(self.0 % u64::from(nodes.max(1))).expect("less than the number of nodes");
        NodeId(turn + 1)
    }
}

/// The contents of a page.
#[derive(Clone, PartialEq, Eq)]
pub struct Page(pub [u8; PAGE_SIZE]);

impl Page {
    /// Returns a page of zeroes, the initial contents of every page.
    #[must_use]
    pub fn zeroed() -> Box<Self> {
        Box::new(Self([0; PAGE_SIZE]))
    }

    /// Returns the 32-bit futex word at `offset`; `None` if it does not lie on the page.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Returns a checksum of the contents. It detects damage, not forgery.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        let (words, _) = self.0.as_chunks::<8>();
        words.iter().fold(SEED, |sum, word| {
            (sum ^ u64::from_le_bytes(*word)).wrapping_mul(MULTIPLIER).rotate_left(29)
        })
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({:#018x})", self.checksum())
    }
}

/// Access right to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub enum Access {
    /// Right to read; other nodes may read too.
    Read,
    /// Right to read and write; no other node may do either.
    Write,
}

/// The number of a grant of one page, counted by its home; 0 means no grant.
///
/// Grants and demands travel in different classes and may overtake each other. Both carry this number, so that the receiver
/// can tell their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct Version(pub u64);

impl Version {
    /// No grant.
    pub const NONE: Self = Self(0);

    /// Returns the number of the next grant.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

const BYTES: u64 = PAGE_SIZE as u64;

/// Odd constants with well-mixed bits (from the golden ratio and from SplitMix64): each word changes every later sum.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_alternate_and_begin_with_node_one() {
        let homes: Vec<u16> = (0..5).map(|page| PageNumber(page).home(3).0).collect();
        assert_eq!(homes, [1, 2, 3, 1, 2]);
    }

    #[test]
    fn an_address_is_a_page_and_an_offset() {
        let address = Address(3 * 4096 + 17);
        assert_eq!((address.page(), address.offset()), (PageNumber(3), 17));
        assert_eq!(address.page().address(), Address(3 * 4096));
    }

    #[test]
    fn every_bit_and_its_position_change_the_checksum() {
        let zero = Page::zeroed().checksum();
        for bit in 0..PAGE_SIZE * 8 {
            let mut page = Page::zeroed();
            page.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(page.checksum(), zero, "bit {bit}");
        }
        let (mut one, mut other) = (Page::zeroed(), Page::zeroed());
        (one.0[0], other.0[8]) = (1, 1);
        assert_ne!(one.checksum(), other.checksum());
    }

    #[test]
    fn a_word_beyond_the_page_is_none() {
        assert_eq!(Page::zeroed().word(4092), Some(0));
        assert_eq!(Page::zeroed().word(4093), None);
        assert_eq!(Page::zeroed().word(usize::MAX), None);
    }
}
