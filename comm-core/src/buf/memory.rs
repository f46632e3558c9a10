//! The memory of the ring, and buffers in it.
//!
//! # Invariants
//! 1. `base .. base + len` is the memory of a [`SendMemory`], which `owner` keeps mapped and in place. This `Memory` has the
//!    only claim to it, so that no other one lends the same bytes.
//! 2. The extent of a [`Buffer`] is within the memory, and overlaps that of no other `Buffer`: the ring allocates lines again
//!    only after the buffer that had them is dropped.
//! 3. After a buffer is posted, its bytes are only read: only a `Loan` calls `bytes_mut`.
//! 4. While a `Buffer` has a ring, the ring lives. A buffer of the chunks or of the overflow slots owns a reference to it. All
//!    buffers of a thread arena share one reference, which belongs to the arena until it is retired and to the last of
//!    the buffers afterwards.
#![expect(unsafe_code, reason = "extents of the provider's memory become slices here")]

use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use super::ring::SendRing;
use super::thread_arena::{ARENAS, ThreadArena};
use crate::fabric::{Extent, MemoryClaimed, SendMemory};

/// The claimed memory of the provider.
pub(super) struct Memory {
    owner: Arc<dyn SendMemory>,
    base: NonNull<u8>,
    len: u32,
}

// SAFETY: the pointer belongs to `owner`, which is Send; the memory is not bound to a thread.
unsafe impl Send for Memory {}
// SAFETY: a shared Memory returns only addresses, which are read and written under invariant 2.
unsafe impl Sync for Memory {}

impl Memory {
    /// Claims `owner`, and uses at most its first 4 GiB.
    pub(super) fn new(owner: Arc<dyn SendMemory>) -> Result<Self, MemoryClaimed> {
        if !owner.claim() {
            return Err(MemoryClaimed);
        }
        let base = owner.base();
        let len = u32::try_from(owner.len()).unwrap_or(u32::MAX);
        Ok(Self { owner, base, len })
    }

