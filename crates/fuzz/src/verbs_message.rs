//! A message between two ends of an RDMA queue pair.

use pronto_fabric_verbs::fuzzing::message;

/// A message that is understood is put together as the bytes it came from.
pub fn verbs_message(input: &[u8]) {
    if let Ok(again) = message(input) {
        assert_eq!(again, input);
    }
}
