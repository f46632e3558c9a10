//! Fuzzing support: parses a peer's bytes without a device.

use pronto_core::fabric::PeerFault;
use zerocopy::IntoBytes as _;

use crate::frame::{Arrival, Kind, Waiting, decode, word};
use crate::offer;

/// Maximum payload of an accepted message, bytes.
const LONGEST: u32 = 1000;
/// Length of the fabric word, bytes.
const WORD: usize = 4;

/// Parses a received message and encodes it again. If a header follows, the low bits of the fabric word have no meaning
/// and are copied from `bytes`.
///
/// # Errors
/// The message is rejected.
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

/// Parses an offer and encodes it again.
pub fn offer(bytes: &[u8]) -> Option<Vec<u8>> {
    offer::decode(bytes).map(|reached| offer::encode(&reached))
}
