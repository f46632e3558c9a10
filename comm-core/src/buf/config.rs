//! The division of a send ring's memory.

use pronto_ring::slots::MAX_SLOTS;

use super::ALIGNMENT;
use super::thread_arena::ARENAS;
use crate::time::Nanos;

/// Number of sizes of overflow slots.
pub const OVERFLOW_CLASSES: usize = 3;

/// Overflow slots of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotClass {
    /// Size of a slot, bytes; a multiple of 64.
    pub bytes: u32,
    /// Number of slots.
    pub count: u16,
}

/// The choice of a chunk for the next buffer when the current chunk is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The lowest chunk with room. This keeps memory in the cache, and skips a chunk that a straggler pins.
    #[default]
    HotFirst,
    /// The next chunk in circular order, if it is empty. A straggler stops the ring, as in the comm-layer paper, section 3.2.
    /// For comparison: `Limits::placement` of a session selects it.
    Circular,
}

/// The division of a send ring's memory. Parts that do not fit are made smaller; see [`super::SendRing::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Size of a chunk, bytes; rounded down to a power of two. It limits the length of a payload.
    pub chunk_bytes: u32,
    /// Usable size of the first chunk, bytes. It is less than a chunk where memory is pinned and the amount is limited.
    pub first_chunk_bytes: u32,
    /// Size of a thread arena, bytes, or 0 for none. There are eight arenas. A buffer of up to a quarter of this size comes from
    /// the arena of its thread, unless it is long.
    pub arena_bytes: u32,
    /// Length from which a buffer is long, bytes: it is placed behind the previous one also in an empty chunk.
    pub long_bytes: u32,
    /// Overflow slots, smallest first.
    pub overflow: [SlotClass; OVERFLOW_CLASSES],
    /// Age from which a held buffer is a straggler.
    pub straggler_after: Nanos,
    /// Choice of a chunk for the next buffer.
    pub placement: Placement,
}

impl RingConfig {
    /// Returns the division for pinned memory. An ordinary user may pin 8 MiB in total, so the ring pins only 512 KiB at first, and has
    /// only 128 KiB of thread arenas.
    #[must_use]
    pub fn pinned() -> Self {
        Self { first_chunk_bytes: 512 << 10, arena_bytes: 16 << 10, ..Self::default() }
    }

    /// Returns the division for memory that a core of the peer reads. Buffers of 1 KiB and more are long: memory that this core has just
    /// read must be taken from its cache line by line before it can be written. A buffer of 4 KiB behind the previous one saves a sixth
    /// of an echo.
    #[must_use]
    pub fn shared() -> Self {
        Self { long_bytes: 1 << 10, ..Self::default() }
    }
}

impl Default for RingConfig {
    /// Returns chunks of 4 MiB, 1 MiB of thread arenas, 352 KiB of overflow slots, and stragglers from 100 ms on.
    fn default() -> Self {
        Self {
            chunk_bytes: 4 << 20,
            first_chunk_bytes: 4 << 20,
            arena_bytes: 128 << 10,
            long_bytes: 32 << 10,
            overflow: [
                SlotClass { bytes: 1 << 10, count: 32 },
                SlotClass { bytes: 8 << 10, count: 8 },
                SlotClass { bytes: 64 << 10, count: 4 },
            ],
            straggler_after: Nanos::from_millis(100),
            placement: Placement::HotFirst,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "there are few arenas")]
const ARENAS_U32: u32 = ARENAS as u32;

/// The division of a memory of a given length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of chunks.
    pub(super) chunks: u32,
    /// Size of a chunk, a power of two of bytes.
    pub(super) chunk_bytes: u32,
    /// Usable size of the first chunk, bytes.
    pub(super) first_chunk_bytes: u32,
    /// Size of a thread arena, bytes; 0 if there are none.
    pub(super) arena_bytes: u32,
    /// Offset of the thread arenas, which end where the overflow slots begin.
    pub(super) arenas_at: u32,
    /// Offset of the overflow slots, which end with the memory.
    pub(super) overflow_at: u32,
}

impl RingConfig {
    /// Divides `len` bytes. Overflow slots are included only if their sizes are valid and they take at most half of the memory, and thread
    /// arenas only if they take at most a quarter of it. The rest becomes at least two chunks.
    pub(super) fn layout(&self, len: u32) -> (Layout, [SlotClass; OVERFLOW_CLASSES]) {
        let none = self.overflow.map(|class| SlotClass { count: 0, ..class });
        let wanted: u64 =
            self.overflow.iter().map(|class| u64::from(class.bytes) * u64::from(class.count)).sum();
        let possible = |class: &SlotClass| {
            class.count <= MAX_SLOTS && class.bytes != 0 && class.bytes.is_multiple_of(ALIGNMENT)
        };
        let len = len - len % ALIGNMENT;
        let (overflow, overflow_bytes) = match u32::try_from(wanted) {
            Ok(wanted) if self.overflow.iter().all(possible) && wanted <= len / 2 => (self.overflow, wanted),
            _ => (none, 0),
        };
        let overflow_at = len - overflow_bytes;
        let arena_bytes = self.arena_bytes - self.arena_bytes % ALIGNMENT;
        let arenas = arena_bytes.checked_mul(ARENAS_U32).filter(|bytes| *bytes <= len / 4);
        let arena_bytes = arenas.map_or(0, |_| arena_bytes);
        let for_chunks = overflow_at - arena_bytes * ARENAS_U32;
        let limit = self.chunk_bytes.min(super::chunk::MAX_BYTES).min(for_chunks / 2).max(ALIGNMENT);
        let chunk_bytes = 1 << limit.ilog2();
        let layout = Layout {
            chunks: for_chunks / chunk_bytes,
            chunk_bytes,
            first_chunk_bytes: self.first_chunk_bytes.min(chunk_bytes),
            arena_bytes,
            arenas_at: for_chunks,
            overflow_at,
        };
        (layout, overflow)
    }
}
