//! A message between two ends of an RDMA queue pair.

use pronto_fabric_verbs::fuzzing::message;

/// Checks that a valid message is encoded as the bytes that it was decoded from.
pub fn verbs_message(input: &[u8]) {
    if let Ok(again) = message(input) {
        assert_eq!(again, input);
    }
}
