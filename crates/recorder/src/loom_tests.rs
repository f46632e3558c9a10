//! Loom tests of a ring that is read while it is written, and of a mutant that loom must refute.

use std::sync::Arc;

use loom::thread;
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::Ring;

#[test]
fn loom_a_reader_sees_whole_notes_only() {
    loom::model(|| {
        let ring = Arc::new(Ring::<2>::new());
        let written = Arc::clone(&ring);
        let writer = thread::spawn(move || {
            for number in 0..3 {
                written.note(u64::from(number) + 7, number);
            }
        });
        for entry in ring.last(2) {
            assert_eq!((entry.word, u64::from(entry.low)), (entry.number + 7, entry.number), "a torn note");
        }
        writer.join().expect("the writer does not panic");
        assert_eq!(ring.last(2).len(), 1, "the next note may be replacing the oldest one");
    });
}

/// Without the fences, a reader may return a word of a later note as part of an earlier one.
#[test]
#[should_panic(expected = "a torn note")]
fn loom_refutes_a_ring_without_fences() {
    loom::model(|| {
        let (word, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let theirs = (Arc::clone(&word), Arc::clone(&written));
        let writer = thread::spawn(move || {
            for number in 0..2 {
                theirs.0.store(number + 7, Ordering::Relaxed);
                theirs.1.store(number + 1, Ordering::Release);
            }
        });
        let before = written.load(Ordering::Acquire);
        let seen = word.load(Ordering::Relaxed);
        let after = written.load(Ordering::Relaxed);
        if before == 1 && after == 1 {
            assert_eq!(seen, 7, "a torn note");
        }
        writer.join().expect("the writer does not panic");
    });
}
