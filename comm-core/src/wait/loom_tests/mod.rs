//! Loom models of waiting.

mod poller_role;
mod sleep;
