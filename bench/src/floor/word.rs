//! The shared words of the ping-pongs: written by one side, watched by the other.

use core::ptr;

use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A value that shares its cache line, and the line that the prefetcher fetches with it, with nothing else.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

/// A word to spin on.
#[derive(Debug, Default)]
pub(super) struct SpinWord(OwnLine<AtomicU64>);

impl SpinWord {
    #[inline]
    pub(super) fn publish(&self, value: u64) {
        // SYNC: publishes `value`; pairs with `look`.
        self.0.0.store(value, Ordering::Release);
    }

    #[inline]
    pub(super) fn look(&self) -> u64 {
        // SYNC: pairs with `publish`.
        self.0.0.load(Ordering::Acquire)
    }
}

/// A word to sleep on.
#[derive(Debug, Default)]
pub(super) struct SleepWord(OwnLine<AtomicU32>);

impl SleepWord {
    pub(super) fn publish(&self, value: u32) {
        // SYNC: publishes `value`; pairs with `look`.
        self.0.0.store(value, Ordering::Release);
    }

    pub(super) fn look(&self) -> u32 {
        // SYNC: pairs with `publish`.
        self.0.0.load(Ordering::Acquire)
    }

    /// The address by which the kernel knows the word (an atomic is laid out like its value); valid as long as the
    /// reference it came from.
    pub(super) fn address(&self) -> *const u32 {
        ptr::from_ref(&self.0.0).cast()
    }
}
