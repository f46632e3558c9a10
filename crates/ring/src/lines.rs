//! A ring of 64-byte lines (message slots) from one writer to one reader, with the lap number in the publish word.
//!
//! ```text
//!   word 0   bits 0..8 form | bits 8..32 lap | bits 32..64 for the caller
//!   word 1   for the caller
//!    ...
//!   word 7   for the caller
//! ```
//!
//! A message is one line, and costs the reader one cache miss. The lap counts the passes over the ring. Therefore a line
//! needs no clearing, and the two sides share no head or tail: each keeps its own position. The form is a small number that
//! the caller defines, for example "payload in this line" or "payload elsewhere".
//!
//! # Invariants
//! 1. The storage has one writer. All other parties only read it.
//! 2. Word 0 is written last (Release) and read first (Acquire): a line with the expected lap is complete.
//! 3. The caller does flow control: the writer is never a whole ring ahead of the reader.
//!
//! If invariant 3 is broken, the writer overwrites unread messages. The reader then finds a lap that is neither the expected
//! nor the previous one, and reports [`Overrun`]. The connection must then end, as the number of lost messages is unknown.
//! Before that, a message that is overwritten during the copy can come out mixed. A reader must therefore check the copy
//! like everything that a peer wrote. A peer can also write arbitrary words to its lines. For any contents, the reader
//! copies a line, reports an overrun, or finds no message. It never blocks, panics or reads other memory.

use alloc::sync::Arc;
use core::array::from_fn;

use pronto_sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// Number of words in a line.
pub const WORDS: usize = 8;
/// Last lap before the count starts over at 1. Lap 0 is that of zeroed memory.
const LAST_LAP: u32 = (1 << 24) - 1;

/// One cache line of a ring. Zeroed memory is a line that was never written.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line([AtomicU64; WORDS]);

/// Memory that holds the lines of one ring.
///
/// # Safety
/// `lines` returns the same lines on every call. They stay mapped and in place while the value lives. Every access to
/// them, in every process that maps them, is atomic or goes through this module.
#[expect(unsafe_code, reason = "the implementation makes the promise about the memory")]
pub unsafe trait LineStorage {
    /// Returns the lines. Their number is a power of two, and they are zeroed before the first use.
    fn lines(&self) -> &[Line];
}

// SAFETY: a slice is memory of this process, in place while borrowed or owned, with atomic access only.
#[expect(unsafe_code, reason = "heap memory keeps the promise")]
unsafe impl LineStorage for [Line] {
    fn lines(&self) -> &[Line] {
        self
    }
}

// SAFETY: an Arc returns the same storage on every call, and keeps it alive.
#[expect(unsafe_code, reason = "passes the promise on")]
unsafe impl<S: LineStorage + ?Sized> LineStorage for Arc<S> {
    fn lines(&self) -> &[Line] {
        (**self).lines()
    }
}

/// An error of a ring whose writer got a whole ring ahead of the reader, or wrote an invalid lap. The ring is no longer usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line ring overrun: found lap {found}, expected {expected}")]
pub struct Overrun {
    /// The expected lap.
    pub expected: u32,
    /// The lap in the line.
    pub found: u32,
}

/// A position in the ring: the index of the next line, and the lap.
#[derive(Clone, Copy, Debug)]
struct Position {
    index: usize,
    lap: u32,
    /// The lap of a line that is not written yet: the previous one, or 0 in the first lap.
    previous: u32,
}

impl Position {
    const START: Self = Self { index: 0, lap: 1, previous: 0 };

    fn advance(&mut self, lines: usize) {
        self.index += 1;
        if self.index == lines {
            self.index = 0;
            self.previous = self.lap;
            self.lap = if self.lap == LAST_LAP { 1 } else { self.lap + 1 };
        }
    }
}

/// The one writer of a ring.
#[derive(Debug)]
pub struct LineWriter<S> {
    storage: S,
    next: Position,
}

impl<S: LineStorage> LineWriter<S> {
    /// Returns a writer at the start of zeroed lines.
    ///
    /// # Panics
    /// If the number of lines is not a power of two.
    pub fn new(storage: S) -> Self {
        assert!(storage.lines().len().is_power_of_two(), "the number of lines in a ring is a power of two");
        Self { storage, next: Position::START }
    }

