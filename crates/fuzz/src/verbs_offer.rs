//! A peer's offer of its RDMA queue pairs.

use pronto_fabric_verbs::fuzzing::offer;

/// Checks that a valid offer is encoded as the bytes that it was decoded from.
pub fn verbs_offer(input: &[u8]) {
    if let Some(again) = offer(input) {
        assert_eq!(again, input);
    }
}
