//! The state word of one chunk: how far it is filled, how many live buffers it has, and whether it is ready for use.
//!
//! # Invariants
//! 1. A chunk that is not open has no live buffers.
//! 2. The word is the whole state of a chunk. Equal words allow the same steps, so that no CAS fails because of a word that
//!    has changed and returned to its old value (no ABA problem).
//! 3. While `live` is not 0, lines from 0 to `filled` belong to live buffers, or to buffers freed since `live` was last 0, or
//!    were skipped; all other lines are free. While `live` is 0, all lines are free. Therefore freeing a buffer is one
//!    subtraction, and the next allocation may be anywhere in an empty chunk.
//!
//! In an empty chunk a short buffer is allocated at the beginning, where the lines are in the cache. A long buffer is allocated
//! after the last one if it ends within the first [`WALK`] bytes, or within [`WALK_LENGTHS`] times its length if that is more.
//! Otherwise it is allocated at the beginning. The lines of the last buffer are still in the cache of the core that has just read them,
//! and it would have to give up each of them. A longer walk is not faster, and touches more pages, each of which costs a fault after
//! the memory of an idle chunk was reclaimed.

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::ALIGNMENT;

/// Number of bits in the word for each of `filled` and `live`.
const FIELD_BITS: u32 = 24;
const FIELD: u64 = (1 << FIELD_BITS) - 1;
/// Bit of a chunk from which buffers can be allocated.
const OPEN: u64 = 1 << 63;
/// Bit of a chunk that is lent to the provider, which makes it ready or reclaims its memory. A chunk with neither bit is not ready.
const LENT: u64 = 1 << 62;
/// Bit of a chunk in which a buffer was allocated since the last check for idle chunks.
const USED: u64 = 1 << 61;
/// Bit of a chunk in which no buffer was allocated since its memory was reclaimed.
const CLEAN: u64 = 1 << 60;
/// Length of the part of an empty chunk that long buffers use in turn, bytes.
const WALK: u32 = 256 << 10;
/// Number of buffers that the part has room for, if that is longer than [`WALK`].
const WALK_LENGTHS: u32 = 4;
/// Size of the largest chunk, bytes: the largest power of two whose number of lines fits in a field of the word.
pub(super) const MAX_BYTES: u32 = 1 << (FIELD_BITS - 1 + ALIGNMENT.ilog2());

/// One chunk.
#[derive(Debug)]
pub(super) struct ChunkWord {
    word: CachePadded<AtomicU64>,
    /// Number of usable lines.
    lines: u32,
    /// Smallest number of lines of a long buffer.
    long: u32,
}

/// Returns the number of filled lines in a word (invariant 3).
fn filled(word: u64) -> u32 {
    if live(word) == 0 { 0 } else { reached(word) }
}

/// Returns the line after the last allocated buffer in a word.
fn reached(word: u64) -> u32 {
    u32::try_from(word & FIELD).expect("24 bits")
}

/// Returns the number of live buffers in a word.
fn live(word: u64) -> u32 {
    u32::try_from(word >> FIELD_BITS & FIELD).expect("24 bits")
}

impl ChunkWord {
    /// Returns a chunk that is not ready.
    pub(super) fn closed(lines: u32, long: u32) -> Self {
        Self { word: CachePadded::new(AtomicU64::new(0)), lines, long }
    }

