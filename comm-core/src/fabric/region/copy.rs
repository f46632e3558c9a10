//! Copies between private memory and memory to which another process may write concurrently.
//!
//! # Invariants
//! 1. Shared bytes are accessed only by relaxed atomic accesses, or by assembly with the same effect. Therefore a concurrent
//!    writer causes a race without undefined behaviour: each byte is old or new.
//! 2. The caller has checked the bounds of each pointer against memory that outlives the call.
#![expect(unsafe_code, reason = "shared memory is accessed through raw pointers")]

use core::marker::PhantomData;
use core::ptr::NonNull;

use pronto_sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Number of bytes that are moved through registers at a time: a cache line.
pub const BLOCK: usize = 64;

/// Number of bytes that [`SharedBytes::prefetch`] requests.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: usize = 16 * BLOCK;

/// Whether a block may begin at any address. The assembly of x86-64 needs no alignment; the words of other architectures do.
const ANY_ALIGNMENT: bool = cfg!(target_arch = "x86_64");

/// Memory that may be read while another process writes to it.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    first: NonNull<u8>,
    len: usize,
    _lent: PhantomData<&'a ()>,
}

impl SharedBytes<'_> {
    /// Returns a view of the `len` bytes from `first` on.
    ///
    /// # Safety
    /// During the lifetime `'a`, also of copies of the view, the bytes are valid for reads, and every write to them, by any process, is of the
    /// kind that this module makes (invariant 1).
    pub const unsafe fn new(first: NonNull<u8>, len: usize) -> Self {
        Self { first, len, _lent: PhantomData }
    }

    /// Returns the length, bytes.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is zero.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the view without its first `count` bytes, or an empty view if it is shorter.
    #[inline(always)]
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        let count = count.min(self.len);
        // SAFETY: the promise of `new`; the sum stays within the view or one past its end.
        let first = unsafe { self.first.add(count) };
        Self { first, len: self.len - count, ..self }
    }

    /// Returns a view of the first `count` bytes, or of all bytes if there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        Self { len: count.min(self.len), ..self }
    }

    /// Requests the first kilobyte for reading, so that its cache lines are under way while the caller prepares to read them. More requests
    /// than that occupy the core longer than they save. Does nothing on other architectures than x86-64.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for at in (0..self.len.min(PREFETCHED)).step_by(BLOCK) {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.skip(at).first.as_ptr().cast_const().cast();
            // SAFETY: the line is valid for reads, by the promise of `new`, and a prefetch changes nothing that a program can observe.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }

    /// Copies all bytes to other shared memory, through registers. Each byte that a peer writes during the copy may be old or new.
    ///
    /// # Safety
    /// `to` is valid for writes of this view's length during the call, and no process accesses these bytes by other accesses than this
    /// module does.
    pub unsafe fn copy_to_shared(&self, to: NonNull<u8>) {
        if self.len >= STRING_MIN && string::suits(self.first, to) {
            // SAFETY: the promise of `new`, and the caller's.
            unsafe { string::copy(self.first, to, self.len) };
            return;
        }
        let mut at = 0;
        self.read_blocks(&mut |block, count| {
            // SAFETY: the caller's promise: the blocks together have the length of the view.
            let to = unsafe { to.add(at) };
            // SAFETY: as above.
            unsafe { to_shared(&block[..count], to) };
            at += count;
        });
    }

    /// Copies the first bytes to `out`, as many as there are and fit, and returns their number.
    #[inline]
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let len = self.len.min(out.len());
        // SAFETY: the promise of `new`, for the first `len` bytes.
        unsafe { from_shared(self.first, &mut out[..len]) };
        len
    }

    /// Passes every byte to `read`, once and in order, in blocks that are read once. The second argument is the number of valid bytes in
    /// the block; the last block is padded with zeros.
    #[inline(always)]
    pub fn read_blocks(&self, read: &mut impl FnMut(&[u8; BLOCK], usize)) {
        let aligned = ANY_ALIGNMENT || self.first.align_offset(WORD) == 0;
        let whole = if aligned { self.len - self.len % BLOCK } else { 0 };
        for at in (0..whole).step_by(BLOCK) {
            // SAFETY: the promise of `new`, and the block ends within the length.
            let from = unsafe { self.first.add(at) };
            // SAFETY: as above; a block's length preserves the alignment.
            read(&unsafe { load_block(from) }, BLOCK);
        }
        // The rest, and memory without the alignment that blocks need, is copied block by block.
        for at in (whole..self.len).step_by(BLOCK) {
            let rest = self.skip(at);
            let mut block = [0; BLOCK];
            let len = rest.copy_to(&mut block);
            read(&block, len);
        }
    }
}

