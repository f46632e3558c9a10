//! The engine of Pronto. It is deterministic, and has no sockets, threads, clock or randomness of its own.
//!
//! It receives time as `now`, bytes as buffers, and the network as a [`fabric::QueuePair`].
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod boost;
pub mod buf;

pub mod dispatch;
pub mod executor;
pub mod fabric;
pub mod note;
pub mod session;
pub mod stats;
pub mod time;
pub mod wait;

pub use boost::{BoostError, Booster, Tier};
pub use executor::{Channel, Channels, Executor, WaitPolicy};
pub use note::Note;
pub use pronto_wire::Class;
pub use time::{Clock, Nanos};
