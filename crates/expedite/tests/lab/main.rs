//! Tests of the kernel module in the stock kernel: boosted threads, length and cost of boosts, and clean-up.
//!
//! No test depends on absolute durations. The module counts what it does, and durations are only compared within one run.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod class;
mod coverage;
mod cpu_hotplug;
mod crowd;
mod device_wait;
mod evasion;
mod failed_allocations;
mod follow;
mod hostile;
mod lifetime;
mod log;
mod machine;
mod misuse;
mod named;
mod own_cap;
mod parameters;
mod program;
mod random;
mod rdma;
mod storm;
mod traced;
mod users;
mod waiting;
