//! Programs: the workloads of the papers.

pub mod compute;
pub mod master_slave;
pub mod parallel;
pub mod ping_pong;
pub mod scatter;
pub mod sleeper;
