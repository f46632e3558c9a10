//! Format of an offer: how to reach one side's two queue pairs, in 56 bytes. This is the only place where a peer's
//! offer is parsed. Integers are little endian.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"prdm";
const VERSION: u16 = 2;
/// Length of an offer, bytes.
pub const OFFER_LEN: usize = size_of::<RawOffer>();
/// Minimum length of receive buffers, bytes: it holds every message between the providers.
const SHORTEST_BUFFER: u32 = 128;
/// Path MTUs in the numbering of verbs: 256 to 4096 bytes.
const MTUS: core::ops::RangeInclusive<u32> = 1..=5;
/// Limit of queue pair numbers and packet sequence numbers, which have 24 bits.
const BITS_24: u32 = 0xff_ffff;

/// Bytes of an offer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawOffer {
    magic: [u8; 4],
    version: U16,
    lid: U16,
    gid: [u8; 16],
    mtu: U32,
    /// Length of receive buffers, bytes.
    buffer: U32,
    /// Maximum number of reads and atomics: as target, as initiator.
    reads: [u8; 2],
    unused: [u8; 2],
    max_message: U32,
    classes: [RawEnd; 2],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEnd {
    number: U32,
    first_sequence: U32,
}

/// Data to reach a side's two queue pairs. If made by [`decode`], every field is within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) lid: u16,
    pub(crate) gid: [u8; 16],
    /// Path MTU in the numbering of verbs.
    pub(crate) mtu: u32,
    /// Length of receive buffers, bytes.
    pub(crate) buffer: u32,
    /// Maximum number of reads and atomics that it executes at a time.
    pub(crate) reads_as_target: u8,
    /// Maximum number of reads and atomics that it may have outstanding.
    pub(crate) reads_as_initiator: u8,
    /// Longest message of its port, bytes.
    pub(crate) longest: u32,
    /// Queue pairs by class.
    pub(crate) ends: [End; 2],
}

/// One of the two queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) number: u32,
    /// Sequence number of the first packet that it sends.
    pub(crate) first_sequence: u32,
}

/// Encodes an offer.
pub(crate) fn encode(reached: &Reached) -> Vec<u8> {
    let end = |end: End| RawEnd { number: end.number.into(), first_sequence: end.first_sequence.into() };
    RawOffer {
        magic: MAGIC,
        version: VERSION.into(),
        lid: reached.lid.into(),
        gid: reached.gid,
        mtu: reached.mtu.into(),
        buffer: reached.buffer.into(),
        reads: [reached.reads_as_target, reached.reads_as_initiator],
        unused: [0; 2],
        max_message: reached.longest.into(),
        classes: reached.ends.map(end),
    }
    .as_bytes()
    .to_vec()
}

/// Parses an offer. Returns `None` if it is invalid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Reached> {
    let raw = RawOffer::read_from_bytes(bytes).ok()?;
    let end = |end: RawEnd| End { number: end.number.get(), first_sequence: end.first_sequence.get() };
    let [reads_as_target, reads_as_initiator] = raw.reads;
    let reached = Reached {
        lid: raw.lid.get(),
        gid: raw.gid,
        mtu: raw.mtu.get(),
        buffer: raw.buffer.get(),
        reads_as_target,
        reads_as_initiator,
        longest: raw.max_message.get(),
        ends: raw.classes.map(end),
    };
    let is_sane = raw.magic == MAGIC
        && raw.version.get() == VERSION
        && raw.unused == [0; 2]
        && MTUS.contains(&reached.mtu)
        && reached.buffer >= SHORTEST_BUFFER
        && raw.reads.iter().all(|reads| *reads > 0)
        && reached.ends.iter().all(|end| end.number <= BITS_24 && end.first_sequence <= BITS_24);
    is_sane.then_some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACHED: Reached = Reached {
        lid: 0x1234,
        gid: [7; 16],
        mtu: 3,
        buffer: 2048,
        reads_as_target: 128,
        reads_as_initiator: 64,
        longest: 1 << 30,
        ends: [
            End { number: 0x11, first_sequence: 0xab_cdef },
            End { number: 0x12, first_sequence: 0xff_ffff },
        ],
    };

    #[test]
    fn an_encoded_offer_decodes_to_itself() {
        let bytes = encode(&REACHED);
        assert_eq!(bytes.len(), OFFER_LEN);
        assert_eq!(decode(&bytes), Some(REACHED));
    }

    /// Shows: protocol.rdma-offer
    #[test]
    fn invalid_offers_are_rejected() {
        let [one, two] = REACHED.ends;
        for wrong in [
            Reached { mtu: 0, ..REACHED },
            Reached { mtu: 6, ..REACHED },
            Reached { buffer: 127, ..REACHED },
            Reached { reads_as_target: 0, ..REACHED },
            Reached { reads_as_initiator: 0, ..REACHED },
            Reached { ends: [End { number: 1 << 24, ..one }, two], ..REACHED },
            Reached { ends: [one, End { first_sequence: 1 << 24, ..two }], ..REACHED },
        ] {
            assert_eq!(decode(&encode(&wrong)), None, "{wrong:?}");
        }
        let bytes = encode(&REACHED);
        for at in [0, 4, 34] {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(decode(&changed), None, "byte {at}");
        }
        assert_eq!(decode(&bytes[1..]), None);
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
    }
}
