//! Memory that several processes map: mappings, and typed views that keep them mapped.
//!
//! # Invariants
//! 1. `base .. base + len` is one mapping of this process from a [`Mapping`]'s creation to its drop; only this module
//!    unmaps.
//! 2. Bytes that another process maps are accessed through atomics, or through `region::copy`, which uses atomics. The
//!    one exception is send memory, which only its owner can write to (see [`SendSegment`]).
//! 3. A mapping without [`Access::Write`] is never stored to: its views have loads only.
//! 4. A mapped file cannot shrink: its memfd was created here, or had its size sealed before it was mapped (`memfd`).
//! 5. A forked child has none of the mappings (`MADV_DONTFORK`): the user of a view calls [`forked`] first.
#![expect(unsafe_code, reason = "memory mappings are reached by raw pointers")]

use core::ffi::c_void;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::mman::{self, MapFlags, MmapAdvise, ProtFlags};
use pronto_core::fabric::region::{RegionMemory, SharedBytes, copy};
use pronto_core::fabric::{MemoryClaim, OutOfBounds, Region, SendMemory};
use pronto_ring::{Line, LineStorage};
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_sync::{Event, peer_is_armed};

/// Page size to which sizes are rounded: that of Linux on x86-64; elsewhere, pages are not smaller.
pub(crate) const PAGE: usize = 4096;

/// Permitted accesses to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// A shared mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: NonZeroUsize,
    access: Access,
}

