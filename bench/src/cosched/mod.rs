//! Coscheduling of real processes on nodes of this host: the nodes, the jobs, the local tasks, and the coschedulers.

pub(crate) mod bed;
pub(crate) mod job;
pub(crate) mod local;
pub(crate) mod mpi;
pub(crate) mod nodes;
pub(crate) mod rank;
pub(crate) mod turns;
