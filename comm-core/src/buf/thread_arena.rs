//! Thread arenas (strips): parts of the send memory in which one thread at a time allocates its short buffers, so that threads
//! that send concurrently do not share cache lines.
//!
//! The allocating thread has exclusive access to the arena (by a lock in [`super::PresentRing`]). Only freeing, which any thread
//! may do, needs an atomic read-modify-write. The count of freed buffers also keeps the ring alive, with one reference for all
//! buffers of an arena.
//!
//! # Invariants
//! 1. A ring enters one `PresentRing`, once. Therefore the lock there is needed for `take`, `is_idle` and `retire`, which run in
//!    one thread at a time.
//! 2. The arena has `taken` - `returned` live buffers. After `retire`, no buffer is allocated, and `RETIRED` - `returned` are live.
//! 3. While the two counts differ, lines from 0 to `filled` belong to live buffers, or to buffers freed since the counts were last
//!    equal; all other lines are free. While the counts are equal, every line belongs to the holder of the lock.
//! 4. Entering an arena stores a reference to the ring in it. If the arena has no live buffers, `retire` returns the reference;
//!    otherwise freeing the last buffer does.

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of thread arenas of a ring, and of threads that can send without sharing an arena.
pub(super) const ARENAS: usize = if cfg!(loom) { 2 } else { 8 };
/// Divisor of an arena's size that gives the longest buffer in it.
pub(super) const LARGEST_PART: u32 = 4;
/// Value of `returned` when the arena is retired and has no live buffer; far above any count.
const RETIRED: u64 = 1 << 63;

/// One thread arena. The fields that its thread writes and those that other threads write are in different cache lines.
#[derive(Debug, Default)]
pub(super) struct ThreadArena {
    own: CachePadded<Own>,
    returned: CachePadded<AtomicU64>,
}

/// The fields that only the holder of the arena's lock writes. They are atomic because reports read them.
#[derive(Debug, Default)]
struct Own {
    /// Filled lines (invariant 3).
    filled: AtomicU32,
    /// Number of buffers allocated so far.
    taken: AtomicU64,
    /// Value of `taken` at the last check for idle memory.
    last_check: AtomicU64,
    /// Value of `taken` when the memory was last reclaimed.
    cleaned: AtomicU64,
}

impl ThreadArena {
    /// Allocates `lines` contiguous lines of an arena with `size` lines. Returns the first line, if there is room. The caller ensures
    /// invariant 1.
    #[inline]
    pub(super) fn take(&self, lines: u32, size: u32) -> Option<u32> {
        let taken = self.own.taken.load(Ordering::Relaxed);
        // SYNC: Acquire sees that earlier users of these lines have finished; pairs with the addition in give_back.
        let none_lives = self.returned.load(Ordering::Acquire) == taken;
        let at = if none_lives { 0 } else { self.own.filled.load(Ordering::Relaxed) };
        if size - at < lines {
            return None;
        }
        self.own.filled.store(at + lines, Ordering::Relaxed);
        self.own.taken.store(taken + 1, Ordering::Relaxed);
        Some(at)
    }

    /// Returns the count of freed buffers.
    #[inline]
    pub(super) fn returned(&self) -> &AtomicU64 {
        &self.returned
    }

    /// Counts one buffer as freed. Returns whether it was the last of a retired arena. If so, the caller owns the arena's reference to the
    /// ring, which keeps the ring alive. Otherwise the ring may be gone when this returns.
    #[inline]
    pub(super) fn give_back(returned: &AtomicU64) -> bool {
        // SYNC: Release publishes that this buffer's user has finished; pairs with the load in take. Acquire lets the thread that frees
        // the last buffer of a retired arena see that all users have finished, before it drops the ring; pairs with this addition in other
        // threads, and with that in retire.
        returned.fetch_add(1, Ordering::AcqRel) == RETIRED - 1
    }

    /// Ends allocation. Returns whether the arena has no live buffer. If so, the caller owns the arena's reference to the ring. The caller
    /// ensures invariant 1.
    pub(super) fn retire(&self) -> bool {
        let taken = self.own.taken.load(Ordering::Relaxed);
        // SYNC: passes the reference to the thread that frees the last buffer, and sees what threads published that freed buffers
        // before; pairs with the addition in give_back.
        self.returned.fetch_add(RETIRED - taken, Ordering::AcqRel) == taken
    }

    /// Returns whether the memory should be reclaimed: the arena has no live buffers, none was allocated since the last call, and some were
    /// since the memory was last reclaimed. The caller must reclaim it before it releases the lock. The caller ensures invariant 1.
    pub(super) fn is_idle(&self) -> bool {
        let taken = self.own.taken.load(Ordering::Relaxed);
        // SYNC: Acquire sees that earlier users of the lines have finished, as in take.
        if self.own.cleaned.load(Ordering::Relaxed) == taken || self.returned.load(Ordering::Acquire) != taken
        {
            return false;
        }
        let idle = self.own.last_check.load(Ordering::Relaxed) == taken;
        self.own.last_check.store(taken, Ordering::Relaxed);
        if idle {
            self.own.cleaned.store(taken, Ordering::Relaxed);
        }
        idle
    }

    /// Returns whether the memory was used since it was last reclaimed. The result may already be out of date.
    pub(super) fn is_used(&self) -> bool {
        self.own.cleaned.load(Ordering::Relaxed) != self.own.taken.load(Ordering::Relaxed)
    }

    /// Returns the numbers of filled lines and live buffers. The result may already be out of date.
    pub(super) fn load(&self) -> (u32, u32) {
        let returned = self.returned.load(Ordering::Relaxed);
        let taken = self.own.taken.load(Ordering::Relaxed);
        // If `returned` exceeds `taken`, the arena is retired, or the two loads are from different times.
        let live = if returned <= taken { taken - returned } else { RETIRED.saturating_sub(returned) };
        match u32::try_from(live) {
            Ok(0) | Err(_) => (0, 0),
            Ok(live) => (self.own.filled.load(Ordering::Relaxed), live),
        }
    }
}