// SAFETY: the mapping belongs to the process, not to a thread; invariant 2 makes concurrent access sound.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a memfd from `offset`, a multiple of the page size. A forked child does not inherit the
    /// mapping.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize, access: Access) -> Result<Self, Errno> {
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let protection = match access {
            Access::Read => ProtFlags::PROT_READ,
            Access::Write => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice changes no memory that is in use.
        let base = unsafe { mman::mmap(None, len, protection, MapFlags::MAP_SHARED, fd, offset) }?;
        let mapping = Self { base: base.cast(), len, access };
        mapping.advise(MmapAdvise::MADV_DONTFORK)?;
        Ok(mapping)
    }

    fn advise(&self, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: invariant 1; neither DONTFORK nor WIPEONFORK changes the contents in this process.
        unsafe { mman::madvise(self.base.cast::<c_void>(), self.len.get(), advice) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// Copies bytes out. Bytes that are written concurrently may be old or new.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, out.len())?;
        // SAFETY: in bounds as `at` checked, mapped by invariant 1, accessed as invariant 2 says.
        unsafe { copy::from_shared(at, out) };
        Ok(())
    }

    /// Returns bytes that the caller may read in place.
    pub(crate) fn lend(&self, offset: u64, len: usize) -> Result<SharedBytes<'_>, OutOfBounds> {
        let at = self.at(offset, len)?;
        // SAFETY: in bounds as `at` checked, mapped while `self` is borrowed (invariant 1), accessed as invariant 2 says.
        Ok(unsafe { SharedBytes::new(at, len) })
    }

    /// Copies bytes in. Fails on a read-only mapping.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.writable_at(offset, bytes.len())?;
        // SAFETY: as for read, and stores are allowed as `writable_at` checked.
        unsafe { copy::to_shared(bytes, at) };
        Ok(())
    }

    /// Copies bytes of other shared memory in. Fails on a read-only mapping.
    pub(crate) fn write_from(&self, offset: u64, bytes: SharedBytes<'_>) -> Result<(), OutOfBounds> {
        let at = self.writable_at(offset, bytes.len())?;
        // SAFETY: as for write.
        unsafe { bytes.copy_to_shared(at) };
        Ok(())
    }

    /// Returns eight aligned bytes of a writable mapping.
    pub(crate) fn word(&self, offset: u64) -> Result<&AtomicU64, OutOfBounds> {
        let at = self.writable_at(offset, size_of::<u64>())?.cast::<AtomicU64>();
        if !at.is_aligned() {
            return Err(self.outside(offset, size_of::<u64>()));
        }
        // SAFETY: in bounds, aligned, mapped for writing by invariant 1, accessed atomically by invariant 2.
        Ok(unsafe { at.as_ref() })
    }

    fn writable_at(&self, offset: u64, wanted: usize) -> Result<NonNull<u8>, OutOfBounds> {
        match self.access {
            Access::Write => self.at(offset, wanted),
            Access::Read => Err(self.outside(offset, wanted)),
        }
    }

    fn at(&self, offset: u64, wanted: usize) -> Result<NonNull<u8>, OutOfBounds> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match start.checked_add(wanted) {
            Some(end) if end <= self.len.get() => {
                // SAFETY: start <= end <= len, so the sum stays within the mapping or one past its end (invariant 1).
                Ok(unsafe { self.base.add(start) })
            }
            _ => Err(self.outside(offset, wanted)),
        }
    }

    fn outside(&self, offset: u64, wanted: usize) -> OutOfBounds {
        OutOfBounds { offset: usize::try_from(offset).unwrap_or(usize::MAX), wanted, len: self.len.get() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if forked() {
            // In the child, this range is not mapped, or something else is.
            return;
        }
        // SAFETY: invariant 1: the range is this mapping, and every view holds it alive by an Arc.
        let unmapped = unsafe { mman::munmap(self.base.cast::<c_void>(), self.len.get()) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// Type that may lie in shared memory.
///
/// # Safety
/// Any bytes are a value, all access through a shared reference is atomic, and the alignment is at most 64.
pub(crate) unsafe trait Atomic {}
// SAFETY: atomic by definition, and every bit pattern is valid.
unsafe impl Atomic for AtomicU32 {}
// SAFETY: as above.
unsafe impl Atomic for AtomicU64 {}
// SAFETY: eight of the above, aligned to 64.
unsafe impl Atomic for Line {}
// SAFETY: as above.
unsafe impl Atomic for Slot {}

/// Memory for the part of a short payload that exceeds its message line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot([AtomicU64; SLOT / 8]);

/// Length of a slot in bytes.
pub(crate) const SLOT: usize = 192;

impl Slot {
    /// Writes bytes, at most as many as fit.
    #[inline]
    pub(crate) fn write(&self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        for (word, bytes) in self.0.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(word) = self.0.get(whole.len())
            && !rest.is_empty()
        {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }

    /// Reads bytes, at most as many as there are.
    #[inline]
    fn read(&self, bytes: &mut [u8]) {
        let (whole, rest) = bytes.as_chunks_mut::<8>();
        for (word, bytes) in self.0.iter().zip(&mut *whole) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if let Some(word) = self.0.get(whole.len()) {
            let last = word.load(Ordering::Relaxed).to_le_bytes();
            let len = rest.len();
            rest.copy_from_slice(&last[..len]);
        }
    }
}

#[derive(Debug)]
struct View<T> {
    first: NonNull<T>,
    count: usize,
    _mapping: Arc<Mapping>,
    _type: PhantomData<T>,
}

// SAFETY: a view is a pointer into a mapping, which may be used from any thread, to values that are atomic.
unsafe impl<T: Atomic> Send for View<T> {}
// SAFETY: as for Send.
unsafe impl<T: Atomic> Sync for View<T> {}

impl<T: Atomic> View<T> {
    fn new(mapping: &Arc<Mapping>, offset: usize, count: usize) -> Self {
        let bytes = count.checked_mul(size_of::<T>()).expect("the layout keeps views small");
        let first =
            mapping.at(offset as u64, bytes).expect("the layout keeps views in their segment").cast::<T>();
        assert!(first.is_aligned(), "the layout aligns every view");
        Self { first, count, _mapping: Arc::clone(mapping), _type: PhantomData }
    }

    fn slice(&self) -> &[T] {
        // SAFETY: `new` checked bounds and alignment, the Arc keeps the mapping (invariant 1), T is atomic (invariant 2).
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Values in a segment of this side.
#[derive(Debug)]
pub(crate) struct OwnArray<T>(View<T>);

impl<T: Atomic> OwnArray<T> {
    /// Returns a view of `count` values at `offset`.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize, count: usize) -> Self {
        assert!(mapping.access == Access::Write, "an own segment is mapped for writing");
        Self(View::new(mapping, offset, count))
    }
}

impl<T: Atomic> Deref for OwnArray<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0.slice()
    }
}

/// Values in a segment of the peer: loads only (invariant 3).
#[derive(Debug)]
pub(crate) struct PeerArray<T>(View<T>);

impl<T: Atomic> PeerArray<T> {
    /// Returns a view of `count` values at `offset`.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize, count: usize) -> Self {
        Self(View::new(mapping, offset, count))
    }
}

impl PeerArray<AtomicU32> {
    #[inline]
    pub(crate) fn load(&self, index: usize, order: Ordering) -> u32 {
        self.0.slice()[index].load(order)
    }

    /// Returns whether the peer is armed for `event` by this word, after everything published so far.
    #[inline]
    pub(crate) fn is_armed(&self, index: usize, event: Event) -> bool {
        peer_is_armed(&self.0.slice()[index], event)
    }
}

impl PeerArray<Slot> {
    /// Copies bytes out of a slot, at most as many as it has.
    #[inline]
    pub(crate) fn read(&self, index: usize, bytes: &mut [u8]) {
        self.0.slice()[index].read(bytes);
    }
}

impl PeerArray<AtomicU64> {
    #[inline]
    pub(crate) fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.slice()[index].load(order)
    }
}

// SAFETY: the same lines on every call, kept in place by the view's Arc (invariant 1); invariant 2 in every process.
unsafe impl LineStorage for OwnArray<Line> {
    fn lines(&self) -> &[Line] {
        self.0.slice()
    }
}

// SAFETY: as above. A reader of lines only loads, and no code outside its crate can store to a line (invariant 3).
unsafe impl LineStorage for PeerArray<Line> {
    fn lines(&self) -> &[Line] {
        self.0.slice()
    }
}

/// Send memory: this process composes messages in it, and the peer reads them.
///
/// It is a separate memfd, because memory can be freed (by punching a hole) only while future writes are not sealed.
/// The peer gets a read-only descriptor of a file whose mode denies writing, so that it can map the file for reading
/// only. A process of the same user could change the mode and open it again; shared memory cannot protect from that.
#[derive(Debug)]
pub(crate) struct SendSegment {
    mapping: Mapping,
    fd: OwnedFd,
    len: usize,
    claim: MemoryClaim,
}

impl SendSegment {
    /// Maps a memfd of at least `len` bytes that was created here.
    pub(crate) fn new(fd: OwnedFd, len: usize) -> Result<Self, Errno> {
        let mapping = Mapping::new(fd.as_fd(), 0, round_up(len), Access::Write)?;
        Ok(Self { mapping, fd, len, claim: MemoryClaim::new() })
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Allocates the memory of a range, so that composing a message cannot fail for lack of memory.
    pub(crate) fn commit(&self, range: Range<usize>) -> Result<(), Errno> {
        let start = range.start - range.start % PAGE;
        self.allocate(FallocateFlags::empty(), start..round_up(range.end))
    }

    /// Frees the memory of the whole pages in a range; they then read as zeros.
    pub(crate) fn give_back(&self, range: Range<usize>) -> Result<(), Errno> {
        let end = range.end - range.end % PAGE;
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        self.allocate(hole, round_up(range.start)..end)
    }

    /// Returns the number of allocated bytes.
    #[cfg(test)]
    pub(crate) fn committed(&self) -> Result<u64, Errno> {
        const BLOCK: u64 = 512;
        let stat = nix::sys::stat::fstat(&self.fd)?;
        Ok(u64::try_from(stat.st_blocks).unwrap_or_default() * BLOCK)
    }

    fn allocate(&self, how: FallocateFlags, range: Range<usize>) -> Result<(), Errno> {
        if range.start >= range.end {
            return Ok(());
        }
        let at = |offset: usize| i64::try_from(offset).map_err(|_| Errno::EINVAL);
        fallocate(&self.fd, how, at(range.start)?, at(range.len())?)
    }
}

// SAFETY: mapped for writing while `mapping` lives (invariant 1) and never shorter (invariant 4); the peer cannot write, and the flag is
// claimed once.
unsafe impl SendMemory for SendSegment {
    fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }
    fn len(&self) -> usize {
        self.len
    }
    fn claim(&self) -> bool {
        self.claim.take()
    }
}

/// Memory of a region, to which peers may be granted access.
#[derive(Debug)]
pub(crate) struct RegionSegment {
    mapping: Mapping,
    fd: OwnedFd,
    len: usize,
}

impl RegionSegment {
    /// Maps a memfd of at least `len` bytes that was created here.
    pub(crate) fn new(fd: OwnedFd, len: usize) -> Result<Self, Errno> {
        let mapping = Mapping::new(fd.as_fd(), 0, round_up(len), Access::Write)?;
        Ok(Self { mapping, fd, len })
    }
}

// SAFETY: mapped for writing while `mapping` lives (invariant 1) and never shorter (invariant 4); accesses as in
// invariant 2, in the peer's provider too.
unsafe impl RegionMemory for RegionSegment {
    fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }
    fn len(&self) -> usize {
        self.len
    }
    fn descriptor(&self) -> Option<i32> {
        Some(self.fd.as_raw_fd())
    }
}

