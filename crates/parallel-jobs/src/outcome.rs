//! The result of a job, and the edges that a job sees of its program: a clock, and a watch of its progress.

use std::time::Instant;

use crate::usage::Usage;

/// The result of a job at one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Time and resources of the timed part of the job at this rank.
    pub usage: Usage,
    /// The result is right. Each rank of a job has the same value.
    pub verified: bool,
    /// Human-readable reason for `verified`.
    pub detail: String,
    /// Work that was done, in `unit`s.
    pub work: f64,
    /// Unit of `work`, in the plural.
    pub unit: &'static str,
}

/// A source of time.
pub trait Clock {
    /// Returns the present time.
    fn now(&self) -> Instant;
}

/// The monotonic clock of the system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the edge that reads the clock")]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// An observer of the progress of a job.
pub trait Watch {
    /// Called when an iteration begins.
    fn reached(&self, iteration: u32, of: u32);
}

/// Ignores the progress.
impl Watch for () {
    fn reached(&self, _: u32, _: u32) {}
}
