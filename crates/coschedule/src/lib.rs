//! Coscheduling of unmodified processes (Solsona et al., *Predictive Coscheduling Implementation in a Non-dedicated Linux Cluster*, 2001).
#![forbid(unsafe_code)]

pub mod actuator;
mod coscheduler;
pub mod diag;
pub mod group;
pub mod journal;
pub mod own;
pub mod process;
mod reports;
pub mod sensor;
pub mod service;
pub mod settings;
pub mod socket;
pub mod status;

pub use coscheduler::{Coscheduler, StartError, Totals, check};
pub use service::Service;
