//! Copies between private memory and memory to which another process may write concurrently.
//!
//! # Invariants
//! 1. Shared bytes are accessed only by relaxed atomic accesses, or by assembly with the same effect. Therefore a concurrent
//!    writer causes a race without undefined behaviour: each byte is old or new.
//! 2. The caller has checked the bounds of each pointer against memory that outlives the call.
#![expect(unsafe_code, reason = "shared memory is accessed through raw pointers")]

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use pronto_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use zerocopy::FromBytes;

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

    /// Copies all bytes to other shared memory. Each byte that a peer writes during the copy may be old or new.
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

    /// Appends all bytes to `items`, as numbers in the byte order of this machine. Bytes that do not fill a number are left out.
    pub fn append_to<T: FromBytes>(&self, items: &mut Vec<T>) {
        let count = self.len.checked_div(size_of::<T>()).unwrap_or(0);
        items.reserve(count);
        let to = NonNull::from(items.spare_capacity_mut()).cast();
        // SAFETY: the promise of `new`, and the capacity was reserved.
        unsafe { copy_out(self.first, to, count * size_of::<T>()) };
        // SAFETY: the bytes of these items were written, and every bit pattern is an item.
        unsafe { items.set_len(items.len() + count) };
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
#[inline]
pub unsafe fn from_shared(from: NonNull<u8>, out: &mut [u8]) {
    // SAFETY: the caller's promise, and the slice is valid for writes of its length.
    unsafe { copy_out(from, NonNull::from(&mut *out).cast(), out.len()) };
}

/// Copies `len` bytes out of shared memory.
///
/// # Safety
/// As for [`from_shared`], and `to` is valid for writes of `len` bytes. The bytes there may be uninitialized.
unsafe fn copy_out(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    if len >= STRING_MIN && string::suits(from, to) {
        // SAFETY: the caller's promise.
        return unsafe { string::copy(from, to, len) };
    }
    let out = to.cast::<MaybeUninit<u8>>();
    // SAFETY: the caller's promise; bytes that may be uninitialized are only written.
    let out = unsafe { NonNull::slice_from_raw_parts(out, len).as_mut() };
    let head = from.align_offset(WORD).min(len);
    let (first, rest) = out.split_at_mut(head);
    for (i, byte) in first.iter_mut().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        byte.write(unsafe { byte_at(from, i) }.load(Ordering::Relaxed));
    }
    let mut at = head;
    let (blocks, rest) = rest.as_chunks_mut();
    for block in blocks {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        let from = unsafe { from.add(at) };
        // SAFETY: as above; aligned by the head.
        *block = unsafe { load_block(from) }.map(MaybeUninit::new);
        at += BLOCK;
    }
    let (words, rest) = rest.as_chunks_mut();
    for word in words {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        let shared = unsafe { word_at(from, at) };
        *word = shared.load(Ordering::Relaxed).to_ne_bytes().map(MaybeUninit::new);
        at += WORD;
    }
    for (i, byte) in rest.iter_mut().enumerate() {
        // SAFETY: invariant 2, and the loop stays within the slice's length.
        byte.write(unsafe { byte_at(from, at + i) }.load(Ordering::Relaxed));
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

/// Copies by a string instruction, which moves every byte once, in order. Not in simulations, whose runs must not depend on what an earlier
/// one has found out.
#[cfg(all(target_arch = "x86_64", not(loom), not(simulated)))]
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
    #[allow(unused_unsafe, reason = "these functions are safe in new versions of Rust")]
    fn ask() -> u8 {
        // SAFETY: every CPU of this architecture has the instruction.
        let leaves = unsafe { __cpuid(0) }.eax;
        // SAFETY: as above.
        let is_fast = leaves >= LEAF && unsafe { __cpuid_count(LEAF, 0) }.ebx & FAST != 0;
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

#[cfg(not(all(target_arch = "x86_64", not(loom), not(simulated))))]
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
mod tests;
