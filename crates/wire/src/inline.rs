//! The payload of an inline message, which shares a 64-byte slot with the header.

use core::fmt;

use zerocopy::little_endian::U64;

use crate::header::INLINE_PAYLOAD;

/// A payload of up to 40 bytes, by value.
///
/// Aligned like the words of a message slot: a copy at other offsets than those of the stored words stalls store forwarding.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct InlinePayload {
    bytes: [u8; INLINE_PAYLOAD],
    /// Length, bytes. A `u32`, as it is loaded as one.
    len: u32,
}

const MOST: u32 = 40;
const _: () = assert!(MOST as usize == INLINE_PAYLOAD);

impl InlinePayload {
    /// The empty payload.
    pub const EMPTY: Self = Self { bytes: [0; INLINE_PAYLOAD], len: 0 };

    /// Copies these bytes. Returns `None` if they are more than 40.
    #[inline]
    pub fn new(payload: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_PAYLOAD];
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { bytes, len: u32::try_from(payload.len()).ok()? })
    }

    /// Returns a payload of the first `len` of these bytes, at most 40.
    #[inline]
    pub fn first(bytes: [u8; INLINE_PAYLOAD], len: u8) -> Self {
        Self { bytes, len: u32::from(len).min(MOST) }
    }

    /// Returns the length, bytes.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "40 at most")]
    pub const fn len(&self) -> u8 {
        self.len as u8
    }

    /// Returns whether the payload is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the payload.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len.min(MOST) as usize]
    }

    /// Returns all 40 bytes: the payload and the rest of its slot.
    #[inline]
    pub const fn line(&self) -> &[u8; INLINE_PAYLOAD] {
        &self.bytes
    }

    /// Returns all 40 bytes as little-endian words.
    #[inline(always)]
    pub fn words(&self) -> [u64; INLINE_PAYLOAD / 8] {
        let words: [U64; INLINE_PAYLOAD / 8] = zerocopy::transmute!(self.bytes);
        words.map(U64::get)
    }
}

impl Default for InlinePayload {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for InlinePayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InlinePayload").field(&self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: protocol.line, messages.line
    #[test]
    fn an_inline_payload_holds_at_most_40_bytes() {
        let bytes: [u8; 41] = core::array::from_fn(|i| u8::try_from(i).unwrap());
        for len in 0..=INLINE_PAYLOAD {
            let payload = InlinePayload::new(&bytes[..len]).unwrap();
            assert_eq!(payload.as_slice(), &bytes[..len]);
            assert_eq!((usize::from(payload.len()), payload.is_empty()), (len, len == 0));
        }
        assert_eq!(InlinePayload::new(&bytes), None);
        let counted = InlinePayload::new(&bytes[..INLINE_PAYLOAD]).unwrap().words();
        assert_eq!(counted.map(|word| word & 0xff), [0, 8, 16, 24, 32], "words are little-endian");
        let line = [7; INLINE_PAYLOAD];
        assert_eq!(InlinePayload::first(line, 200).as_slice(), line, "at most 40 bytes are taken");
        assert_eq!(InlinePayload::first(line, 3).line(), &line);
    }
}
