//! A call taken apart: each step of it, or a run of steps, alone and many times over.
//!
//! No clock is read within a call. Several links have one message each on its way, so that every step takes the path that a
//! single call takes, and one pair of clock readings stands around the same step of all of them. What is shared by two such
//! measurements is subtracted.

mod dispatch;
mod parts;
mod raw;
mod stages;
mod steps;

pub(crate) use dispatch::Dispatch;
pub(crate) use parts::{Part, Parts};
pub(crate) use raw::Raw;
pub(crate) use stages::{Ask, Stages};
pub(crate) use steps::{CALL, Outside, REST, STEPS, SUM, Step, Way, steps};

/// Links with a call on each: enough for the clock, few enough for the first-level cache.
pub(crate) const LINKS: usize = 8;
