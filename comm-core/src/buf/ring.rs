//! The send ring: allocation by many threads, growth and trimming by the progress path, and records of buffer owners.
//!
//! # Invariants
//! 1. Buffers are in open chunks, in thread arenas, or in claimed overflow slots. No two buffers share a line.
//! 2. A record is nonzero exactly while a buffer that begins at its line (or has its slot) lives. Between the allocation and the
//!    write of the record it may lag. Records are for reports only; no other code depends on them.

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
use super::thread_arena::{ARENAS, LARGEST_PART, ThreadArena};
use super::{ALIGNMENT, lines};
use crate::fabric::{Extent, MemoryClaimed, SendMemory};
use crate::time::Nanos;

/// Binary logarithm of a tick's length in nanoseconds: ages are counted in ticks of 2^20 ns, about a millisecond.
const TICK_SHIFT: u32 = 20;

/// The reason why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Exhausted {
    /// The ring is full. Reap completions, let the engine make chunks ready, and try again.
    #[error("the send ring is full: try again")]
    Ring,
    /// The ring is full, and a buffer has been held for long.
    #[error("the send ring is full, and owner {owner} has held a buffer for {} ms", age.0 / 1_000_000)]
    Straggler {
        /// Age of the buffer, in steps of about 2 ms.
        age: Nanos,
        /// Owner of the buffer, as passed to [`SendRing::loan`].
        owner: u32,
    },
    /// The payload is longer than the ring's maximum. Send it by reference.
    #[error("a payload of {len} bytes exceeds the send ring's limit of {max} bytes: send it from a region")]
    TooLarge {
        /// Requested length, bytes.
        len: usize,
        /// Maximum length, bytes.
        max: usize,
    },
}

/// A chunk that is lent to the provider, which makes it ready or reclaims its memory. Return it with [`SendRing::open`],
/// [`SendRing::open_clean`] or [`SendRing::close`]. If it is dropped instead, the chunk stays out of use.
#[derive(Debug)]
#[must_use = "a chunk that is neither opened nor closed stays out of use"]
pub struct Chunk {
    index: usize,
    range: Range<usize>,
}

impl Chunk {
    /// Returns the chunk's range of bytes, from the base of the memory.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// The buffer that has been held longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    /// Age of the buffer, in steps of about 2 ms.
    pub age: Nanos,
    /// Owner of the buffer, as passed to [`SendRing::loan`].
    pub owner: u32,
}

/// Counters of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Live buffers in chunks and thread arenas.
    pub live: u32,
    /// Open chunks.
    pub open_chunks: u32,
    /// Overflow slots in use.
    pub overflow_in_use: u32,
    /// Buffers that were allocated in overflow slots, since the ring was made.
    pub overflowed: u64,
    /// Loans refused for lack of room, since the ring was made.
    pub refused: u64,
    /// Posted buffers dropped without a completion, since the ring was made. Each is a bug of the engine.
    pub abandoned: u64,
}

/// Memory for outgoing payloads, shared by all senders of a connection.
#[derive(Debug)]
pub struct SendRing {
    memory: Memory,
    layout: Layout,
    config: RingConfig,
    chunks: Box<[ChunkWord]>,
    /// The thread arenas: [`ARENAS`] of them, or none.
    arenas: Box<[ThreadArena]>,
    /// Whether a [`super::PresentRing`] has entered the thread arenas, which only one may do.
    entered: AtomicBool,
    /// Whether the ring's link has ended, so that the ring makes no more loans.
    retired: AtomicBool,
    overflow: Overflow,
    max_len: usize,
    /// Hint for the chunk to try first.
    current: CachePadded<AtomicUsize>,
    /// Time of the engine's last [`SendRing::tick`], in ticks.
    now: AtomicU32,
    /// Owner and tick of each live buffer: first by its first line, then by overflow slot.
    records: Box<[AtomicU64]>,
    /// Nonzero if another chunk may be needed: [`FILLING`] or [`DEMANDED`].
    demand: AtomicU32,
    /// Tick of the last search for a straggler, and the record found in it, plus 1.
    suspect: AtomicU64,
    overflowed: AtomicU64,
    refused: AtomicU64,
    abandoned: AtomicU64,
}

impl SendRing {
    /// Divides `memory` into chunks, of which the first is open, thread arenas and overflow slots. In a small memory the chunks are
    /// smaller (at least two), and arenas or overflow slots that would take too much of it are left out. The caller must make
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
            .map(|bytes| ChunkWord::closed(bytes / ALIGNMENT, lines(config.long_bytes)))
            .collect();
        if let Some(first) = chunks.first() {
            let _ = first.lend_closed() && first.open();
        }
        let arenas = if layout.arena_bytes == 0 { 0 } else { ARENAS };
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
            arenas: (0..arenas).map(|_| ThreadArena::default()).collect(),
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