    /// Returns the length, bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the address of an extent.
    fn place(&self, extent: Extent) -> NonNull<u8> {
        let end = u64::from(extent.offset) + u64::from(extent.len);
        assert!(end <= u64::from(self.len), "an extent is within the memory of its ring");
        // SAFETY: invariant 1 and the assertion above: the address is within the memory, or one past its end.
        unsafe { self.base.add(extent.offset as usize) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// A live allocation of a ring. Dropping it frees the allocation. It has two words, so that it moves in registers from stage to stage:
/// if it were written in parts and read as a whole, the store-forwarding stall would take longer than the allocation.
pub(super) struct Buffer {
    /// The ring. `None` if there is nothing to free: the buffer was moved to the next stage, abandoned, or never allocated.
    ring: Option<NonNull<SendRing>>,
    /// The lower half has the offset, a multiple of 64, and in its lowest bits the number of the thread arena plus 1, or 0 for none. The
    /// upper half has the length.
    place: u64,
}

// SAFETY: the pointer represents a reference to a SendRing, which is Send and Sync.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared Buffer is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Wraps an extent that `ring` has just allocated outside of its thread arenas. Called once per allocation.
    pub(super) fn new(ring: Arc<SendRing>, extent: Extent) -> Self {
        // SAFETY: the pointer of an Arc is not null.
        let ring = unsafe { NonNull::new_unchecked(Arc::into_raw(ring).cast_mut()) };
        Self { ring: Some(ring), place: pack(extent, 0) }
    }

    /// Returns a `Buffer` that has no allocation.
    #[inline]
    pub(super) const fn none() -> Self {
        Self { ring: None, place: 0 }
    }

    /// Returns whether there is an allocation.
    #[inline]
    pub(super) const fn is_some(&self) -> bool {
        self.ring.is_some()
    }

    /// Wraps an extent that `ring` has just allocated in thread arena number `arena`. Called once per allocation.
    #[inline]
    pub(super) fn in_arena(ring: &Arc<SendRing>, arena: usize, extent: Extent) -> Self {
        Self { ring: Some(NonNull::from(&**ring)), place: pack(extent, arena as u64 + 1) }
    }

    /// Returns whether the buffer belongs to this ring.
    pub(super) fn is_of(&self, ring: &Arc<SendRing>) -> bool {
        core::ptr::eq(self.ring(), &raw const **ring)
    }

    /// Returns the extent.
    #[inline]
    pub(super) const fn extent(&self) -> Extent {
        unpack(self.place)
    }

    /// Shortens the buffer to `len` bytes. Does nothing if it is not longer.
    pub(super) fn shrink(&mut self, len: u32) {
        let extent = self.extent();
        if len < extent.len {
            // The lines at the end of a buffer in a thread arena are freed with the others.
            if self.place & TAG == 0 {
                self.ring().cut(extent, len);
            }
            self.place = pack(Extent { len, ..extent }, self.place & TAG);
        }
    }

    /// Moves the buffer out of a stage that is about to be dropped.
    #[inline]
    pub(super) fn move_on(&mut self) -> Self {
        Self { ring: self.ring.take(), place: self.place }
    }

    /// Counts the buffer as abandoned and never frees its memory, as the transport may still read it. Does nothing if the buffer has moved
    /// to the next stage.
    pub(super) fn abandon(&mut self) {
        if self.ring.is_some() {
            self.ring().count_abandoned();
            // For a buffer of a thread arena, the shared reference is never dropped.
            if let Some(ring) = self.ring.take().filter(|_| self.place & TAG == 0) {
                // SAFETY: invariant 4: the reference is this buffer's, from `new`.
                drop(unsafe { Arc::from_raw(ring.as_ptr()) });
            }
        }
    }

    /// Returns the bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        let place = self.ring().memory().place(self.extent());
        // SAFETY: invariants 1 and 2: readable, of no other buffer, and not written while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), self.extent().len as usize) }
    }

    /// Returns the bytes for writing.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let place = self.ring().memory().place(self.extent());
        // SAFETY: invariants 1, 2 and 3: writable, of no other buffer, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), self.extent().len as usize) }
    }

    fn ring(&self) -> &SendRing {
        let ring = self.ring.expect("a buffer in use has a ring");
        // SAFETY: invariant 4.
        unsafe { ring.as_ref() }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let Some(ring) = self.ring else { return };
        if self.place & TAG == 0 {
            give_back(ring, self.place);
            return;
        }
        let arena = (self.place & TAG) as usize - 1;
        // SAFETY: invariant 4: the ring lives until this buffer is counted as freed.
        let returned = unsafe { ring.as_ref() }.forget_in_arena(arena, self.extent().offset);
        if ThreadArena::give_back(returned) {
            give_up(ring);
        }
    }
}

/// Frees a buffer that is not in a thread arena.
#[inline(never)]
fn give_back(ring: NonNull<SendRing>, place: u64) {
    // SAFETY: invariant 4: the reference is the buffer's, from `new`.
    let ring = unsafe { Arc::from_raw(ring.as_ptr()) };
    ring.release(unpack(place));
}

/// Drops the reference that all buffers of a thread arena share.
#[cold]
fn give_up(ring: NonNull<SendRing>) {
    // SAFETY: invariant 4: the caller freed the last of these buffers.
    drop(unsafe { Arc::from_raw(ring.as_ptr()) });
}

/// Bits of a buffer's `place` that are neither offset nor length.
const TAG: u64 = super::ALIGNMENT as u64 - 1;
const _: () = assert!(ARENAS as u64 <= TAG);

const fn pack(extent: Extent, tag: u64) -> u64 {
    (extent.len as u64) << 32 | extent.offset as u64 | tag
}

#[expect(clippy::cast_possible_truncation, reason = "each is a half")]
const fn unpack(place: u64) -> Extent {
    Extent { offset: (place & !TAG) as u32, len: (place >> 32) as u32 }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("extent", &self.extent()).finish_non_exhaustive()
    }
}
