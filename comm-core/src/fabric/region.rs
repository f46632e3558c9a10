//! Regions: memory that peers may be granted access to, and what a grant is.
//!
//! A region's bytes may change under its owner's feet, so they are reached through copies and atomics only, never as a
//! plain slice.
#![expect(unsafe_code, reason = "memory that others write to is reached by raw pointers")]

pub mod copy;
mod heap;

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

use pronto_sync::atomic::AtomicU64;

use super::work::OutOfBounds;
pub use copy::{BLOCK, SharedBytes};
pub use heap::{HeapMemory, HeapSendMemory};

/// The memory behind a region.
///
/// # Safety
/// The bytes `base .. base + len` stay mapped, readable and writable, and in place, while the value lives; they are
/// reached only by relaxed atomic or volatile accesses, here and in every process that maps them.
pub unsafe trait RegionMemory: Send + Sync + fmt::Debug {
    /// First byte; aligned to 8 bytes at least.
    fn base(&self) -> NonNull<u8>;
    /// Length, bytes.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The memory's file descriptor, if it can be mapped by another process.
    fn descriptor(&self) -> Option<i32> {
        None
    }
}

/// Memory that peers may be granted access to. Cheap to clone; the memory lives as long as any clone.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<dyn RegionMemory>,
}

impl Region {
    /// A region over memory.
    pub fn new(memory: Arc<dyn RegionMemory>) -> Self {
        Self { memory }
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether another handle to this memory exists: a clone in the program, or one that is kept for a message or a one-sided
    /// operation under way. A message that was sent from the region keeps one until the peer has read it, also after the caller has
    /// stopped waiting. So a program with a single handle may write to the bytes again once this is false.
    pub fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    /// The memory behind it, for providers.
    pub fn memory(&self) -> &Arc<dyn RegionMemory> {
        &self.memory
    }

    /// Copies `out.len()` bytes from `offset`. Bytes that a peer writes meanwhile may be old or new, each by itself.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, out.len())?;
        // SAFETY: `at` checked the bounds, and RegionMemory promises the memory and how it is accessed.
        unsafe { copy::from_shared(at, out) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, bytes.len())?;
        // SAFETY: as for read.
        unsafe { copy::to_shared(bytes, at) };
        Ok(())
    }

    /// The eight aligned bytes at `offset` as an atomic, for providers whose atomics are the processor's.
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        if !offset.is_multiple_of(8) {
            return Err(OutOfBounds { offset, wanted: 8, len: self.len() });
        }
        let at = self.at(offset, 8)?.cast::<AtomicU64>();
        // SAFETY: in bounds, aligned as checked and promised for the base, and RegionMemory allows atomic access only.
        Ok(unsafe { at.as_ref() })
    }

    fn at(&self, offset: usize, wanted: usize) -> Result<NonNull<u8>, OutOfBounds> {
        let len = self.len();
        match offset.checked_add(wanted) {
            Some(end) if end <= len => {
                // SAFETY: offset <= end <= len, so the sum stays within the memory or one past its end.
                Ok(unsafe { self.memory.base().add(offset) })
            }
            _ => Err(OutOfBounds { offset, wanted, len }),
        }
    }
}

/// What a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// One-sided reads.
    pub read: bool,
    /// One-sided writes.
    pub write: bool,
    /// Compare-and-swap, fetch-add.
    pub atomic: bool,
}

impl Rights {
    /// Reads only.
    pub const READ: Self = Self { read: true, write: false, atomic: false };
    /// Reads and writes.
    pub const READ_WRITE: Self = Self { read: true, write: true, atomic: false };
    /// Everything.
    pub const ALL: Self = Self { read: true, write: true, atomic: true };
}

/// Names a grant at the side that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantId(pub u32);

/// A grant as its giver holds it; `remote` is what the peer needs, and is worth nothing to anybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To end it by.
    pub id: GrantId,
    /// To be sent to the peer, over the authenticated connection.
    pub remote: RemoteRange,
}

/// A piece of a peer's memory, as a grant names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRange {
    /// The grant's key: bound to one peer.
    pub key: u64,
    /// First byte, from the start of the grant.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
}

impl RemoteRange {
    /// A part of this range, `range` counted from its start.
    pub fn part(&self, range: Range<u64>) -> Option<Self> {
        (range.start <= range.end && range.end <= self.len).then(|| Self {
            key: self.key,
            offset: self.offset + range.start,
            len: range.end - range.start,
        })
    }
}
