//! Registered buffers for payloads that do not fit a receive buffer: where they are read to, and where payloads of regions
//! that were not registered are copied to.
//!
//! # Invariants
//! 1. A piece of a chunk is free, or held by one [`PoolBuffer`]; chunks stay.
//! 2. Memory is registered by [`Pool::replenish`], on the progress path, ahead of need; only a payload of more than
//!    64 KiB may have it done on its way.
#![expect(unsafe_code, reason = "buffers that the device writes to are handed out as slices")]

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::EventFd;
use pronto_core::fabric::{FabricError, Region, SendMemory as _};
use pronto_mapping::Mapping;
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::buddies::{Buddies, Piece, class_of, size_of};
use crate::sys::{Access, Domain, MemoryRegion, PinnedBytes};

/// What is registered at a time, bytes, unless a piece is longer.
const CHUNK: usize = 1 << 20;
/// The longest payload whose way never registers anything, bytes.
pub(crate) const UNREGISTERED: usize = 64 << 10;

/// The pool of one device.
pub(crate) struct Pool {
    domain: Arc<Domain>,
    budget: usize,
    state: Mutex<State>,
    /// Somebody went away without a buffer, or the last one was taken.
    low: AtomicBool,
}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    free: Buddies,
    registered: usize,
    waiting: Vec<Arc<EventFd>>,
}

/// Registered memory.
#[derive(Clone)]
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
    /// A pool that registers at most `budget` bytes, beginning with one chunk of 1 MiB.
    pub(crate) fn new(domain: &Arc<Domain>, budget: usize) -> Result<Arc<Self>, FabricError> {
        let state = Mutex::default();
        let this = Self { domain: Arc::clone(domain), budget, state, low: AtomicBool::new(false) };
        let first = this.chunk(CHUNK)?;
        this.lock().add(first);
        Ok(Arc::new(this))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are registered.
    pub(crate) fn registered(&self) -> usize {
        self.lock().registered
    }

    fn chunk(&self, len: usize) -> Result<Chunk, FabricError> {
        let bytes = self.domain.memory(u32::try_from(len).unwrap_or(u32::MAX))?;
        let pinned = PinnedBytes::Mapped(Arc::clone(&bytes));
        let memory = MemoryRegion::register(&self.domain, pinned, 0..len, Access::Windows)?;
        Ok(Chunk { memory, bytes })
    }

    /// A buffer for `len` bytes, if there is one; else the bell rings when it is worth another look.
    pub(crate) fn take(self: &Arc<Self>, len: usize, bell: Option<&Arc<EventFd>>) -> Option<PoolBuffer> {
        let class = class_of(len)?;
        let mut state = self.lock();
        let mut piece = state.free.take(class);
        if piece.is_none() && len > UNREGISTERED && state.registered + size_of(class) <= self.budget {
            // Another buffer of its own: this is the one place where a message's way registers.
            if let Ok(chunk) = self.chunk(size_of(class)) {
                state.add(chunk);
                piece = state.free.take(class);
            }
        }
        if piece.is_none() {
            self.low.store(true, Ordering::Relaxed);
            if let Some(bell) = bell {
                state.waiting.push(Arc::clone(bell));
            }
        }
        let piece = piece?;
        // The last of its size: time to think of the next.
        if state.free.is_out_of(class) {
            self.low.store(true, Ordering::Relaxed);
        }
        let chunk = state.chunks.get(piece.chunk)?.clone();
        Some(PoolBuffer { pool: Arc::clone(self), chunk, piece, class, len })
    }

    /// Whether [`replenish`](Self::replenish) has something to think about.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// On the progress path: registers another chunk if the pool has run low and the budget allows it.
    pub(crate) fn replenish(&self) {
        if !self.is_low() || !self.low.swap(false, Ordering::Relaxed) {
            return;
        }
        if self.registered() + CHUNK > self.budget {
            return;
        }
        // A full pin limit leaves the pool as it is: who waits is served by what comes back.
        if let Ok(chunk) = self.chunk(CHUNK) {
            let mut state = self.lock();
            state.add(chunk);
            state.wake();
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

    fn wake(&mut self) {
        for bell in self.waiting.drain(..) {
            // A full counter is as good as a write: the descriptor is readable.
            let _full = bell.write(1);
        }
    }
}

/// A buffer of the pool; comes back when dropped, from any thread.
pub(crate) struct PoolBuffer {
    pool: Arc<Pool>,
    chunk: Chunk,
    piece: Piece,
    class: usize,
    len: usize,
}

impl PoolBuffer {
    /// The registration that it lies in, and its offset there.
    pub(crate) fn registered(&self) -> (&Arc<MemoryRegion>, usize) {
        (&self.chunk.memory, self.piece.offset)
    }

    /// Its bytes. Not to be asked for while a device writes to them.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the piece lies within its chunk.
        let first = unsafe { self.chunk.bytes.base().add(self.piece.offset) };
        // SAFETY: `len` bytes of the piece, which is this value's alone (invariant 1); whoever calls has seen the device's
        // completion.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) }
    }

    /// Copies a piece of a region to its start; false if it lies outside the region.
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
        state.wake();
    }
}
