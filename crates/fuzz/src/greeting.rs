//! The greeting of a node.

use pronto_wire::Greeting;

/// Checks that a valid greeting is encoded as the bytes that it was decoded from.
pub fn greeting(input: &[u8]) {
    if let Ok(greeting) = Greeting::decode(input) {
        assert_eq!(greeting.encode(), input, "{greeting:?}");
    }
}
