//! The bytes that a reader reads: private memory, or memory to which a peer can write.

use alloc::sync::Arc;
use alloc::vec::Vec;

use pronto_core::fabric;
use pronto_core::fabric::region::{BLOCK, SharedBytes};
use zerocopy::{FromBytes, IntoBytes};

use crate::bytes::Bytes;

/// The bytes of a [`Reader`](super::Reader): a slice, or a received payload in memory to which the peer can write. A decoder is compiled
/// for each, so that short messages, which are always slices, pay nothing for the other form.
pub trait Source: sealed::Sealed {
    /// Returns the number of bytes left.
    fn left(&self) -> usize;

    /// Takes the next `N` bytes, unless fewer are left.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]>;

    /// Takes the next `len` bytes, unless fewer are left, and passes them to `each` in pieces. The length of each piece except the last is a
    /// multiple of 64 bytes.
    #[must_use]
    fn take_pieces(&mut self, len: usize, each: impl FnMut(&[u8])) -> bool;

    /// Takes `count` numbers into `items`, behind those that are there, by one copy. Returns false, and takes nothing, if fewer are left, or if
    /// this source has pieces only.
    #[inline(always)]
    #[must_use]
    fn append<T: FromBytes>(&mut self, count: usize, items: &mut Vec<T>) -> bool {
        let _ = (count, items);
        false
    }

    /// Takes as many numbers as `items` has, into these, like [`Self::append`].
    #[inline(always)]
    #[must_use]
    fn fill<T: FromBytes + IntoBytes>(&mut self, items: &mut [T]) -> bool {
        let _ = items;
        false
    }

    /// Takes the next `len` bytes as a value that owns them, unless fewer are left.
    fn take_bytes(&mut self, len: usize) -> Option<Bytes>;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for &[u8] {}
    impl Sealed for super::SharedSource<'_> {}
}

/// Number of bytes of a slice that are copied at a time. Common C libraries do a longer copy with one string instruction. On some CPUs
/// (seen on AMD EPYC 9004: 3.5 GB/s instead of 50) it moves one byte per cycle if the offset of the destination within its page is less
/// than 16 bytes above that of the source. This is the case for numbers after a count of 4 bytes.
pub(super) const PIECE: usize = 2048;

impl Source for &[u8] {
    #[inline(always)]
    fn left(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.split_first_chunk()?;
        *self = rest;
        Some(*taken)
    }

    #[inline(always)]
    fn take_pieces(&mut self, len: usize, each: impl FnMut(&[u8])) -> bool {
        let Some((taken, rest)) = self.split_at_checked(len) else { return false };
        *self = rest;
        taken.chunks(PIECE).for_each(each);
        true
    }

    fn take_bytes(&mut self, len: usize) -> Option<Bytes> {
        let (taken, rest) = self.split_at_checked(len)?;
        *self = rest;
        Some(taken.into())
    }
}

/// A received payload in memory to which the peer can write. Each byte is read once: single values from a private copy of the next bytes,
/// sequences of numbers from the shared memory to their destination.
#[derive(Debug)]
pub struct SharedSource<'a> {
    /// The bytes from the begin of the window on.
    rest: SharedBytes<'a>,
    /// Private copy of the first bytes of `rest`, if they were needed.
    window: [u8; WINDOW],
    /// Number of valid bytes of the window.
    filled: usize,
    /// Number of bytes of `rest` that were taken.
    taken: usize,
    owner: Option<Owner<'a>>,
}

/// A lease from which [`Bytes`] can be taken, and its length.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a>(pub(crate) &'a Arc<dyn fabric::Payload>);

/// Length of the private copy of the next bytes: four cache lines.
const WINDOW: usize = 4 * BLOCK;

impl<'a> SharedSource<'a> {
    #[inline]
    pub(crate) const fn new(bytes: SharedBytes<'a>, owner: Option<Owner<'a>>) -> Self {
        Self { rest: bytes, window: [0; WINDOW], filled: 0, taken: 0, owner }
    }

    /// Moves the begin of the window to the next byte.
    #[inline]
    fn advance(&mut self) {
        self.rest = self.rest.skip(self.taken);
        (self.filled, self.taken) = (0, 0);
    }

    #[inline(never)]
    fn refill(&mut self) {
        self.advance();
        self.filled = self.rest.copy_to(&mut self.window);
    }
}

impl Source for SharedSource<'_> {
    #[inline]
    fn left(&self) -> usize {
        self.rest.len() - self.taken
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        if N > WINDOW {
            return self.take_long();
        }
        if self.filled.saturating_sub(self.taken) < N {
            if self.left() < N {
                return None;
            }
            self.refill();
        }
        let taken = *self.window.get(self.taken..)?.first_chunk()?;
        self.taken += N;
        Some(taken)
    }

    #[inline]
    fn take_pieces(&mut self, len: usize, mut each: impl FnMut(&[u8])) -> bool {
        if self.left() < len {
            return false;
        }
        // The rest of the window was not used, and is read again.
        self.advance();
        self.rest.first(len).read_blocks(&mut |block, count| each(&block[..count]));
        self.taken = len;
        true
    }

    #[inline]
    fn append<T: FromBytes>(&mut self, count: usize, items: &mut Vec<T>) -> bool {
        let Some(numbers) = self.bulk(count.saturating_mul(size_of::<T>())) else { return false };
        numbers.append_to(items);
        true
    }

    #[inline]
    fn fill<T: FromBytes + IntoBytes>(&mut self, items: &mut [T]) -> bool {
        let Some(numbers) = self.bulk(size_of_val(items)) else { return false };
        numbers.copy_to(items.as_mut_bytes());
        true
    }

    fn take_bytes(&mut self, len: usize) -> Option<Bytes> {
        if self.left() < len {
            return None;
        }
        if let Some(Owner(lease)) = self.owner {
            self.advance();
            let offset = lease.len() - self.rest.len();
            self.taken = len;
            return Some(Bytes::lent(Arc::clone(lease), offset, len));
        }
        let mut bytes = Vec::with_capacity(len);
        let taken = self.take_pieces(len, |piece| bytes.extend_from_slice(piece));
        taken.then(|| bytes.into())
    }
}

impl<'a> SharedSource<'a> {
    /// Takes the next `len` bytes, if this machine has the byte order of messages and they are there. The rest of the window was not used,
    /// and is read again.
    #[inline]
    fn bulk(&mut self, len: usize) -> Option<SharedBytes<'a>> {
        if cfg!(target_endian = "big") || self.left() < len {
            return None;
        }
        self.advance();
        self.taken = len;
        Some(self.rest.first(len))
    }

    #[cold]
    fn take_long<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.left() < N {
            return None;
        }
        self.advance();
        let mut bytes = [0; N];
        self.rest.copy_to(&mut bytes);
        self.taken = N;
        Some(bytes)
    }
}

impl core::fmt::Debug for Owner<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Owner")
    }
}
