//! The engine of Pronto: deterministic, without socket, thread, clock or randomness of its own.
//!
//! Time comes in as `now`, bytes as buffers, the network as a [`fabric::QueuePair`].
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
