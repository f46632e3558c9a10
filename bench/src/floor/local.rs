//! What one core takes by itself: entering the kernel, copying, reading the clock.

use core::convert::Infallible;
use core::hint::black_box;
use core::time::Duration;

use nix::unistd::getppid;
use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::raw::futex_wake;
use super::word::SleepWord;
use crate::clock;
use crate::sample::Recorder;

/// A system call that does next to nothing: asking for the parent's process id.
///
/// # Errors
/// None; the signature is that of all probes.
pub fn empty_system_call(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    repeat(budget, into, || {
        black_box(getppid());
    })
}

/// Two atomic additions, to two lines that no other core wants: the least that taking something other threads may give back, and giving
/// it back, can take.
///
/// # Errors
/// None; the signature is that of all probes.
pub fn two_additions(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let lines = [CachePadded::new(AtomicU64::new(0)), CachePadded::new(AtomicU64::new(0))];
    repeat(budget, into, || {
        for line in &lines {
            black_box(line.fetch_add(1, Ordering::AcqRel));
        }
    })
}

/// Waking the sleepers of a futex that nobody sleeps on: what an unneeded wake-up costs.
///
/// # Errors
/// None; the signature is that of all probes.
pub fn futex_wake_nobody(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let word = SleepWord::default();
    repeat(budget, into, || {
        black_box(futex_wake(&word));
    })
}

/// Copying `size` bytes between two buffers that stay the same, so both are as hot as the caches allow.
///
/// # Errors
/// None; the signature is that of all probes.
pub fn memcpy(size: usize, budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    let source = vec![0x5a_u8; size];
    let mut target = vec![0_u8; size];
    repeat(budget, into, || {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
    })
}

/// Reading the clock: the part of every single timing that is the instrument's own.
///
/// # Errors
/// None; the signature is that of all probes.
pub fn instant_now(budget: Duration, into: &mut Recorder) -> anyhow::Result<()> {
    repeat(budget, into, || {
        black_box(clock::now());
    })
}

fn repeat(budget: Duration, into: &mut Recorder, mut op: impl FnMut()) -> anyhow::Result<()> {
    let Ok(()) = into.round(budget, || {
        op();
        Ok::<(), Infallible>(())
    });
    Ok(())
}
