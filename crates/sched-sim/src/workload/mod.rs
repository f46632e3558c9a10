//! Programs: the workloads of the papers.

pub mod compute;
pub mod ping_pong;
