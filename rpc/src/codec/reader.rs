//! The reader of values from the untrusted bytes of a peer.

use alloc::vec::Vec;

use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

use super::Source;
use crate::bytes::Bytes;

/// An error of bytes that are not a value of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed at offset {offset}: {fault}")]
pub struct Malformed {
    /// Offset of the invalid bytes.
    pub offset: usize,
    /// The fault of these bytes.
    pub fault: Fault,
}

/// The fault of bytes that should be a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The message ends too early.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the next part needs at least.
        needed: usize,
        /// Bytes left.
        left: usize,
    },
    /// The message has bytes after its value.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// The bytes that are left cannot contain `count` items.
    #[error("{count} items announced, but only {left} bytes left")]
    Count {
        /// Items announced.
        count: u32,
        /// Bytes left after the announcement.
        left: usize,
    },
    /// The byte of a bool is neither 0 nor 1.
    #[error("invalid bool byte {0}: expected 0 or 1")]
    Bool(u8),
    /// The first byte of an option is neither 0 (`None`) nor 1 (`Some`).
    #[error("invalid option byte {0}: expected 0 (`None`) or 1 (`Some`)")]
    Option(u8),
    /// The number of a char is not a Unicode scalar value.
    #[error("invalid char {0:#x}: not a Unicode scalar value")]
    Char(u32),
    /// The bytes of a string are not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// The nanoseconds of a duration are a second or more.
    #[error("invalid duration: {0} nanoseconds are a second or more")]
    Nanoseconds(u32),
    /// The enum has no such variant.
    #[error("`{of}` has no variant {variant}")]
    Variant {
        /// The enum's name.
        of: &'static str,
        /// The variant's number.
        variant: u8,
    },
}

/// A reader of bytes, from the first to the last.
#[derive(Clone, Debug)]
pub struct Reader<S> {
    rest: S,
    len: usize,
}

impl<S: Source> Reader<S> {
    /// Returns a reader at the beginning of `bytes`.
    #[inline]
    pub fn new(bytes: S) -> Self {
        Self { len: bytes.left(), rest: bytes }
    }

    /// Returns the number of bytes read so far.
    #[inline]
    pub fn offset(&self) -> usize {
        self.len - self.left()
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.left()
    }

    /// Checks that `len` bytes are left. The compiler can then omit the checks of the fields that follow.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    #[inline]
    pub fn require(&self, len: usize) -> Result<(), Malformed> {
        if self.left() < len { Err(self.truncated(len)) } else { Ok(()) }
    }

    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    #[inline]
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.rest.take() {
            Some(taken) => Ok(taken),
            None => Err(self.truncated(N)),
        }
    }

    /// Takes the next `len` bytes, and passes them to `each` in pieces. The length of each piece except the last is a multiple of 64 bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left; `each` is not called then.
    #[inline(always)]
    pub fn take_pieces(&mut self, len: usize, each: impl FnMut(&[u8])) -> Result<(), Malformed> {
        if self.rest.take_pieces(len, each) { Ok(()) } else { Err(self.truncated(len)) }
    }

    /// Takes `count` numbers into `items`, behind those that are there, by one copy. Returns false, and takes nothing, if the source has
    /// pieces only.
    #[inline(always)]
    pub(super) fn append<T: FromBytes>(&mut self, count: usize, items: &mut Vec<T>) -> bool {
        self.rest.append(count, items)
    }

    /// Takes as many numbers as `items` has, into these, like [`Self::append`]. Returns false also if fewer are left.
    #[inline(always)]
    pub(super) fn fill<T: FromBytes + IntoBytes>(&mut self, items: &mut [T]) -> bool {
        self.rest.fill(items)
    }

    /// Takes the next `len` bytes as a value that owns them.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    pub fn take_bytes(&mut self, len: usize) -> Result<Bytes, Malformed> {
        match self.rest.take_bytes(len) {
            Some(bytes) => Ok(bytes),
            None => Err(self.truncated(len)),
        }
    }

    /// Takes the number of items that follow, each at least `item_len` bytes long.
    ///
    /// # Errors
    /// [`Fault::Count`] if the bytes left cannot contain that number of items.
    #[inline]
    pub fn count(&mut self, item_len: usize) -> Result<usize, Malformed> {
        let count = u32::from_le_bytes(self.take()?);
        match usize::try_from(count) {
            Ok(fits) if fits <= self.left() / item_len.max(1) => Ok(fits),
            _ => Err(self.refuse(4, Fault::Count { count, left: self.left() })),
        }
    }

    /// Returns the error for a fault of the last `len` bytes taken.
    #[cold]
    pub fn refuse(&self, len: usize, fault: Fault) -> Malformed {
        Malformed { offset: self.offset().saturating_sub(len), fault }
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// [`Fault::Trailing`] if bytes are left.
    #[inline]
    pub fn finish(self) -> Result<(), Malformed> {
        if self.left() == 0 { Ok(()) } else { Err(self.refuse(0, Fault::Trailing(self.left()))) }
    }

    #[cold]
    fn truncated(&self, needed: usize) -> Malformed {
        Malformed { offset: self.offset(), fault: Fault::Truncated { needed, left: self.left() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_their_offset() {
        let mut reader = Reader::new([1, 2, 3, 4, 5].as_slice());
        assert_eq!(reader.take(), Ok([1, 2]));
        let fault = Fault::Truncated { needed: 4, left: 3 };
        assert_eq!(reader.take::<4>(), Err(Malformed { offset: 2, fault }));
        assert_eq!(
            reader.take_pieces(4, |_| panic!("too few bytes are left")),
            Err(Malformed { offset: 2, fault })
        );
        assert_eq!(reader.take_pieces(2, |piece| assert_eq!(piece, [3, 4])), Ok(()));
        assert_eq!(reader.finish(), Err(Malformed { offset: 4, fault: Fault::Trailing(1) }));
    }

    #[test]
    fn counts_are_checked_against_the_bytes_left() {
        let bytes = [3, 0, 0, 0, 9, 9, 9, 9, 9, 9];
        assert_eq!(Reader::new(bytes.as_slice()).count(2), Ok(3));
        let fault = Fault::Count { count: 3, left: 6 };
        assert_eq!(Reader::new(bytes.as_slice()).count(3), Err(Malformed { offset: 0, fault }));
        let fault = Fault::Count { count: u32::MAX, left: 0 };
        assert_eq!(Reader::new([0xff; 4].as_slice()).count(1), Err(Malformed { offset: 0, fault }));
    }
}
