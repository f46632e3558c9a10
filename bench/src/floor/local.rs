//! Operations of one core: entering the kernel, copying, reading the clock.

use core::hint::black_box;
use core::time::Duration;

use nix::unistd::getppid;
use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::raw::futex_wake;
use super::word::SleepWord;
use crate::clock;
use crate::sample::Recorder;

/// Makes a nearly empty system call: reading the parent's process id.
pub(crate) fn empty_system_call(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    repeat(budget, into, || {
        black_box(getppid());
    })
}

/// Makes two atomic additions to two uncontended lines: the lower bound of taking and returning an object that other threads may return.
pub(crate) fn two_additions(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let lines = [CachePadded::new(AtomicU64::new(0)), CachePadded::new(AtomicU64::new(0))];
    repeat(budget, into, || {
        for line in &lines {
            black_box(line.fetch_add(1, Ordering::AcqRel));
        }
    })
}

/// Wakes a futex without sleepers: the cost of an unnecessary wake-up.
pub(crate) fn futex_wake_nobody(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let word = SleepWord::default();
    repeat(budget, into, || {
        black_box(futex_wake(&word));
    })
}

/// Copies `size` bytes between two fixed buffers, which are as hot as the caches allow.
pub(crate) fn memcpy(size: usize, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let source = vec![0x5a_u8; size];
    let mut target = vec![0_u8; size];
    repeat(budget, into, || {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
    })
}

/// Reads the clock: the part of the instrument in every single timing.
pub(crate) fn instant_now(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    repeat(budget, into, || {
        black_box(clock::now());
    })
}

fn repeat(budget: Duration, into: &mut Recorder, op: impl FnMut()) -> anyhow::Result<()> {
    into.repeat(budget, op);
    Ok(())
}
