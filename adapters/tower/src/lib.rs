//! Typed calls of Pronto as tower services, so that the layers of tower apply to them.
//!
//! [`Client`] calls a peer. Its error is the [`CallError`], which states whether the handler ran; [`RetryUnexecuted`] is a policy for
//! tower's retry layer that repeats only calls whose handler did not run. [`serve`] registers a service as the handler of a message type.
#![forbid(unsafe_code)]

mod client;
mod retry;
mod serve;

pub use client::{Calling, Client};
pub use pronto::CallError;
pub use retry::RetryUnexecuted;
pub use serve::serve;