/// Copies `out.len()` bytes out of shared memory.
///
/// # Safety
/// `from` is valid for reads of `out.len()` bytes during the call, and no process writes to them by other accesses than this
/// module does.
pub unsafe fn from_shared(from: NonNull<u8>, out: &mut [u8]) {
    let to = NonNull::from(&mut *out).cast();
    if out.len() >= STRING_MIN && string::suits(from, to) {
        // SAFETY: the caller's promise, and the slice is valid for writes of its length.
        return unsafe { string::copy(from, to, out.len()) };
    }
    let head = from.align_offset(WORD).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    for (i, byte) in first.iter_mut().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        *byte = unsafe { byte_at(from, i) }.load(Ordering::Relaxed);
    }
    let mut at = head;
    let mut blocks = rest.chunks_exact_mut(BLOCK);
    for block in &mut blocks {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        let from = unsafe { from.add(at) };
        // SAFETY: as above; aligned by the head.
        block.copy_from_slice(&unsafe { load_block(from) });
        at += BLOCK;
    }
    let mut words = blocks.into_remainder().chunks_exact_mut(WORD);
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
/// `to` is valid for writes of `bytes.len()` bytes during the call, and no process accesses them by other accesses than this
/// module does.
pub unsafe fn to_shared(bytes: &[u8], to: NonNull<u8>) {
    let head = to.align_offset(WORD).min(bytes.len());
    let (first, rest) = bytes.split_at(head);
    for (i, byte) in first.iter().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        unsafe { byte_at(to, i) }.store(*byte, Ordering::Relaxed);
    }
    let mut at = head;
    let mut blocks = rest.chunks_exact(BLOCK);
    for block in &mut blocks {
        let block = block.try_into().expect("chunks_exact gives whole blocks");
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        let to = unsafe { to.add(at) };
        // SAFETY: as above; aligned by the head.
        unsafe { store_block(block, to) };
        at += BLOCK;
    }
    let mut words = blocks.remainder().chunks_exact(WORD);
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

/// Number of bytes from which a copy by one string instruction is used. It moves whole cache lines, and does not read those that it overwrites.
const STRING_MIN: usize = 4096;

/// Copies by a string instruction, which moves every byte once, in order.
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod string {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use core::ptr::NonNull;

    use pronto_sync::atomic::{AtomicU8, Ordering};

    /// The leaf and bit in which the CPU says that the instruction is fast (ERMS; Intel SDM vol. 2A, CPUID, leaf 7, EBX).
    const LEAF: u32 = 7;
    const FAST: u32 = 1 << 9;

    const UNKNOWN: u8 = 0;
    const SLOW: u8 = 1;

    /// Whether the instruction is fast, once the CPU was asked. Virtual machines trap the question.
    static SPEED: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns whether the instruction is fast on this CPU for these addresses. Some CPUs (seen on AMD EPYC 9004) move one byte per cycle if
    /// the destination lies a few bytes above the source within its page.
    #[inline]
    pub(super) fn suits(from: NonNull<u8>, to: NonNull<u8>) -> bool {
        let above = to.addr().get().wrapping_sub(from.addr().get()) % 4096;
        let speed = match SPEED.load(Ordering::Relaxed) {
            UNKNOWN => ask(),
            speed => speed,
        };
        speed != SLOW && !(1..64).contains(&above)
    }

    #[cold]
    fn ask() -> u8 {
        let is_fast = __cpuid(0).eax >= LEAF && __cpuid_count(LEAF, 0).ebx & FAST != 0;
        let speed = SLOW + u8::from(is_fast);
        SPEED.store(speed, Ordering::Relaxed);
        speed
    }

    /// # Safety
    /// The `len` bytes at `from` and at `to` are shared memory, or private memory of the caller, that outlives the call.
    pub(super) unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
        // SAFETY: invariant 1 of `copy`, as the compiler assumes that the assembly accesses memory which others may access, too; the
        // caller's promise. The direction flag is clear, as the ABI requires.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from.as_ptr() => _,
                inout("rdi") to.as_ptr() => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(loom))))]
