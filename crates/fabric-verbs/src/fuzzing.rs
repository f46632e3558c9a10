//! For the fuzzer alone: what a node makes of a peer's bytes, without a device.

use pronto_core::fabric::PeerFault;
use zerocopy::IntoBytes as _;

use crate::frame::{Arrival, Kind, Waiting, decode, word};
use crate::offer;

/// Longest payload of a message that is taken, bytes.
const LONGEST: u32 = 1000;
/// The fabric word, bytes.
const WORD: usize = 4;

/// Takes a received message apart, and puts it together again from what was understood. The low bits of the fabric word
/// mean nothing where a header follows: they are as in `bytes`.
///
/// # Errors
/// It is refused.
pub fn message(bytes: &[u8]) -> Result<Vec<u8>, PeerFault> {
    Ok(match decode(bytes, LONGEST)? {
        Arrival::Message { header, payload } => {
            assert!(payload.len() <= LONGEST as usize, "{} bytes", payload.len());
            [header.as_array(), payload].concat()
        }
        Arrival::Rendezvous { header, waiting: Waiting { len, key, window } } => {
            assert!((1..=LONGEST).contains(&len.get()), "{len} bytes");
            assert!(u16::try_from(window.get()).is_ok(), "window {window}");
            [header.as_array(), Waiting { len, key, window }.as_bytes()].concat()
        }
        Arrival::Taken { window } => {
            assert_eq!(bytes.len(), WORD);
            word(Kind::Taken, window).to_le_bytes().to_vec()
        }
    })
}

/// Reads an offer, and writes it again.
pub fn offer(bytes: &[u8]) -> Option<Vec<u8>> {
    offer::decode(bytes).map(|reached| offer::encode(&reached))
}
