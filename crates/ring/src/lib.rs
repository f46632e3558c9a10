//! Lock-free rings, lists and tables.
//!
//! | module | writers | readers |
//! | --- | --- | --- |
//! | [`growing`] | any threads, which allocate its parts | any threads |
//! | [`lines`] | one process | one other process, which does not trust the writer |
//! | [`mpsc`] | many threads | one thread at a time |
//! | [`notes`] | one thread, which replaces its oldest notes | any threads, meanwhile |
//! | [`slots`] | many threads claim and release | |
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod growing;
pub mod lines;
pub mod mpsc;
pub mod notes;
pub mod slots;

#[cfg(all(test, loom))]
mod loom_tests;

pub use growing::Growing;
pub use lines::{Line, LineReader, LineStorage, LineWriter, Overrun};
pub use mpsc::{Full, Mpsc, Receiver, Sender};
pub use notes::NoteRing;
pub use slots::Slots;
