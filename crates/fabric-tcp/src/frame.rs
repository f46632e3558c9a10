//! Frames: the format of the stream, and the only place where a peer's frame bytes are parsed.
//!
//! Every frame begins with 24 bytes whose first four are the fabric word: kind (upper 4 bits) and number of bytes that
//! follow the 24 (lower 28). A message is its header and its payload. A one-sided frame is `word | tag | a: u64 | b:
//! u64`, followed by the fields of its kind:
//!
//! | kind | a | b | then |
//! | --- | --- | --- | --- |
//! | read | key | offset | length wanted (8) |
//! | write | key | offset | bytes from here to the operation's end (8), data |
//! | compare-swap | key | offset | expected (8), desired (8) |
//! | fetch-add | key | offset | addend (8) |
//! | data | offset in the read | 0 | data |
//! | answer | 0 done, 1 refused | value; of a refusal: 1 if the granted memory has lost its bytes | |
//!
//! Integers are little endian.

use pronto_core::fabric::{InlineMessage, PeerFault};
use pronto_wire::{HEADER_LEN, INLINE_PAYLOAD, InlinePayload, RawHeader};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of the fabric word that hold the length.
const LENGTH_BITS: u32 = 28;
/// Maximum payload of a frame, bytes.
pub(crate) const MAX_FRAME: u32 = (1 << LENGTH_BITS) - 1;
/// Maximum data in one frame of a one-sided operation, bytes, so that messages can be sent between two frames.
pub(crate) const CHUNK: usize = 64 << 10;
/// Maximum number of bytes between the first 24 bytes of a one-sided frame and its data.
pub(crate) const MAX_EXTRA: usize = 16;

/// Kind of a frame. Zero is not a kind, so that a run of zeros is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Message = 1,
    Read = 2,
    Write = 3,
    CompareSwap = 4,
    FetchAdd = 5,
    Data = 6,
    Answer = 7,
}

impl Kind {
    fn from_bits(bits: u8) -> Result<Self, PeerFault> {
        Ok(match bits {
            1 => Self::Message,
            2 => Self::Read,
            3 => Self::Write,
            4 => Self::CompareSwap,
            5 => Self::FetchAdd,
            6 => Self::Data,
            7 => Self::Answer,
            other => return Err(PeerFault::UnknownForm(other)),
        })
    }
}

/// Returns the fabric word of a frame. `len` is at most [`MAX_FRAME`], which the poster has checked.
pub(crate) fn word(kind: Kind, len: usize) -> U32 {
    let len = u32::try_from(len).ok().filter(|len| *len <= MAX_FRAME).expect("length checked when posted");
    U32::new(((kind as u32) << LENGTH_BITS) | len)
}

/// Splits a fabric word into kind and length.
pub(crate) fn split(word: U32) -> Result<(Kind, usize), PeerFault> {
    let word = word.get();
    let bits = u8::try_from(word >> LENGTH_BITS).expect("four bits");
    Ok((Kind::from_bits(bits)?, (word & MAX_FRAME) as usize))
}

/// First 24 bytes of a one-sided frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OneSidedHeader {
    word: U32,
    pub(crate) tag: U32,
    pub(crate) a: U64,
    pub(crate) b: U64,
}

const _: () = assert!(size_of::<OneSidedHeader>() == HEADER_LEN);

impl OneSidedHeader {
    /// Returns the header of a frame of `len` further bytes.
    pub(crate) fn new(kind: Kind, len: usize, tag: u32, a: u64, b: u64) -> Self {
        Self { word: word(kind, len), tag: U32::new(tag), a: U64::new(a), b: U64::new(b) }
    }

    pub(crate) fn as_array(&self) -> &[u8; HEADER_LEN] {
        zerocopy::transmute_ref!(self)
    }
}

/// A one-sided frame without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneSidedFrame {
    Read { tag: u32, key: u64, offset: u64, len: u64 },
    Write { tag: u32, key: u64, offset: u64, rest: u64, data: usize },
    CompareSwap { tag: u32, key: u64, offset: u64, expected: u64, desired: u64 },
    FetchAdd { tag: u32, key: u64, offset: u64, add: u64 },
    Data { tag: u32, offset: u64, data: usize },
    Answer { tag: u32, refused: bool, value: u64 },
}

/// Start of a frame.
#[derive(Debug)]
pub(crate) enum Opening {
    /// More bytes are needed.
    Partial,
    /// A message with `len` bytes of payload; its header is consumed.
    Message { header: RawHeader, len: usize },
    /// A one-sided frame whose data begins after `consumed` bytes.
    OneSided { frame: OneSidedFrame, consumed: usize },
}

