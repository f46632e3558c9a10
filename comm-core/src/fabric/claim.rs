//! The right to write to send memory, which only one owner can claim.

use pronto_sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Flag for implementers of [`super::SendMemory`]: [`take`](Self::take) keeps the promise of
/// [`super::SendMemory::claim`].
#[derive(Debug)]
pub struct MemoryClaim(AtomicBool);

impl MemoryClaim {
    /// Returns a claim that is not taken yet.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the claim. Returns `true` to exactly one caller, on any thread. A claim is never released.
    pub fn take(&self) -> bool {
        // The claim publishes nothing: the memory was created before its handles were shared.
        !self.0.swap(true, Ordering::Relaxed)
    }
}

impl Default for MemoryClaim {
    fn default() -> Self {
        Self::new()
    }
}

/// Error of a second writer to the same send memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this send memory already has a writer: make one send ring per queue pair")]
pub struct MemoryClaimed;