mod string {
    use core::ptr::NonNull;

    pub(super) fn suits(_: NonNull<u8>, _: NonNull<u8>) -> bool {
        false
    }

    /// # Safety
    /// It must not be called.
    pub(super) unsafe fn copy(_: NonNull<u8>, _: NonNull<u8>, _: usize) {
        unreachable!("`suits` is false")
    }
}

/// Reads a block of shared memory into registers.
///
/// # Safety
/// The 64 bytes at `from` are shared memory that outlives the call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load_block(from: NonNull<u8>) -> [u8; BLOCK] {
    use core::arch::asm;
    use core::arch::x86_64::__m128i;

    let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: invariant 1, as the compiler assumes that the assembly reads memory which others may change; the caller's promise. SSE2 is
    // part of the architecture.
    unsafe {
        asm!(
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            from = in(reg) from.as_ptr(),
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: both types have 64 bytes, and all bit patterns are valid.
    unsafe { core::mem::transmute([a, b, c, d]) }
}

/// Writes a block to shared memory.
///
/// # Safety
/// The 64 bytes at `to` are shared memory that outlives the call, and `to` is a multiple of eight.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store_block(block: &[u8; BLOCK], to: NonNull<u8>) {
    use core::arch::asm;
    use core::arch::x86_64::__m128i;

    // SAFETY: both types have 64 bytes, and all bit patterns are valid.
    let [a, b, c, d]: [__m128i; 4] = unsafe { core::mem::transmute(*block) };
    // SAFETY: invariant 1, as the compiler assumes that the assembly writes memory which others may access; the caller's promise.
    unsafe {
        asm!(
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            to = in(reg) to.as_ptr(),
            a = in(xmm_reg) a,
            b = in(xmm_reg) b,
            c = in(xmm_reg) c,
            d = in(xmm_reg) d,
            options(nostack, preserves_flags),
        );
    }
}

/// Reads a block of shared memory, word by word.
///
/// # Safety
/// The 64 bytes at `from` are shared memory that outlives the call, and `from` is a multiple of eight.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn load_block(from: NonNull<u8>) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for (i, word) in block.chunks_exact_mut(WORD).enumerate() {
        // SAFETY: the caller's promise.
        let shared = unsafe { word_at(from, i * WORD) };
        word.copy_from_slice(&shared.load(Ordering::Relaxed).to_ne_bytes());
    }
    block
}

/// Writes a block to shared memory, word by word.
///
/// # Safety
/// The 64 bytes at `to` are shared memory that outlives the call, and `to` is a multiple of eight.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn store_block(block: &[u8; BLOCK], to: NonNull<u8>) {
    for (i, word) in block.chunks_exact(WORD).enumerate() {
        let value = u64::from_ne_bytes(word.try_into().expect("chunks_exact gives whole words"));
        // SAFETY: the caller's promise.
        unsafe { word_at(to, i * WORD) }.store(value, Ordering::Relaxed);
    }
}

/// # Safety
/// Byte `index` from `base` is part of shared memory that outlives `'a`.
unsafe fn byte_at<'a>(base: NonNull<u8>, index: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's promise keeps the sum within one mapping.
    let at = unsafe { base.add(index) };
    // SAFETY: invariant 1: all accesses to this byte are atomic; an `AtomicU8` needs no alignment.
    unsafe { at.cast::<AtomicU8>().as_ref() }
}

