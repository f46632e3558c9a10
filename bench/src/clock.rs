//! The one place of this package that reads the clock.

use std::time::Instant;

use nix::time::{ClockId, clock_gettime};

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

/// Lets time pass between two looks at something slow.
#[expect(clippy::disallowed_methods, reason = "what is looked at, memory, has nothing to wait for")]
pub fn pause(span: core::time::Duration) {
    std::thread::sleep(span);
}

/// The same clock as a number that all processes of this boot share, nanoseconds.
#[must_use]
pub fn shared_ns() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

/// How long the calling thread has run, nanoseconds.
#[must_use]
pub fn thread_ns() -> u64 {
    nanos(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).map(core::time::Duration::from).expect("every kernel has this clock");
    u64::try_from(time.as_nanos()).expect("five centuries")
}
