//! The bytes behind the ring, and the one kind of access to them.
//!
//! # Invariants
//! 1. `base .. base + len` is the memory of a [`SendMemory`], which `owner` keeps mapped and in place.
//! 2. The extent of a [`Buffer`] lies within the memory, and overlaps no other `Buffer`'s: the ring hands lines out again only
//!    after the buffer that had them is dropped.
//! 3. Once posted, a buffer's bytes are only read: `bytes_mut` is reached through a `Loan` alone.
#![expect(unsafe_code, reason = "extents of the provider's memory become slices here")]

use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use super::ring::SendRing;
use crate::fabric::{Extent, SendMemory};

/// The provider's memory.
pub(super) struct Memory {
    owner: Arc<dyn SendMemory>,
    base: NonNull<u8>,
    len: u32,
}

// SAFETY: the pointer is `owner`'s, which is Send; nothing about the memory is bound to a thread.
unsafe impl Send for Memory {}
// SAFETY: a shared Memory gives out places only, which are read and written under invariant 2.
unsafe impl Sync for Memory {}

impl Memory {
    /// The first 4 GiB of `owner`, or all of it.
    pub(super) fn new(owner: Arc<dyn SendMemory>) -> Self {
        let base = owner.base();
        let len = u32::try_from(owner.len()).unwrap_or(u32::MAX);
        Self { owner, base, len }
    }

    /// Length, bytes.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Where an extent begins.
    fn place(&self, extent: Extent) -> NonNull<u8> {
        let end = u64::from(extent.offset) + u64::from(extent.len);
        assert!(end <= u64::from(self.len), "the ring hands out extents of its memory");
        // SAFETY: invariant 1 and the line above: the place is within the memory, or one past its end.
        unsafe { self.base.add(extent.offset as usize) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// One allocation of a ring, alive; dropping it frees it. Two words, so that it moves in registers from stage to stage.
pub(super) struct Buffer {
    /// None when it has moved on, or was abandoned: then there is nothing to free.
    ring: Option<Arc<SendRing>>,
    extent: Extent,
}

impl Buffer {
    /// Wraps what `ring` has just allocated, for the first time.
    pub(super) fn new(ring: Arc<SendRing>, extent: Extent) -> Self {
        Self { ring: Some(ring), extent }
    }

    /// Whether it is a buffer of this ring.
    pub(super) fn is_of(&self, ring: &Arc<SendRing>) -> bool {
        Arc::ptr_eq(self.ring(), ring)
    }

    /// Where it lies.
    pub(super) fn extent(&self) -> Extent {
        self.extent
    }

    /// Makes it shorter; longer it does not become.
    pub(super) fn shrink(&mut self, len: u32) {
        if len < self.extent.len {
            self.ring().cut(self.extent, len);
            self.extent.len = len;
        }
    }

    /// Moves it out of a stage that is about to be dropped.
    #[inline]
    pub(super) fn move_on(&mut self) -> Self {
        Self { ring: self.ring.take(), extent: self.extent }
    }

    /// Leaves it taken for good, counted, unless it has moved on: somebody may still be reading it.
    pub(super) fn abandon(&mut self) {
        if let Some(ring) = self.ring.take() {
            ring.count_abandoned();
        }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        let place = self.ring().memory().place(self.extent);
        // SAFETY: invariants 1 and 2: readable, ours alone, and not written while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), self.extent.len as usize) }
    }

    /// The bytes, to write.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let place = self.ring().memory().place(self.extent);
        // SAFETY: invariants 1, 2 and 3: writable, ours alone, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), self.extent.len as usize) }
    }

    fn ring(&self) -> &Arc<SendRing> {
        self.ring.as_ref().expect("a buffer moves on only when its stage ends")
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            ring.release(self.extent);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("extent", &self.extent).finish_non_exhaustive()
    }
}
