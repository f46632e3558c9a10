//! An allocator that counts.
#![expect(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

use pronto_sync::atomic::{AtomicU64, Ordering};

/// Counts of the whole process.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "each test needs one of them")]
pub(crate) struct Allocated {
    /// Number of allocations since the start.
    pub(crate) times: u64,
    /// Bytes that are allocated and not freed.
    pub(crate) bytes: u64,
}

/// Returns the counts at this moment.
pub(crate) fn allocated() -> Allocated {
    Allocated { times: TIMES.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
}

struct Counting;

static TIMES: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls go to the system allocator; counting accesses no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SYNC: statistics counters; order nothing.
        TIMES.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SYNC: a statistics counter; orders nothing.
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract, and `at` came from the system allocator.
        unsafe { System.dealloc(at, layout) };
    }
}
