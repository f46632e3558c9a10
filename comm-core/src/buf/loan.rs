//! The stages of a buffer. Each stage is a type, which offers only the operations that are valid in that stage.

use alloc::sync::Arc;

use super::memory::Buffer;
use super::ring::SendRing;
use crate::fabric::Extent;

/// A buffer for composing a payload. Dropping it frees the buffer.
#[derive(Debug)]
#[must_use = "dropping a loan frees it"]
pub struct Loan(Buffer);

impl Loan {
    pub(super) fn new(buffer: Buffer) -> Self {
        Self(buffer)
    }

    /// Returns the bytes. Initially they contain data of earlier payloads to the same peer.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        self.0.extent().len as usize
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps only the first `len` bytes, if the payload is shorter than the buffer. Does nothing if the buffer is not longer.
    pub fn shrink(&mut self, len: usize) {
        if let Ok(len) = u32::try_from(len) {
            self.0.shrink(len);
        }
    }

    /// Completes the payload, which can then only be read.
    #[inline]
    pub fn finish(self) -> Frame {
        Frame(self.0)
    }
}

/// A complete payload that the transport does not use, or no longer uses. Dropping it frees the buffer.
#[derive(Debug)]
#[must_use = "dropping a frame frees it"]
pub struct Frame(Buffer);

impl Frame {
    /// Returns the extent of the payload, for the work request.
    pub fn extent(&self) -> Extent {
        self.0.extent()
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        self.0.extent().len as usize
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the payload.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns whether the buffer is in this ring.
    pub fn is_of(&self, ring: &Arc<SendRing>) -> bool {
        self.0.is_of(ring)
    }

    /// Marks the payload as passed to the transport. Keep the result in the WR slot until the completion.
    #[inline]
    pub fn post(self) -> Posted {
        Posted(self.0)
    }
}

/// A payload that the transport may read. Call [`completed`](Self::completed) after its completion. If it is dropped instead, its
/// memory stays allocated, as the transport may still read it; [`super::RingStats::abandoned`] counts it, and it is reported as a
/// straggler.
#[derive(Debug)]
#[must_use = "a posted buffer must be returned with `completed`"]
pub struct Posted(Buffer);

impl Posted {
    /// Returns the extent of the payload.
    pub fn extent(&self) -> Extent {
        self.0.extent()
    }

    /// Returns the payload.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns the frame after its work request has completed or was flushed. Drop the frame to free the buffer, or keep it to send the
    /// payload again.
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
