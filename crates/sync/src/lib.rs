//! Atomics, and the few small protocols between threads that everything else is built of.
//!
//! This is the only crate that names `core::sync::atomic`. Built with `--cfg loom` the same names stand for loom's
//! types, so that every protocol above is explored by the model checker.
//!
//! | module | what two threads agree on |
//! | --- | --- |
//! | [`atomic`], [`cell`], [`hint`], [`Arc`] | the facade |
//! | [`TryLock`] | who may enter, and that nothing submitted meanwhile is left behind |
//! | [`WakeWord`] | arm, recheck, sleep: no wake-up is lost |
//! | [`FlagWaker`] | which future to wake |
//! | [`OnceBox`] | who makes what is made on first use |
//!
//! And [`thread_number()`], a hint by which threads that need not agree keep out of each other's lines; it needs feature `std`.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom, feature = "std"))]
extern crate std;

pub mod atomic;
pub mod cell;
mod flag_waker;
mod once_box;
mod padded;
mod thread_number;
mod try_lock;
mod wake_word;

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(not(loom))]
pub use alloc::sync::Arc;
#[cfg(loom)]
pub use loom::sync::Arc;

pub use flag_waker::FlagWaker;
pub use once_box::OnceBox;
pub use padded::CachePadded;
pub use thread_number::thread_number;
pub use try_lock::{Frees, OnPanic, Poisons, TryLock, TryLockGuard};
pub use wake_word::{ARMED, Event, WakeWord, WakeWordRef, peer_is_armed};

/// Hints to the processor (to loom: a chance for other threads).
pub mod hint {
    #[cfg(not(loom))]
    pub use core::hint::spin_loop;
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
}
