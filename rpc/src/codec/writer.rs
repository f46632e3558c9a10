//! The writer of values into the send buffer.

use thiserror::Error;

/// An error of a buffer that is too short for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("buffer full: {needed} bytes needed at offset {offset}, {left} left")]
pub struct Full {
    /// Bytes written before the error.
    pub offset: usize,
    /// Bytes that the next part needs.
    pub needed: usize,
    /// Bytes left.
    pub left: usize,
}

/// A writer into a buffer, from its first byte.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
    capacity: usize,
}

impl<'a> Writer<'a> {
    /// Returns a writer at the beginning of `buffer`.
    #[inline]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { capacity: buffer.len(), rest: buffer }
    }

    /// Returns the number of bytes written so far.
    #[inline]
    pub fn written(&self) -> usize {
        self.capacity - self.rest.len()
    }

    /// Returns the number of bytes left.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks that `len` bytes are left. The compiler can then omit the checks of the fields that follow.
    ///
    /// # Errors
    /// [`Full`] if fewer are left.
    #[inline]
    pub fn require(&self, len: usize) -> Result<(), Full> {
        if self.rest.len() < len { Err(self.full(len)) } else { Ok(()) }
    }

    /// Returns the next `len` bytes of the buffer, which the caller fills.
    ///
    /// # Errors
    /// [`Full`] if fewer are left; nothing is taken then.
    #[inline]
    pub fn claim(&mut self, len: usize) -> Result<&'a mut [u8], Full> {
        self.require(len)?;
        let (claimed, rest) = core::mem::take(&mut self.rest).split_at_mut(len);
        self.rest = rest;
        Ok(claimed)
    }

    /// Writes an array of bytes.
    ///
    /// # Errors
    /// [`Full`] if fewer are left; nothing is written then.
    #[inline]
    pub fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), Full> {
        self.claim(N)?.copy_from_slice(&bytes);
        Ok(())
    }

    /// Writes a slice of bytes.
    ///
    /// # Errors
    /// [`Full`] if fewer are left; nothing is written then.
    #[inline]
    pub fn put_slice(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.claim(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes the number of items that follow, as a `u32`.
    ///
    /// # Errors
    /// [`Full`] if the count does not fit into the buffer, or `count` does not fit into a `u32`. An item has at least one
    /// byte, and a message at most 4 GiB.
    #[inline]
    pub fn put_count(&mut self, count: usize) -> Result<(), Full> {
        let Ok(count) = u32::try_from(count) else { return Err(self.full(count)) };
        self.put(count.to_le_bytes())
    }

    /// Returns the error for `needed` bytes that cannot be written.
    #[cold]
    pub(crate) fn refuse(&self, needed: usize) -> Full {
        self.full(needed)
    }

    #[cold]
    fn full(&self, needed: usize) -> Full {
        Full { offset: self.written(), needed, left: self.rest.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_write_leaves_the_writer_usable() {
        let mut buffer = [0; 5];
        let mut writer = Writer::new(&mut buffer);
        writer.put([1, 2, 3]).unwrap();
        assert_eq!(writer.put([4; 4]), Err(Full { offset: 3, needed: 4, left: 2 }));
        writer.put_slice(&[5, 6]).unwrap();
        assert_eq!((writer.written(), writer.left()), (5, 0));
        assert_eq!(buffer, [1, 2, 3, 5, 6]);
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn counts_beyond_32_bits_are_refused() {
        let mut buffer = [0; 8];
        let needed = 1 << 32;
        assert_eq!(Writer::new(&mut buffer).put_count(needed), Err(Full { offset: 0, needed, left: 8 }));
    }
}
