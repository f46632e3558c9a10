//! Bytes that own the memory in which they arrived.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use pronto_core::fabric;
use pronto_core::fabric::region::BLOCK;
use pronto_wire::LayoutHash;

use crate::codec::{Full, Malformed, Payload, Reader, Source, Writer};
use crate::in_place::{InPlace, Unreadable};

/// A field of bytes in a message. Over shared memory, a received one stays where the sender composed it, and owns that memory: it is read
/// in place, or copied out or into another message once. It stays readable after the handler has returned. Otherwise it owns a copy.
///
/// On the wire it is the same as `Vec<u8>`, so each side can declare the field as either.
///
/// The sender can write to its memory at any time. Therefore the bytes are not available as a slice; two reads of the same range may
/// return different bytes if the sender is malicious. As long as the value lives, the sender cannot use this memory for other messages.
/// Copy the bytes out ([`Bytes::to_vec`]) to keep them for long.
#[derive(Clone)]
pub struct Bytes(Memory);

#[derive(Clone)]
enum Memory {
    Own(Vec<u8>),
    Lent { lease: Arc<dyn fabric::Payload>, offset: usize, len: usize },
}

impl Bytes {
    /// Returns a part of a payload, in range, that shares its lease.
    pub(crate) fn lent(lease: Arc<dyn fabric::Payload>, offset: usize, len: usize) -> Self {
        Self(Memory::Lent { lease, offset, len })
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Own(bytes) => bytes.len(),
            Memory::Lent { len, .. } => *len,
        }
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether these bytes are in memory of their sender.
    pub fn is_lent(&self) -> bool {
        matches!(self.0, Memory::Lent { .. })
    }

    fn place(&self) -> InPlace<'_> {
        match &self.0 {
            Memory::Own(bytes) => bytes.as_slice().into(),
            Memory::Lent { lease, offset, len } => InPlace::part(&**lease, *offset, *len),
        }
    }

    /// Copies `out.len()` bytes from `offset`.
    ///
    /// # Errors
    /// If the bytes end before `offset + out.len()`, or their sender withdrew them.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), Unreadable> {
        self.place().copy_to(offset, out)
    }

    /// Returns a copy of all bytes.
    ///
    /// # Errors
    /// If their sender withdrew them.
    pub fn to_vec(&self) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Passes every byte to `read`, as [`InPlace::read_blocks`] does.
    ///
    /// # Errors
    /// As for [`InPlace::read_blocks`].
    #[inline]
    pub fn read_blocks(&self, read: impl FnMut(&[u8; BLOCK], usize)) -> Result<(), Unreadable> {
        self.place().read_blocks(read)
    }

    /// Passes every byte to `read`, as [`InPlace::read_pieces`] does.
    ///
    /// # Errors
    /// As for [`InPlace::read_pieces`].
    pub fn read_pieces(&self, read: impl FnMut(&[u8])) -> Result<(), Unreadable> {
        self.place().read_pieces(read)
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Memory::Own(bytes))
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(Memory::Own(bytes.into()))
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes")
            .field("len", &self.len())
            .field("lent", &self.is_lent())
            .finish_non_exhaustive()
    }
}

impl Payload for Bytes {
    const KEEPS_MEMORY: bool = true;
    const LAYOUT: LayoutHash = Vec::<u8>::LAYOUT;
    const MIN_LEN: usize = Vec::<u8>::MIN_LEN;
    const MAX_LEN: Option<usize> = None;

    fn encoded_len(&self) -> usize {
        Self::MIN_LEN + self.len()
    }

    /// Copies the bytes, directly from their sender's memory if they are there.
    ///
    /// # Errors
    /// [`Full`] also if the bytes cannot be read any more.
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.put_count(self.len())?;
        let to = out.claim(self.len())?;
        match &self.0 {
            Memory::Own(bytes) => to.copy_from_slice(bytes),
            Memory::Lent { .. } => self.copy_to(0, to).map_err(|_| out.refuse(self.len()))?,
        }
        Ok(())
    }

    fn decode<S: Source>(input: &mut Reader<S>) -> Result<Self, Malformed> {
        let count = input.count(1)?;
        input.take_bytes(count)
    }
}
