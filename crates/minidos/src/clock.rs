//! The one place of this package that reads the clock.

use std::time::Instant;

/// The monotonic clock, now.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "measuring round trips and keeping deadlines is an edge's work"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
