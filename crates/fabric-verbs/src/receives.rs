//! Receive buffers of a device, posted on one shared receive queue, so that memory depends on the number of messages in
//! flight and not on the longest message times the number of peers.
//!
//! # Invariants
//! 1. A buffer is either posted, and belongs to the device, or held by one [`ReceiveBuffer`], which posts it again when
//!    dropped.
//! 2. A buffer's name is the number of its chunk and its index there. Chunks are added and never removed.
#![expect(unsafe_code, reason = "buffers that the device writes to are returned as slices")]

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use nix::errno::Errno;
use pronto_core::fabric::{FabricError, SendMemory as _};
use pronto_mapping::Mapping;

use crate::account::{self, Account, Share};
use crate::error::VerbsError;
use crate::sys::{Access, Domain, MemoryRegion, PinnedBytes, SharedReceives};

/// Length of a receive buffer, bytes: a header and a payload of up to 2,024. The receiver reads longer payloads by
/// RDMA.
pub(crate) const BUFFER: u32 = 2048;
/// Number of buffers registered at a time.
const CHUNK: usize = 128;
const MAX_CHUNKS: usize = 128;
/// Maximum number of receives of one shared receive queue.
const MOST: u32 = 16384;
const _: () = assert!(MOST as usize == MAX_CHUNKS * CHUNK);

/// A shared receive queue of a device, with its buffers. New connections use the newest one.
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

    /// Promises receives to a connection: registers and posts the missing ones.
    pub(crate) fn promise(&self, receives: u32) -> Result<Share, VerbsError> {
        Share::new(&self.account, receives as usize, CHUNK, |number| Ok(self.add(number)?))
    }

    /// Posts the buffer with a given number for the first time, under the account's lock. Makes the chunk for the first
    /// buffer of a chunk.
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
        // SAFETY: a whole buffer of registered memory that lives as long as the queue; no other code holds it
        // (invariant 1).
        unsafe { self.queue.post(name, chunk.memory.local(offset), BUFFER) }
    }

    /// Returns the buffer of a completed receive. Must be called once per completion.
    pub(crate) fn completed(self: &Arc<Self>, name: u64, len: u32) -> Option<ReceiveBuffer> {
        self.chunk(name)?;
        Some(ReceiveBuffer { receives: Arc::clone(self), name, len: len.min(BUFFER) })
    }
}

/// A buffer with a received message. Dropping it posts it again, from any thread.
pub(crate) struct ReceiveBuffer {
    receives: Arc<Receives>,
    name: u64,
    len: u32,
}

impl ReceiveBuffer {
    /// Returns the received bytes.
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
        // Fails only if the device is gone, and with it every connection.
        let _gone = self.receives.post(self.name);
    }
}
