//! Properties that must hold for any bytes from a peer: one function per decoder, and one for each protocol with a state. Those play an
//! input as a sequence of steps, and compare what this side does with a model.
//!
//! A function panics if its property is violated. libFuzzer calls the functions with generated inputs
//! (`fuzz_targets/`). The test `replay` calls them with the inputs in `seeds/` and with variations of those, on any
//! compiler.

#![forbid(unsafe_code)]

mod bytes;
mod greeting;
mod header;
mod payload;
mod session;
mod shm_lines;
mod shm_offer;
mod tcp_stream;
mod verbs_message;
mod verbs_offer;

pub use greeting::greeting;
pub use header::header;
pub use payload::payload;
pub use session::session;
pub use shm_lines::shm_lines;
pub use shm_offer::shm_offer;
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
    ("shm_offer", shm_offer),
    ("shm_lines", shm_lines),
    ("session", session),
];
