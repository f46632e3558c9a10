//! The flight recorder: the last [`KEPT`] notes of each thread. It is always on, and is read after a failure.
//!
//! A note is two words in the thread's own ring; writing one needs no allocation, lock, system call or clock reading. A note carries
//! the last clock reading that its thread made for any purpose ([`time`]), so notes between two readings are ordered, and all have
//! the time of the earlier reading. The recorder does not interpret the words; writers and readers agree on their meaning. See
//! `docs/decisions/0010-flight-recorder.md`.

pub(crate) mod audit;
pub(crate) mod flight;
mod threads;

pub use pronto_ring::notes::Entry;
pub use threads::{KEPT, Thread, note, threads, time};
