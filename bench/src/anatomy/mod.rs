//! A call taken apart: each step, or a sequence of steps, alone and repeated many times.
//!
//! No clock is read within a call. Several links have one message each in flight, so that every step takes the path of a single call,
//! and one pair of clock readings encloses the same step of all links. The common part of two such measurements is subtracted.
//!
//! The caller continues after its request has left, and the callee after its reply; the call does not wait for that work. Separate
//! rounds with clock readings measure its share of each step (`apart`).

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
pub(crate) use steps::{CALL, CallPath, OFF_PATH, Outside, PATH, REST, STEPS, Step, steps};

/// Number of links with a call on each: enough for the clock, few enough for the first-level cache.
pub(crate) const LINKS: usize = 8;
