//! The processor for a thread at the moment when its message arrives (Saito et al., *Expedite*, 2004).
//!
//! [`Device`] is the user's side of the kernel module in `kernel/expedite`: what is flagged there has the threads that
//! wait for it run at once, within a budget.
#![deny(unsafe_code)]

mod device;

pub use device::{Counts, Device, Flag, Refused, THIS_THREAD};
