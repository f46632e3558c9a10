//! The greeting of a node.

use pronto_wire::Greeting;

/// A greeting that is understood is written as the bytes it came from.
pub fn greeting(input: &[u8]) {
    if let Ok(greeting) = Greeting::decode(input) {
        assert_eq!(greeting.encode(), input, "{greeting:?}");
    }
}
