//! Rings and lists of fixed size, without locks, over any storage.
//!
//! | module | who writes | who reads |
//! | --- | --- | --- |
//! | [`lines`] | one process | one other, which trusts nothing it reads |
//! | [`mpsc`] | many threads | one at a time |
//! | [`slots`] | many threads claim and release | |
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod lines;
pub mod mpsc;
pub mod slots;

#[cfg(all(test, loom))]
mod loom_tests;

pub use lines::{Line, LineReader, LineStorage, LineWriter, Overrun};
pub use mpsc::{Full, Mpsc, Receiver, Sender};
pub use slots::Slots;
