//! The greeting of a node.

use pronto_wire::Greeting;

/// Checks that a valid greeting is encoded as the bytes that it was decoded from.
pub fn greeting(input: &[u8]) {
    if let Ok(greeting) = Greeting::decode(input) {
        assert_eq!(greeting.encode(), input, "{greeting:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed of an earlier format would lead the fuzzer nowhere.
    #[test]
    fn the_seeds_are_greetings() {
        let first = Greeting::decode(include_bytes!("../seeds/greeting/first")).expect("it is a greeting");
        let resumed =
            Greeting::decode(include_bytes!("../seeds/greeting/resumed")).expect("it is a greeting");
        assert!(first.session.is_none() && resumed.session.is_some());
        assert_eq!([first.versions, resumed.versions], [pronto_wire::greeting::VERSIONS; 2]);
    }
}
