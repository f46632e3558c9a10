//! What is measured over RDMA, inside the lab: its nodes, the field's own tools between two of them, and we beside those.

#[cfg(feature = "verbs")]
pub(crate) mod fig1;
pub(crate) mod latency;
mod nodes;
pub(crate) mod over;
mod tools;

/// The transport, as a value of a column.
pub(crate) const VERBS: &str = "verbs";
