//! Measurements over RDMA in the lab: its nodes, the standard tools between two nodes, and our calls next to them.

#[cfg(feature = "verbs")]
pub(crate) mod fig1;
pub(crate) mod latency;
pub(crate) mod nodes;
pub(crate) mod over;
mod tools;

/// Name of the transport, as a value of a column.
pub(crate) const VERBS: &str = "verbs";