    /// Returns the ranges that must be ready from the start: the first chunk; the thread arenas and overflow slots.
    pub fn initial(&self) -> [Range<usize>; 2] {
        let first = if self.chunks.is_empty() { 0 } else { self.layout.first_chunk_bytes };
        [0..first as usize, self.layout.arenas_at as usize..self.memory.len() as usize]
    }

    /// Returns the longest payload that the ring takes, bytes.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Returns a buffer of `len` bytes, aligned to 64 bytes. If it is held for long, reports name `owner`. Any thread may call this; it
    /// does not wait. The loan keeps the given reference to the ring. A ring whose link has ended refuses as if it were full.
    #[inline]
    pub fn loan(self: Arc<Self>, len: usize, owner: u32) -> Result<Loan, Exhausted> {
        let extent = self.allocate(len, owner)?;
        // SYNC: a thread that allocates a buffer which was freed after `retire` sees the flag, as the allocation is an acquire. Therefore
        // no message of an ended link, which its peer may still read, is overwritten.
        if self.retired.load(Ordering::Relaxed) {
            self.release(extent);
            return Err(Exhausted::Ring);
        }
        Ok(Loan::new(Buffer::new(self, extent)))
    }

    /// Ends all loans, as the link is about to end. Live buffers are not affected.
    pub(super) fn retire(&self) {
        // SYNC: published by the release with which a buffer of the ended link is freed; see `loan`.
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Sets the ring's time. The engine calls this once per turn.
    pub fn tick(&self, now: Nanos) {
        let tick = ticks(now);
        if self.now.load(Ordering::Relaxed) != tick {
            self.now.store(tick, Ordering::Relaxed);
        }
    }

    /// Lends the next chunk to make ready, if one is needed: every open chunk is half full, or a loan found no room. The provider makes
    /// its bytes ready. The caller then calls [`open`](Self::open), or [`close`](Self::close) if that failed.
    pub fn commit_next(&self) -> Option<Chunk> {
        let demanded = self.demand.swap(0, Ordering::Relaxed) == DEMANDED;
        if !demanded && self.chunks.iter().any(|chunk| chunk.is_open() && chunk.is_roomy()) {
            return None;
        }
        self.lend(self.chunks.iter().position(ChunkWord::lend_closed))
    }

    /// Returns whether the result of [`commit_next`](Self::commit_next) may have changed since the last call: a chunk became half full, or
    /// a loan found no room. Costs one load.
    #[inline]
    pub fn is_filling(&self) -> bool {
        self.demand.load(Ordering::Relaxed) != 0
    }

    /// Lends an idle chunk, if there is one: open, empty, and unused since the last call. The provider reclaims its memory. The caller
    /// then calls [`close`](Self::close). The first chunk is not lent. Neither is the only chunk that is less than half full, as
    /// [`commit_next`](Self::commit_next) would make another one ready.
    pub fn trim(&self) -> Option<Chunk> {
        if self.chunks.iter().filter(|chunk| chunk.is_open() && chunk.is_roomy()).count() < 2 {
            return None;
        }
        let idle = self.chunks.iter().skip(1).rposition(ChunkWord::lend_idle);
        self.lend(idle.map(|index| index + 1))
    }

    /// Lends the first chunk, if it is open, empty, and unused since the last call. If memory becomes ready when it is touched, the
    /// provider may reclaim the physical memory. The caller then calls [`open_clean`](Self::open_clean), as the first chunk stays open.
    pub fn trim_first(&self) -> Option<Chunk> {
        let idle = self.chunks.first().is_some_and(ChunkWord::lend_idle);
        self.lend(idle.then_some(0))
    }

    /// Returns a chunk that is ready for use, but has no physical memory until it is touched.
    pub fn open_clean(&self, chunk: Chunk) {
        let opened = self.chunks.get(chunk.index).is_some_and(ChunkWord::open_clean);
        assert!(opened, "a chunk is returned to the ring that lent it");
    }

    /// Returns a chunk that is ready for use.
    pub fn open(&self, chunk: Chunk) {
        let opened = self.chunks.get(chunk.index).is_some_and(ChunkWord::open);
        assert!(opened, "a chunk is returned to the ring that lent it");
    }

    /// Returns a chunk that is no longer ready, or could not be made ready.
    pub fn close(&self, chunk: Chunk) {
        let closed = self.chunks.get(chunk.index).is_some_and(ChunkWord::close);
        assert!(closed, "a chunk is returned to the ring that lent it");
    }

    /// Returns the buffer that has been held longest. Searches all records, so it is for reports and not for the hot path.
    pub fn oldest(&self) -> Option<Oldest> {
        self.find_oldest().and_then(|index| self.describe(index))
    }

    /// Returns the counters of the ring.
    pub fn stats(&self) -> RingStats {
        RingStats {
            live: self.chunks.iter().map(|chunk| chunk.load().1).sum::<u32>()
                + self.arenas.iter().map(|arena| arena.load().1).sum::<u32>(),
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

    /// Allocates in one chunk. Returns the first line, from the base of the memory.
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

    /// Returns whether the ring has thread arenas.
    pub(super) fn has_arenas(&self) -> bool {
        !self.arenas.is_empty()
    }

    /// Claims this ring's thread arenas for a [`PresentRing`](super::present::PresentRing), for good. Returns `false` if one has claimed
    /// them before; only the first may use them.
    pub(super) fn claim_arenas(&self) -> bool {
        !self.entered.swap(true, Ordering::Relaxed)
    }

    /// Allocates in a thread arena, whose lock the caller holds. Returns `None` if the buffer is too long or the arena has no room.
    #[inline]
    pub(super) fn take_in_arena(&self, arena: usize, len: usize, owner: u32) -> Option<Extent> {
        let arena_bytes = self.layout.arena_bytes;
        let longest = (arena_bytes / LARGEST_PART).min(self.config.long_bytes);
        let len = u32::try_from(len).ok().filter(|len| *len <= longest)?;
        let line = self.arenas.get(arena)?.take(lines(len), arena_bytes / ALIGNMENT)?;
        let offset = self.arena_at(arena) + line * ALIGNMENT;
        self.record((offset / ALIGNMENT) as usize, owner);
        Some(Extent { offset, len })
    }

    /// Clears the record of a buffer in a thread arena, which is about to be freed. Returns the arena's count of freed buffers.
    #[inline]
    pub(super) fn forget_in_arena(&self, arena: usize, offset: u32) -> &AtomicU64 {
        self.records[(offset / ALIGNMENT) as usize].store(0, Ordering::Relaxed);
        self.arenas[arena].returned()
    }

    /// Ends allocation in a thread arena. The caller holds its lock, and passes the arena's reference to the ring.
    pub(super) fn retire_arena(self: Arc<Self>, arena: usize) {
        if !self.arenas[arena].retire() {
            // The thread that frees the last buffer drops the reference.
            core::mem::forget(self);
        }
    }

    /// Returns whether the memory of a thread arena was used since it was reclaimed. The result may already be out of date.
    pub(super) fn uses_arena(&self, arena: usize) -> bool {
        self.arenas.get(arena).is_some_and(ThreadArena::is_used)
    }

    /// Returns the range of a thread arena whose memory should be reclaimed. The caller holds the arena's lock until that is done.
    pub(super) fn idle_arena(&self, arena: usize) -> Option<Range<usize>> {
        let start = self.arena_at(arena) as usize;
        self.arenas.get(arena)?.is_idle().then_some(start..start + self.layout.arena_bytes as usize)
    }

    /// Returns the offset of a thread arena.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are few arenas")]
    const fn arena_at(&self, arena: usize) -> u32 {
        self.layout.arenas_at + arena as u32 * self.layout.arena_bytes
    }

    /// Frees a live buffer that is not in a thread arena.
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

    /// Frees the end of a live buffer, if no other buffer follows it.
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
        // The lowest bit marks a live buffer, so that ages are counted in steps of two ticks.
        let tick = self.now.load(Ordering::Relaxed) | 1;
        self.records[index].store(u64::from(owner) << 32 | u64::from(tick), Ordering::Relaxed);
    }

    /// Returns the record of the oldest live buffer. In a chunk or thread arena only the first live buffer is considered, as buffers are
    /// allocated in order.
    fn find_oldest(&self) -> Option<usize> {
        let lines_per_chunk = (self.layout.chunk_bytes / ALIGNMENT) as usize;
        let in_chunks = self.chunks.iter().enumerate().filter_map(|(index, chunk)| {
            let start = index * lines_per_chunk;
            (start..start + chunk.load().0 as usize).find(|record| self.is_live(*record))
        });
        let in_arenas = self.arenas.iter().enumerate().filter_map(|(index, arena)| {
            let start = (self.arena_at(index) / ALIGNMENT) as usize;
            (start..start + arena.load().0 as usize).find(|record| self.is_live(*record))
        });
        let in_slots = (self.slot_record(0)..self.records.len()).filter(|record| self.is_live(*record));
        in_chunks
            .chain(in_arenas)
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

    /// Returns the reason why there is no room: a straggler if the oldest buffer is one, otherwise that the ring is full. Searches for the
    /// oldest buffer at most once per tick, so that repeated attempts are cheap.
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

/// Demand after a chunk became half full.
const FILLING: u32 = 1;
/// Demand after a loan found no room in the chunks.
const DEMANDED: u32 = 2;

/// Converts a time to ticks, which wrap after 52 days.
fn ticks(now: Nanos) -> u32 {
    let [a, b, c, d, ..] = (now.0 >> TICK_SHIFT).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
