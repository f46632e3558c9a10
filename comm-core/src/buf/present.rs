//! The send ring of the current link, shared by all senders.
//!
//! A short buffer comes from the thread arena of the sender's thread. This takes a lock that usually no other thread
//! uses, and no reference count. For any other buffer the sender copies a reference to the ring under a lock, and allocates in
//! the ring's chunks.
//!
//! # Invariants
//! 1. A lock is only held to copy or replace a pointer, to allocate in a thread arena, or to reclaim an arena's memory.
//! 2. A sender never waits for a lock, as its thread may keep the lock's holder from the CPU, and has no executor to sleep with.
//!    It tries the next lock, and is refused if all are taken. Only [`PresentRing::set`] waits, by calling `pause`.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

use pronto_sync::hint::spin_loop;
use pronto_sync::{CachePadded, TryLock, TryLockGuard, thread_number};

use super::loan::Loan;
use super::memory::Buffer;
use super::ring::{Exhausted, SendRing};
use super::thread_arena::ARENAS;

/// Number of references to the current link's ring, each behind its own lock. All are taken only if this number of threads are
/// preempted while each copies one. Loom explores two.
const REFERENCES: usize = if cfg!(loom) { 2 } else { 4 };
/// Attempts at all references before a sender is refused. They take much longer than a running thread needs to copy a reference.
const ATTEMPTS: u32 = if cfg!(loom) { 1 } else { 64 };

/// An error after [`ATTEMPTS`] attempts, in which all references to the ring were taken.
#[derive(Debug)]
pub(crate) struct AllTaken;

/// The ring of the current link, or none.
pub(crate) struct PresentRing {
    /// References to the same ring, except while [`PresentRing::set`] replaces them one by one.
    references: [TryLock<Option<Arc<SendRing>>>; REFERENCES],
    arenas: [CachePadded<TryLock<Option<Arc<SendRing>>>>; ARENAS],
}

impl PresentRing {
    /// Returns a value without a ring.
    pub(crate) fn new() -> Self {
        let arenas = core::array::from_fn(|_| CachePadded::new(TryLock::new(None)));
        Self { references: core::array::from_fn(|_| TryLock::new(None)), arenas }
    }

    /// Replaces the ring by another one or none. Buffers of the old ring stay valid. Calls `pause` between two attempts at a lock that
    /// another thread holds. Only one thread at a time may call this: the holder of the engine.
    ///
    /// # Panics
    /// If `ring` was set before, here or in another `PresentRing`.
    pub(crate) fn set(&self, ring: Option<Arc<SendRing>>, mut pause: impl FnMut()) {
        let with_arenas = ring.as_ref().filter(|ring| ring.has_arenas());
        if let Some(ring) = with_arenas {
            assert!(ring.claim_arenas(), "the arenas of a ring are claimed once");
        }
        for (index, arena) in self.arenas.iter().enumerate() {
            let old = core::mem::replace(&mut *wait_for(arena, &mut pause), with_arenas.map(Arc::clone));
            if let Some(old) = old {
                SendRing::retire_arena(old, index);
            }
        }
        let mut before = None;
        for reference in &self.references {
            before = core::mem::replace(&mut *wait_for(reference, &mut pause), ring.clone());
        }
        if let Some(before) = before {
            before.retire();
        }
    }

    /// Returns the ring, if there is one. While [`Self::set`] replaces the ring, this is the old or the new one.
    ///
    /// # Errors
    /// If other threads hold all references. A running thread holds one only for a moment.
    pub(crate) fn ring(&self) -> Result<Option<Arc<SendRing>>, AllTaken> {
        for _ in 0..ATTEMPTS {
            if let Some(reference) = self.references.iter().find_map(TryLock::try_lock) {
                return Ok(reference.clone());
            }
            spin_loop();
        }
        Err(AllTaken)
    }

    /// Returns a buffer of `len` bytes of the current ring, or `None` if there is no ring; see [`SendRing::loan`].
    #[inline]
    pub(crate) fn loan(&self, len: usize, owner: u32) -> Option<Result<Loan, Exhausted>> {
        self.loan_by(thread_number(), len, owner)
    }

    /// Returns a buffer of `len` bytes for the thread with that number, or `None` if there is no ring.
    #[inline]
    pub(super) fn loan_by(&self, thread: usize, len: usize, owner: u32) -> Option<Result<Loan, Exhausted>> {
        match self.loan_of_arena_by(thread, len, owner) {
            Some(loan) => Some(Ok(loan)),
            None => self.loan_of_chunks(len, owner),
        }
    }

    /// Returns a buffer from this thread's arena, if it has room for `len` bytes.
    #[inline]
    pub(crate) fn loan_of_arena(&self, len: usize, owner: u32) -> Option<Loan> {
        self.loan_of_arena_by(thread_number(), len, owner)
    }

    #[inline]
    fn loan_of_arena_by(&self, thread: usize, len: usize, owner: u32) -> Option<Loan> {
        let buffer = self.take_in_arena(thread % ARENAS, len, owner);
        buffer.is_some().then(|| Loan::new(buffer))
    }

