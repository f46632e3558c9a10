//! How a peer says that its RDMA queue pairs are reached.

use pronto_fabric_verbs::fuzzing::offer;

/// An offer that is understood is written as the bytes it came from.
pub fn verbs_offer(input: &[u8]) {
    if let Some(again) = offer(input) {
        assert_eq!(again, input);
    }
}
