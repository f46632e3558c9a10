//! The bytes behind the ring, and the one kind of access to them.
//!
//! # Invariants
//! 1. `base .. base + len` is the memory of a [`SendMemory`], which `owner` keeps mapped and in place, and of which this
//!    `Memory` has the only claim: no other one lends the same bytes.
//! 2. The extent of a [`Buffer`] lies within the memory, and overlaps no other `Buffer`'s: the ring hands lines out again only
//!    after the buffer that had them is dropped.
//! 3. Once posted, a buffer's bytes are only read: `bytes_mut` is reached through a `Loan` alone.
//! 4. While a `Buffer` has a ring, the ring lives: one of the chunks or of the overflow slots owns a reference to it, and of those
//!    of a strip all own one together, which the strip has until it is retired and the last of them after that.
#![expect(unsafe_code, reason = "extents of the provider's memory become slices here")]

use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use super::ring::SendRing;
use super::strip::{STRIPS, Strip};
use crate::fabric::{Extent, MemoryClaimed, SendMemory};

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
    /// Claims `owner`, and takes its first 4 GiB or all of it.
    pub(super) fn new(owner: Arc<dyn SendMemory>) -> Result<Self, MemoryClaimed> {
        if !owner.claim() {
            return Err(MemoryClaimed);
        }
        let base = owner.base();
        let len = u32::try_from(owner.len()).unwrap_or(u32::MAX);
        Ok(Self { owner, base, len })
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

/// One allocation of a ring, alive; dropping it frees it. Two words, so that it moves in registers from stage to stage: written in
/// parts and read as a whole it would wait, in memory, for longer than its allocation takes.
pub(super) struct Buffer {
    /// None when it has moved on, or was abandoned, or never was: then there is nothing to free.
    ring: Option<NonNull<SendRing>>,
    /// Where it begins, a multiple of 64; in the lowest bits the number of its strip, plus 1, or 0 if it is not of a strip; in the
    /// upper half its length.
    place: u64,
}

// SAFETY: the pointer stands for a reference to a SendRing, which is Send and Sync.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared Buffer is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Wraps what `ring` has just allocated outside of its strips, for the first time.
    pub(super) fn new(ring: Arc<SendRing>, extent: Extent) -> Self {
        // SAFETY: the pointer of an Arc is not null.
        let ring = unsafe { NonNull::new_unchecked(Arc::into_raw(ring).cast_mut()) };
        Self { ring: Some(ring), place: pack(extent, 0) }
    }

    /// None.
    #[inline]
    pub(super) const fn none() -> Self {
        Self { ring: None, place: 0 }
    }

    /// Whether there is one.
    #[inline]
    pub(super) const fn is_some(&self) -> bool {
        self.ring.is_some()
    }

    /// Wraps what `ring` has just allocated in its strip of that number, for the first time.
    #[inline]
    pub(super) fn in_strip(ring: &Arc<SendRing>, strip: usize, extent: Extent) -> Self {
        Self { ring: Some(NonNull::from(&**ring)), place: pack(extent, strip as u64 + 1) }
    }

    /// Whether it is a buffer of this ring.
    pub(super) fn is_of(&self, ring: &Arc<SendRing>) -> bool {
        core::ptr::eq(self.ring(), &raw const **ring)
    }

    /// Where it lies.
    #[inline]
    pub(super) const fn extent(&self) -> Extent {
        unpack(self.place)
    }

    /// Makes it shorter; longer it does not become.
    pub(super) fn shrink(&mut self, len: u32) {
        let extent = self.extent();
        if len < extent.len {
            // The lines at the end of a buffer in a strip come back with the others.
            if self.place & TAG == 0 {
                self.ring().cut(extent, len);
            }
            self.place = pack(Extent { len, ..extent }, self.place & TAG);
        }
    }

    /// Moves it out of a stage that is about to be dropped.
    #[inline]
    pub(super) fn move_on(&mut self) -> Self {
        Self { ring: self.ring.take(), place: self.place }
    }

    /// Leaves it taken for good, counted, unless it has moved on: somebody may still be reading it.
    pub(super) fn abandon(&mut self) {
        if self.ring.is_some() {
            self.ring().count_abandoned();
            // A buffer of a strip leaves the reference that all of them own together to nobody.
            if let Some(ring) = self.ring.take().filter(|_| self.place & TAG == 0) {
                // SAFETY: invariant 4: the reference is this buffer's, from `new`.
                drop(unsafe { Arc::from_raw(ring.as_ptr()) });
            }
        }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        let place = self.ring().memory().place(self.extent());
        // SAFETY: invariants 1 and 2: readable, ours alone, and not written while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(place.as_ptr(), self.extent().len as usize) }
    }

    /// The bytes, to write.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let place = self.ring().memory().place(self.extent());
        // SAFETY: invariants 1, 2 and 3: writable, ours alone, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), self.extent().len as usize) }
    }

    fn ring(&self) -> &SendRing {
        let ring = self.ring.expect("a buffer moves on only when its stage ends");
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
        let strip = (self.place & TAG) as usize - 1;
        // SAFETY: invariant 4: it lives until this buffer is counted as given back.
        let returned = unsafe { ring.as_ref() }.forget_in_strip(strip, self.extent().offset);
        if Strip::give_back(returned) {
            give_up(ring);
        }
    }
}

/// Frees a buffer that is not of a strip.
#[inline(never)]
fn give_back(ring: NonNull<SendRing>, place: u64) {
    // SAFETY: invariant 4: the reference is the buffer's, from `new`.
    let ring = unsafe { Arc::from_raw(ring.as_ptr()) };
    ring.release(unpack(place));
}

/// Gives up the reference that all buffers of a strip had together.
#[cold]
fn give_up(ring: NonNull<SendRing>) {
    // SAFETY: invariant 4: the caller gave back the last of them.
    drop(unsafe { Arc::from_raw(ring.as_ptr()) });
}

/// The bits of a buffer's place that are neither offset nor length.
const TAG: u64 = super::ALIGNMENT as u64 - 1;
const _: () = assert!(STRIPS as u64 <= TAG);

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
