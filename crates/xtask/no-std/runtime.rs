//! The complete runtime of the no-std stage's program: an allocator, a panic handler and an entry point.
//!
//! Linking the standard library would define the allocator and the panic handler again, which is a compile error.
//!
//! # Invariants
//! 1. The arena's bytes from `taken` on are not part of any allocation; `taken` only grows.

use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

const ARENA_BYTES: usize = 64 * 1024;

/// Allocates its bytes once, and never frees them.
struct Arena {
    bytes: UnsafeCell<[u8; ARENA_BYTES]>,
    taken: AtomicUsize,
}

// SAFETY: by I1 no two allocations share a byte.
unsafe impl Sync for Arena {}

#[global_allocator]
static ARENA: Arena = Arena { bytes: UnsafeCell::new([0; ARENA_BYTES]), taken: AtomicUsize::new(0) };

// SAFETY: by I1 each allocation is exclusive; the padding provides the alignment.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(wanted) = layout.size().checked_add(layout.align()) else { return ptr::null_mut() };
        let from = self.taken.fetch_add(wanted, Ordering::Relaxed);
        if from.checked_add(wanted).is_none_or(|end| end > ARENA_BYTES) {
            return ptr::null_mut();
        }
        let start = self.bytes.get().cast::<u8>().wrapping_add(from);
        start.wrapping_add(start.align_offset(layout.align()))
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Runs when the program starts. Its result is the program's exit code.
// SAFETY: no other symbol of the program has this name.
#[unsafe(no_mangle)]
extern "C" fn probe() -> i32 {
    let squares: Vec<i32> = (1..=3).map(|n| n * n).collect();
    squares.iter().sum::<i32>() - 14
}