/// Returns the descriptor of a region's memory.
pub(crate) fn descriptor(region: &Region) -> Option<BorrowedFd<'_>> {
    let raw = region.memory().descriptor()?;
    // SAFETY: RegionMemory guarantees that this is the memory's descriptor, and the region keeps the memory.
    Some(unsafe { BorrowedFd::borrow_raw(raw) })
}

/// Returns a word that is 1 in the process that made the mappings, and 0 in its forked children, which have none of
/// them.
///
/// The kernel wipes it in a child, so that reading it costs no system call. Where this is not available (Linux before
/// 4.14), no process is recognised as a child.
pub(crate) fn original() -> &'static AtomicU32 {
    static UNKNOWN: AtomicU32 = AtomicU32::new(1);
    static ORIGINAL: OnceLock<&'static AtomicU32> = OnceLock::new();
    ORIGINAL.get_or_init(|| wiped_on_fork().unwrap_or(&UNKNOWN))
}

fn wiped_on_fork() -> Option<&'static AtomicU32> {
    let len = NonZeroUsize::new(PAGE)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice changes no memory that is in use.
    let base = unsafe { mman::mmap_anonymous(None, len, protection, MapFlags::MAP_PRIVATE) }.ok()?;
    // SAFETY: the page that was just mapped; the advice changes its contents in children only.
    unsafe { mman::madvise(base, PAGE, MmapAdvise::MADV_WIPEONFORK) }.ok()?;
    // SAFETY: zeros in a page that is mapped for writing, aligned, and never unmapped.
    let word = unsafe { base.cast::<AtomicU32>().as_ref() };
    word.store(1, Ordering::Relaxed);
    Some(word)
}

/// Returns whether this process was forked from the one that made the mappings.
pub(crate) fn forked() -> bool {
    original().load(Ordering::Relaxed) == 0
}

/// Rounds `len` up to whole pages, at least one.
pub(crate) fn round_up(len: usize) -> usize {
    len.max(1).next_multiple_of(PAGE)
}
