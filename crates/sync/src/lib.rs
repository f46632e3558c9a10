//! Atomics, and a few small protocols between threads on which all other crates build.
//!
//! This is the only crate that uses `core::sync::atomic`. With `--cfg loom` its names refer to loom's types, so that the
//! model checker can explore every protocol that is built on them. With `--cfg simulated` each operation on an atomic is a point
//! at which the simulation may run another of its threads.
//!
//! | item | purpose |
//! | --- | --- |
//! | [`atomic`], [`cell`], [`hint`], [`Arc`] | the facade over `core` and loom |
//! | [`TryLock`] | exclusion without waiting; work that is submitted meanwhile is not left behind |
//! | [`WakeWord`] | arm, recheck, sleep, without lost wake-ups |
//! | [`FlagWaker`] | the waker of a future that awaits a flag |
//! | [`OnceBox`] | a value that is made on first use |
//!
//! [`thread_number()`] is a hint that keeps threads off each other's cache lines; it needs feature `std`.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom, simulated, feature = "std"))]
extern crate std;

pub mod atomic;
pub mod cell;
mod flag_waker;
mod once_box;
mod padded;
#[cfg(simulated)]
pub mod simulated;
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

/// Hints to the CPU. Under loom and in the simulation, they let other threads run.
pub mod hint {
    #[cfg(simulated)]
    pub use crate::simulated::pause as spin_loop;
    #[cfg(not(any(loom, simulated)))]
    pub use core::hint::spin_loop;
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
}