    /// Writes one message, which is immediately visible to the reader. Replaces the low 32 bits of `words[0]`. The caller promises
    /// that the reader is less than a whole ring behind. Always inlined, so that the words stay in registers.
    #[inline(always)]
    pub fn publish(&mut self, form: u8, words: [u64; WORDS]) {
        let lines = self.storage.lines();
        let Position { index, lap, .. } = self.next;
        let Line(line) = &lines[index];
        for (word, value) in line[1..].iter().zip(&words[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        let publish = u64::from(lap << 8 | u32::from(form));
        // SYNC: publishes the line, and the payload it points to; pairs with the load in LineReader::poll.
        line[0].store(words[0] & !u64::from(u32::MAX) | publish, Ordering::Release);
        self.next.advance(lines.len());
    }

    /// Returns the index of the line that is published next. Memory that the caller associates with that index belongs to the writer
    /// until then.
    #[inline]
    pub fn next_index(&self) -> usize {
        self.next.index
    }

    /// Returns the storage.
    pub fn storage(&self) -> &S {
        &self.storage
    }
}

/// The one reader of a ring.
#[derive(Debug)]
pub struct LineReader<S> {
    storage: S,
    next: Position,
}

impl<S: LineStorage> LineReader<S> {
    /// Returns a reader at the start of a ring, which may already contain messages.
    ///
    /// # Panics
    /// If the number of lines is not a power of two.
    pub fn new(storage: S) -> Self {
        assert!(storage.lines().len().is_power_of_two(), "the number of lines in a ring is a power of two");
        Self { storage, next: Position::START }
    }

    /// Takes the next message: copies it once, and returns it with its form, or `None` if there is none yet. After an overrun, every
    /// call returns the error.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<([u64; WORDS], u8)>, Overrun> {
        let lines = self.storage.lines();
        let Line(line) = &lines[self.next.index];
        // SYNC: Acquire sees the whole line; pairs with the last store in LineWriter::publish.
        let first = line[0].load(Ordering::Acquire);
        let [form, lap @ ..] = lap_and_form(first);
        let found = u32::from_le_bytes([lap[0], lap[1], lap[2], 0]);
        if found != self.next.lap {
            return self.not_due(found);
        }
        // `from_fn` unrolls to single loads, so that the words stay in registers. Every message passes through here.
        let words = from_fn(|word| if word == 0 { first } else { line[word].load(Ordering::Relaxed) });
        self.next.advance(lines.len());
        Ok(Some((words, form)))
    }

    /// Takes the next message, if there is one and `wanted` accepts its form. Copies it once, and returns it with its form. Returns
    /// `None` for an overrun, which [`poll`](Self::poll) reports.
    #[inline(always)]
    pub fn poll_if(&mut self, wanted: impl FnOnce(u8) -> bool) -> Option<([u64; WORDS], u8)> {
        let lines = self.storage.lines();
        let Line(line) = &lines[self.next.index];
        // SYNC: as in poll.
        let first = line[0].load(Ordering::Acquire);
        let [form, lap @ ..] = lap_and_form(first);
        if u32::from_le_bytes([lap[0], lap[1], lap[2], 0]) != self.next.lap || !wanted(form) {
            return None;
        }
        let words = from_fn(|word| if word == 0 { first } else { line[word].load(Ordering::Relaxed) });
        self.next.advance(lines.len());
        fetch_early(&lines[self.next.index]);
        Some((words, form))
    }

    /// Returns the index of the line that was taken last.
    #[inline]
    pub fn last_index(&self) -> usize {
        self.next.index.wrapping_sub(1) & (self.storage.lines().len() - 1)
    }

    /// Returns whether [`poll`](Self::poll) would return a message or an overrun. Used for the recheck before sleeping.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let Line(line) = &self.storage.lines()[self.next.index];
        let [_, lap @ ..] = lap_and_form(line[0].load(Ordering::Acquire));
        u32::from_le_bytes([lap[0], lap[1], lap[2], 0]) != self.next.previous
    }

    /// Returns the storage.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    #[cold]
    fn not_due<T>(&self, found: u32) -> Result<Option<T>, Overrun> {
        if found == self.next.previous { Ok(None) } else { Err(Overrun { expected: self.next.lap, found }) }
    }
}

/// Prefetches a line that is read next. Under load it is already written, and arrives in the cache while the current message is
/// handled.
#[inline(always)]
#[cfg_attr(
    all(target_arch = "x86_64", not(loom)),
    expect(unsafe_code, reason = "a hint to the CPU about readable memory")
)]
fn fetch_early(line: &Line) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch hint has no architectural effect and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(line).cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    let _ = line;
}

