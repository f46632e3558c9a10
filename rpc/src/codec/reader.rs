//! Where values are read: bytes that a peer sent, none of which is believed.

use thiserror::Error;

/// The bytes are no value of the type that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed at offset {offset}: {fault}")]
pub struct Malformed {
    /// Where the offending bytes begin.
    pub offset: usize,
    /// What is wrong with them.
    pub fault: Fault,
}

/// What is wrong with bytes that should be a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The message ends too early.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that come next, at least.
        needed: usize,
        /// Bytes left.
        left: usize,
    },
    /// The message goes on after its value.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// So many items cannot be in what is left.
    #[error("{count} items announced, {left} bytes left")]
    Count {
        /// Items announced.
        count: u32,
        /// Bytes left after the announcement.
        left: usize,
    },
    /// Neither 0 nor 1.
    #[error("{0} is no bool")]
    Bool(u8),
    /// Neither 0 (absent) nor 1 (present).
    #[error("{0} is neither absent nor present")]
    Option(u8),
    /// No Unicode scalar value.
    #[error("{0:#x} is no char")]
    Char(u32),
    /// No UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// A second or more.
    #[error("{0} nanoseconds are a second or more")]
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

/// Reads from bytes, from their beginning.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// Bytes read so far.
    #[inline]
    pub const fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Bytes left.
    #[inline]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks once that `len` bytes are left, so that the checks of the fields that follow fold into this one.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    #[inline]
    pub fn require(&self, len: usize) -> Result<(), Malformed> {
        if self.rest.len() < len { Err(self.truncated(len)) } else { Ok(()) }
    }

    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    #[inline]
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else { return Err(self.truncated(N)) };
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes the next `len` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if fewer are left.
    #[inline]
    pub fn take_slice(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else { return Err(self.truncated(len)) };
        self.rest = rest;
        Ok(taken)
    }

    /// Takes the number of items that follow, each at least `item_len` bytes long.
    ///
    /// # Errors
    /// [`Fault::Count`] if so many cannot be left.
    #[inline]
    pub fn count(&mut self, item_len: usize) -> Result<usize, Malformed> {
        let count = u32::from_le_bytes(self.take()?);
        match usize::try_from(count) {
            Ok(fits) if fits <= self.left() / item_len.max(1) => Ok(fits),
            _ => Err(self.refuse(4, Fault::Count { count, left: self.left() })),
        }
    }

    /// The error for something wrong with the last `len` bytes taken.
    #[cold]
    pub fn refuse(&self, len: usize, fault: Fault) -> Malformed {
        Malformed { offset: self.offset().saturating_sub(len), fault }
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// [`Fault::Trailing`] if something is left.
    #[inline]
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.refuse(0, Fault::Trailing(self.left()))) }
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
    fn faults_name_their_place() {
        let mut reader = Reader::new(&[1, 2, 3, 4, 5]);
        assert_eq!(reader.take(), Ok([1, 2]));
        let fault = Fault::Truncated { needed: 4, left: 3 };
        assert_eq!(reader.take::<4>(), Err(Malformed { offset: 2, fault }));
        assert_eq!(reader.take_slice(2), Ok([3, 4].as_slice()));
        assert_eq!(reader.finish(), Err(Malformed { offset: 4, fault: Fault::Trailing(1) }));
    }

    #[test]
    fn counts_are_held_against_what_is_left() {
        let bytes = [3, 0, 0, 0, 9, 9, 9, 9, 9, 9];
        assert_eq!(Reader::new(&bytes).count(2), Ok(3));
        let fault = Fault::Count { count: 3, left: 6 };
        assert_eq!(Reader::new(&bytes).count(3), Err(Malformed { offset: 0, fault }));
        let fault = Fault::Count { count: u32::MAX, left: 0 };
        assert_eq!(Reader::new(&[0xff; 4]).count(1), Err(Malformed { offset: 0, fault }));
    }
}
