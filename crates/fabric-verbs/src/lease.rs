//! Received payloads that are lent out.

use core::fmt;
use std::sync::Arc;

use pronto_core::fabric::{OutOfBounds, Payload};
use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::HEADER_LEN;

use crate::pool::PoolBuffer;
use crate::receives::ReceiveBuffer;

/// Receives of one queue pair that are in use: messages that were not handed out, and leases.
#[derive(Debug, Default)]
pub(crate) struct InUse(AtomicU32);

impl InUse {
    /// One more. Gives how many there are.
    pub(crate) fn begin(self: &Arc<Self>) -> (u32, Use) {
        // Relaxed: a count, which orders nothing.
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
    _use: Use,
}

/// Where it lies.
#[derive(Debug)]
enum Place {
    /// Behind its header, in a receive buffer.
    Receive(ReceiveBuffer),
    /// In a buffer that it was read to.
    Pool(PoolBuffer),
}

impl Lease {
    /// A payload that came with its header.
    pub(crate) fn received(buffer: ReceiveBuffer, used: Use) -> Self {
        Self { place: Place::Receive(buffer), _use: used }
    }

    /// A payload that was read.
    pub(crate) fn fetched(buffer: PoolBuffer, used: Use) -> Self {
        Self { place: Place::Pool(buffer), _use: used }
    }

    fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Receive(buffer) => buffer.bytes().get(HEADER_LEN..).unwrap_or(&[]),
            Place::Pool(buffer) => buffer.bytes(),
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
