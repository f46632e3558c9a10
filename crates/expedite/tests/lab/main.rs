//! The kernel module, loaded into the stock kernel: who is boosted, for how long, at whose cost, and what is left behind.
//!
//! Nothing here depends on how long something takes: the module counts what it does, and what is compared in time is
//! compared within one run.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod class;
mod cpus;
mod device_wait;
mod hostile;
mod lifetime;
mod machine;
mod misuse;
mod named;
mod own_cap;
mod random;
mod storm;
mod waiting;
