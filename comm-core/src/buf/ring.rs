//! The send ring: allocation by many threads, growth and trimming by the progress path, and who holds what for how long.
//!
//! # Invariants
//! 1. Buffers lie in open chunks or in strips, one after another, or in claimed overflow slots: no two share a line.
//! 2. A record is not zero exactly while a buffer that begins at its line (or has its slot) lives; between the step that
//!    allocates and the one that writes the record it may lag. Records inform, nothing depends on them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use pronto_sync::CachePadded;
use pronto_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, zeroed_u64s};
use thiserror::Error;

use super::chunk::ChunkWord;
use super::config::{Layout, Placement, RingConfig};
use super::loan::Loan;
use super::memory::{Buffer, Memory};
use super::overflow::Overflow;
use super::strip::{LARGEST_PART, STRIPS, Strip};
use super::{ALIGNMENT, lines};
use crate::fabric::{Extent, MemoryClaimed, SendMemory};
use crate::time::Nanos;

/// Ages are kept in ticks of 2^20 ns, about a millisecond.
const TICK_SHIFT: u32 = 20;

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Exhausted {
    /// Everything is in use: reap completions, let the engine make chunks ready, try again.
    #[error("the send ring is full")]
    Ring,
    /// Everything is in use, and somebody has been holding a buffer for long.
    #[error("the send ring is full, and owner {owner} holds a buffer for {} ms", age.0 / 1_000_000)]
    Straggler {
        /// How long, in steps of about 2 ms.
        age: Nanos,
        /// Who, as given to [`SendRing::loan`].
        owner: u32,
    },
    /// Longer than the ring ever takes: send it by reference.
    #[error("a payload of {len} bytes does not fit the send ring, which takes {max}")]
    TooLarge {
        /// Bytes asked for.
        len: usize,
        /// Bytes at most.
        max: usize,
    },
}

/// A chunk in the hands of the provider, which makes it ready or takes its memory back. Ends with [`SendRing::open`] or
/// [`SendRing::close`]; dropped without, the chunk stays out of use.
#[derive(Debug)]
#[must_use = "a chunk that is neither opened nor closed stays out of use"]
pub struct Chunk {
    index: usize,
    range: Range<usize>,
}

impl Chunk {
    /// Its bytes, from the base of the memory.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// The buffer that has been held longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    /// How long it has been held, in steps of about 2 ms.
    pub age: Nanos,
    /// Who holds it.
    pub owner: u32,
}

/// What a ring has to say about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Buffers alive in chunks and strips.
    pub live: u32,
    /// Chunks open.
    pub open_chunks: u32,
    /// Overflow slots in use.
    pub overflow_in_use: u32,
    /// Buffers that had to go to the overflow slots, ever.
    pub overflowed: u64,
    /// Loans refused for lack of room, ever.
    pub refused: u64,
    /// Posted buffers dropped without completion, ever: a bug of the engine.
    pub abandoned: u64,
}

/// Memory for outgoing payloads, shared by all senders of a connection.
#[derive(Debug)]
pub struct SendRing {
    memory: Memory,
    layout: Layout,
    config: RingConfig,
    chunks: Box<[ChunkWord]>,
    /// All or none.
    strips: Box<[Strip]>,
    /// Whether somebody has entered the strips: once, and nobody else.
    entered: AtomicBool,
    /// Whether its link has ended: it makes no more loans.
    retired: AtomicBool,
    overflow: Overflow,
    max_len: usize,
    /// The chunk to try first: a hint.
    current: CachePadded<AtomicUsize>,
    /// Now, in ticks, as the engine said last.
    now: AtomicU32,
    /// Owner and tick of each live buffer, by its first line; then by overflow slot.
    records: Box<[AtomicU64]>,
    /// Whether it is time to look for another chunk: [`FILLING`] or [`DEMANDED`].
    demand: AtomicU32,
    /// Tick of the last search for a straggler, and the record found in it, plus 1.
    suspect: AtomicU64,
    overflowed: AtomicU64,
    refused: AtomicU64,
    abandoned: AtomicU64,
}

