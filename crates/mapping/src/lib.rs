//! Send memory, and mapped files from which messages are sent. Send memory is an anonymous mapping, reserved as a whole and committed by the
//! kernel page by page on first use.
//!
//! # Invariants
//! 1. `base .. base + len` is one private mapping, created only in `new` and unmapped only in `drop`.
//! 2. The bytes are reached through the only claim ([`SendMemory::claim`]), and through `unsafe` functions whose callers promise that
//!    no write overlaps their access. No safe function reads, writes or discards them.
#![expect(unsafe_code, reason = "maps memory, and guarantees to the fabric that it stays mapped")]

mod file;

use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use pronto_core::fabric::{Extent, FabricError, MemoryClaim, SendMemory};

pub use file::FileMapping;

/// The send memory of one connection.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    claim: MemoryClaim,
}

// SAFETY: the mapping belongs to the process, not to a thread; access to its bytes is governed by invariant 2.
unsafe impl Send for Mapping {}
// SAFETY: as for Send: `&self` gives out no mutable access.
unsafe impl Sync for Mapping {}

// SAFETY: invariant 1 keeps the bytes mapped and in place while the value lives; the flag is claimed once; invariant 2.
unsafe impl SendMemory for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn claim(&self) -> bool {
        self.claim.take()
    }
}

