//! The papers' experiments: machines, tasks and measured quantities, each parameter with its source.

pub mod coscheduling;
pub mod expedite;
