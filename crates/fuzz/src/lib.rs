//! Properties that must hold for any bytes from a peer, one function per decoder.
//!
//! A function panics if its property is violated. libFuzzer calls the functions with generated inputs
//! (`fuzz_targets/`). The test `replay` calls them with the inputs in `seeds/` and with variations of those, on any
//! compiler.

#![forbid(unsafe_code)]

mod greeting;
mod header;
mod payload;
mod tcp_stream;
mod verbs_message;
mod verbs_offer;

pub use greeting::greeting;
pub use header::header;
pub use payload::payload;
pub use tcp_stream::tcp_stream;
pub use verbs_message::verbs_message;
pub use verbs_offer::verbs_offer;

/// Function that checks one input.
pub type Check = fn(&[u8]);

/// Every target, by the name of its binary and of its folder in `seeds`.
pub const TARGETS: &[(&str, Check)] = &[
    ("header", header),
    ("greeting", greeting),
    ("payload", payload),
    ("tcp_stream", tcp_stream),
    ("verbs_message", verbs_message),
    ("verbs_offer", verbs_offer),
];