    /// Allocates `lines` contiguous lines, if the chunk is open and has room. Returns the first line, and whether the chunk has other live
    /// buffers.
    #[inline]
    pub(super) fn take(&self, lines: u32) -> Option<(u32, bool)> {
        let last = self.last_of_walk(lines);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let at = match filled(word) {
                0 if reached(word) <= last => reached(word),
                at => at,
            };
            if word & OPEN == 0 || self.lines - at < lines {
                return None;
            }
            let taken = OPEN | USED | u64::from(live(word) + 1) << FIELD_BITS | u64::from(at + lines);
            // SYNC: Acquire sees that earlier users of these lines have finished; pairs with the subtraction in give_back.
            match self.word.compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some((at, live(word) != 0)),
                Err(found) => word = found,
            }
        }
    }

    /// Returns the last line at which a buffer of `lines` lines may begin in an empty chunk.
    #[inline]
    fn last_of_walk(&self, lines: u32) -> u32 {
        if lines < self.long || lines > self.lines {
            return 0;
        }
        // A chunk has too few lines for an overflow.
        let walk = (lines * WALK_LENGTHS).max(WALK / ALIGNMENT).min(self.lines);
        walk.saturating_sub(lines)
    }

    /// Frees one buffer. When the last one is freed, the chunk is empty.
    #[inline]
    pub(super) fn give_back(&self) {
        // SYNC: publishes that this buffer's user has finished; Acquire passes on what earlier users published. Pairs with
        // the CAS in take and in lend_idle.
        self.word.fetch_sub(1 << FIELD_BITS, Ordering::AcqRel);
    }

    /// Shortens the last buffer from line `end` to `new_end`. Does nothing if it is not the last buffer any more.
    pub(super) fn cut(&self, end: u32, new_end: u32) {
        let word = self.word.load(Ordering::Relaxed);
        if filled(word) == end {
            let cut = word - u64::from(end - new_end);
            // SYNC: Release: the freed lines are not accessed after this; pairs with the CAS in take. If the CAS fails, the
            // word has changed, and the lines are freed with the chunk.
            let _ = self.word.compare_exchange(word, cut, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of filled lines and live buffers. The result may already be out of date.
    pub(super) fn load(&self) -> (u32, u32) {
        let word = self.word.load(Ordering::Relaxed);
        (filled(word), live(word))
    }

    /// Returns whether an allocation of `lines` at line `at` indicates that the chunk will soon be full. Long buffers count only if several
    /// are live, or one leaves no room for another.
    #[inline]
    pub(super) const fn is_filling(&self, at: u32, lines: u32, others_live: bool) -> bool {
        let middle = self.lines / 2;
        let fills = if lines < self.long { at < middle } else { others_live || lines >= middle };
        fills && at + lines >= middle
    }

    /// Returns whether the chunk is open.
    pub(super) fn is_open(&self) -> bool {
        self.word.load(Ordering::Relaxed) & OPEN != 0
    }

    /// Returns whether less than half of the chunk is filled.
    pub(super) fn is_roomy(&self) -> bool {
        self.load().0 < self.lines / 2
    }

    /// Lends the chunk to the provider, if it is not ready. Returns whether it did.
    pub(super) fn lend_closed(&self) -> bool {
        // SYNC: Acquire sees that its memory has been reclaimed; pairs with the CAS in close.
        self.word.compare_exchange(0, LENT, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lends the chunk to the provider, if it is open, empty, and was not used since the last call. Does not lend a chunk that was not
    /// used since its memory was reclaimed. Returns whether it did.
    pub(super) fn lend_idle(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & OPEN == 0 || word & CLEAN != 0 || live(word) != 0 {
            return false;
        }
        let (next, idle) = if word & USED == 0 { (LENT, true) } else { (word & !USED, false) };
        // SYNC: Acquire sees that earlier users of its lines have finished; pairs with the subtraction in give_back.
        self.word.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed).is_ok() && idle
    }

    /// Opens a lent chunk: the provider has made it ready, and buffers can be allocated in it. Returns `false`, and does nothing, if the
    /// chunk was not lent.
    pub(super) fn open(&self) -> bool {
        // SYNC: Release publishes that the chunk is ready; pairs with the CAS in take.
        self.word.compare_exchange(LENT, OPEN | USED, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Opens a lent chunk whose memory was reclaimed. Returns `false`, and does nothing, if the chunk was not lent.
    pub(super) fn open_clean(&self) -> bool {
        // SYNC: Release publishes that the chunk is ready, as in open.
        self.word.compare_exchange(LENT, OPEN | CLEAN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the chunk back from the provider as not ready. Returns whether it was lent.
    pub(super) fn close(&self) -> bool {
        // SYNC: Release publishes that its memory was reclaimed; pairs with the CAS in lend_closed.
        self.word.compare_exchange(LENT, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