/// Parses the start of a frame.
pub(crate) fn open(bytes: &[u8]) -> Result<Opening, PeerFault> {
    let Some((head, behind)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Ok(Opening::Partial) };
    let header = RawHeader::from_array(*head);
    match split(header.fabric)? {
        (Kind::Message, len) => Ok(Opening::Message { header, len }),
        (kind, len) => open_one_sided(kind, len, head, behind),
    }
}

/// Returns the message at the start of `bytes`, of which the first `there` were received. Returns `None` if it is
/// incomplete, is not inline, or has a payload longer than `max`.
#[inline]
pub(crate) fn open_inline(bytes: &[u8], there: usize, max: usize) -> Option<InlineMessage> {
    let (head, behind) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let header = RawHeader::from_array(*head);
    // For any other kind of frame, the result is longer than `max`.
    let len = (header.fabric.get() ^ ((Kind::Message as u32) << LENGTH_BITS)) as usize;
    if len > max || there < HEADER_LEN + len {
        return None;
    }
    // Copies a whole line, whatever its last bytes are: the compiler knows this length.
    let payload = match behind.first_chunk::<INLINE_PAYLOAD>() {
        Some(line) => InlinePayload::first(*line, u8::try_from(len).ok()?),
        None => InlinePayload::new(behind.get(..len)?)?,
    };
    Some(InlineMessage { header, payload })
}