/// Returns the low four bytes of word 0, lowest first: form and lap.
fn lap_and_form(word: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = word.to_le_bytes();
    [a, b, c, d]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::sync::Arc;

    use proptest::prelude::*;

    use super::{LAST_LAP, Line, LineReader, LineWriter, Ordering, Overrun, WORDS};

    type Heap = Arc<[Line]>;

    fn ring(lines: usize) -> (LineWriter<Heap>, LineReader<Heap>, Heap) {
        let lines: Heap = (0..lines).map(|_| Line::default()).collect();
        (LineWriter::new(Arc::clone(&lines)), LineReader::new(Arc::clone(&lines)), lines)
    }

    fn message(i: u64) -> [u64; WORDS] {
        core::array::from_fn(|word| i << 32 | word as u64)
    }

    #[test]
    fn a_message_of_another_form_is_not_taken() {
        let (mut writer, mut reader, _) = ring(2);
        for i in 0..5 {
            assert_eq!(reader.poll_if(|_| true), None);
            let index = writer.next_index();
            writer.publish(9, message(i));
            assert_eq!(reader.poll_if(|form| form != 9), None, "a message of another form is not taken");
            let (words, form) = reader.poll_if(|form| form == 9).unwrap();
            assert_eq!(form, 9);
            assert_eq!(reader.last_index(), index);
            assert_eq!((words[0] >> 32, &words[1..]), (message(i)[0] >> 32, &message(i)[1..]));
        }
        // `poll` must report a lap that is neither the expected nor the previous one.
        (0..4).for_each(|i| writer.publish(1, message(i)));
        assert_eq!(reader.poll_if(|_| true), None);
        assert!(reader.is_ready() && reader.poll().is_err());
    }

    /// Shows: protocol.line, messages.line
    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }

    #[test]
    fn messages_arrive_whole_and_in_order_over_many_laps() {
        let (mut writer, mut reader, _) = ring(4);
        for i in 0..1000 {
            assert_eq!(reader.poll(), Ok(None));
            assert!(!reader.is_ready());
            let batch = i % 4 + 1;
            for j in 0..batch {
                writer.publish(7, message(i + j));
            }
            for j in 0..batch {
                assert!(reader.is_ready());
                let (words, form) = reader.poll().unwrap().unwrap();
                assert_eq!(form, 7);
                assert_eq!(words[1..], message(i + j)[1..]);
                assert_eq!(words[0] >> 32, i + j, "the upper half of word 0 is as the caller wrote it");
            }
        }
    }

    #[test]
    fn laps_start_over_without_a_gap() {
        let (mut writer, mut reader, lines) = ring(2);
        for position in [&mut writer.next, &mut reader.next] {
            (position.lap, position.previous) = (LAST_LAP, LAST_LAP - 1);
        }
        for line in &*lines {
            line.0[0].store(u64::from(LAST_LAP - 1) << 8, Ordering::Relaxed);
        }
        for i in 0..6 {
            assert_eq!(reader.poll(), Ok(None));
            writer.publish(0, message(i));
            assert_eq!(reader.poll().unwrap().unwrap().0[1], message(i)[1]);
        }
        assert_eq!(reader.next.lap, 3, "after the last lap comes 1, not 0");
    }

    #[test]
    fn a_reader_that_fell_behind_keeps_reporting_an_overrun() {
        let (mut writer, mut reader, _) = ring(2);
        for i in 0..3 {
            writer.publish(0, message(i));
        }
        assert!(reader.is_ready());
        assert_eq!(reader.poll(), Err(Overrun { expected: 1, found: 2 }));
        assert_eq!(reader.poll(), Err(Overrun { expected: 1, found: 2 }));
    }

    #[test]
    fn a_line_ring_works_between_threads() {
        let (mut writer, mut reader, _) = ring(64);
        let received = pronto_sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..50_000 {
                    while i - received.load(Ordering::Acquire) >= 64 {
                        std::thread::yield_now();
                    }
                    writer.publish(1, message(i));
                }
            });
            for i in 0..50_000 {
                let (words, _) = loop {
                    match reader.poll().unwrap() {
                        Some(message) => break message,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(words[1..], message(i)[1..]);
                received.store(i + 1, Ordering::Release);
            }
        });
    }

    proptest! {
        /// For any contents of the lines, the reader returns a result, and takes at most one message per line and lap.
        #[test]
        fn a_reader_is_total(garbage in prop::collection::vec(any::<u64>(), 8 * WORDS), polls in 0..40usize) {
            let (_, mut reader, lines) = ring(8);
            for (line, words) in lines.iter().zip(garbage.chunks(WORDS)) {
                for (word, value) in line.0.iter().zip(words) {
                    word.store(*value & 0xffff_ffff_0000_03ff, Ordering::Relaxed);
                }
            }
            let taken = (0..polls).filter(|_| matches!(reader.poll(), Ok(Some(_)))).count();
            prop_assert!(taken <= 3 * 8, "laps 0 to 3 occur, each line matches one lap");
        }
    }
}
