//! Pages, where they lie, and the sum that tells whether one arrived as it left.

use core::fmt;

use pronto::{NodeId, Payload};

/// Bytes of a page: that of x86-64 and of most others.
pub const PAGE_SIZE: usize = 4096;

/// A byte of the shared address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct Address(pub u64);

impl Address {
    /// The page that it lies on.
    #[must_use]
    pub fn page(self) -> PageNumber {
        PageNumber(self.0 / BYTES)
    }

    /// Where it lies on its page.
    #[must_use]
    pub fn offset(self) -> usize {
        usize::try_from(self.0 % BYTES).expect("less than a page")
    }

    /// The address `bytes` further on.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// A page of the shared address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// Its first byte.
    #[must_use]
    pub fn address(self) -> Address {
        Address(self.0.wrapping_mul(BYTES))
    }

    /// The node that keeps its directory entry: page by page in turn, so that no node is home to all that is busy.
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
    /// A page of zeroes, as every page begins.
    #[must_use]
    pub fn zeroed() -> Box<Self> {
        Box::new(Self([0; PAGE_SIZE]))
    }

    /// The word of 32 bits at `offset`, as futexes look at it; `None` if it does not lie on the page.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// A sum over the contents, to tell whether they arrived as they left. Not meant against forgery.
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

/// What somebody may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub enum Access {
    /// Read; others may as well.
    Read,
    /// Read and write; nobody else may do either.
    Write,
}

/// The number of a grant of one page, counted by its home; 0 is none.
///
/// Grants and revocations travel in different classes and may overtake each other. Both carry this number, so that
/// the receiver can tell which came first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Payload)]
pub struct Version(pub u64);

impl Version {
    /// No grant.
    pub const NONE: Self = Self(0);

    /// The grant after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

const BYTES: u64 = PAGE_SIZE as u64;

/// Odd constants with well-mixed bits (the golden ratio's, and one from SplitMix64): each word changes every sum after it.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_take_turns_and_begin_with_node_one() {
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
    fn every_bit_and_every_place_counts_in_the_sum() {
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
