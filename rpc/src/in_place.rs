//! An encoded message in the memory where it arrived, for handlers that read it there instead of a decoded value.

use core::fmt;

use pronto_core::fabric::region::{BLOCK, SharedBytes};
use pronto_core::fabric::{Arrived, OutOfBounds, Payload, Withdrawn};
use thiserror::Error;

use crate::arrived::Fresh;
use crate::codec;

/// An encoded message, in the memory where it arrived.
///
/// This may be memory of the peer, which can write to it at any time. Therefore the message is read block by block into registers, or
/// copied in pieces that stay in the CPU's cache. Two reads of the same range may return different bytes.
pub struct InPlace<'a>(Memory<'a>);

enum Memory<'a> {
    Private(&'a [u8]),
    /// A part of a payload, within its length.
    Shared {
        lease: &'a dyn Payload,
        offset: usize,
        len: usize,
    },
}

impl<'a> InPlace<'a> {
    /// Returns a received payload in place.
    pub fn arrived<L: Payload>(payload: &'a Arrived<L>) -> Self {
        match (payload.as_private(), payload) {
            (Some(bytes), _) => bytes.into(),
            (None, Arrived::Buffer(lease)) => Self::part(lease, 0, lease.len()),
            (None, Arrived::Inline(payload)) => payload.as_slice().into(),
        }
    }

    /// Returns a part of a payload in place. The part is within the payload's length.
    pub(crate) fn part(lease: &'a dyn Payload, offset: usize, len: usize) -> Self {
        Self(Memory::Shared { lease, offset, len })
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Private(bytes) => bytes.len(),
            Memory::Shared { len, .. } => *len,
        }
    }

    /// Returns whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decodes the message. Sequences of numbers are copied once, from here to their destination. Fields of [`Bytes`](crate::Bytes) get a
    /// copy; to keep the memory itself, register a handler that takes the decoded message.
    ///
    /// # Errors
    /// If the bytes are not a message of this type, its sender withdrew it, or it cannot be read any more, as in a forked child.
    pub fn decode<P: codec::Payload>(&self) -> Result<P, Unreadable> {
        let decoded = match &self.0 {
            Memory::Private(bytes) => Ok(codec::decode_message(bytes)),
            Memory::Shared { lease, offset, len } => {
                crate::arrived::read_lease(*lease, *offset..*offset + *len, None, &mut Fresh::default())
            }
        };
        Ok(decoded??)
    }

    /// Copies `out.len()` bytes from `offset`.
    ///
    /// # Errors
    /// If the payload ends before `offset + out.len()`, or its sender withdrew it.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), Unreadable> {
        let refused = OutOfBounds { offset, wanted: out.len(), len: self.len() };
        let end = offset.checked_add(out.len()).filter(|end| *end <= self.len()).ok_or(refused)?;
        match &self.0 {
            Memory::Private(bytes) => out.copy_from_slice(&bytes[offset..end]),
            Memory::Shared { lease, offset: first, .. } => {
                lease.copy_to(first + offset, out)?;
                lease.validate()?;
            }
        }
        Ok(())
    }

    fn as_shared(&self) -> Option<(&dyn Payload, SharedBytes<'_>)> {
        let Memory::Shared { lease, offset, len } = self.0 else { return None };
        Some((lease, lease.as_shared()?.skip(offset).first(len)))
    }

    /// Passes every byte to `read`, once and in order, in blocks of 64 bytes, without a copy in memory. The second argument is the
    /// number of valid bytes in the block; the last block is padded with zeros. This is the fastest way to read a long payload if `read`
    /// is short enough to be inlined.
    ///
    /// # Errors
    /// If its sender withdrew the payload, or it cannot be read any more, as in a forked child. Blocks that were passed to `read` before
    /// may have other bytes than the message, so results computed from them are invalid.
    #[inline]
    pub fn read_blocks(&self, mut read: impl FnMut(&[u8; BLOCK], usize)) -> Result<(), Unreadable> {
        if let Some((lease, shared)) = self.as_shared() {
            shared.read_blocks(&mut read);
            return Ok(lease.validate()?);
        }
        self.read_pieces(|piece| {
            let (blocks, rest) = piece.as_chunks();
            blocks.iter().for_each(|block| read(block, BLOCK));
            if !rest.is_empty() {
                let mut last = [0; BLOCK];
                last[..rest.len()].copy_from_slice(rest);
                read(&last, rest.len());
            }
        })
    }

    /// Passes every byte to `read`, once and in order, in pieces of [`PIECE`] bytes; the last piece may be shorter. If no other process
    /// can write to the payload, passes all of it as one piece.
    ///
    /// # Errors
    /// If its sender withdrew the payload, or it cannot be read any more, as in a forked child. Each piece is checked before it is
    /// passed to `read`.
    pub fn read_pieces(&self, mut read: impl FnMut(&[u8])) -> Result<(), Unreadable> {
        if let Memory::Private(bytes) = &self.0 {
            read(bytes);
            return Ok(());
        }
        let mut piece = [0; PIECE];
        for offset in (0..self.len()).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(self.len() - offset)];
            self.copy_to(offset, piece)?;
            read(piece);
        }
        Ok(())
    }
}

