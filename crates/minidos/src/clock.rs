//! The only place in this package that reads the clock.

use std::time::Instant;

/// Returns the current time of the monotonic clock.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the edge of the system measures round trips and enforces deadlines"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
