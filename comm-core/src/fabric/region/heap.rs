//! Private memory from the allocator: send memory and regions of providers that share no memory with another process.
//!
//! # Invariants
//! 1. `base` comes from one successful allocation with `layout`, and is freed once, on drop.
#![expect(unsafe_code, reason = "the promises of SendMemory and RegionMemory concern raw memory")]

use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use alloc::sync::Arc;
use core::alloc::Layout;
use core::ptr::NonNull;

use super::super::{MemoryClaim, SendMemory};
use super::{Region, RegionMemory};

/// Alignment of the first byte: a cache line, as [`SendMemory::base`] requires.
const ALIGNMENT: usize = 64;

/// Zeroed private memory for regions. Pages of large allocations cost nothing until they are touched.
#[derive(Debug)]
pub struct HeapMemory {
    base: NonNull<u8>,
    len: usize,
    layout: Layout,
}

impl HeapMemory {
    /// Allocates `len` bytes. If the allocation fails, the process ends, as with every allocation.
    ///
    /// # Panics
    /// If `len` is longer than half the address space.
    pub fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(ALIGNMENT), ALIGNMENT)
            .expect("the length is at most half the address space");
        // SAFETY: the layout's size is at least ALIGNMENT, so not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, len, layout }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: the memory is not bound to a thread; SendMemory and RegionMemory define which accesses are allowed.
unsafe impl Send for HeapMemory {}
// SAFETY: a shared HeapMemory returns only the address of the memory.
unsafe impl Sync for HeapMemory {}

// SAFETY: invariant 1 keeps the bytes in place until they are freed; this type itself never accesses them.
unsafe impl RegionMemory for HeapMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Zeroed private memory for outgoing payloads. Regions use [`HeapMemory`] instead, because a region's bytes may be written at any
/// time and those of a loan may not.
///
/// ```compile_fail,E0277
/// use std::sync::Arc;
/// use pronto_core::fabric::{HeapSendMemory, Region};
///
/// let region = Region::new(Arc::new(HeapSendMemory::new(64)));
/// ```
///
/// A region's memory cannot be send memory, either:
///
/// ```compile_fail,E0277
/// use std::sync::Arc;
/// use pronto_core::buf::{RingConfig, SendRing};
/// use pronto_core::fabric::HeapMemory;
///
/// let ring = SendRing::new(Arc::new(HeapMemory::new(1 << 20)), RingConfig::default());
/// ```
///
/// Each has its own type:
///
/// ```
/// use std::sync::Arc;
/// use pronto_core::buf::{RingConfig, SendRing};
/// use pronto_core::fabric::{HeapMemory, HeapSendMemory, Region};
///
/// let region = Region::new(Arc::new(HeapMemory::new(64)));
/// let ring = SendRing::new(Arc::new(HeapSendMemory::new(1 << 20)), RingConfig::default());
/// assert!(ring.is_ok());
/// ```
#[derive(Debug)]
pub struct HeapSendMemory {
    bytes: Arc<HeapMemory>,
    claim: MemoryClaim,
}

impl HeapSendMemory {
    /// Allocates `len` bytes. If the allocation fails, the process ends, as with every allocation.
    ///
    /// # Panics
    /// If `len` is longer than half the address space.
    pub fn new(len: usize) -> Self {
        Self { bytes: Arc::new(HeapMemory::new(len)), claim: MemoryClaim::new() }
    }

    /// Returns a region of the same bytes, for a provider whose receiving end reads payloads in the sender's memory.
    ///
    /// # Safety
    /// The region is only used to read bytes, and only those of an extent that was posted and has not completed.
    pub unsafe fn posted(&self) -> Region {
        Region::new(Arc::clone(&self.bytes) as _)
    }
}

// SAFETY: invariant 1 of `bytes`, which no safe function returns; the flag is claimed once; callers of `posted`
// promise to read only posted extents.
unsafe impl SendMemory for HeapSendMemory {
    fn base(&self) -> NonNull<u8> {
        self.bytes.base
    }

    fn len(&self) -> usize {
        self.bytes.len
    }

    fn claim(&self) -> bool {
        self.claim.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_bounded() {
        let memory = Arc::new(HeapMemory::new(100));
        assert_eq!(RegionMemory::base(&*memory).align_offset(ALIGNMENT), 0);
        let region = Region::new(memory);
        let mut bytes = [1; 100];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
        region.write(90, &[7; 10]).unwrap();
        region.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[89], bytes[90], bytes[99]), (0, 7, 7));
        assert!(region.write(91, &[7; 10]).is_err());
    }

    #[test]
    fn send_memory_is_claimed_once_on_all_handles() {
        let memory = Arc::new(HeapSendMemory::new(100));
        let other = Arc::clone(&memory);
        assert_eq!([memory.claim(), other.claim(), memory.claim()], [true, false, false]);
        assert_eq!((other.base().align_offset(ALIGNMENT), other.len()), (0, 100));
    }

    #[test]
    fn may_be_empty() {
        let region = Region::new(Arc::new(HeapMemory::new(0)));
        assert!(region.is_empty());
        assert!(region.read(0, &mut []).is_ok());
        assert!(region.read(0, &mut [0]).is_err());
    }
}
