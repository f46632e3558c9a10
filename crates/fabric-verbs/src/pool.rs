//! Registered buffers for payloads that do not fit a receive buffer: the targets of reads, and copies of payloads from
//! unregistered regions.
//!
//! # Invariants
//! 1. A piece of a chunk is free, or held by one [`PoolBuffer`]. Chunks are never freed.
//! 2. Memory is registered by [`Pool::replenish`], on the progress path, ahead of need. Only a payload of more than 64
//!    KiB may be registered while its message is processed.
#![expect(unsafe_code, reason = "buffers that the device writes to are returned as slices")]

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::EventFd;
use pronto_core::fabric::{FabricError, Region, SendMemory as _};
use pronto_mapping::Mapping;
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::buddies::{Buddies, Piece, class_of, size_of};
use crate::sys::{Access, Domain, MemoryRegion, PinnedBytes};
use crate::waiters::{Entry, Waiters};

/// Bytes registered at a time, unless a piece is longer.
const CHUNK: usize = 1 << 20;
/// Maximum payload for which a message never waits for a registration, bytes.
pub(crate) const UNREGISTERED: usize = 64 << 10;

/// Pool of one device.
pub(crate) struct Pool {
    domain: Arc<Domain>,
    budget: usize,
    state: Arc<Mutex<State>>,
    /// True if an attempt found no buffer, or the last one of its size was taken.
    low: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<Chunk>,
    free: Buddies,
    registered: usize,
    waiters: Waiters,
}

/// Registered memory.
#[derive(Clone, Debug)]
struct Chunk {
    memory: Arc<MemoryRegion>,
    bytes: Arc<Mapping>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("registered", &self.registered())
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Creates a pool that registers at most `budget` bytes, beginning with one chunk of 1 MiB.
    pub(crate) fn new(domain: &Arc<Domain>, budget: usize) -> Result<Arc<Self>, FabricError> {
        let state = Arc::default();
        let this = Self { domain: Arc::clone(domain), budget, state, low: AtomicBool::new(false) };
        let first = this.chunk(CHUNK)?;
        this.lock().add(first);
        Ok(Arc::new(this))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Makes a waiter for buffers of this pool, which `bell` wakes.
    pub(crate) fn waiter(&self, bell: &Arc<EventFd>) -> Waiter {
        Waiter::new(&self.state, bell)
    }

    /// Returns the number of registered bytes.
    pub(crate) fn registered(&self) -> usize {
        self.lock().registered
    }

    fn chunk(&self, len: usize) -> Result<Chunk, FabricError> {
        let bytes = self.domain.memory(u32::try_from(len).unwrap_or(u32::MAX))?;
        let pinned = PinnedBytes::Mapped(Arc::clone(&bytes));
        let memory = MemoryRegion::register(&self.domain, pinned, 0..len, Access::Windows)?;
        Ok(Chunk { memory, bytes })
    }

    /// Takes a buffer of `len` bytes for `waiter`. If there is none, the waiter is woken when another attempt may succeed.
    pub(crate) fn take(self: &Arc<Self>, len: usize, waiter: &Waiter) -> Option<PoolBuffer> {
        let class = class_of(len)?;
        let mut state = self.lock();
        let mut piece = state.free.take(class);
        if piece.is_none() && len > UNREGISTERED && state.registered + size_of(class) <= self.budget {
            // Allocates a separate chunk: the only registration on the path of a message.
            if let Ok(chunk) = self.chunk(size_of(class)) {
                state.add(chunk);
                piece = state.free.take(class);
            }
        }
        if piece.is_none() {
            self.low.store(true, Ordering::Relaxed);
        }
        waiter.attempted(&mut state, piece.is_some());
        let piece = piece?;
        // The last one of its size: the pool should be replenished.
        if state.free.is_out_of(class) {
            self.low.store(true, Ordering::Relaxed);
        }
        let chunk = state.chunks.get(piece.chunk)?.clone();
        Some(PoolBuffer { pool: Arc::clone(self), chunk, piece, class, len })
    }

    /// Returns whether [`replenish`](Self::replenish) should be called.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Registers another chunk if the pool has run low and the budget allows it. Called on the progress path.
    pub(crate) fn replenish(&self) {
        if !self.is_low() || !self.low.swap(false, Ordering::Relaxed) {
            return;
        }
        if self.registered() + CHUNK > self.budget {
            return;
        }
        // At the pin limit, the pool stays as it is: waiters are served from returned buffers.
        if let Ok(chunk) = self.chunk(CHUNK) {
            let mut state = self.lock();
            state.add(chunk);
            state.waiters.wake();
        }
    }
}

impl State {
    fn add(&mut self, chunk: Chunk) {
        let len = chunk.memory.range().len();
        self.registered += len;
        self.free.add(self.chunks.len(), len);
        self.chunks.push(chunk);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A purpose for which one queue pair takes buffers of a pool. Each purpose has a separate waiter: a buffer for one
/// purpose must not end the wait for another.
#[derive(Debug)]
pub(crate) struct Waiter {
    state: Arc<Mutex<State>>,
    entry: Arc<Entry>,
}

impl Waiter {
    fn new(state: &Arc<Mutex<State>>, bell: &Arc<EventFd>) -> Self {
        Self { state: Arc::clone(state), entry: Arc::new(Entry::new(bell)) }
    }

    /// Records in the pool's state whether an attempt of this waiter to take a buffer has succeeded.
    fn attempted(&self, state: &mut State, succeeded: bool) {
        if succeeded {
            state.waiters.remove(&self.entry);
        } else {
            state.waiters.add(&self.entry);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        lock(&self.state).waiters.remove(&self.entry);
    }
}

/// A buffer of the pool, to which it returns when dropped, from any thread.
pub(crate) struct PoolBuffer {
    pool: Arc<Pool>,
    chunk: Chunk,
    piece: Piece,
    class: usize,
    len: usize,
}

impl PoolBuffer {
    /// Returns the registration of the buffer, and its offset there.
    pub(crate) fn registered(&self) -> (&Arc<MemoryRegion>, usize) {
        (&self.chunk.memory, self.piece.offset)
    }

    /// Returns the bytes. Must not be called while a device writes to them.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the piece lies within its chunk.
        let first = unsafe { self.chunk.bytes.base().add(self.piece.offset) };
        // SAFETY: `len` bytes of the piece, which is this value's alone (invariant 1); the caller has seen the device's
        // completion.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) }
    }

    /// Copies a piece of a region to the buffer. Returns false if the piece lies outside the region.
    pub(crate) fn fill(&mut self, region: &Region, offset: usize) -> bool {
        // SAFETY: as for bytes, and `&mut self`.
        let first = unsafe { self.chunk.bytes.base().add(self.piece.offset) };
        // SAFETY: as for bytes; no device uses it yet.
        let bytes = unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), self.len) };
        region.read(offset, bytes).is_ok()
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.free.give(self.piece, self.class);
        state.waiters.wake();
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::eventfd::EfdFlags;

