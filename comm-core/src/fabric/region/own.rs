//! The program's own memory, from which messages are sent: bytes that an owner keeps, or that are borrowed for one send.
#![expect(unsafe_code, reason = "the promises of RegionMemory concern raw memory")]

use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use pronto_sync::atomic::{AtomicBool, Ordering};

use super::{MemoryAccess, Region, RegionMemory};

/// Memory of the program from which messages can be sent without copying it first: its heap, a static, a mapped file. It is only read. Cheap to
/// clone; the memory lives as long as any clone. A message that was sent from it keeps a clone until the peer has read it.
#[derive(Clone, Debug)]
pub struct Memory {
    region: Region,
}

impl Memory {
    /// Takes the bytes of `owner`, such as a `Vec<u8>`, an `Arc<[u8]>`, or a mapping of another crate, and drops the owner after the last use. A
    /// mapped file must not become shorter meanwhile: use the node's `map_file` for a file that may.
    ///
    /// ```
    /// use pronto_core::fabric::Memory;
    ///
    /// let memory = Memory::from_owner(vec![7_u8; 100]);
    /// assert_eq!(memory.len(), 100);
    /// ```
    pub fn from_owner<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T) -> Self {
        Self::new(Arc::new(OwnedMemory::new(owner)))
    }

    /// Returns memory that a provider or an embedding program has made.
    pub fn new(memory: Arc<dyn RegionMemory>) -> Self {
        Self { region: Region::new(memory) }
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Returns whether another handle to this memory exists: a clone in the program, or the handle of a message in progress.
    pub fn is_held_elsewhere(&self) -> bool {
        self.region.is_held_elsewhere()
    }

    /// Returns the memory as providers see it.
    #[doc(hidden)]
    pub fn region(&self) -> &Region {
        &self.region
    }
}

/// The bytes of an owner.
///
/// # Invariants
/// 1. `base .. base + len` are the bytes that the owner returned once, borrowed from the value in the `Arc`, which is neither moved nor
///    accessed otherwise until it is dropped.
struct OwnedMemory<T> {
    base: NonNull<u8>,
    len: usize,
    _owner: Arc<T>,
}

impl<T: AsRef<[u8]>> OwnedMemory<T> {
    fn new(owner: T) -> Self {
        let owner = Arc::new(owner);
        let bytes = (*owner).as_ref();
        Self { base: NonNull::from(bytes).cast(), len: bytes.len(), _owner: owner }
    }
}

impl<T> fmt::Debug for OwnedMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedMemory({} bytes)", self.len)
    }
}

// SAFETY: the bytes are only read, and `T: Send` lets the owner be dropped by another thread.
unsafe impl<T: Send + Sync> Send for OwnedMemory<T> {}
// SAFETY: as for Send; `T: Sync` lets other threads read bytes of the owner.
unsafe impl<T: Send + Sync> Sync for OwnedMemory<T> {}

// SAFETY: invariant 1: a slice of bytes stays valid, in place and unchanged while it is borrowed, and the value is borrowed to its end.
unsafe impl<T: Send + Sync> RegionMemory for OwnedMemory<T> {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn access(&self) -> MemoryAccess {
        MemoryAccess::ReadOnly
    }
}

/// Bytes that are borrowed until the value is dropped.
#[derive(Debug)]
struct BorrowedMemory {
    base: NonNull<u8>,
    len: usize,
    is_dropped: Arc<AtomicBool>,
}

impl Drop for BorrowedMemory {
    fn drop(&mut self) {
        // SYNC: all accesses through the value come before its drop; pairs with the load in `Lent`.
        self.is_dropped.store(true, Ordering::Release);
    }
}

// SAFETY: the bytes are only read, by threads that borrow them.
unsafe impl Send for BorrowedMemory {}
// SAFETY: as for Send.
unsafe impl Sync for BorrowedMemory {}

// SAFETY: `with_borrowed`, which alone makes such a value, borrows the bytes until it has been dropped.
unsafe impl RegionMemory for BorrowedMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn access(&self) -> MemoryAccess {
        MemoryAccess::ReadOnly
    }
}

/// Runs `run` with memory that consists of `bytes`, and returns its result when no handle to the memory exists any more: calls `pause` again
/// and again until then, also if `run` panics.
pub fn with_borrowed<R>(bytes: &[u8], pause: impl Fn(), run: impl FnOnce(&Memory) -> R) -> R {
    let is_dropped = Arc::new(AtomicBool::new(false));
    let waits = Lent { is_dropped: Arc::clone(&is_dropped), pause };
    let memory = BorrowedMemory { base: NonNull::from(bytes).cast(), len: bytes.len(), is_dropped };
    let memory = Memory::new(Arc::new(memory));
    let result = run(&memory);
    // Before `waits`, also if `run` has panicked: the other way round, the wait would not end.
    drop(memory);
    drop(waits);
    result
}

