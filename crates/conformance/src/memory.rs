//! Composing payloads in a provider's send memory.
//!
//! # Invariants
//! 1. The send memory of a pair under test is written by this module alone, called by the rig that owns both ends, and
//!    only outside extents whose work request has not completed.
#![expect(unsafe_code, reason = "send memory is a raw pointer")]

use pronto_core::fabric::SendMemory;
use pronto_core::fabric::region::copy;

/// Writes a payload for a later work request.
pub(crate) fn compose(memory: &dyn SendMemory, offset: usize, bytes: &[u8]) {
    let end = offset.checked_add(bytes.len()).expect("the end of an extent fits usize");
    assert!(end <= memory.len(), "send memory has {} bytes, but the extent ends at {end}", memory.len());
    // SAFETY: offset <= len as just checked, and the memory is one piece.
    let at = unsafe { memory.base().add(offset) };
    // SAFETY: in bounds as checked; SendMemory guarantees the memory, and invariant 1 its only writer.
    unsafe { copy::to_shared(bytes, at) };
}
