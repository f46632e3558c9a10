//! Strips: parts of the send memory in which one thread at a time lays its short buffers, so that threads which send together
//! do not take each other's lines.
//!
//! Who takes has the strip to itself (a lock in [`super::PresentRing`]), so that only giving back, which any thread may do, is
//! counted by an atomic step. The count is also what keeps the ring alive: one reference for all buffers of a strip.
//!
//! # Invariants
//! 1. A ring is entered into one `PresentRing`, once. So its lock is the only way to `take`, `is_idle` and `retire`, one
//!    thread at a time.
//! 2. `taken` - `returned` buffers of the strip live; after `retire` there will be no more, and `RETIRED` - `returned` live.
//! 3. While the two counts differ, lines from 0 to `filled` belong to buffers that live or lived since they did not; all others
//!    belong to nobody. While they are equal every line belongs to who holds the lock.
//! 4. Who enters a strip leaves a reference to the ring in it. `retire` gives it back if no buffer of the strip lives, else the
//!    buffer does that is given back last.

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Strips of a ring: as many threads send without meeting.
pub(super) const STRIPS: usize = if cfg!(loom) { 2 } else { 8 };
/// A buffer takes no more than this part of a strip.
pub(super) const LARGEST_PART: u32 = 4;
/// `returned` when no buffer lives and none will; far above any count.
const RETIRED: u64 = 1 << 63;

/// One strip: what its thread writes, and in a line of its own what others do.
#[derive(Debug, Default)]
pub(super) struct Strip {
    own: CachePadded<Own>,
    returned: CachePadded<AtomicU64>,
}

/// Written by who holds the strip's lock; atomic for those who report.
#[derive(Debug, Default)]
struct Own {
    /// Lines filled: invariant 3.
    filled: AtomicU32,
    /// Buffers taken, ever.
    taken: AtomicU64,
    /// `taken` when it was last looked for idle memory.
    looked: AtomicU64,
    /// `taken` when its memory was last given back.
    cleaned: AtomicU64,
}

impl Strip {
    /// Takes `lines` in a row of a strip that has `size`: the first of them, if there is room. Invariant 1 is the caller's.
    #[inline]
    pub(super) fn take(&self, lines: u32, size: u32) -> Option<u32> {
        let taken = self.own.taken.load(Ordering::Relaxed);
        // SYNC: Acquire: the last users of these lines are done with them; pairs with the addition in give_back.
        let none_lives = self.returned.load(Ordering::Acquire) == taken;
        let at = if none_lives { 0 } else { self.own.filled.load(Ordering::Relaxed) };
        if size - at < lines {
            return None;
        }
        self.own.filled.store(at + lines, Ordering::Relaxed);
        self.own.taken.store(taken + 1, Ordering::Relaxed);
        Some(at)
    }

    /// What counts the buffers that came back.
    #[inline]
    pub(super) fn returned(&self) -> &AtomicU64 {
        &self.returned
    }

    /// Counts one buffer as given back. Whether it was the last of a retired strip: then the caller has the strip's reference to
    /// the ring, which keeps it; otherwise the ring may be gone when this returns.
    #[inline]
    pub(super) fn give_back(returned: &AtomicU64) -> bool {
        // SYNC: publishes that this buffer's user is done; Acquire hands on what earlier ones published. Pairs with the load in
        // take, and with the addition in retire.
        returned.fetch_add(1, Ordering::AcqRel) == RETIRED - 1
    }

    /// No buffer is taken any more. Whether none lives: then the caller has the strip's reference to the ring. Invariant 1 is
    /// the caller's.
    pub(super) fn retire(&self) -> bool {
        let taken = self.own.taken.load(Ordering::Relaxed);
        // SYNC: hands the reference to who gives the last buffer back, and takes over from those who gave back before; pairs
        // with the addition in give_back.
        self.returned.fetch_add(RETIRED - taken, Ordering::AcqRel) == taken
    }

    /// Whether its memory should be given back: nothing lives, nothing was taken since the last look, and something was since it
    /// was given back. The caller gives it back before it gives up the lock, and invariant 1 is its.
    pub(super) fn is_idle(&self) -> bool {
        let taken = self.own.taken.load(Ordering::Relaxed);
        // SYNC: as in take.
        if self.own.cleaned.load(Ordering::Relaxed) == taken || self.returned.load(Ordering::Acquire) != taken
        {
            return false;
        }
        let idle = self.own.looked.load(Ordering::Relaxed) == taken;
        self.own.looked.store(taken, Ordering::Relaxed);
        if idle {
            self.own.cleaned.store(taken, Ordering::Relaxed);
        }
        idle
    }

    /// Whether its memory was used since it was last given back; old news in an instant.
    pub(super) fn is_used(&self) -> bool {
        self.own.cleaned.load(Ordering::Relaxed) != self.own.taken.load(Ordering::Relaxed)
    }

    /// Lines filled and buffers live; old news in an instant.
    pub(super) fn load(&self) -> (u32, u32) {
        let returned = self.returned.load(Ordering::Relaxed);
        let taken = self.own.taken.load(Ordering::Relaxed);
        // Retired, unless the first is the case; the difference is small, or an instant old.
        let live = if returned <= taken { taken - returned } else { RETIRED.saturating_sub(returned) };
        match u32::try_from(live) {
            Ok(0) | Err(_) => (0, 0),
            Ok(live) => (self.own.filled.load(Ordering::Relaxed), live),
        }
    }
}
