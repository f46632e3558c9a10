//! Sender-polled completion: no completion thread; whoever waits polls, and exactly one does (comm-layer paper, 3.2).

mod role;

#[cfg(all(test, loom))]
mod loom_tests;

pub use role::{Role, Server};
