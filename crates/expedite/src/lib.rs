//! The processor for a thread at the moment when its message arrives (Saito et al., *Expedite*, 2004).
//!
//! [`obtain`] gives a [`Booster`](pronto_core::Booster) of the best tier that this process may have: the kernel module, a
//! real-time class with a budget of its own, a short time slice, or nothing; and says why a better one is not to be had.
//! [`Device`] is the user's side of the kernel module in `kernel/expedite`: what is flagged there has the threads that
//! wait for it run at once, within a budget. [`schedule`](mod@schedule) says and asks how the kernel schedules a thread.
#![deny(unsafe_code)]

mod device;
mod fifo;
mod guard;
pub mod schedule;
mod tiers;

pub use device::{Counts, Device, Flag, Refused, THIS_THREAD, Unwoken};
pub use pronto_core::boost::Tier;
pub use tiers::{DEADLINE, Missing, Obtained, SLICE, available, obtain};