impl SendRing {
    /// Divides `memory` into chunks, of which the first is open, strips and overflow slots. In a small memory chunks get smaller (two
    /// at least), and strips or overflow slots that would take too much of it are left out. The caller makes
    /// [`initial`](Self::initial) ready before the first loan.
    ///
    /// # Errors
    /// [`MemoryClaimed`] if another ring was made of this memory, even if that ring has been dropped: loans of the two would
    /// overlap.
    pub fn new(memory: Arc<dyn SendMemory>, config: RingConfig) -> Result<Self, MemoryClaimed> {
        let memory = Memory::new(memory)?;
        let (layout, classes) = config.layout(memory.len());
        let chunks: Box<[_]> = (0..layout.chunks)
            .map(|index| if index == 0 { layout.first_chunk_bytes } else { layout.chunk_bytes })
            .map(|bytes| ChunkWord::closed(bytes / ALIGNMENT))
            .collect();
        if let Some(first) = chunks.first() {
            let _ = first.lend_closed() && first.open();
        }
        let strips = if layout.strip_bytes == 0 { 0 } else { STRIPS };
        let overflow = Overflow::new(layout.overflow_at, classes);
        let longest = match layout.chunks {
            0 => 0,
            1 => layout.first_chunk_bytes,
            _ => layout.chunk_bytes,
        };
        Ok(Self {
            max_len: longest.max(overflow.longest()) as usize,
            records: zeroed_u64s((layout.overflow_at / ALIGNMENT) as usize + overflow.len()),
            memory,
            layout,
            config,
            chunks,
            strips: (0..strips).map(|_| Strip::default()).collect(),
            entered: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            overflow,
            current: CachePadded::new(AtomicUsize::new(0)),
            now: AtomicU32::new(0),
            demand: AtomicU32::new(0),
            suspect: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        })
    }

    /// The bytes that must be ready from the start: the first chunk; strips and overflow slots.
    pub fn initial(&self) -> [Range<usize>; 2] {
        let first = if self.chunks.is_empty() { 0 } else { self.layout.first_chunk_bytes };
        [0..first as usize, self.layout.strips_at as usize..self.memory.len() as usize]
    }

    /// The longest payload that the ring takes, bytes.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// A buffer of `len` bytes, 64-byte aligned. `owner` is named if it is held for long. Any thread; nothing waits. The loan
    /// keeps the reference to the ring that it is called on. A ring whose link has ended refuses as if it were full.
    #[inline]
    pub fn loan(self: Arc<Self>, len: usize, owner: u32) -> Result<Loan, Exhausted> {
        let extent = self.allocate(len, owner)?;
        // SYNC: a buffer that was freed after `retire` is seen with the flag: the step that allocates it again is an acquire. So
        // the peer of a link that has ended finds in its messages what they were sent with.
        if self.retired.load(Ordering::Relaxed) {
            self.release(extent);
            return Err(Exhausted::Ring);
        }
        Ok(Loan::new(Buffer::new(self, extent)))
    }

