//! The right to write to send memory, which is given out once.

use pronto_sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Flag for implementers of [`super::SendMemory`]: [`take`](Self::take) keeps the promise of
/// [`super::SendMemory::claim`].
#[derive(Debug)]
pub struct MemoryClaim(AtomicBool);

impl MemoryClaim {
    /// Returns a claim that nobody has taken.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the claim. Returns `true` to exactly one caller, on any thread; it is never given back.
    pub fn take(&self) -> bool {
        // Nothing is published with the claim: the memory was made before its handles were shared.
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
