//! The stream of a TCP connection.

use pronto_fabric_tcp::fuzzing::outcome;

/// Checks that the result of a stream does not depend on how the network splits it.
pub fn tcp_stream(input: &[u8]) {
    let Some((piece, stream)) = input.split_first() else { return };
    assert_eq!(outcome(stream, usize::from(*piece)), outcome(stream, usize::MAX));
}