    /// Returns a buffer of a thread arena, or one without an allocation. The result is returned in registers.
    #[inline(never)]
    fn take_in_arena(&self, index: usize, len: usize, owner: u32) -> Buffer {
        let Some(arena) = self.arenas[index].try_lock() else { return Buffer::none() };
        let Some(ring) = &*arena else { return Buffer::none() };
        let extent = ring.take_in_arena(index, len, owner);
        extent.map_or(Buffer::none(), |extent| Buffer::in_arena(ring, index, extent))
    }

    #[cold]
    #[inline(never)]
    fn loan_of_chunks(&self, len: usize, owner: u32) -> Option<Result<Loan, Exhausted>> {
        match self.ring() {
            Ok(ring) => Some(ring?.loan(len, owner)),
            // This refusal is retryable.
            Err(AllTaken) => Some(Err(Exhausted::Ring)),
        }
    }

    /// Returns a thread arena that no thread has used between the last two checks, and whose memory can be reclaimed. No thread can use it
    /// until the result is dropped.
    pub(crate) fn idle_arena(&self) -> Option<IdleArena<'_>> {
        let ring = self.ring().ok()??;
        (0..ARENAS).filter(|index| ring.uses_arena(*index)).find_map(|index| {
            // A thread that holds the lock uses the arena.
            let arena = self.arenas[index].try_lock()?;
            let range = arena.as_ref()?.idle_arena(index)?;
            Some(IdleArena { _arena: arena, range })
        })
    }
}

/// A thread arena that is lent to the provider until this is dropped.
pub(crate) struct IdleArena<'a> {
    _arena: TryLockGuard<'a, Option<Arc<SendRing>>>,
    range: Range<usize>,
}

impl IdleArena<'_> {
    /// Returns the arena's range of bytes, from the base of the memory.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// Waits for a lock, whose holder releases it soon if it runs.
fn wait_for<'a>(
    lock: &'a TryLock<Option<Arc<SendRing>>>,
    pause: &mut impl FnMut(),
) -> TryLockGuard<'a, Option<Arc<SendRing>>> {
    loop {
        match lock.try_lock() {
            Some(held) => return held,
            None => pause(),
        }
    }
}

impl Drop for PresentRing {
    fn drop(&mut self) {
        self.set(None, || unreachable!("no other thread has a reference to this"));
    }
}

impl fmt::Debug for PresentRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentRing")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;
    use std::sync::Mutex;

    use super::*;
    use crate::buf::RingConfig;
    use crate::fabric::HeapSendMemory;
    use crate::wait::back_off::BackOff;
    use crate::wait::back_off::tests::RealTime;

    const THREAD: usize = 3;

    fn present() -> (PresentRing, Arc<SendRing>) {
        let memory = Arc::new(HeapSendMemory::new(1 << 20));
        let config = RingConfig { arena_bytes: 16 << 10, ..RingConfig::default() };
        let ring = Arc::new(SendRing::new(memory, config).expect("the memory is new"));
        let present = PresentRing::new();
        present.set(Some(Arc::clone(&ring)), || unreachable!("no other thread is here"));
        (present, ring)
    }

    #[test]
    fn a_sender_does_not_wait_for_threads_that_hold_references_to_the_ring() {
        let (present, ring) = present();
        let too_long_for_an_arena = 64 << 10;
        let mut held = Vec::new();
        for reference in &present.references {
            let found = present.ring().expect("a reference is free").expect("there is a ring");
            assert!(Arc::ptr_eq(&found, &ring));
            held.push(reference.try_lock().expect("the lock is free"));
        }
        assert!(present.ring().is_err() && present.idle_arena().is_none());
        let refused = present.loan_by(THREAD, too_long_for_an_arena, 7).expect("there is a ring");
        assert_eq!(refused.expect_err("all references are taken"), Exhausted::Ring);
        assert!(present.loan_by(THREAD, 64, 7).is_some_and(|loan| loan.is_ok()), "its arena is free");
        held.clear();
        assert!(present.loan_by(THREAD, too_long_for_an_arena, 7).is_some_and(|loan| loan.is_ok()));
    }

    #[test]
    fn a_real_time_thread_that_replaces_the_ring_lets_the_holders_of_its_locks_run() {
        let of_references: fn(&PresentRing) -> &TryLock<_> = |present| &present.references[1];
        let of_arenas: fn(&PresentRing) -> &TryLock<_> = |present| &present.arenas[THREAD];
        for lock in [of_references, of_arenas] {
            let (present, _ring) = present();
            let held = Mutex::new(lock(&present).try_lock());
            let thread = RealTime::with(|| drop(held.lock().expect("no panic").take()));
            let mut back_off = BackOff::default();
            present.set(None, || back_off.pause(&thread));
            assert!(thread.has_slept());
            assert!(present.ring().is_ok_and(|ring| ring.is_none()));
        }
    }
}
