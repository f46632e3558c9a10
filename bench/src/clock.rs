//! The one place of this package that reads the clock.

use std::time::Instant;

/// The monotonic clock, now.
///
/// `Instant` and not the time stamp counter: what a measurement pays for reading it is what a user's program
/// pays, and `pronto-bench floor` measures that price as the row `instant-now`.
#[inline]
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark is an edge: measuring time is its work")]
pub fn now() -> Instant {
    Instant::now()
}
