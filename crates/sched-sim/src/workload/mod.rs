//! Programs: the workloads of the papers.

pub mod compute;
pub mod ping_pong;
pub mod scatter;
pub mod sleeper;