    /// Ends the loans: the link is about to end. Buffers that live are not touched.
    pub(super) fn retire(&self) {
        // SYNC: published by the release with which a buffer of the ended link is freed; see `loan`.
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Tells the ring the time; the engine does, once a turn.
    pub fn tick(&self, now: Nanos) {
        let tick = ticks(now);
        if self.now.load(Ordering::Relaxed) != tick {
            self.now.store(tick, Ordering::Relaxed);
        }
    }

    /// The next chunk to make ready, if it is time to: every open chunk is half full, or a loan found no room. The provider makes
    /// its bytes ready, then the caller says [`open`](Self::open), or [`close`](Self::close) if that failed.
    pub fn commit_next(&self) -> Option<Chunk> {
        let demanded = self.demand.swap(0, Ordering::Relaxed) == DEMANDED;
        if !demanded && self.chunks.iter().any(|chunk| chunk.is_open() && chunk.is_roomy()) {
            return None;
        }
        self.lend(self.chunks.iter().position(ChunkWord::lend_closed))
    }

    /// Whether [`commit_next`](Self::commit_next) may have an answer other than the last one: a chunk became half full since, or
    /// a loan found no room. One load.
    #[inline]
    pub fn is_filling(&self) -> bool {
        self.demand.load(Ordering::Relaxed) != 0
    }

    /// An idle chunk, if there is one: open, empty, and unused since the last call. The provider takes its memory back, then the
    /// caller says [`close`](Self::close). The first chunk stays, and so does the only one that is less than half full, which
    /// [`commit_next`](Self::commit_next) would ask for again.
    pub fn trim(&self) -> Option<Chunk> {
        if self.chunks.iter().filter(|chunk| chunk.is_open() && chunk.is_roomy()).count() < 2 {
            return None;
        }
        let idle = self.chunks.iter().skip(1).rposition(ChunkWord::lend_idle);
        self.lend(idle.map(|index| index + 1))
    }

    /// The first chunk, if it is open, empty, and unused since the last call. It stays, but where memory is ready again when it is
    /// touched, the provider may take what lies behind it back. Then the caller says [`open_clean`](Self::open_clean).
    pub fn trim_first(&self) -> Option<Chunk> {
        let idle = self.chunks.first().is_some_and(ChunkWord::lend_idle);
        self.lend(idle.then_some(0))
    }

    /// The chunk is ready for use, and has no memory until it is touched.
    pub fn open_clean(&self, chunk: Chunk) {
        let opened = self.chunks.get(chunk.index).is_some_and(ChunkWord::open_clean);
        assert!(opened, "a chunk goes back to the ring that lent it");
    }

    /// The chunk is ready for use.
    pub fn open(&self, chunk: Chunk) {
        let opened = self.chunks.get(chunk.index).is_some_and(ChunkWord::open);
        assert!(opened, "a chunk goes back to the ring that lent it");
    }

    /// The chunk is not ready any more, or never became so.
    pub fn close(&self, chunk: Chunk) {
        let closed = self.chunks.get(chunk.index).is_some_and(ChunkWord::close);
        assert!(closed, "a chunk goes back to the ring that lent it");
    }

    /// The buffer that has been held longest. Searches all records: for reports, not for the hot path.
    pub fn oldest(&self) -> Option<Oldest> {
        self.find_oldest().and_then(|index| self.describe(index))
    }

    /// What the ring has to say about itself.
    pub fn stats(&self) -> RingStats {
        RingStats {
            live: self.chunks.iter().map(|chunk| chunk.load().1).sum::<u32>()
                + self.strips.iter().map(|strip| strip.load().1).sum::<u32>(),
            open_chunks: self.chunks.iter().map(|chunk| u32::from(chunk.is_open())).sum(),
            overflow_in_use: self.overflow.in_use(),
            overflowed: self.overflowed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
        }
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    fn allocate(&self, len: usize, owner: u32) -> Result<Extent, Exhausted> {
        let Some(len) = u32::try_from(len).ok().filter(|len| *len as usize <= self.max_len) else {
            return Err(Exhausted::TooLarge { len, max: self.max_len });
        };
        let current = self.current.load(Ordering::Relaxed);
        let line = match self.take(current, lines(len)) {
            Some(line) => line,
            None => match self.take_elsewhere(current, lines(len)) {
                Some(line) => line,
                None => return self.overflow(len, owner),
            },
        };
        self.record(line as usize, owner);
        Ok(Extent { offset: line * ALIGNMENT, len })
    }

    /// Allocates in one chunk: the first line, from the base of the memory.
    #[inline]
    fn take(&self, index: usize, lines: u32) -> Option<u32> {
        let chunk = self.chunks.get(index)?;
        let (line, others_live) = chunk.take(lines)?;
        if chunk.is_filling(line, lines, others_live) {
            self.demand.fetch_max(FILLING, Ordering::Relaxed);
        }
        Some((self.layout.chunk_bytes / ALIGNMENT) * u32::try_from(index).ok()? + line)
    }

    #[cold]
    fn take_elsewhere(&self, current: usize, lines: u32) -> Option<u32> {
        let candidates = match self.config.placement {
            Placement::HotFirst => 0..self.chunks.len(),
            Placement::Circular => {
                let next = if self.chunks.get(current + 1).is_some_and(ChunkWord::is_open) {
                    current + 1
                } else {
                    0
                };
                let free = self.chunks.get(next).is_some_and(|chunk| chunk.load() == (0, 0));
                if free { next..next + 1 } else { 0..0 }
            }
        };
        for index in candidates {
            if let Some(line) = self.take(index, lines) {
                self.current.store(index, Ordering::Relaxed);
                return Some(line);
            }
        }
        self.demand.store(DEMANDED, Ordering::Relaxed);
        None
    }

    #[cold]
    fn overflow(&self, len: u32, owner: u32) -> Result<Extent, Exhausted> {
        match self.overflow.claim(len) {
            Some(slot) => {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                self.record(self.slot_record(slot.number), owner);
                Ok(Extent { offset: slot.offset, len })
            }
            None => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(self.blame())
            }
        }
    }

    /// Whether there are strips.
    pub(super) fn has_strips(&self) -> bool {
        !self.strips.is_empty()
    }

    /// Enters the strips. Whether the caller is the first: who is not must not touch them.
    pub(super) fn enter_strips(&self) -> bool {
        !self.entered.swap(true, Ordering::Relaxed)
    }

    /// Allocates in a strip, of which the caller holds the lock; none if it is too long or has no room.
    #[inline]
    pub(super) fn take_in_strip(&self, strip: usize, len: usize, owner: u32) -> Option<Extent> {
        let strip_bytes = self.layout.strip_bytes;
        let len = u32::try_from(len).ok().filter(|len| *len <= strip_bytes / LARGEST_PART)?;
        let line = self.strips.get(strip)?.take(lines(len), strip_bytes / ALIGNMENT)?;
        let offset = self.strip_at(strip) + line * ALIGNMENT;
        self.record((offset / ALIGNMENT) as usize, owner);
        Some(Extent { offset, len })
    }

    /// Forgets who has the buffer at this place of a strip, which is about to be given back where it is counted.
    #[inline]
    pub(super) fn forget_in_strip(&self, strip: usize, offset: u32) -> &AtomicU64 {
        self.records[(offset / ALIGNMENT) as usize].store(0, Ordering::Relaxed);
        self.strips[strip].returned()
    }

    /// No buffer of a strip is taken any more. The caller holds its lock, and leaves the reference that the strip has.
    pub(super) fn retire_strip(self: Arc<Self>, strip: usize) {
        if !self.strips[strip].retire() {
            // Whoever gives the last buffer back drops it.
            core::mem::forget(self);
        }
    }

    /// Whether the memory of a strip was used since it was given back; old news in an instant.
    pub(super) fn uses_strip(&self, strip: usize) -> bool {
        self.strips.get(strip).is_some_and(Strip::is_used)
    }

    /// The bytes of a strip, if they should be given back. The caller holds its lock until they are.
    pub(super) fn idle_strip(&self, strip: usize) -> Option<Range<usize>> {
        let start = self.strip_at(strip) as usize;
        self.strips.get(strip)?.is_idle().then_some(start..start + self.layout.strip_bytes as usize)
    }

    /// Where a strip begins.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are few strips")]
    const fn strip_at(&self, strip: usize) -> u32 {
        self.layout.strips_at + strip as u32 * self.layout.strip_bytes
    }

    /// Frees a buffer that is not of a strip. The caller gives up a live one.
    #[inline]
    pub(super) fn release(&self, extent: Extent) {
        if extent.offset < self.layout.overflow_at {
            self.records[(extent.offset / ALIGNMENT) as usize].store(0, Ordering::Relaxed);
            self.chunk_of(extent.offset).give_back();
        } else {
            let record = self.slot_record(self.overflow.number_of(extent.offset));
            self.records[record].store(0, Ordering::Relaxed);
            self.overflow.release(extent.offset);
        }
    }

    /// Gives the end of a live buffer back, if nothing lies behind it.
    pub(super) fn cut(&self, extent: Extent, len: u32) {
        if extent.offset < self.layout.overflow_at {
            let line = extent.offset % self.layout.chunk_bytes / ALIGNMENT;
            self.chunk_of(extent.offset).cut(line + lines(extent.len), line + lines(len));
        }
    }

    /// Counts a posted buffer that was dropped without completion.
    pub(super) fn count_abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    fn chunk_of(&self, offset: u32) -> &ChunkWord {
        &self.chunks[(offset >> self.layout.chunk_bytes.ilog2()) as usize]
    }

    fn lend(&self, index: Option<usize>) -> Option<Chunk> {
        let index = index?;
        let start = index * self.layout.chunk_bytes as usize;
        let len = if index == 0 { self.layout.first_chunk_bytes } else { self.layout.chunk_bytes };
        Some(Chunk { index, range: start..start + len as usize })
    }

    fn slot_record(&self, slot: u32) -> usize {
        (self.layout.overflow_at / ALIGNMENT + slot) as usize
    }

    #[inline]
    fn record(&self, index: usize, owner: u32) {
        // The lowest bit says that there is a buffer, so ticks count in steps of two.
        let tick = self.now.load(Ordering::Relaxed) | 1;
        self.records[index].store(u64::from(owner) << 32 | u64::from(tick), Ordering::Relaxed);
    }

    /// The record of the oldest live buffer. In a chunk or strip that is the first one, as buffers are laid one after another.
    fn find_oldest(&self) -> Option<usize> {
        let lines_per_chunk = (self.layout.chunk_bytes / ALIGNMENT) as usize;
        let in_chunks = self.chunks.iter().enumerate().filter_map(|(index, chunk)| {
            let start = index * lines_per_chunk;
            (start..start + chunk.load().0 as usize).find(|record| self.is_live(*record))
        });
        let in_strips = self.strips.iter().enumerate().filter_map(|(index, strip)| {
            let start = (self.strip_at(index) / ALIGNMENT) as usize;
            (start..start + strip.load().0 as usize).find(|record| self.is_live(*record))
        });
        let in_slots = (self.slot_record(0)..self.records.len()).filter(|record| self.is_live(*record));
        in_chunks
            .chain(in_strips)
            .chain(in_slots)
            .max_by_key(|record| self.describe(*record).map(|oldest| oldest.age))
    }

    fn is_live(&self, record: usize) -> bool {
        self.records[record].load(Ordering::Relaxed) != 0
    }

    fn describe(&self, record: usize) -> Option<Oldest> {
        let word = self.records[record].load(Ordering::Relaxed);
        let [t0, t1, t2, t3, o0, o1, o2, o3] = word.to_le_bytes();
        let since = u32::from_le_bytes([t0, t1, t2, t3]) & !1;
        let age = (self.now.load(Ordering::Relaxed) & !1).wrapping_sub(since);
        (word != 0).then(|| Oldest {
            age: Nanos(u64::from(age) << TICK_SHIFT),
            owner: u32::from_le_bytes([o0, o1, o2, o3]),
        })
    }

    /// Why there is no room. Searches at most once a tick: a sender that tries again and again should not pay for it.
    fn blame(&self) -> Exhausted {
        let now = self.now.load(Ordering::Relaxed);
        let known = self.suspect.load(Ordering::Relaxed);
        let found = if known >> 32 == u64::from(now) && known != 0 {
            known & u64::from(u32::MAX)
        } else {
            let found = self.find_oldest().map_or(0, |record| record as u64 + 1);
            self.suspect.store(u64::from(now) << 32 | found, Ordering::Relaxed);
            found
        };
        let oldest = usize::try_from(found).ok().and_then(|found| self.describe(found.checked_sub(1)?));
        match oldest {
            Some(Oldest { age, owner, .. }) if age >= self.config.straggler_after => {
                Exhausted::Straggler { age, owner }
            }
            _ => Exhausted::Ring,
        }
    }
}

/// A chunk became half full.
const FILLING: u32 = 1;
/// A loan found no room while chunks were left that are not ready.
const DEMANDED: u32 = 2;

/// Ticks of a time, wrapping after 52 days.
fn ticks(now: Nanos) -> u32 {
    let [a, b, c, d, ..] = (now.0 >> TICK_SHIFT).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
