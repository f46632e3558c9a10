//! Received payloads that are lent to the engine.

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pronto_core::fabric::{OutOfBounds, Payload, SHORT_PAYLOAD};
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::HEADER_LEN;

use crate::pool::PoolBuffer;
use crate::receives::ReceiveBuffer;

/// Number of receives of one queue pair in use: undelivered messages, and leases.
#[derive(Debug, Default)]
pub(crate) struct InUse(AtomicU32);

impl InUse {
    /// Adds one. Returns the new number.
    pub(crate) fn begin(self: &Arc<Self>) -> (u32, Use) {
        // Relaxed: a counter, which orders nothing.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (before + 1, Use(Arc::clone(self)))
    }
}

/// One receive in use, until dropped.
#[derive(Debug)]
pub(crate) struct Use(Arc<InUse>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A received payload. No peer can write to it.
pub struct Lease {
    place: Place,
    /// None for the copy of a short message, whose receive was posted again immediately.
    _use: Option<Use>,
}

/// Reusable buffers for copies of short messages.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<Vec<u8>>>);

/// Maximum number of unused buffers.
const SPARE_BUFFERS: usize = 16;

impl Kept {
    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer with the copy of a short message.
#[derive(Debug)]
struct KeptBytes {
    bytes: Vec<u8>,
    kept: Arc<Kept>,
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        let mut spare = self.kept.spare();
        if spare.len() < SPARE_BUFFERS {
            spare.push(core::mem::take(&mut self.bytes));
        }
    }
}

/// Place of a payload.
#[derive(Debug)]
enum Place {
    /// After its header, in a receive buffer.
    Receive(ReceiveBuffer),
    /// In a buffer of the pool, into which it was read.
    Pool(PoolBuffer),
    /// Copied out of a receive buffer.
    Kept(KeptBytes),
}

impl Lease {
    /// Returns a lease of a payload that came with its header.
    pub(crate) fn received(buffer: ReceiveBuffer, used: Use) -> Self {
        Self { place: Place::Receive(buffer), _use: Some(used) }
    }

    /// Returns a lease of a payload that was read.
    pub(crate) fn fetched(buffer: PoolBuffer, used: Use) -> Self {
        Self { place: Place::Pool(buffer), _use: Some(used) }
    }

    /// Returns a lease with a copy of a short payload.
    pub(crate) fn kept(kept: &Arc<Kept>, payload: &[u8]) -> Self {
        let mut bytes = kept.spare().pop().unwrap_or_else(|| Vec::with_capacity(SHORT_PAYLOAD));
        bytes.clear();
        bytes.extend_from_slice(payload);
        Self { place: Place::Kept(KeptBytes { bytes, kept: Arc::clone(kept) }), _use: None }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Receive(buffer) => buffer.bytes().get(HEADER_LEN..).unwrap_or(&[]),
            Place::Pool(buffer) => buffer.bytes(),
            Place::Kept(KeptBytes { bytes, .. }) => bytes,
        }
    }
}

impl Payload for Lease {
    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let end = offset.checked_add(out.len());
        let bytes = end.and_then(|end| self.bytes().get(offset..end));
        let bytes = bytes.ok_or_else(|| OutOfBounds { offset, wanted: out.len(), len: self.len() })?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn as_private(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.len()).finish()
    }
}