    use super::*;

    fn bell() -> Arc<EventFd> {
        Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap())
    }

    /// An empty pool, and two waiters for it with bells of their own.
    struct EmptyPool {
        state: Arc<Mutex<State>>,
        bells: [Arc<EventFd>; 2],
        waiters: [Waiter; 2],
    }

    impl EmptyPool {
        fn new() -> Self {
            let state = Arc::default();
            let bells = [(); 2].map(|()| bell());
            let waiters = bells.each_ref().map(|bell| Waiter::new(&state, bell));
            Self { state, bells, waiters }
        }

        fn entries(&self) -> usize {
            lock(&self.state).waiters.len()
        }

        fn fail_once(&self, waiter: &Waiter) {
            let mut state = lock(&self.state);
            assert!(state.free.take(0).is_none(), "the pool is empty");
            waiter.attempted(&mut state, false);
        }
    }

    #[test]
    fn a_waiter_that_tries_repeatedly_has_one_entry() {
        let pool = EmptyPool::new();
        for _ in 0..100 {
            pool.waiters.iter().for_each(|waiter| pool.fail_once(waiter));
        }
        assert_eq!(pool.entries(), 2, "entries of two waiters");
        lock(&pool.state).waiters.wake();
        for bell in &pool.bells {
            assert_eq!(bell.read(), Ok(1), "each waiter is woken once");
        }
        assert_eq!(pool.entries(), 0);
    }

    #[test]
    fn a_waiter_that_is_served_has_no_entry() {
        let pool = EmptyPool::new();
        pool.waiters.iter().for_each(|waiter| pool.fail_once(waiter));
        pool.waiters[0].attempted(&mut lock(&pool.state), true);
        assert_eq!(pool.entries(), 1, "the entry of the waiter that was served");
        lock(&pool.state).waiters.wake();
        assert!(pool.bells[0].read().is_err(), "this waiter no longer waits");
        assert_eq!(pool.bells[1].read(), Ok(1));
    }

    #[test]
    fn a_waiter_that_is_dropped_leaves_neither_its_entry_nor_its_descriptor() {
        let pool = EmptyPool::new();
        let bell = bell();
        let dropped = Waiter::new(&pool.state, &bell);
        pool.fail_once(&dropped);
        pool.fail_once(&pool.waiters[1]);
        drop(dropped);
        assert_eq!(pool.entries(), 1, "the entry of the waiter that was dropped");
        assert_eq!(Arc::strong_count(&bell), 1, "nothing else keeps the descriptor open");
    }

    /// A queue pair waits for two purposes with one bell: a buffer for one must not end the wait for the other.
    #[test]
    fn a_buffer_for_one_purpose_leaves_the_wait_for_another() {
        let state: Arc<Mutex<State>> = Arc::default();
        let bell = bell();
        let [fetches, copies] = [(); 2].map(|()| Waiter::new(&state, &bell));
        fetches.attempted(&mut lock(&state), false);
        copies.attempted(&mut lock(&state), true);
        lock(&state).waiters.wake();
        assert_eq!(bell.read(), Ok(1));
    }
}
