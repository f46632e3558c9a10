//! Copies between private memory and memory that another process may be writing to.
//!
//! # Invariants
//! 1. Shared bytes are touched by relaxed atomic accesses only, so that a concurrent writer is a race without undefined
//!    behaviour: each word is old or new.
//! 2. A pointer that comes in was bounds-checked by its maker against memory that outlives the call.
#![expect(unsafe_code, reason = "shared memory is reached by raw pointers")]

use core::ptr::NonNull;

use pronto_sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Copies `out.len()` bytes out of shared memory.
///
/// # Safety
/// `from` is valid for reads of that many bytes during the call, and no process writes them otherwise than this module
/// does.
pub unsafe fn from_shared(from: NonNull<u8>, out: &mut [u8]) {
    let head = from.align_offset(WORD).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    for (i, byte) in first.iter_mut().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        *byte = unsafe { byte_at(from, i) }.load(Ordering::Relaxed);
    }
    let mut at = head;
    let mut words = rest.chunks_exact_mut(WORD);
    for word in &mut words {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        let shared = unsafe { word_at(from, at) };
        word.copy_from_slice(&shared.load(Ordering::Relaxed).to_ne_bytes());
        at += WORD;
    }
    for (i, byte) in words.into_remainder().iter_mut().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        *byte = unsafe { byte_at(from, at + i) }.load(Ordering::Relaxed);
    }
}

/// Copies bytes into shared memory.
///
/// # Safety
/// `to` is valid for writes of that many bytes during the call, and nobody reads or writes them otherwise than this
/// module does.
pub unsafe fn to_shared(bytes: &[u8], to: NonNull<u8>) {
    let head = to.align_offset(WORD).min(bytes.len());
    let (first, rest) = bytes.split_at(head);
    for (i, byte) in first.iter().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        unsafe { byte_at(to, i) }.store(*byte, Ordering::Relaxed);
    }
    let mut at = head;
    let mut words = rest.chunks_exact(WORD);
    for word in &mut words {
        let value = u64::from_ne_bytes(word.try_into().expect("chunks_exact gives whole words"));
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        unsafe { word_at(to, at) }.store(value, Ordering::Relaxed);
        at += WORD;
    }
    for (i, byte) in words.remainder().iter().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        unsafe { byte_at(to, at + i) }.store(*byte, Ordering::Relaxed);
    }
}

/// # Safety
/// Byte `index` from `base` is part of shared memory that outlives `'a`.
unsafe fn byte_at<'a>(base: NonNull<u8>, index: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's promise keeps the sum within one mapping.
    let at = unsafe { base.add(index) };
    // SAFETY: invariant 1: only atomic accesses meet at this byte; every alignment suits it.
    unsafe { at.cast::<AtomicU8>().as_ref() }
}

/// # Safety
/// As for [`byte_at`], for eight bytes, and `base + index` is a multiple of eight.
unsafe fn word_at<'a>(base: NonNull<u8>, index: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's promise keeps the sum within one mapping.
    let at = unsafe { base.add(index) };
    // SAFETY: invariant 1, and the caller's word for the alignment.
    unsafe { at.cast::<AtomicU64>().as_ref() }
}
