//! Format of a message in a receive buffer, and the only place where a peer's bytes are parsed.
//!
//! Every message begins with the four bytes of the fabric word: its kind, and for [`Kind::Taken`] the number of a window.
//!
//! | kind | then |
//! |---|---|
//! | message | the other 20 bytes of the header, the payload |
//! | rendezvous | the other 20 bytes of the header, the payload's length, the key of a window onto it, the window's number |
//! | taken | nothing |
//!
//! Integers are little endian.

use pronto_core::fabric::PeerFault;
use pronto_wire::{HEADER_LEN, RawHeader};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of the fabric word below its kind.
const NUMBER_BITS: u32 = 28;
/// Length of a `taken` message, bytes.
pub(crate) const TAKEN_LEN: usize = 4;

/// Kind of a message. Zero is not a kind, so that a run of zeros is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The payload follows.
    Message = 1,
    /// The payload waits in the sender's memory, to be read.
    Rendezvous = 2,
    /// The payload of a rendezvous was read: its window can be closed.
    Taken = 3,
}

/// Returns the fabric word of a kind.
pub(crate) fn word(kind: Kind, number: u16) -> u32 {
    (u32::from(kind as u8) << NUMBER_BITS) | u32::from(number)
}

/// Fields after the header of a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Waiting {
    /// Length of the payload, bytes.
    pub(crate) len: U32,
    /// Key of the window onto the payload, which begins at the window's first byte.
    pub(crate) key: U32,
    /// Number of the window, to be returned when the payload was read.
    pub(crate) window: U32,
}

/// A parsed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival<'a> {
    Message {
        header: RawHeader,
        payload: &'a [u8],
    },
    /// `window` fits 16 bits.
    Rendezvous {
        header: RawHeader,
        waiting: Waiting,
    },
    Taken {
        window: u16,
    },
}

/// Parses a received message. Rejects payloads longer than `longest` bytes, inline or not.
pub(crate) fn decode(bytes: &[u8], longest: u32) -> Result<Arrival<'_>, PeerFault> {
    let too_long = |len| PeerFault::Length { len, max: longest.into() };
    let short = PeerFault::Length { len: bytes.len() as u64, max: HEADER_LEN as u64 };
    let (first, _) = U32::ref_from_prefix(bytes).map_err(|_| short)?;
    let (kind, number) = (first.get() >> NUMBER_BITS, first.get() & ((1 << NUMBER_BITS) - 1));
    if kind == Kind::Taken as u32 {
        let window = u16::try_from(number).map_err(|_| PeerFault::Unasked)?;
        return if bytes.len() == TAKEN_LEN { Ok(Arrival::Taken { window }) } else { Err(short) };
    }
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(short)?;
    let header = RawHeader::from_array(*header);
    match kind {
        1 if rest.len() > longest as usize => Err(too_long(rest.len() as u64)),
        1 => Ok(Arrival::Message { header, payload: rest }),
        2 => {
            let waiting = Waiting::read_from_bytes(rest).map_err(|_| short)?;
            let len = waiting.len.get();
            if len == 0 || len > longest {
                return Err(too_long(len.into()));
            }
            // The number is returned to the peer in 16 bits.
            u16::try_from(waiting.window.get()).map_err(|_| PeerFault::Unasked)?;
            Ok(Arrival::Rendezvous { header, waiting })
        }
        other => Err(PeerFault::UnknownForm(u8::try_from(other).unwrap_or(u8::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum payload, bytes.
    const LONGEST: u32 = 5000;

    fn decode(bytes: &[u8]) -> Result<Arrival<'_>, PeerFault> {
        super::decode(bytes, LONGEST)
    }

    fn headed(kind: Kind) -> Vec<u8> {
        let mut header = RawHeader::default();
        header.fabric = word(kind, 0).into();
        header.as_array().to_vec()
    }

    /// Shows: protocol.rdma-kinds
    #[test]
    fn every_kind_decodes_to_the_encoded_value() {
        let message = [headed(Kind::Message), vec![7; 9]].concat();
        assert!(matches!(decode(&message), Ok(Arrival::Message { payload: [7, ..], .. })));
        let waiting = Waiting { len: 5000.into(), key: 77.into(), window: 3.into() };
        let rendezvous = [headed(Kind::Rendezvous), waiting.as_bytes().to_vec()].concat();
        assert!(
            matches!(decode(&rendezvous), Ok(Arrival::Rendezvous { waiting: found, .. }) if found == waiting)
        );
        assert_eq!(decode(&word(Kind::Taken, 9).to_le_bytes()), Ok(Arrival::Taken { window: 9 }));
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for len in 0..HEADER_LEN {
            assert!(decode(&headed(Kind::Message)[..len]).is_err(), "{len} bytes");
        }
        for kind in [0_u32, 4, 15] {
            let mut bytes = headed(Kind::Message);
            bytes[..4].copy_from_slice(&(kind << NUMBER_BITS).to_le_bytes());
            assert!(matches!(decode(&bytes), Err(PeerFault::UnknownForm(_))), "kind {kind}");
        }
        for extra in [0, 11, 13] {
            assert!(decode(&[headed(Kind::Rendezvous), vec![0; extra]].concat()).is_err(), "{extra} bytes");
        }
        for len in [0, LONGEST + 1, u32::MAX] {
            let waiting = Waiting { len: len.into(), key: 77.into(), window: 3.into() };
            let bytes = [headed(Kind::Rendezvous), waiting.as_bytes().to_vec()].concat();
            assert_eq!(decode(&bytes), Err(PeerFault::Length { len: len.into(), max: LONGEST.into() }));
        }
        let waiting = Waiting { len: 1.into(), key: 77.into(), window: 0x1_0003.into() };
        let bytes = [headed(Kind::Rendezvous), waiting.as_bytes().to_vec()].concat();
        assert_eq!(decode(&bytes), Err(PeerFault::Unasked), "a window number that does not fit 16 bits");
        let long = vec![7; LONGEST as usize + 1];
        assert!(decode(&[headed(Kind::Message), long].concat()).is_err());
        assert!(decode(&[word(Kind::Taken, 9).to_le_bytes(), [0; 4]].concat()).is_err());
        assert!(decode(&(word(Kind::Taken, 0) | 1 << 20).to_le_bytes()).is_err());
    }
}
