//! The payload of a message: a type that uses every part of the codec.

use core::time::Duration;

use pronto_rpc::{NodeId, Payload, decode_message, encode_message};

/// A message with every construct of the codec.
#[derive(Debug, Payload)]
struct Everything {
    numbers: (u8, i16, u32, i64, u128),
    truth: bool,
    letter: char,
    node: NodeId,
    pause: Duration,
    accesses: Vec<Access>,
    names: Vec<Option<String>>,
    grid: [[u16; 2]; 2],
    bytes: Vec<u8>,
}

#[derive(Debug, Payload)]
enum Access {
    Read,
    Write { exclusive: bool },
    Swap(u64, Box<[u16]>),
}

/// Checks that a valid payload has one encoding: the bytes that it was decoded from.
pub fn payload(input: &[u8]) {
    if let Ok(message) = decode_message::<Everything>(input) {
        let mut bytes = vec![0; input.len()];
        let written = encode_message(&message, &mut bytes);
        assert_eq!(written, Ok(input.len()), "{message:?}");
        assert_eq!(bytes, input, "{message:?}");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The seed in `seeds/payload` is this message.
    #[test]
    fn the_seed_is_decoded() {
        let seed = include_bytes!("../seeds/payload/everything");
        let message: Everything = decode_message(seed).unwrap();
        assert_eq!(message.names, [None, Some("node".into())]);
        assert!(matches!(
            &message.accesses[..],
            [Access::Read, Access::Write { exclusive: true }, Access::Swap(7, _)]
        ));
    }
}
