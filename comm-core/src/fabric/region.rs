//! Regions: memory to which peers may be granted access, and grants.
//!
//! A region's bytes may change at any time, so they are accessed only through copies and atomics, never as a plain slice.
#![expect(unsafe_code, reason = "memory that other processes write to is accessed through raw pointers")]

pub mod copy;
mod heap;
mod own;

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

use pronto_sync::atomic::AtomicU64;

use super::work::OutOfBounds;
pub use copy::{BLOCK, SharedBytes};
pub use heap::{HeapMemory, HeapSendMemory};
pub use own::{Memory, with_borrowed};

/// The accesses that the memory of a region permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// The memory was allocated for a region. This process and its peers may read and write the bytes.
    Shared,
    /// The memory belongs to the program, and nobody changes it. It is only read.
    ReadOnly,
    /// As [`ReadOnly`](Self::ReadOnly), but an instruction that reads a byte may fault, as the file behind the memory may be truncated.
    /// Only system calls and devices read the bytes.
    SystemCalls,
}

/// The memory behind a region.
///
/// # Safety
/// The bytes `base .. base + len` stay mapped and in place while the value lives. They stay readable, except that memory whose access is
/// [`MemoryAccess::SystemCalls`] may lose its bytes. Only memory whose access is [`MemoryAccess::Shared`] is written to, and its base is
/// aligned to at least 8 bytes: this process and every other process that maps it access it only by relaxed atomic or volatile accesses.
/// No process changes the bytes of other memory.
pub unsafe trait RegionMemory: Send + Sync + fmt::Debug {
    /// Returns the address of the first byte.
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
    /// Returns the accesses that the memory permits.
    fn access(&self) -> MemoryAccess {
        MemoryAccess::Shared
    }
    /// Copies bytes from `offset` by a system call. Returns false if the memory has lost some of them. Called only for memory whose access
    /// is [`MemoryAccess::SystemCalls`], with a range within its length.
    fn read_by_system_call(&self, offset: usize, out: &mut [u8]) -> bool {
        let _ = (offset, out);
        false
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
    ///
    /// # Errors
    /// The region has fewer bytes, or the file that it maps has become shorter.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.address(offset, out.len())?;
        if self.may_fault() {
            let is_read = self.memory.read_by_system_call(offset, out);
            return if is_read { Ok(()) } else { Err(self.refused(offset, out.len())) };
        }
        // SAFETY: `address` checked the bounds, and RegionMemory promises the memory and how it is accessed.
        unsafe { copy::from_shared(at, out) };
        Ok(())
    }

    /// Returns `len` bytes from `offset` for reading in place.
    ///
    /// # Errors
    /// The region has fewer bytes, or only system calls may read them.
    pub fn lend(&self, offset: usize, len: usize) -> Result<SharedBytes<'_>, OutOfBounds> {
        let at = self.address(offset, len)?;
        if self.may_fault() {
            return Err(self.refused(offset, len));
        }
        // SAFETY: `address` checked the bounds, and RegionMemory promises the memory, while `self` is borrowed, and how it is accessed.
        Ok(unsafe { SharedBytes::new(at, len) })
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// The region has fewer bytes, or is read-only.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.writable_address(offset, bytes.len())?;
        // SAFETY: as for read.
        unsafe { copy::to_shared(bytes, at) };
        Ok(())
    }

    /// Copies bytes of other shared memory to `offset`. Each byte that a peer writes during the copy may be old or new.
    pub fn write_from(&self, offset: usize, bytes: SharedBytes<'_>) -> Result<(), OutOfBounds> {
        let at = self.writable_address(offset, bytes.len())?;
        // SAFETY: as for read.
        unsafe { bytes.copy_to_shared(at) };
        Ok(())
    }

    /// Copies a range to the beginning of another region, piece by piece.
    ///
    /// # Errors
    /// As for [`Self::read`] and [`Self::write`].
    pub fn copy_range_to(&self, range: Range<usize>, to: &Self) -> Result<(), OutOfBounds> {
        const PIECE: usize = 64 << 10;
        let mut piece = vec![0; PIECE.min(range.len())];
        for from in range.clone().step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(range.end - from)];
            self.read(from, piece)?;
            to.write(from - range.start, piece)?;
        }
        Ok(())
    }

    /// Returns the eight aligned bytes at `offset` as an atomic, for providers that use the CPU's atomic instructions.
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        if !offset.is_multiple_of(8) {
            return Err(OutOfBounds { offset, wanted: 8, len: self.len() });
        }
        let at = self.writable_address(offset, 8)?.cast::<AtomicU64>();
        // SAFETY: in bounds, aligned as checked and promised for the base, and RegionMemory allows atomic access only.
        Ok(unsafe { at.as_ref() })
    }

    /// Returns whether the program's bytes are only read: peers cannot be granted other rights.
    pub fn is_read_only(&self) -> bool {
        self.memory.access() != MemoryAccess::Shared
    }

    /// Returns whether only system calls and devices may read the bytes, because an instruction may fault.
    pub fn may_fault(&self) -> bool {
        self.memory.access() == MemoryAccess::SystemCalls
    }

    /// Returns the address of `wanted` bytes from `offset` on, for providers whose kernel or device writes to them.
    ///
    /// # Errors
    /// The region has fewer bytes, or is read-only.
    pub fn writable_address(&self, offset: usize, wanted: usize) -> Result<NonNull<u8>, OutOfBounds> {
        if self.is_read_only() {
            return Err(self.refused(offset, wanted));
        }
        self.address(offset, wanted)
    }

    /// Returns the error for bytes that the region has, but that cannot be accessed like this.
    fn refused(&self, offset: usize, wanted: usize) -> OutOfBounds {
        OutOfBounds { offset, wanted, len: 0 }
    }

    /// Returns the address of `wanted` bytes from `offset` on, for providers whose kernel or device reads the bytes.
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
    /// Whether the peer accesses a copy, because it cannot read the memory itself, or because that is not known yet.
    pub is_copy: bool,
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
