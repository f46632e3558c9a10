//! One chunk's word: how far it is filled, how many buffers live in it, and whether it is ready for use.
//!
//! # Invariants
//! 1. A chunk that is not open has no live buffers.
//! 2. The word says everything about a chunk: any two equal words allow the same steps, so no CAS can be fooled by a word
//!    that came back.
//! 3. While `live` is not 0, lines from 0 to `filled` belong to buffers that live or lived since it was, or were passed over;
//!    all others belong to nobody. While it is 0, all lines do. So the step that frees a buffer is one subtraction, and the next allocation may lie
//!    anywhere in an empty chunk.
//!
//! In an empty chunk a short buffer starts over at its beginning, where the lines are warm. A long one goes on behind the last one
//! as long as there is room: the lines at the beginning still lie in the cache of the core that has just read them, which
//! it has to give up line by line; those that were used a chunk's length ago it has given up by itself.

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::ALIGNMENT;

/// Bits of the word for `filled` and for `live`, each.
const FIELD_BITS: u32 = 24;
const FIELD: u64 = (1 << FIELD_BITS) - 1;
/// The chunk may be allocated from.
const OPEN: u64 = 1 << 63;
/// The chunk is in the provider's hands, being made ready or taken back. Neither bit: not made ready.
const LENT: u64 = 1 << 62;
/// Something was allocated since the last look of the trimmer.
const USED: u64 = 1 << 61;
/// Nothing was allocated since its memory was taken back.
const CLEAN: u64 = 1 << 60;
/// Lines of a buffer that is long: more than a core reads before another may have its first lines back.
const LONG: u32 = (32 << 10) / ALIGNMENT;
/// The largest chunk: as many lines as its word can count.
pub(super) const MAX_BYTES: u32 = 1 << (FIELD_BITS - 1 + ALIGNMENT.ilog2());

/// One chunk.
#[derive(Debug)]
pub(super) struct ChunkWord {
    word: CachePadded<AtomicU64>,
    /// Lines that may be used.
    lines: u32,
}

/// Lines filled, of a word: invariant 3.
fn filled(word: u64) -> u32 {
    if live(word) == 0 { 0 } else { reached(word) }
}

/// Where the last buffer ended that was allocated, of a word.
fn reached(word: u64) -> u32 {
    u32::try_from(word & FIELD).expect("24 bits")
}

/// Live buffers, of a word.
fn live(word: u64) -> u32 {
    u32::try_from(word >> FIELD_BITS & FIELD).expect("24 bits")
}

impl ChunkWord {
    /// A chunk that is not made ready.
    pub(super) fn closed(lines: u32) -> Self {
        Self { word: CachePadded::new(AtomicU64::new(0)), lines }
    }

    /// Allocates `lines` in a row: the first of them, if the chunk is open and has room, and whether other buffers live in it.
    #[inline]
    pub(super) fn take(&self, lines: u32) -> Option<(u32, bool)> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let at = match filled(word) {
                0 if lines >= LONG && self.lines - reached(word) >= lines => reached(word),
                at => at,
            };
            if word & OPEN == 0 || self.lines - at < lines {
                return None;
            }
            let taken = OPEN | USED | u64::from(live(word) + 1) << FIELD_BITS | u64::from(at + lines);
            // SYNC: Acquire: the last users of these lines are done with them; pairs with the subtraction in give_back.
            match self.word.compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some((at, live(word) != 0)),
                Err(found) => word = found,
            }
        }
    }

    /// Frees one buffer; after the last one the chunk starts over.
    #[inline]
    pub(super) fn give_back(&self) {
        // SYNC: publishes that this buffer's user is done; Acquire hands on what earlier ones published. Pairs with the
        // CAS in take and in lend_idle.
        self.word.fetch_sub(1 << FIELD_BITS, Ordering::AcqRel);
    }

    /// Cuts the last buffer, which ends at line `end`, back to `new_end`; does nothing if it is not the last any more.
    pub(super) fn cut(&self, end: u32, new_end: u32) {
        let word = self.word.load(Ordering::Relaxed);
        if filled(word) == end {
            let cut = word - u64::from(end - new_end);
            // SYNC: Release: the lines given up are not touched after this; pairs with the CAS in take. A failure means
            // that something changed: then the lines come back with the chunk.
            let _ = self.word.compare_exchange(word, cut, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Lines filled and buffers live; old news in an instant.
    pub(super) fn load(&self) -> (u32, u32) {
        let word = self.word.load(Ordering::Relaxed);
        (filled(word), live(word))
    }

    /// Whether filling it from line `at` by `lines` is a sign that it will soon be full. Long buffers fill it only if there are several
    /// at a time, or one that leaves no room for another.
    #[inline]
    pub(super) const fn is_filling(&self, at: u32, lines: u32, others_live: bool) -> bool {
        let middle = self.lines / 2;
        let fills = if lines < LONG { at < middle } else { others_live || lines >= middle };
        fills && at + lines >= middle
    }

    /// Whether it is open.
    pub(super) fn is_open(&self) -> bool {
        self.word.load(Ordering::Relaxed) & OPEN != 0
    }

    /// Whether less than half of it is filled.
    pub(super) fn is_roomy(&self) -> bool {
        self.load().0 < self.lines / 2
    }

    /// Puts it in the provider's hands if it is not ready.
    pub(super) fn lend_closed(&self) -> bool {
        // SYNC: Acquire: whoever took its memory back is done; pairs with the CAS in close.
        self.word.compare_exchange(0, LENT, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Puts it in the provider's hands if it is open, empty, and was not used since the last look; but not one whose memory was
    /// taken back, and which was not used since.
    pub(super) fn lend_idle(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & OPEN == 0 || word & CLEAN != 0 || live(word) != 0 {
            return false;
        }
        let (next, idle) = if word & USED == 0 { (LENT, true) } else { (word & !USED, false) };
        // SYNC: Acquire: the last users of its lines are done with them; pairs with the subtraction in give_back.
        self.word.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed).is_ok() && idle
    }

    /// Out of the provider's hands, ready. Whether it was in them.
    pub(super) fn open(&self) -> bool {
        // SYNC: Release: what was done to make it ready comes before its first use; pairs with the CAS in take.
        self.word.compare_exchange(LENT, OPEN | USED, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Out of the provider's hands, ready, its memory taken back. Whether it was in them.
    pub(super) fn open_clean(&self) -> bool {
        // SYNC: as in open.
        self.word.compare_exchange(LENT, OPEN | CLEAN, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Out of the provider's hands, not ready. Whether it was in them.
    pub(super) fn close(&self) -> bool {
        // SYNC: Release: its memory is taken back before it is made ready again; pairs with the CAS in lend_closed.
        self.word.compare_exchange(LENT, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
