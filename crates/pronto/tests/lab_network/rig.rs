//! Bounded waits in real time.

use core::time::Duration;
use std::time::Instant;

/// Time limit of every wait. The machine is emulated, and its host may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);

/// A stopwatch.
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a network delays in real time")]
        let now = Instant::now();
        Self(now)
    }

    pub(crate) fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits for `span`.
pub(crate) fn pause(span: Duration) {
    let watch = Watch::start();
    while let Some(left) = span.checked_sub(watch.passed()) {
        std::thread::park_timeout(left);
    }
}

/// Waits until `is_so` returns true, at most [`TIMEOUT`]. Returns whether it did.
pub(crate) fn is_so_in_time(mut is_so: impl FnMut() -> bool) -> bool {
    let watch = Watch::start();
    while !is_so() {
        if watch.passed() >= TIMEOUT {
            return false;
        }
        pause(Duration::from_millis(5));
    }
    true
}

/// Waits until `is_so` returns true, and fails after [`TIMEOUT`]. `condition` describes it.
pub(crate) fn until(condition: &str, is_so: impl FnMut() -> bool) {
    assert!(is_so_in_time(is_so), "timed out: {condition}");
}
