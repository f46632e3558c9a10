//! A ring that one thread writes, over and over, and anyone may read meanwhile.
//!
//! # Invariants
//! 1. Notes are numbered from 0; note `n` lies in place `n % N` until note `n + N` replaces it.
//! 2. `written` is the number of notes that are whole. It grows after a note was written, and before the next one is begun: who
//!    reads a word of note `n` finds `written` to be at least `n` afterwards.

use pronto_sync::atomic::{AtomicU64, Ordering, fence};

/// A thread's last `N` notes, a power of two.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    entries: [[AtomicU64; 2]; N],
    written: AtomicU64,
    /// The writer's last reading of a clock, shifted to its place in an entry.
    time: AtomicU64,
}

/// A note as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number among all notes of its thread.
    pub number: u64,
    /// The last reading of a clock before it, nanoseconds, rounded down to 64; 0 if there was none. Starts anew after 208 days.
    pub time_ns: u64,
    /// What was noted.
    pub word: u64,
    /// What was noted besides.
    pub low: u16,
}

/// Times are kept in units of 64 ns, in the upper 48 bits of a word.
const TIME_UNIT: u32 = 6;
const LOW_BITS: u32 = 16;

impl<const N: usize> Ring<N> {
    const MASK: u64 = {
        assert!(N.is_power_of_two(), "places are masked");
        N as u64 - 1
    };

    /// Nothing noted yet.
    #[must_use]
    pub fn new() -> Self {
        let entries = core::array::from_fn(|_| [AtomicU64::new(0), AtomicU64::new(0)]);
        Self { entries, written: AtomicU64::new(0), time: AtomicU64::new(0) }
    }

    /// The clock was read. Only the thread whose ring it is.
    #[inline]
    pub fn time(&self, nanos: u64) {
        // SYNC: read by its own thread only.
        self.time.store((nanos >> TIME_UNIT) << LOW_BITS, Ordering::Relaxed);
    }

    /// Notes something. Only the thread whose ring it is: two that note at once lose notes, and tear them.
    #[inline]
    pub fn note(&self, word: u64, low: u16) {
        let number = self.written.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "less than N, which is a usize")]
        let [first, second] = &self.entries[(number & Self::MASK) as usize];
        // SYNC: a reader that sees one of the two stores below sees `written` as it is; pairs with the fence in `last`.
        fence(Ordering::Release);
        first.store(word, Ordering::Relaxed);
        second.store(self.time.load(Ordering::Relaxed) | u64::from(low), Ordering::Relaxed);
        // SYNC: publishes the two words; pairs with the first load in `last`.
        self.written.store(number + 1, Ordering::Release);
    }

    /// How many notes there were so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The last notes, at most `most` and at most `N`, oldest first; those that the writer replaced meanwhile are left out.
    pub fn last(&self, most: usize) -> Vec<Entry> {
        // SYNC: the notes before this count are whole; pairs with the store in `note`.
        let written = self.written.load(Ordering::Acquire);
        let first = written.saturating_sub(most.min(N) as u64);
        let mut found: Vec<Entry> = (first..written).map(|number| self.read(number)).collect();
        // SYNC: if one of the words was of a later note, the count is seen to have grown; pairs with the fence in `note`.
        fence(Ordering::Acquire);
        let written = self.written.load(Ordering::Relaxed);
        found.retain(|entry| entry.number + N as u64 > written);
        found
    }

    fn read(&self, number: u64) -> Entry {
        #[expect(clippy::cast_possible_truncation, reason = "less than N, which is a usize")]
        let [first, second] = &self.entries[(number & Self::MASK) as usize];
        let (word, second) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
        let low = second as u16;
        Entry { number, time_ns: (second >> LOW_BITS) << TIME_UNIT, word, low }
    }
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn low(number: u64) -> u16 {
        u16::try_from(number % 65_536).expect("less than that")
    }

    #[test]
    fn the_last_notes_are_kept_with_the_time_before_them() {
        let ring = Ring::<4>::new();
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
    fn a_reader_beside_the_writer_sees_whole_notes_only() {
        let ring = Ring::<8>::new();
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