impl<'a> From<&'a [u8]> for InPlace<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Memory::Private(bytes))
    }
}

impl fmt::Debug for InPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InPlace").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The reason why a message cannot be read in place. `Debug` prints the same text as `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// The range is not within the payload, or this process is a forked child.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The sender ended the connection while the handler read.
    #[error(transparent)]
    Withdrawn(#[from] Withdrawn),
    /// The bytes are not a message of the expected type.
    #[error(transparent)]
    Malformed(#[from] codec::Malformed),
}

impl fmt::Debug for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Length of a piece, bytes: an eighth of a 32 KiB first-level cache, and a multiple of every number's length.
pub const PIECE: usize = 4096;

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    struct Shared(Vec<u8>);

    /// A payload whose sender has ended the connection.
    struct Gone(Shared);

    impl Payload for Gone {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
            self.0.copy_to(offset, out)
        }

        fn as_private(&self) -> Option<&[u8]> {
            None
        }

        fn validate(&self) -> Result<(), Withdrawn> {
            Err(Withdrawn)
        }
    }

    #[test]
    fn a_withdrawn_payload_is_not_read() {
        for len in [1, 100, 1000, 3 * PIECE] {
            let gone = Arrived::Buffer(Gone(Shared(vec![7; len])));
            let place = InPlace::arrived(&gone);
            let refused = Err(Unreadable::Withdrawn(Withdrawn));
            assert_eq!(place.copy_to(0, &mut [0]), refused);
            assert_eq!(place.read_pieces(|_| panic!("a piece of it is read")), refused);
            assert_eq!(place.read_blocks(|_, _| panic!("a block of it is read")), refused);
            assert_eq!(place.decode::<Vec<u8>>(), refused.map(|()| Vec::new()));
            assert_eq!(crate::with_bytes(&gone, |_| panic!("a copy of it is used")), Err::<(), _>(Withdrawn));
        }
    }

    impl Payload for Shared {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
            let copied = InPlace::from(&self.0[..]).copy_to(offset, out);
            copied.map_err(|_| OutOfBounds { offset, wanted: out.len(), len: self.0.len() })
        }

        fn as_private(&self) -> Option<&[u8]> {
            None
        }
    }

    /// Shows: calls.in-place
    #[test]
    fn every_byte_is_read_once_and_in_order() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7] {
            let bytes: Vec<u8> = (0..=255).cycle().take(len).collect();
            let shared = Arrived::Buffer(Shared(bytes.clone()));
            for place in [InPlace::arrived(&shared), InPlace::from(&bytes[..])] {
                let mut read = Vec::new();
                place.read_pieces(|piece| read.extend_from_slice(piece)).unwrap();
                assert_eq!((place.len(), &read), (len, &bytes));
                let mut read = Vec::new();
                place.read_blocks(|block, count| read.extend_from_slice(&block[..count])).unwrap();
                assert_eq!(read, bytes);
                assert_eq!(place.is_empty(), len == 0);
            }
        }
    }

    #[test]
    fn nothing_is_copied_from_beyond_the_end() {
        let bytes = [1, 2, 3, 4];
        let place = InPlace::from(&bytes[..]);
        let mut out = [0; 2];
        place.copy_to(2, &mut out).unwrap();
        assert_eq!(out, [3, 4]);
        assert!(place.copy_to(3, &mut out).is_err() && place.copy_to(usize::MAX, &mut out).is_err());
    }
}
