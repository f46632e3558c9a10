//! Loom models of the send ring: chunk roll-over, the last free against the next loan, trimming, thread arenas, and dropping the
//! ring.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;

use loom::thread;
use pronto_sync::cell::UnsafeCell;

use super::thread_arena::ARENAS;
use super::{Chunk, Frame, OVERFLOW_CLASSES, Placement, PresentRing, RingConfig, SendRing, SlotClass};
use crate::fabric::HeapSendMemory;
use crate::time::Nanos;

/// A ring of two chunks of two lines, the first one open, and a cell for each line. The owner of a line accesses its cell, so that loom
/// detects two owners.
struct Touched {
    ring: Arc<SendRing>,
    lines: Vec<UnsafeCell<u32>>,
}

#[expect(unsafe_code, reason = "the model checks whether this is sound")]
// SAFETY: only the owner of a line accesses its cell.
unsafe impl Sync for Touched {}

impl Touched {
    fn new() -> Arc<Self> {
        let config = RingConfig {
            chunk_bytes: 128,
            first_chunk_bytes: 128,
            long_bytes: 32 << 10,
            arena_bytes: 0,
            overflow: [SlotClass { bytes: 64, count: 0 }; OVERFLOW_CLASSES],
            straggler_after: Nanos::NEVER,
            placement: Placement::HotFirst,
        };
        let ring =
            Arc::new(SendRing::new(Arc::new(HeapSendMemory::new(256)), config).expect("the memory is new"));
        Arc::new(Self { ring, lines: (0..4).map(|_| UnsafeCell::new(0)).collect() })
    }

    /// Makes all chunks ready, like the progress path when they are needed.
    fn open_all(&self) {
        let mut held = Vec::new();
        while let Ok(loan) = Arc::clone(&self.ring).loan(128, 0) {
            held.push(loan);
            if let Some(chunk) = self.ring.commit_next() {
                self.ring.open(chunk);
            }
        }
    }

    fn take(&self, lines: usize) -> Option<Frame> {
        let frame = Arc::clone(&self.ring).loan(lines * 64, 0).ok()?.finish();
        let first = frame.extent().offset as usize / 64;
        self.touch(first..first + lines);
        Some(frame)
    }

    /// Accesses all lines of a chunk, like the provider to which it is lent.
    fn touch_all(&self, chunk: &Chunk) {
        let first = chunk.range().start / 64;
        self.touch(first..first + 2);
    }

    /// Accesses lines, like the owner of a buffer.
    #[expect(unsafe_code, reason = "the model checks whether this is sound")]
    fn touch(&self, lines: Range<usize>) {
        for cell in &self.lines[lines] {
            // SAFETY: the caller owns the lines; loom checks that no other thread does.
            cell.with_mut(|cell| unsafe { *cell += 1 });
        }
    }
}

#[test]
fn loom_two_threads_roll_over_into_the_next_chunk() {
    loom::model(|| {
        let state = Touched::new();
        state.open_all();
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let first = other.take(1);
            let second = other.take(2);
            assert!(first.is_some(), "four lines are enough for 1 and 1, or 1 and 2");
            drop(first);
            drop(second);
        });
        drop(state.take(1).expect("there is always a free line"));
        thread.join().unwrap();
        assert_eq!(state.ring.stats().live, 0);
        assert!(state.take(2).is_some(), "an empty ring starts over");
    });
}

#[test]
fn loom_the_last_free_against_the_next_loan() {
    loom::model(|| {
        let state = Touched::new();
        let held = state.take(1);
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || drop(other.take(1)));
        drop(held);
        let here = state.take(1);
        thread.join().unwrap();
        drop(here);
        assert_eq!(state.ring.stats().live, 0);
        assert!(state.take(2).is_some());
    });
}

/// The freed end of a shortened buffer goes to another thread, after its owner has finished with it.
#[test]
fn loom_a_line_freed_early_is_taken_once() {
    loom::model(|| {
        let state = Touched::new();
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || drop(other.take(1)));
        if let Ok(mut loan) = Arc::clone(&state.ring).loan(128, 0) {
            state.touch(0..2);
            loan.shrink(64);
        }
        thread.join().unwrap();
        assert!(state.take(2).is_some());
    });
}

/// A chunk is used only after it was made ready.
#[test]
fn loom_an_opened_chunk_is_ready() {
    loom::model(|| {
        let state = Touched::new();
        let full = state.take(2);
        let chunk = state.ring.commit_next().expect("the first chunk is full");
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || {
            other.touch_all(&chunk);
            other.ring.open(chunk);
        });
        drop(state.take(2));
        thread.join().unwrap();
        assert!(state.take(2).is_some());
        drop(full);
    });
}

