//! The computation: a chain of instructions without memory accesses, so that only a lack of CPU time can stretch it.

use core::hint::black_box;
use core::time::Duration;

use crate::clock;

/// Computes; the result depends on every step.
pub(crate) fn compute(steps: u64) -> u64 {
    let mut value = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..steps {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
    }
    black_box(value)
}

/// Returns the number of steps that take about `span` on this CPU when it is warm.
pub(crate) fn steps_for(span: Duration) -> u64 {
    let mut fastest = Duration::MAX;
    for _ in 0..TRIALS {
        let since = clock::now();
        compute(TRIAL);
        fastest = fastest.min(since.elapsed());
    }
    let steps = span.as_nanos() * u128::from(TRIAL) / fastest.as_nanos().max(1);
    u64::try_from(steps).unwrap_or(u64::MAX)
}

/// Steps of a trial, which takes a few milliseconds.
const TRIAL: u64 = 4_000_000;
const TRIALS: u32 = 5;
