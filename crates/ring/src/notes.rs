//! A ring of notes that one thread writes and any thread may read meanwhile.
//!
//! # Invariants
//! 1. Notes are numbered from 0. Note `n` is in entry `n % N` until note `n + N` replaces it.
//! 2. `written` is the number of complete notes. The writer increments it after each note, and before it begins the next one. A
//!    reader that has read a word of note `n` therefore finds `written` to be at least `n` afterwards.

use alloc::vec::Vec;

use pronto_sync::atomic::{AtomicU64, Ordering, fence};

/// A thread's last `N` notes, a power of two.
#[derive(Debug)]
pub struct NoteRing<const N: usize> {
    entries: [[AtomicU64; 2]; N],
    written: AtomicU64,
    /// The writer's last clock reading, shifted to its position in an entry.
    time: AtomicU64,
}

/// A copy of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the note in its ring, from 0.
    pub number: u64,
    /// The last clock reading before the note, in nanoseconds, rounded down to a multiple of 64; 0 if there was none. Wraps around
    /// after 208 days.
    pub time_ns: u64,
    /// The first argument of [`NoteRing::note`].
    pub word: u64,
    /// The second argument of [`NoteRing::note`].
    pub low: u16,
}

/// Times are stored in units of 64 ns, in the upper 48 bits of a word.
const TIME_UNIT: u32 = 6;
const LOW_BITS: u32 = 16;

impl<const N: usize> NoteRing<N> {
    const MASK: u64 = {
        assert!(N.is_power_of_two(), "an entry's index is a masked note number");
        N as u64 - 1
    };

    /// Creates an empty ring.
    #[must_use]
    pub fn new() -> Self {
        let entries = core::array::from_fn(|_| [AtomicU64::new(0), AtomicU64::new(0)]);
        Self { entries, written: AtomicU64::new(0), time: AtomicU64::new(0) }
    }

    /// Sets the time of the notes that follow, in nanoseconds. Only the ring's own thread may call it.
    #[inline]
    pub fn time(&self, nanos: u64) {
        // SYNC: only the ring's own thread reads it.
        self.time.store((nanos >> TIME_UNIT) << LOW_BITS, Ordering::Relaxed);
    }

    /// Writes a note. Only the ring's own thread may call it: two threads that write concurrently lose and tear notes.
    #[inline]
    pub fn note(&self, word: u64, low: u16) {
        let number = self.written.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "less than N, which is a usize")]
        let [first, second] = &self.entries[(number & Self::MASK) as usize];
        // SYNC: a reader that sees one of the two stores below also sees the present value of `written`; pairs with the fence in `last`.
        fence(Ordering::Release);
        first.store(word, Ordering::Relaxed);
        second.store(self.time.load(Ordering::Relaxed) | u64::from(low), Ordering::Relaxed);
        // SYNC: publishes the two words; pairs with the first load in `last`.
        self.written.store(number + 1, Ordering::Release);
    }

    /// Returns the number of notes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the last notes, at most `most` and at most `N`, oldest first. Notes that the writer replaces meanwhile are left out.
    pub fn last(&self, most: usize) -> Vec<Entry> {
        // SYNC: the notes before this count are complete; pairs with the store in `note`.
        let written = self.written.load(Ordering::Acquire);
        let first = written.saturating_sub(most.min(N) as u64);
        let mut found: Vec<Entry> = (first..written).map(|number| self.read(number)).collect();
        // SYNC: if one of the words was of a later note, the load below sees a larger count; pairs with the fence in `note`.
        fence(Ordering::Acquire);
        let written = self.written.load(Ordering::Relaxed);
        found.retain(|entry| entry.number + N as u64 > written);
        found
    }

    fn read(&self, number: u64) -> Entry {
        #[expect(clippy::cast_possible_truncation, reason = "less than N, which is a usize")]
        let [first, second] = &self.entries[(number & Self::MASK) as usize];
        let (word, second) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        #[expect(clippy::cast_possible_truncation, reason = "keeps the low 16 bits")]
        let low = second as u16;
        Entry { number, time_ns: (second >> LOW_BITS) << TIME_UNIT, word, low }
    }
}

impl<const N: usize> Default for NoteRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn low(number: u64) -> u16 {
        u16::try_from(number % 65_536).expect("less than 65,536")
    }

    #[test]
    fn the_last_notes_are_kept_with_the_time_before_them() {
        let ring = NoteRing::<4>::new();
        assert!(ring.last(9).is_empty());
        for number in 0_u16..6 {
            ring.time(1_000_000 * u64::from(number));
            ring.note(100 + u64::from(number), number);
        }
        let found = ring.last(9);
        assert_eq!(found.iter().map(|entry| entry.number).collect::<Vec<_>>(), [3, 4, 5]);
        assert!(
            found
                .iter()
                .all(|entry| entry.word == 100 + entry.number && u64::from(entry.low) == entry.number)
        );
        assert!(found.iter().all(|entry| entry.time_ns == entry.number * 1_000_000 / 64 * 64), "{found:?}");
        assert_eq!(ring.last(1).len(), 1);
    }

    #[test]
    fn a_concurrent_reader_sees_whole_notes_only() {
        let ring = NoteRing::<8>::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..200_000_u64 {
                    ring.note(number * 3, low(number));
                }
            });
            while !writer.is_finished() {
                for entry in ring.last(8) {
                    assert_eq!((entry.word, entry.low), (entry.number * 3, low(entry.number)), "a torn note");
                }
            }
        });
        assert_eq!(ring.written(), 200_000);
    }
}