/// One thread trims a chunk and the other makes it ready again. While the chunk is lent to the provider, no thread gets a line of it.
#[test]
fn loom_no_thread_allocates_in_a_lent_chunk() {
    loom::model(|| {
        let state = Touched::new();
        state.open_all();
        assert!(state.ring.trim().is_none(), "the first check only records the state");
        let other = Arc::clone(&state);
        let trimmer = thread::spawn(move || {
            for _look in 0..2 {
                if let Some(chunk) = other.ring.trim() {
                    other.touch_all(&chunk);
                    other.ring.close(chunk);
                }
            }
        });
        let first = state.take(2);
        if state.take(2).is_none()
            && let Some(chunk) = state.ring.commit_next()
        {
            state.touch_all(&chunk);
            state.ring.open(chunk);
        }
        drop(first);
        trimmer.join().unwrap();
        assert_eq!(state.ring.stats().live, 0);
    });
}

/// A ring with thread arenas of four lines, set in a [`PresentRing`]; a cell for each line of the arenas, and a weak reference to the ring.
struct Arenas {
    present: PresentRing,
    lines: Vec<UnsafeCell<u32>>,
    arenas_at: usize,
    ring: Weak<SendRing>,
}

#[expect(unsafe_code, reason = "the model checks whether this is sound")]
// SAFETY: only the owner of a line accesses its cell.
unsafe impl Sync for Arenas {}

impl Arenas {
    fn new() -> Arc<Self> {
        let config = RingConfig {
            chunk_bytes: 64,
            first_chunk_bytes: 64,
            long_bytes: 32 << 10,
            arena_bytes: 256,
            overflow: [SlotClass { bytes: 64, count: 0 }; OVERFLOW_CLASSES],
            straggler_after: Nanos::NEVER,
            placement: Placement::HotFirst,
        };
        let ring = Arc::new(
            SendRing::new(Arc::new(HeapSendMemory::new(ARENAS * 256 * 4)), config)
                .expect("the memory is new"),
        );
        let weak = Arc::downgrade(&ring);
        let arenas_at = ring.initial()[1].start;
        let present = PresentRing::new();
        present.set(Some(ring), thread::yield_now);
        let lines = (0..4 * ARENAS).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { present, lines, arenas_at, ring: weak })
    }

    fn take(&self, thread: usize) -> Option<Frame> {
        let frame = self.present.loan_by(thread, 64, 0)?.ok()?.finish();
        self.touch(&frame);
        Some(frame)
    }

    /// Accesses the lines of a buffer, like its owner, and checks that the ring lives. Other models test the chunks.
    fn touch(&self, frame: &Frame) {
        assert!(self.ring.strong_count() > 0, "a ring outlives its buffers");
        if let Some(at) = (frame.extent().offset as usize).checked_sub(self.arenas_at) {
            self.touch_lines(at / 64..at / 64 + 1);
        }
    }

    #[expect(unsafe_code, reason = "the model checks whether this is sound")]
    fn touch_lines(&self, lines: Range<usize>) {
        for cell in &self.lines[lines] {
            // SAFETY: the caller owns the lines; loom checks that no other thread does.
            cell.with_mut(|cell| unsafe { *cell += 1 });
        }
    }
}

/// Another thread than the allocating one frees buffers of a thread arena, like a completion.
#[test]
fn loom_an_arena_starts_over_after_the_last_buffer_is_freed() {
    loom::model(|| {
        let state = Arenas::new();
        let first = state.take(0).expect("the arena is empty");
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || {
            other.touch(&first);
            drop(first);
        });
        drop(state.take(0));
        drop(state.take(0));
        thread.join().unwrap();
        assert_eq!(state.ring.upgrade().map(|ring| ring.stats().live), Some(0));
    });
}

/// Two threads with the same number do not share a line in their arena.
#[test]
fn loom_threads_of_one_number_share_no_line() {
    loom::model(|| {
        let state = Arenas::new();
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || drop(other.take(0)));
        drop(state.take(0));
        thread.join().unwrap();
    });
}

/// The provider reclaims the memory of a thread arena while its thread sends.
#[test]
fn loom_no_thread_allocates_in_a_lent_arena() {
    loom::model(|| {
        let state = Arenas::new();
        drop(state.take(0));
        assert!(state.present.idle_arena().is_none(), "the first check only records the state");
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || drop(other.take(0)));
        if let Some(arena) = state.present.idle_arena() {
            let first = (arena.range().start - state.arenas_at) / 64;
            state.touch_lines(first..first + 4);
        }
        thread.join().unwrap();
    });
}

/// A link is replaced while one thread allocates a buffer and another frees one. The last of them drops the ring.
#[test]
fn loom_a_ring_is_dropped_with_its_last_buffer() {
    loom::model(|| {
        let state = Arenas::new();
        let held = state.take(0).expect("the arena is empty");
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || {
            other.touch(&held);
            drop(held);
        });
        let taken = state.take(0);
        state.present.set(None, thread::yield_now);
        if let Some(taken) = taken {
            state.touch(&taken);
            drop(taken);
        }
        thread.join().unwrap();
        assert_eq!(state.ring.strong_count(), 0, "the ring is dropped");
    });
}
