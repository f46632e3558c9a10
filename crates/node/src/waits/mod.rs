//! How the threads of a node wait: evidence of contention, and overrides of the wait policy.

pub(crate) mod contention;
pub(crate) mod overrides;
