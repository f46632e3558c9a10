//! Schedules a thread immediately when its message arrives (Saito et al., *Expedite*, 2004).
//!
//! [`obtain`] returns a [`Booster`](pronto_core::Booster) of the best tier available to this process: the kernel module, a
//! real-time class with its own budget, a short time slice, or none. It also returns why better tiers are not available.
//! [`Device`] is the user-space side of the kernel module in `kernel/expedite`: threads that wait on a flagged descriptor run
//! immediately when data arrives, within a budget. [`scx`] flags threads at the loader of the BPF scheduler. [`schedule`](mod@schedule) sets and queries how the kernel schedules a thread.
#![deny(unsafe_code)]

mod denial;
mod device;
mod fifo;
pub mod follow;
mod guard;
pub mod process;
pub mod schedule;
pub mod scx;
mod tiers;

pub use denial::Denial;
pub use device::{ByWay, Caps, Counts, Device, Flag, Refused, THIS_THREAD, ThreadState, Totals, Unwoken};
pub use pronto_core::boost::Tier;
pub use tiers::{DEADLINE, Missing, Obtained, SLICE, available, obtain};
