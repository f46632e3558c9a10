//! The clock of the experiments: the only place of this package that reads it.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock.
///
/// It is `Instant` and not the time stamp counter, so that a measurement has the same cost for a reading as a user's program.
/// `pronto-bench floor` measures this cost as the row `instant-now`.
#[inline]
#[expect(clippy::disallowed_methods, reason = "a benchmark is an edge: measuring time is its work")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps between two samples of a slow quantity.
#[expect(clippy::disallowed_methods, reason = "the sampled quantity, memory, has no event to wait for")]
pub(crate) fn pause(span: Duration) {
    thread::sleep(span);
}

/// Returns the monotonic time in nanoseconds, which all processes of this boot share.
pub(crate) fn shared_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub(crate) fn thread_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of all threads of this process in nanoseconds.
pub(crate) fn process_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: ClockId) -> u64 {
    nanos(clock_gettime(clock).map(Duration::from).expect("every kernel has this clock"))
}

/// Returns a duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until `until`.
pub(crate) fn sleep_until(until: Instant) {
    while let Some(left) = until.checked_duration_since(now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

/// Sleeps until the shared time `until_ns`.
pub(crate) fn sleep_until_shared(until_ns: u64) {
    while let Some(left) = until_ns.checked_sub(shared_ns()).filter(|left| *left > 0) {
        thread::park_timeout(Duration::from_nanos(left));
    }
}
