//! The stream of a TCP connection.

use pronto_fabric_tcp::fuzzing::outcome;

/// What comes of a stream does not depend on where the network cuts it into pieces.
pub fn tcp_stream(input: &[u8]) {
    let Some((piece, stream)) = input.split_first() else { return };
    assert_eq!(outcome(stream, usize::from(*piece)), outcome(stream, usize::MAX));
}