/// Parses the start of a one-sided frame. Kept out of line, so that messages do not pay for it.
#[inline(never)]
fn open_one_sided(
    kind: Kind,
    len: usize,
    head: &[u8; HEADER_LEN],
    behind: &[u8],
) -> Result<Opening, PeerFault> {
    let extra = match kind {
        Kind::Message => unreachable!("opened by the caller"),
        Kind::Read | Kind::Write | Kind::FetchAdd => 8,
        Kind::CompareSwap => 16,
        Kind::Data | Kind::Answer => 0,
    };
    let data = match kind {
        Kind::Write | Kind::Data => CHUNK,
        _ => 0,
    };
    if !(extra..=extra + data).contains(&len) {
        return Err(PeerFault::Length { len: len as u64, max: (extra + data) as u64 });
    }
    if behind.len() < extra {
        return Ok(Opening::Partial);
    }
    let OneSidedHeader { tag, a, b, .. } = zerocopy::transmute!(*head);
    let (tag, a, b) = (tag.get(), a.get(), b.get());
    let extra_word = |index: usize| {
        let word = behind.get(index * 8..).and_then(|at| at.first_chunk::<8>());
        u64::from_le_bytes(*word.expect("extra counted above"))
    };
    let data = len - extra;
    let frame = match kind {
        Kind::Message => unreachable!("opened by the caller"),
        Kind::Read => OneSidedFrame::Read { tag, key: a, offset: b, len: extra_word(0) },
        Kind::Write => {
            let rest = extra_word(0);
            if data as u64 > rest {
                return Err(PeerFault::Length { len: data as u64, max: rest });
            }
            OneSidedFrame::Write { tag, key: a, offset: b, rest, data }
        }
        Kind::CompareSwap => OneSidedFrame::CompareSwap {
            tag,
            key: a,
            offset: b,
            expected: extra_word(0),
            desired: extra_word(1),
        },
        Kind::FetchAdd => OneSidedFrame::FetchAdd { tag, key: a, offset: b, add: extra_word(0) },
        Kind::Data => OneSidedFrame::Data { tag, offset: a, data },
        Kind::Answer => OneSidedFrame::Answer {
            tag,
            refused: match a {
                0 => false,
                1 => true,
                _ => return Err(PeerFault::UnknownForm(Kind::Answer as u8)),
            },
            value: b,
        },
    };
    Ok(Opening::OneSided { frame, consumed: HEADER_LEN + extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_sided(bytes: &[u8]) -> OneSidedFrame {
        match open(bytes).unwrap() {
            Opening::OneSided { frame, consumed } => {
                assert!(consumed <= bytes.len());
                frame
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_inline_message_is_opened_once_it_is_complete() {
        let frame = |kind, len: usize| {
            let mut header = RawHeader::default();
            header.fabric = word(kind, len);
            [&header.as_array()[..], &vec![7; len]].concat()
        };
        for len in [0, 1, 32, INLINE_PAYLOAD] {
            let bytes = frame(Kind::Message, len);
            // As in a receive buffer, with bytes of earlier messages behind it, and at the end of the buffer.
            for behind in [0, 100] {
                let buffer = [&bytes[..], &vec![9; behind]].concat();
                let message = open_inline(&buffer, bytes.len(), INLINE_PAYLOAD).expect("it is complete");
                assert_eq!(message.payload.as_slice(), vec![7; len]);
                assert_eq!(message.header.as_array(), &bytes[..HEADER_LEN]);
                assert!(open_inline(&buffer, bytes.len() - 1, INLINE_PAYLOAD).is_none(), "a part of {len}");
            }
            assert!(len == 0 || open_inline(&bytes, bytes.len(), len - 1).is_none(), "too long");
        }
        for other in [Kind::Answer, Kind::Data, Kind::Read] {
            let bytes = frame(other, 8);
            assert!(open_inline(&bytes, bytes.len(), INLINE_PAYLOAD).is_none(), "{other:?}");
        }
        let long = frame(Kind::Message, INLINE_PAYLOAD + 1);
        assert!(open_inline(&long, long.len(), INLINE_PAYLOAD).is_none());
    }

    /// Shows: protocol.one-sided-frames
    #[test]
    fn every_request_reads_back() {
        let mut bytes = OneSidedHeader::new(Kind::Write, 8 + 3, 7, 11, 13).as_array().to_vec();
        bytes.extend(3u64.to_le_bytes());
        assert_eq!(one_sided(&bytes), OneSidedFrame::Write { tag: 7, key: 11, offset: 13, rest: 3, data: 3 });
        let mut bytes = OneSidedHeader::new(Kind::CompareSwap, 16, 7, 11, 13).as_array().to_vec();
        bytes.extend(1u64.to_le_bytes());
        assert!(matches!(open(&bytes).unwrap(), Opening::Partial));
        bytes.extend(2u64.to_le_bytes());
        let wanted = OneSidedFrame::CompareSwap { tag: 7, key: 11, offset: 13, expected: 1, desired: 2 };
        assert_eq!(one_sided(&bytes), wanted);
    }

    /// Shows: protocol.fabric-word, protocol.frames, protocol.one-sided-frames
    #[test]
    fn golden_frames() {
        let head = |kind| {
            #[rustfmt::skip]
            let bytes = [
                8, 0, 0, kind << 4, 0x04, 0x03, 0x02, 0x01,
                0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
                0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
            ];
            bytes
        };
        let (tag, a, b) = (0x0102_0304, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728);
        let rest = [0x07, 0, 0, 0, 0, 0, 0, 0];
        let frames = [
            (2, OneSidedFrame::Read { tag, key: a, offset: b, len: 7 }),
            (3, OneSidedFrame::Write { tag, key: a, offset: b, rest: 7, data: 0 }),
            (5, OneSidedFrame::FetchAdd { tag, key: a, offset: b, add: 7 }),
            (6, OneSidedFrame::Data { tag, offset: a, data: 8 }),
        ];
        for (kind, frame) in frames {
            let bytes = [&head(kind)[..], &rest].concat();
            assert_eq!(one_sided(&bytes), frame, "kind {kind}");
            let header = OneSidedHeader::new(Kind::from_bits(kind).unwrap(), 8, tag, a, b);
            assert_eq!(header.as_array(), &head(kind));
        }
        let swap = [&[16][..], &head(4)[1..], &rest, &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
        let swapped = OneSidedFrame::CompareSwap { tag, key: a, offset: b, expected: 7, desired: 9 };
        assert_eq!(one_sided(&swap), swapped);
        for (first, refused) in [(0, false), (1, true)] {
            let bytes = *OneSidedHeader::new(Kind::Answer, 0, tag, first, b).as_array();
            assert_eq!(bytes[..4], [0, 0, 0, 7 << 4]);
            assert_eq!(one_sided(&bytes), OneSidedFrame::Answer { tag, refused, value: b });
        }
        let mut header = RawHeader::default();
        header.fabric = word(Kind::Message, 0x0012_3456);
        assert_eq!(header.as_array()[..4], [0x56, 0x34, 0x12, 1 << 4]);
    }

    /// Shows: protocol.frames
    #[test]
    fn lengths_that_do_not_fit_the_kind_are_refused() {
        for (kind, len) in [
            (Kind::Read, 0),
            (Kind::Read, 9),
            (Kind::Write, 7),
            (Kind::Write, 8 + CHUNK + 1),
            (Kind::Data, CHUNK + 1),
            (Kind::Answer, 1),
        ] {
            let bytes = *OneSidedHeader::new(kind, len, 0, 0, 0).as_array();
            assert!(matches!(open(&bytes), Err(PeerFault::Length { .. })), "{kind:?} {len}");
        }
    }

    #[test]
    fn more_data_than_the_write_has_left_is_refused() {
        let mut bytes = OneSidedHeader::new(Kind::Write, 8 + 3, 7, 11, 13).as_array().to_vec();
        bytes.extend(2u64.to_le_bytes());
        assert_eq!(open(&bytes).unwrap_err(), PeerFault::Length { len: 3, max: 2 });
    }

    /// Shows: protocol.kind-8
    #[test]
    fn unknown_kinds_are_refused() {
        for kind in [0u32, 8, 9, 15] {
            let mut header = RawHeader::default();
            header.fabric = U32::new(kind << LENGTH_BITS);
            assert!(matches!(open(header.as_array()), Err(PeerFault::UnknownForm(_))));
        }
    }
}
