//! Where a node's threads run, and with which priority.

pub(crate) mod boost;
pub(crate) mod placement;
pub(crate) mod sched_class;
