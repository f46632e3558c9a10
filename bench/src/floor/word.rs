//! The shared words of the ping-pongs: written by one side, read by the other.

use core::ptr;

use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A value that shares its cache line, and the line that the prefetcher fetches with it, with nothing else.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

/// A word for spinning threads.
#[derive(Debug, Default)]
pub(super) struct SpinWord(OwnLine<AtomicU64>);

impl SpinWord {
    #[inline]
    pub(super) fn publish(&self, value: u64) {
        // SYNC: publishes `value`; pairs with `read`.
        self.0.0.store(value, Ordering::Release);
    }

    #[inline]
    pub(super) fn read(&self) -> u64 {
        // SYNC: pairs with `publish`.
        self.0.0.load(Ordering::Acquire)
    }
}

/// A word for sleeping threads.
#[derive(Debug, Default)]
pub(super) struct SleepWord(OwnLine<AtomicU32>);

impl SleepWord {
    pub(super) fn publish(&self, value: u32) {
        // SYNC: publishes `value`; pairs with `read`.
        self.0.0.store(value, Ordering::Release);
    }

    pub(super) fn read(&self) -> u32 {
        // SYNC: pairs with `publish`.
        self.0.0.load(Ordering::Acquire)
    }

    /// Returns the address of the word for the kernel (an atomic has the layout of its value), which is valid as long as `self`.
    pub(super) fn address(&self) -> *const u32 {
        ptr::from_ref(&self.0.0).cast()
    }
}
