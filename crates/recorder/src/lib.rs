//! The flight recorder: the last [`KEPT`] things that each thread noted, always on, to be read when something has gone wrong.
//!
//! A note is two words in the thread's own ring: no allocation, no lock, no system call, no clock. It carries the time that its
//! thread read last, for whatever purpose ([`time`]): notes between two readings have their order, and the first of the two.
//! What a word means is for those who note and read; see `docs/decisions/0010-flight-recorder.md`.
#![forbid(unsafe_code)]

#[cfg(all(test, loom))]
mod loom_tests;
mod ring;
#[cfg(not(loom))]
mod threads;

pub use ring::{Entry, Ring};
#[cfg(not(loom))]
pub use threads::{KEPT, Thread, note, threads, time};