/// # Safety
/// As for [`byte_at`], for eight bytes, and `base + index` is a multiple of eight.
unsafe fn word_at<'a>(base: NonNull<u8>, index: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's promise keeps the sum within one mapping.
    let at = unsafe { base.add(index) };
    // SAFETY: invariant 1; the caller promises the alignment.
    unsafe { at.cast::<AtomicU64>().as_ref() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    /// Returns every length up to a few blocks, at every alignment within two words.
    fn places() -> impl Iterator<Item = (usize, usize)> {
        (0..16).flat_map(|skip| (0..3 * BLOCK + 9).map(move |len| (skip, len)))
    }

    fn pattern(len: usize) -> Vec<u8> {
        (1..=251).cycle().take(len).collect()
    }

    #[test]
    fn copies_round_trip_and_touch_no_other_bytes() {
        for (skip, len) in places() {
            let bytes = pattern(len);
            let mut shared = vec![0_u64; 40];
            let base = NonNull::new(shared.as_mut_ptr()).unwrap().cast::<u8>();
            // SAFETY: 320 bytes are more than the largest skip and length together.
            let place = unsafe { base.add(skip) };
            // SAFETY: as above, and no other thread has access to the memory.
            unsafe { to_shared(&bytes, place) };
            let mut back = vec![0xee; len];
            // SAFETY: as above.
            unsafe { from_shared(place, &mut back) };
            assert_eq!(back, bytes, "{len} bytes at {skip}");
            let all: Vec<u8> = shared.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert!(all[..skip].iter().chain(&all[skip + len..]).all(|byte| *byte == 0), "{len} at {skip}");
        }
    }

    #[test]
    fn long_copies_are_exact_at_every_alignment() {
        let lens = [STRING_MIN - 1, STRING_MIN, STRING_MIN + 1, 3 * STRING_MIN + 77];
        let places = lens
            .iter()
            .flat_map(|len| (0..17).flat_map(move |from| [0, 1, 8, 63, 64].map(|to| (*len, from, to))));
        for (len, from, to) in places {
            let bytes = pattern(len);
            let mut memory = [vec![0_u64; 2048], vec![0_u64; 2048]];
            let [first, second] =
                memory.each_mut().map(|words| NonNull::new(words.as_mut_ptr()).unwrap().cast::<u8>());
            // SAFETY: 16 KiB are more than the largest offset and length together.
            let (first, copy) = unsafe { (first.add(from), second.add(to)) };
            // SAFETY: as above, and no other thread has access to the memory.
            unsafe { to_shared(&bytes, first) };
            // SAFETY: as above.
            let lent = unsafe { SharedBytes::new(first, len) };
            // SAFETY: as above.
            unsafe { lent.copy_to_shared(copy) };
            let mut back = vec![0xee; len + to];
            // SAFETY: as above.
            unsafe { from_shared(copy, &mut back[to..]) };
            assert_eq!(back[to..], bytes, "{len} bytes from {from} to {to}");
            let all: Vec<u8> = memory[1].iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(all[to..to + len], bytes);
            assert!(
                all[..to].iter().chain(&all[to + len..]).all(|byte| *byte == 0),
                "{len} from {from} to {to}"
            );
        }
    }

    #[test]
    fn blocks_have_every_byte_once_and_in_order() {
        for (skip, len) in places() {
            let mut shared = vec![0_u64; 40];
            let base = NonNull::new(shared.as_mut_ptr()).unwrap().cast::<u8>();
            // SAFETY: 320 bytes are more than the largest skip and length together.
            let place = unsafe { base.add(skip) };
            // SAFETY: as above, and no other thread has access to the memory.
            unsafe { to_shared(&pattern(len), place) };
            // SAFETY: as above.
            let lent = unsafe { SharedBytes::new(place, len) };
            let mut read = Vec::new();
            lent.read_blocks(&mut |block, count| {
                assert!(block[count..].iter().all(|byte| *byte == 0));
                read.extend_from_slice(&block[..count]);
            });
            assert_eq!(read, pattern(len), "{len} bytes at {skip}");
        }
    }
}
