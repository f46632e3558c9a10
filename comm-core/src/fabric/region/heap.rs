//! Private memory from the allocator: send memory and regions of providers that share nothing with another process.
//!
//! # Invariants
//! 1. `base` comes from one successful allocation with `layout`, and is freed once, on drop.
#![expect(unsafe_code, reason = "the promises of SendMemory and RegionMemory are about raw memory")]

use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use core::alloc::Layout;
use core::ptr::NonNull;

use super::super::SendMemory;
use super::RegionMemory;

/// Alignment of the first byte: a cache line, as [`SendMemory::base`] asks for.
const ALIGNMENT: usize = 64;

/// Zeroed memory of this process alone; large pieces cost nothing until they are touched.
#[derive(Debug)]
pub struct HeapMemory {
    base: NonNull<u8>,
    len: usize,
    layout: Layout,
}

impl HeapMemory {
    /// Memory of `len` bytes. Ends the process, as every allocation does, if there is none.
    ///
    /// # Panics
    /// If `len` is longer than half the address space.
    pub fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(ALIGNMENT), ALIGNMENT)
            .expect("no memory is half as long as the address space");
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

// SAFETY: the memory belongs to no thread; who accesses it how is laid down by SendMemory and RegionMemory.
unsafe impl Send for HeapMemory {}
// SAFETY: a shared HeapMemory only tells where the memory is.
unsafe impl Sync for HeapMemory {}

// SAFETY: invariant 1 keeps the bytes in place until the drop, and nobody else knows where they are.
unsafe impl SendMemory for HeapMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as for SendMemory; this type accesses the bytes in no way at all.
unsafe impl RegionMemory for HeapMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::fabric::Region;

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
    fn may_be_empty() {
        let region = Region::new(Arc::new(HeapMemory::new(0)));
        assert!(region.is_empty());
        assert!(region.read(0, &mut []).is_ok());
        assert!(region.read(0, &mut [0]).is_err());
    }
}
