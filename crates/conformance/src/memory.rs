//! Composing payloads in a provider's send memory.
//!
//! # Invariants
//! 1. The send memory of a pair under test is written by this module alone, called by the rig that owns both ends, and
//!    only outside extents whose work request has not completed.
#![expect(unsafe_code, reason = "send memory is told by a raw pointer")]

use pronto_core::fabric::SendMemory;
use pronto_core::fabric::region::copy;

/// Writes a payload where a later work request will find it.
pub(crate) fn compose(memory: &dyn SendMemory, offset: usize, bytes: &[u8]) {
    let end = offset.checked_add(bytes.len()).expect("an extent of the rig ends");
    assert!(end <= memory.len(), "send memory has {} bytes, {end} were asked for", memory.len());
    // SAFETY: offset <= len as just checked, and the memory is one piece.
    let at = unsafe { memory.base().add(offset) };
    // SAFETY: in bounds as checked; SendMemory promises the memory, invariant 1 who writes it.
    unsafe { copy::to_shared(bytes, at) };
}
