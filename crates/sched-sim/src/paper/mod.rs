//! The papers' experiments, as they can be run here: machines, tasks and what is measured, each parameter with its source.

pub mod coscheduling;
pub mod expedite;