impl Mapping {
    /// Reserves `len` bytes of address space, at least one page. A forked child does not inherit them.
    ///
    /// # Errors
    /// Returns the error of mmap(2) or madvise(2).
    pub fn new(len: u32) -> Result<Self, FabricError> {
        let len = (len as usize).max(1);
        let size = NonZeroUsize::new(len).expect("one byte at least");
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let mapped =
            unsafe { mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) };
        let this = Self { base: mapped.map_err(system)?.cast(), len, claim: MemoryClaim::new() };
        // SAFETY: the whole mapping, of which DONTFORK changes no byte.
        unsafe { this.advise(0..len, MmapAdvise::MADV_DONTFORK) }?;
        Ok(this)
    }

    /// Makes the kernel commit the memory on this NUMA node from now on, as long as the node has free memory (mbind(2),
    /// MPOL_PREFERRED). Call it before the memory is touched or registered: committed pages do not move.
    ///
    /// # Errors
    /// Returns the error of mbind(2): ENOSYS if the kernel has no NUMA support, EPERM in some containers, EINVAL if this process may
    /// not use the node.
    pub fn prefer_node(&self, node: u32) -> Result<(), FabricError> {
        let mut mask = NodeMask::default();
        let (word, bit) = (node / libc::c_ulong::BITS, node % libc::c_ulong::BITS);
        let word = mask.get_mut(word as usize).ok_or_else(|| system(nix::Error::EINVAL))?;
        *word = 1 << bit;
        let base = self.base.as_ptr();
        // SAFETY: invariant 1: the range is our mapping, and no byte of it is changed; the kernel reads the mask during the call.
        let done = unsafe {
            libc::syscall(libc::SYS_mbind, base, self.len, libc::MPOL_PREFERRED, mask.as_ptr(), MASK_BITS, 0)
        };
        nix::Error::result(done).map(drop).map_err(system)
    }

    /// Checks that a range lies in the memory. It commits nothing: the kernel does that when a page is first touched.
    ///
    /// # Errors
    /// Returns EINVAL if the range does not.
    pub fn prepare(&self, range: &Range<usize>) -> Result<(), FabricError> {
        if range.start <= range.end && range.end <= self.len {
            Ok(())
        } else {
            Err(system(nix::Error::EINVAL))
        }
    }

    /// Returns the pages of an idle range to the system. They read as zeros afterwards.
    ///
    /// ```compile_fail,E0133
    /// let memory = pronto_mapping::Mapping::new(4096).unwrap();
    /// memory.retire(0..4096).unwrap();
    /// ```
    ///
    /// # Errors
    /// Returns EINVAL for a range outside the memory, or the error of madvise(2).
    ///
    /// # Safety
    /// No reference to a byte of the range exists: no loan of a send ring lies in it, and no slice of [`bytes`](Self::bytes).
    pub unsafe fn retire(&self, range: Range<usize>) -> Result<(), FabricError> {
        self.prepare(&range)?;
        // SAFETY: the range lies within the mapping, as `prepare` checked; the caller promises that no reference to it exists.
        unsafe { self.advise(range, MmapAdvise::MADV_DONTNEED) }
    }

    /// Returns the bytes of a posted extent that lies within the memory, or an empty slice if it does not.
    ///
    /// ```compile_fail,E0133
    /// use pronto_core::fabric::Extent;
    ///
    /// let memory = pronto_mapping::Mapping::new(4096).unwrap();
    /// let slice = memory.bytes(Extent { offset: 0, len: 64 });
    /// ```
    ///
    /// # Safety
    /// While the slice lives, no thread writes to the extent, and no `&mut` to a byte of it exists. This holds for an extent between
    /// its posting and its completion.
    pub unsafe fn bytes(&self, Extent { offset, len }: Extent) -> &[u8] {
        let (offset, len) = (offset as usize, len as usize);
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return &[];
        }
        // SAFETY: offset + len <= self.len, checked above, so the sum stays within the mapping.
        let first = unsafe { self.base.add(offset) };
        // SAFETY: invariant 1, and the caller's promise; the slice lives no longer than `self`.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// Gives the kernel advice about a range.
    ///
    /// # Safety
    /// The range lies within the mapping. If the advice changes bytes, no reference to a byte of the range exists.
    unsafe fn advise(&self, range: Range<usize>, advice: MmapAdvise) -> Result<(), FabricError> {
        // SAFETY: the caller promises a range within the mapping.
        let first = unsafe { self.base.add(range.start) };
        // SAFETY: the range is ours (invariant 1), and the caller promises that the advice may be given.
        unsafe { madvise(first.cast(), range.len(), advice) }.map_err(system)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: invariant 1: our own mapping, whole; no borrow of it can outlive `self`.
        let unmapped = unsafe { munmap(self.base.cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// A bit for each NUMA node, for the largest number that kernels are built for (MAX_NUMNODES).
type NodeMask = [libc::c_ulong; 16];
/// Bits in the mask, plus one, because the kernel subtracts one from the number passed.
const MASK_BITS: libc::c_ulong = 1_024 + 1;

fn system(errno: nix::Error) -> FabricError {
    FabricError::System { errno: errno as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of an extent of a mapping that only the calling test uses.
    fn copied(memory: &Mapping, offset: u32, len: u32) -> Vec<u8> {
        // SAFETY: only this thread uses the mapping; it holds no reference to the bytes and writes none during the call.
        unsafe { memory.bytes(Extent { offset, len }) }.to_vec()
    }

    #[test]
    fn an_extent_outside_is_empty_and_one_inside_is_not() {
        let memory = Mapping::new(8192).unwrap();
        assert_eq!(copied(&memory, 8000, 192), [0; 192]);
        assert!(copied(&memory, 8000, 193).is_empty());
        assert!(copied(&memory, u32::MAX, u32::MAX).is_empty());
    }

    /// Flag of get_mempolicy(2) that selects the memory at an address.
    const MPOL_F_ADDR: libc::c_ulong = 2;

    /// Returns the kernel's policy for the memory, and the first word of its node mask.
    fn policy(memory: &Mapping) -> (i32, libc::c_ulong) {
        let (mut mode, mut mask) = (-1, NodeMask::default());
        let base = memory.base.as_ptr();
        // SAFETY: the kernel writes to two live values, and no more than `MASK_BITS` bits.
        let done = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                mask.as_mut_ptr(),
                MASK_BITS,
                base,
                MPOL_F_ADDR,
            )
        };
        assert_eq!(done, 0, "{}", nix::Error::last());
        (mode, mask[0])
    }

    /// Shows: operations.memory-place
    #[test]
    fn memory_comes_from_the_preferred_node() {
        let memory = Mapping::new(8192).unwrap();
        match memory.prefer_node(0) {
            Ok(()) => assert_eq!(policy(&memory), (libc::MPOL_PREFERRED, 1)),
            // ENOSYS: a kernel without NUMA support; EPERM: a container in which mbind(2) is forbidden.
            Err(FabricError::System { errno }) => {
                assert!([libc::ENOSYS, libc::EPERM].contains(&errno), "{errno}")
            }
            Err(other) => panic!("{other}"),
        }
        // SAFETY: within the mapping, which only this test uses.
        unsafe { memory.base().write(7) };
        assert_eq!(copied(&memory, 0, 2), [7, 0]);
    }

    #[test]
    fn a_missing_node_is_refused() {
        let memory = Mapping::new(4096).unwrap();
        for node in [1_023, 1_024, u32::MAX] {
            assert!(memory.prefer_node(node).is_err(), "{node}");
        }
    }

    #[test]
    fn retired_pages_read_as_zeros() {
        let memory = Mapping::new(8192).unwrap();
        // SAFETY: within the mapping, which only this test uses.
        unsafe { memory.base().write(7) };
        assert_eq!(copied(&memory, 0, 1), [7]);
        // SAFETY: no reference to the bytes exists.
        unsafe { memory.retire(0..4096) }.unwrap();
        assert_eq!(copied(&memory, 0, 1), [0]);
        // SAFETY: as above.
        assert!(unsafe { memory.retire(4096..8193) }.is_err());
    }

    #[test]
    fn a_second_ring_over_a_mapping_is_refused() {
        let memory = std::sync::Arc::new(Mapping::new(1 << 20).unwrap());
        let ring = || {
            pronto_core::buf::SendRing::new(
                std::sync::Arc::clone(&memory) as _,
                pronto_core::buf::RingConfig::default(),
            )
        };
        let first = ring().unwrap();
        assert_eq!(ring().unwrap_err(), pronto_core::fabric::MemoryClaimed);
        drop(first);
        assert_eq!(ring().unwrap_err(), pronto_core::fabric::MemoryClaimed);
    }
}
