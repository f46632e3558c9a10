//! The stages of a buffer, one type each: what may be done with it is what its type offers.

use alloc::sync::Arc;

use super::memory::Buffer;
use super::ring::SendRing;
use crate::fabric::Extent;

/// A buffer to compose a payload in. Dropped unsent, it is free again.
#[derive(Debug)]
#[must_use = "dropping a loan frees it"]
pub struct Loan(Buffer);

impl Loan {
    pub(super) fn new(buffer: Buffer) -> Self {
        Self(buffer)
    }

    /// The bytes. What they hold at first is left from earlier payloads to the same peer.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.0.extent().len as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` bytes, when the payload became shorter than foreseen. Does nothing if there are fewer.
    pub fn shrink(&mut self, len: usize) {
        if let Ok(len) = u32::try_from(len) {
            self.0.shrink(len);
        }
    }

    /// The payload is complete: from now on it is only read.
    #[inline]
    pub fn finish(self) -> Frame {
        Frame(self.0)
    }
}

/// A complete payload, not (or not any more) in the hands of the transport. Dropped, it is free again.
#[derive(Debug)]
#[must_use = "dropping a frame frees it"]
pub struct Frame(Buffer);

impl Frame {
    /// Where it lies, for the work request.
    pub fn extent(&self) -> Extent {
        self.0.extent()
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.0.extent().len as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Whether it lies in this ring.
    pub fn is_of(&self, ring: &Arc<SendRing>) -> bool {
        self.0.is_of(ring)
    }

    /// Hands it to the transport: kept in the WR slot until the completion.
    #[inline]
    pub fn post(self) -> Posted {
        Posted(self.0)
    }
}

/// A payload that the transport may be reading. Ends with [`completed`](Self::completed), and with nothing else: dropped
/// without, its memory stays taken (the transport may still read it), [`super::RingStats::abandoned`] counts it, and it
/// shows up as a straggler.
#[derive(Debug)]
#[must_use = "a posted buffer is given back by its completion"]
pub struct Posted(Buffer);

impl Posted {
    /// Where it lies.
    pub fn extent(&self) -> Extent {
        self.0.extent()
    }

    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The work request has completed, or was flushed: the transport is done with it. Drop the frame to free it, keep it to
    /// send it again.
    #[inline]
    pub fn completed(mut self) -> Frame {
        Frame(self.0.move_on())
    }
}

impl Drop for Posted {
    #[inline]
    fn drop(&mut self) {
        self.0.abandon();
    }
}