/// Waits until borrowed memory has been dropped, also by a holder of a weak handle that became a strong one.
struct Lent<F: Fn()> {
    is_dropped: Arc<AtomicBool>,
    pause: F,
}

impl<F: Fn()> Drop for Lent<F> {
    fn drop(&mut self) {
        let stays = AbortOnPanic;
        // SYNC: pairs with the store when the memory is dropped.
        while !self.is_dropped.load(Ordering::Acquire) {
            (self.pause)();
        }
        core::mem::forget(stays);
    }
}

/// Ends the process if a panic drops it: the borrow must not end while others hold the memory.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        // A panic while another one unwinds ends the process.
        panic!("borrowed memory is still in use");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::cell::{Cell, RefCell};

    use super::super::HeapMemory;
    use super::*;

    #[test]
    fn the_bytes_of_an_owner_are_read_and_never_written() {
        let memory = Memory::from_owner((0..100).collect::<Vec<u8>>());
        let region = memory.region();
        let mut bytes = [0; 4];
        region.read(96, &mut bytes).unwrap();
        assert_eq!(bytes, [96, 97, 98, 99]);
        assert!(region.read(97, &mut bytes).is_err());
        assert!(region.is_read_only() && !region.may_fault());
        assert!(region.write(0, &[1]).is_err() && region.write(0, &[]).is_err());
        assert!(region.word(0).is_err() && region.writable_address(0, 1).is_err());
        let view = region.lend(10, 2).unwrap();
        assert!(region.write_from(0, view).is_err());
        assert_eq!(view.copy_to(&mut bytes), 2);
        assert_eq!(bytes[..2], [10, 11]);
    }

    #[test]
    fn the_owner_is_dropped_after_the_last_handle() {
        let owner: Arc<[u8]> = Arc::from(vec![1, 2, 3]);
        let memory = Memory::from_owner(Arc::clone(&owner));
        let other = memory.clone();
        drop(memory);
        assert_eq!((Arc::strong_count(&owner), other.is_held_elsewhere()), (2, false));
        drop(other);
        assert_eq!(Arc::strong_count(&owner), 1);
        assert!(Memory::from_owner([0; 0]).is_empty());
    }

    #[test]
    fn a_borrow_ends_when_nobody_else_holds_the_memory() {
        let bytes = [1, 2, 3];
        let (held, pauses) = (RefCell::new(None), Cell::new(0));
        let pause = || {
            pauses.set(pauses.get() + 1);
            if pauses.get() == 3 {
                held.take();
            }
        };
        let len = with_borrowed(&bytes, pause, |memory| {
            held.replace(Some(memory.clone()));
            memory.len()
        });
        assert_eq!((len, pauses.get()), (3, 3));
    }

    #[test]
    fn a_weak_handle_that_becomes_a_strong_one_keeps_the_borrow() {
        let bytes = [1, 2, 3];
        let (weak, held, pauses) = (RefCell::new(None), RefCell::new(None), Cell::new(0));
        let pause = || {
            pauses.set(pauses.get() + 1);
            held.take();
        };
        with_borrowed(&bytes, pause, |memory| {
            let handle = Arc::downgrade(memory.region().memory());
            held.replace(handle.upgrade());
            weak.replace(Some(handle));
        });
        assert_eq!(pauses.get(), 1);
        let gone = weak.take().map(|weak| weak.upgrade().is_none());
        assert_eq!(gone, Some(true));
    }

    #[test]
    fn a_range_is_copied_to_a_region() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let (memory, copy) =
            (Memory::from_owner(bytes.clone()), Region::new(Arc::new(HeapMemory::new(150_000))));
        memory.region().copy_range_to(7..150_007, &copy).unwrap();
        let mut copied = vec![0; 150_000];
        copy.read(0, &mut copied).unwrap();
        assert!(copied == bytes[7..150_007]);
        assert!(memory.region().copy_range_to(7..150_008, &copy).is_err(), "the region is too short");
        assert!(copy.copy_range_to(0..1, memory.region()).is_err(), "memory of a program is not written to");
    }

    /// An owner that keeps its bytes within itself.
    #[test]
    fn an_owner_is_not_moved_after_its_bytes_were_taken() {
        let memory = Memory::from_owner([5; 9]);
        let moved = [memory];
        let mut bytes = [0; 9];
        moved[0].region().read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 9]);
    }
}
