//! A call taken apart: each step of it, or a run of steps, alone and many times over.
//!
//! No clock is read within a call. Several links have one message each on its way, so that every step takes the path that a
//! single call takes, and one pair of clock readings stands around the same step of all of them. What is shared by two such
//! measurements is subtracted.
//!
//! The caller goes on after its request has left, and so does the callee after its reply: nobody waits for that. How much of a step it
//! is say other rounds, with clocks in them (`apart`).

mod apart;
mod dispatch;
mod parts;
mod raw;
mod stages;
mod steps;
mod watched;

pub(crate) use apart::watched;
pub(crate) use dispatch::Dispatch;
pub(crate) use parts::{Part, Parts};
pub(crate) use raw::Raw;
pub(crate) use stages::{Ask, Stages};
#[cfg(test)]
pub(crate) use steps::Path;
pub(crate) use steps::{BESIDE, CALL, Outside, PATH, REST, STEPS, Step, Way, steps};

/// Links with a call on each: enough for the clock, few enough for the first-level cache.
pub(crate) const LINKS: usize = 8;
