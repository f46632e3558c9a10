//! Receive buffers of a device: posted on one shared receive queue, so that memory goes with what may be under way and not
//! with the longest message times the number of peers.
//!
//! # Invariants
//! 1. A buffer is either posted, and the device's, or held by one [`ReceiveBuffer`], which posts it again when dropped.
//! 2. A buffer's name is the number of its chunk and its place there; chunks are added and never taken away.
#![expect(unsafe_code, reason = "buffers that the device writes to are handed out as slices")]

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use nix::errno::Errno;
use pronto_core::fabric::{FabricError, SendMemory as _};
use pronto_mapping::Mapping;

use crate::account::{self, Account, Share};
use crate::error::VerbsError;
use crate::sys::{Access, Domain, MemoryRegion, PinnedBytes, SharedReceives};

/// A receive buffer, bytes: a header and a payload of up to 2,024. Longer payloads are read by their receiver.
pub(crate) const BUFFER: u32 = 2048;
/// Buffers that are registered at a time.
const CHUNK: usize = 128;
const MAX_CHUNKS: usize = 128;
/// Receives of one shared receive queue, at most.
const MOST: u32 = 16384;
const _: () = assert!(MOST as usize == MAX_CHUNKS * CHUNK);

/// A shared receive queue of a device, with its buffers. New connections take from the newest one.
pub(crate) struct Receives {
    queue: Arc<SharedReceives>,
    domain: Arc<Domain>,
    chunks: [OnceLock<Chunk>; MAX_CHUNKS],
    account: Arc<Mutex<Account>>,
}

struct Chunk {
    memory: Arc<MemoryRegion>,
    bytes: Arc<Mapping>,
}

impl fmt::Debug for Receives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.account.fmt(f)
    }
}

impl Receives {
    pub(crate) fn new(domain: &Arc<Domain>) -> Result<Arc<Self>, VerbsError> {
        let limit = MOST.min(domain.context().limits().max_srq_wr);
        Ok(Arc::new(Self {
            queue: Arc::new(SharedReceives::new(domain, limit)?),
            domain: Arc::clone(domain),
            chunks: [const { OnceLock::new() }; MAX_CHUNKS],
            account: Account::new(limit as usize),
        }))
    }

    pub(crate) fn queue(&self) -> &Arc<SharedReceives> {
        &self.queue
    }

    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        account::lock(&self.account)
    }

    /// Promises receives to a connection: registers and posts what is missing.
    pub(crate) fn promise(&self, receives: u32) -> Result<Share, VerbsError> {
        Share::new(&self.account, receives as usize, CHUNK, |number| Ok(self.add(number)?))
    }

    /// Posts the buffer of one number for the first time, under the account's lock. The first of a chunk makes the chunk.
    fn add(&self, number: usize) -> Result<(), FabricError> {
        if self.chunks.get(number / CHUNK).is_some_and(|chunk| chunk.get().is_none()) {
            self.add_chunk(number / CHUNK)?;
        }
        self.post(number as u64).map_err(|errno| FabricError::System { errno: errno as i32 })
    }

    fn add_chunk(&self, number: usize) -> Result<(), FabricError> {
        let len = CHUNK * BUFFER as usize;
        let bytes = self.domain.memory(u32::try_from(len).unwrap_or(u32::MAX))?;
        let pinned = PinnedBytes::Mapped(Arc::clone(&bytes));
        let memory = MemoryRegion::register(&self.domain, pinned, 0..len, Access::Local)?;
        let fresh = self.chunks[number].set(Chunk { memory, bytes }).is_ok();
        assert!(fresh, "chunks are added under the lock, each once");
        Ok(())
    }

    fn chunk(&self, name: u64) -> Option<(&Chunk, usize)> {
        let name = usize::try_from(name).ok()?;
        let chunk = self.chunks.get(name / CHUNK)?.get()?;
        Some((chunk, name % CHUNK * BUFFER as usize))
    }

    fn post(&self, name: u64) -> Result<(), Errno> {
        let (chunk, offset) = self.chunk(name).ok_or(Errno::EINVAL)?;
        // SAFETY: a whole buffer of registered memory that lives as long as the queue; invariant 1: nobody holds it.
        unsafe { self.queue.post(name, chunk.memory.local(offset), BUFFER) }
    }

    /// The buffer that a receive of this name completed with. Each completion's name is given once.
    pub(crate) fn completed(self: &Arc<Self>, name: u64, len: u32) -> Option<ReceiveBuffer> {
        self.chunk(name)?;
        Some(ReceiveBuffer { receives: Arc::clone(self), name, len: len.min(BUFFER) })
    }
}

/// A buffer that a message has arrived in. Dropping it posts it again, from any thread.
pub(crate) struct ReceiveBuffer {
    receives: Arc<Receives>,
    name: u64,
    len: u32,
}

impl ReceiveBuffer {
    /// What has arrived.
    pub(crate) fn bytes(&self) -> &[u8] {
        let Some((chunk, offset)) = self.receives.chunk(self.name) else { return &[] };
        // SAFETY: the buffer lies within its chunk (invariant 2).
        let first = unsafe { chunk.bytes.base().add(offset) };
        // SAFETY: `len` is at most a buffer's length; invariant 1: the device is done with it, and it is not posted again
        // while the value lives.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBuffer")
            .field("name", &self.name)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for ReceiveBuffer {
    fn drop(&mut self) {
        // It fails only when the device is gone, and with it every connection.
        let _gone = self.receives.post(self.name);
    }
}
