//! Regions: memory to which peers may be granted access, and grants.
//!
//! A region's bytes may change at any time, so they are accessed only through copies and atomics, never as a plain slice.
#![expect(unsafe_code, reason = "memory that other processes write to is accessed through raw pointers")]

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
/// The bytes `base .. base + len` stay mapped, readable and writable, and in place, while the value lives. `base` is aligned to at least
/// 8 bytes. This process and
/// every other process that maps them access them only by relaxed atomic or volatile accesses.
pub unsafe trait RegionMemory: Send + Sync + fmt::Debug {
    /// Returns the address of the first byte, which is aligned to at least 8 bytes.
    fn base(&self) -> NonNull<u8>;
    /// Returns the length, bytes.
    fn len(&self) -> usize;
    /// Returns whether the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the memory's file descriptor, if another process can map the memory.
    fn descriptor(&self) -> Option<i32> {
        None
    }
}

/// Memory to which peers may be granted access. Cheap to clone; the memory lives as long as any clone.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<dyn RegionMemory>,
}

impl Region {
    /// Returns a region over memory.
    pub fn new(memory: Arc<dyn RegionMemory>) -> Self {
        Self { memory }
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether another handle to this memory exists: a clone in the program, or the handle of a message or one-sided operation in
    /// progress. A message that was sent from the region keeps a handle until the peer has read it, even after the caller has stopped
    /// waiting. A program with a single handle may therefore write to the bytes again once this is false.
    pub fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    /// Returns the memory of the region, for providers.
    pub fn memory(&self) -> &Arc<dyn RegionMemory> {
        &self.memory
    }

    /// Copies `out.len()` bytes from `offset`. Each byte that a peer writes during the copy may be old or new.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.address(offset, out.len())?;
        // SAFETY: `address` checked the bounds, and RegionMemory promises the memory and how it is accessed.
        unsafe { copy::from_shared(at, out) };
        Ok(())
    }

    /// Returns `len` bytes from `offset` for reading in place.
    pub fn lend(&self, offset: usize, len: usize) -> Result<SharedBytes<'_>, OutOfBounds> {
        let at = self.address(offset, len)?;
        // SAFETY: `address` checked the bounds, and RegionMemory promises the memory, while `self` is borrowed, and how it is accessed.
        Ok(unsafe { SharedBytes::new(at, len) })
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.address(offset, bytes.len())?;
        // SAFETY: as for read.
        unsafe { copy::to_shared(bytes, at) };
        Ok(())
    }

    /// Copies bytes of other shared memory to `offset`. Each byte that a peer writes during the copy may be old or new.
    pub fn write_from(&self, offset: usize, bytes: SharedBytes<'_>) -> Result<(), OutOfBounds> {
        let at = self.address(offset, bytes.len())?;
        // SAFETY: as for read.
        unsafe { bytes.copy_to_shared(at) };
        Ok(())
    }

    /// Returns the eight aligned bytes at `offset` as an atomic, for providers that use the CPU's atomic instructions.
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        if !offset.is_multiple_of(8) {
            return Err(OutOfBounds { offset, wanted: 8, len: self.len() });
        }
        let at = self.address(offset, 8)?.cast::<AtomicU64>();
        // SAFETY: in bounds, aligned as checked and promised for the base, and RegionMemory allows atomic access only.
        Ok(unsafe { at.as_ref() })
    }

    /// Returns the address of `wanted` bytes from `offset` on, for providers whose kernel or device accesses the bytes.
    ///
    /// # Errors
    /// The region has fewer bytes.
    pub fn address(&self, offset: usize, wanted: usize) -> Result<NonNull<u8>, OutOfBounds> {
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

/// The operations that a grant allows.
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
    /// Reads, writes and atomic operations.
    pub const ALL: Self = Self { read: true, write: true, atomic: true };
}

/// Id of a grant at the node that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantId(pub u32);

/// A grant, as the granting node holds it. Only the peer to which it was made can use `remote`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Id of the grant, for revoking it.
    pub id: GrantId,
    /// Description of the memory, to be sent to the peer over the authenticated connection.
    pub remote: RemoteRange,
}

/// A range of a peer's memory under a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRange {
    /// Key of the grant, which is bound to one peer.
    pub key: u64,
    /// Offset of the first byte from the start of the grant.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
}

impl RemoteRange {
    /// Returns a part of this range; `range` is relative to its start.
    pub fn part(&self, range: Range<u64>) -> Option<Self> {
        (range.start <= range.end && range.end <= self.len).then(|| Self {
            key: self.key,
            offset: self.offset + range.start,
            len: range.end - range.start,
        })
    }
}
