//! Format of a message line: the payload is inline, in the line and its slot, or elsewhere.
//!
//! ```text
//!   word 0..3   the header (24 bytes, little endian); its fabric word belongs to the ring: form and lap
//!   inline      form = length of the payload, 0..=40; words 3..8 the payload
//!   short       form = length of the payload, 41..=232; words 3..8 its first 40 bytes, the line's slot the rest
//!   elsewhere   word 3 offset | word 4 length, tag | word 5 token, slot | word 6 generation
//! ```
//!
//! The tag names one of the receiver's done words. The receiver writes the token there when the payload may be
//! overwritten. A tag is in use from post to release, however often the lines wrap around meanwhile, so a slow receiver
//! causes no confusion.

use crate::map::SLOT;
use pronto_core::fabric::{Arrived, Received};
use pronto_wire::{INLINE_PAYLOAD, InlinePayload, RawHeader};

/// Form of a line whose payload is in the sender's send memory.
pub(crate) const RING: u8 = 254;
/// Form of a line whose payload is in a region of the sender.
pub(crate) const REGION: u8 = 255;
/// Maximum payload in a line and its slot, bytes.
pub(crate) const MAX_SHORT: usize = INLINE_PAYLOAD + SLOT;

const _: () = assert!(MAX_SHORT < RING as usize);

/// Words of a line.
pub(crate) type Words = [u64; 8];

/// Returns a line with its payload.
#[inline(always)]
pub(crate) fn inline(header: &RawHeader, payload: &InlinePayload) -> Words {
    let ([first, second, third], [a, b, c, d, e]) = (header.words(), payload.words());
    [first, second, third, a, b, c, d, e]
}

/// Returns the header of a line, without its fabric word.
#[inline(always)]
pub(crate) fn header(words: &Words) -> RawHeader {
    let words = [(words[0] & !u64::from(u32::MAX)).to_le(), words[1].to_le(), words[2].to_le()];
    RawHeader::from_array(zerocopy::transmute!(words))
}

/// Returns the payload words of a line as bytes.
#[inline(always)]
pub(crate) fn payload(words: &Words) -> [u8; INLINE_PAYLOAD] {
    let words = [words[3].to_le(), words[4].to_le(), words[5].to_le(), words[6].to_le(), words[7].to_le()];
    zerocopy::transmute!(words)
}

/// Returns the message of a line that holds its payload, which is at most 40 bytes long.
#[inline(always)]
pub(crate) fn message<L>(words: &Words, len: u8) -> Received<L> {
    Received { header: header(words), payload: Arrived::Inline(InlinePayload::first(payload(words), len)) }
}

/// Place of a payload that is not in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Offset of the first byte in its memory.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u32,
    /// Index of the done word.
    pub(crate) tag: u32,
    /// Value to write to the done word.
    pub(crate) token: u32,
    /// Region that holds the payload; unused in send memory.
    pub(crate) region: RegionName,
}

/// Name of a region of the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionName {
    /// Index in the table of regions.
    pub(crate) slot: u32,
    /// Generation of that index: counts its uses.
    pub(crate) generation: u32,
}

impl Elsewhere {
    /// Returns a line with a header and this place.
    pub(crate) fn line(&self, header: &RawHeader) -> Words {
        let [first, second, third] = header.words();
        let (size, release) = (pair(self.len, self.tag), pair(self.token, self.region.slot));
        [first, second, third, self.offset, size, release, self.region.generation.into(), 0]
    }

    /// Returns the place in a line, unchecked.
    pub(crate) fn parse(words: &Words) -> Self {
        let [_, _, _, offset, size, release, region, _] = *words;
        let ((len, tag), (token, slot)) = (halves(size), halves(release));
        let (generation, _) = halves(region);
        Self { offset, len, tag, token, region: RegionName { slot, generation } }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_header() -> RawHeader {
        RawHeader::from_array(core::array::from_fn(|i| u8::try_from(i).unwrap()))
    }

    #[test]
    fn header_and_payload_come_out_as_they_went_in() {
        let bytes: Vec<u8> = (100..140).collect();
        for len in 0..=INLINE_PAYLOAD {
            let words = inline(&some_header(), &InlinePayload::new(&bytes[..len]).unwrap());
            assert_eq!(payload(&words)[..len], bytes[..len]);
            assert_eq!(header(&words).as_array()[4..], some_header().as_array()[4..]);
            assert_eq!(header(&words).as_array()[..4], [0; 4], "the header comes without its fabric word");
        }
    }

    #[test]
    fn a_place_comes_out_as_it_went_in() {
        let region = RegionName { slot: 7, generation: u32::MAX };
        let place = Elsewhere { offset: 1 << 40, len: 41, tag: 3, token: u32::MAX - 1, region };
        let words = place.line(&some_header());
        assert_eq!(Elsewhere::parse(&words), place);
        assert_eq!(header(&words).as_array()[4..], some_header().as_array()[4..]);
    }
}
