//! Loom models of every ring of this crate, and mutants that loom must refute.

use alloc::sync::Arc;
use alloc::vec::Vec;

use loom::thread;
use pronto_sync::TryLock;
use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pronto_sync::cell::UnsafeCell;

use crate::{Line, LineReader, LineWriter, Mpsc, NoteRing, Receiver, Sender, Slots};

/// Sends three messages through two lines. The second lap reuses a line; the reader's progress is the writer's credit.
#[test]
fn loom_lines_arrive_whole_round_the_ring() {
    loom::model(|| {
        let lines: Arc<[Line]> = (0..2).map(|_| Line::default()).collect();
        let credit = Arc::new(AtomicU32::new(0));
        let (storage, consumed) = (Arc::clone(&lines), Arc::clone(&credit));
        let thread = thread::spawn(move || {
            let mut writer = LineWriter::new(storage);
            for i in 0..3 {
                while i - consumed.load(Ordering::Acquire) >= 2 {
                    thread::yield_now();
                }
                writer.publish(1, [u64::from(i) << 32, u64::from(i), 0, 0, 0, 0, 0, u64::from(i)]);
            }
        });
        let mut reader = LineReader::new(lines);
        for i in 0..3 {
            let (words, _) = loop {
                match reader.poll().expect("the writer has a credit") {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((words[0] >> 32, words[1], words[7]), (i, i, i), "a torn line");
            credit.fetch_add(1, Ordering::Release);
        }
        thread.join().unwrap();
    });
}

/// Publishes a line without Release. Loom finds the torn message.
#[test]
#[should_panic(expected = "a torn line")]
fn loom_refutes_publishing_relaxed() {
    loom::model(|| {
        let line = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let writer = Arc::clone(&line);
        let thread = thread::spawn(move || {
            writer[1].store(7, Ordering::Relaxed);
            writer[0].store(1, Ordering::Relaxed);
        });
        if line[0].load(Ordering::Acquire) == 1 {
            assert_eq!(line[1].load(Ordering::Relaxed), 7, "a torn line");
        }
        thread.join().unwrap();
    });
}

fn pop_waiting<T>(receiver: &mut Receiver<T>) -> T {
    loop {
        match receiver.pop() {
            Some(value) => return value,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn loom_mpsc_two_producers() {
    loom::model(|| {
        let (sender, mut receiver) = Mpsc::new(2);
        let threads = [1u32, 2].map(|i| {
            let sender = sender.clone();
            thread::spawn(move || sender.push(i).expect("room for both"))
        });
        let mut got = [pop_waiting(&mut receiver), pop_waiting(&mut receiver)];
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(!sender.pending());
    });
}

/// Reuses a slot as soon as the consumer has emptied it. A producer's values stay in order.
#[test]
fn loom_mpsc_round_the_ring() {
    loom::model(|| {
        let (sender, mut receiver) = Mpsc::new(2);
        let thread = thread::spawn(move || {
            for i in 0..3u32 {
                while sender.push(i).is_err() {
                    thread::yield_now();
                }
            }
        });
        for i in 0..3 {
            assert_eq!(pop_waiting(&mut receiver), i);
        }
        thread.join().unwrap();
    });
}

/// Two producers share a first ring of one slot, which one of them closes. The values of each producer stay in order and none is lost,
/// regardless of which producer makes the second ring.
#[test]
fn loom_mpsc_grows_between_two_producers() {
    loom::model(|| {
        let (sender, mut receiver) = Mpsc::growing(1, 4);
        let other = sender.clone();
        let thread = thread::spawn(move || {
            for i in [10u32, 11] {
                other.push(i).expect("the queue grows");
            }
        });
        sender.push(20).expect("the queue grows");
        assert!(sender.has_unpopped());
        let got: Vec<_> = (0..3).map(|_| pop_waiting(&mut receiver)).collect();
        thread.join().unwrap();
        let of_other: Vec<_> = got.iter().copied().filter(|i| *i < 20).collect();
        assert_eq!(of_other, [10, 11]);
        assert!(got.contains(&20) && !sender.pending() && !sender.has_unpopped());
    });
}

/// The queue of submissions, and the engine into which one thread at a time drains it.
struct Submissions {
    sender: Sender<u32>,
    engine: TryLock<(Receiver<u32>, Vec<u32>)>,
}

/// A sender pushes, fails to get the lock and leaves, while the holder drains, releases the lock and rechecks.
fn submission_at_the_holders_exit(submit: fn(&Submissions, u32)) {
    submission_at_the_exit_from(|| Mpsc::new(2), submit);
}

fn submission_at_the_exit_from(queue: fn() -> (Sender<u32>, Receiver<u32>), submit: fn(&Submissions, u32)) {
    loom::model(move || {
        let (sender, receiver) = queue();
        let state = Arc::new(Submissions { sender, engine: TryLock::new((receiver, Vec::new())) });
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || submit(&other, 1));
        submit(&state, 2);
        thread.join().unwrap();
        let served = state.engine.try_lock().expect("both threads have released the lock").1.len();
        // Before the assertion: dropping loom's objects while a refuted model unwinds would abort the test.
        drop(state);
        assert_eq!(served, 2, "a submission is stranded");
    });
}

fn drain((receiver, served): &mut (Receiver<u32>, Vec<u32>)) {
    while let Some(submission) = receiver.pop() {
        served.push(submission);
    }
}

#[test]
fn loom_submission_at_the_holders_exit_strands_nothing() {
    submission_at_the_holders_exit(|state, submission| {
        state.sender.push(submission).expect("room for both");
        state.engine.serve(|| state.sender.pending(), drain);
    });
}

/// A submission is served while the queue grows, regardless of the ring that it went to.
#[test]
fn loom_submission_at_the_holders_exit_strands_nothing_in_a_queue_that_grows() {
    submission_at_the_exit_from(
        || Mpsc::growing(1, 2),
        |state, submission| {
            state.sender.push(submission).expect("the queue grows");
            state.engine.serve(|| state.sender.pending(), drain);
        },
    );
}

#[test]
#[should_panic(expected = "a submission is stranded")]
fn loom_refutes_leaving_without_a_recheck() {
    submission_at_the_holders_exit(|state, submission| {
        state.sender.push(submission).expect("room for both");
        if let Some(mut engine) = state.engine.try_lock() {
            drain(&mut engine);
        }
    });
}

#[test]
#[should_panic(expected = "a submission is stranded")]
fn loom_refutes_a_recheck_without_fences() {
    submission_at_the_holders_exit(|state, submission| {
        state.sender.push(submission).expect("room for both");
        while let Some(mut engine) = state.engine.try_lock() {
            drain(&mut engine);
            drop(engine);
            if !state.sender.pending() {
                break;
            }
        }
    });
}

/// Slots, and a cell for each. Loom reports any access to a cell by another thread than its slot's claimer.
struct Table {
    slots: Slots,
    cells: Vec<UnsafeCell<u32>>,
}

#[expect(unsafe_code, reason = "the model checks whether this is sound")]
// SAFETY: a cell is accessed only while its slot is claimed.
unsafe impl Sync for Table {}

impl Table {
    fn new(n: u16) -> Arc<Self> {
        Self::growing(n, n)
    }

    fn growing(few: u16, max: u16) -> Arc<Self> {
        let cells = (0..max).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { slots: Slots::growing(few, max), cells })
    }

    #[expect(unsafe_code, reason = "the model checks whether this is sound")]
    fn touch(&self, slot: u16) {
        // SAFETY: the caller has claimed the slot; loom checks that no other thread accesses the cell.
        self.cells[usize::from(slot)].with_mut(|cell| unsafe { *cell += 1 });
    }
}

#[test]
fn loom_a_slot_is_claimed_by_one() {
    loom::model(|| {
        let table = Table::new(2);
        let use_one = |table: &Table| {
            if let Some(slot) = table.slots.claim() {
                table.touch(slot);
                table.slots.release(slot);
            }
        };
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            use_one(&other);
            use_one(&other);
        });
        use_one(&table);
        thread.join().unwrap();
        assert_eq!(table.slots.in_use(), 0);
        assert!(table.slots.claim().is_some() && table.slots.claim().is_some());
    });
}

/// Two threads may grow the list at the same time. Each new slot is added once, and its first claimer sees it linked.
#[test]
fn loom_a_list_grows_once() {
    loom::model(|| {
        let table = Table::growing(1, 2);
        let use_one = |table: &Table| {
            let claimed = table.slots.claim();
            let claimed = claimed.or_else(|| table.slots.grow().then(|| table.slots.claim())?);
            if let Some(slot) = claimed {
                table.touch(slot);
                table.slots.release(slot);
            }
        };
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || use_one(&other));
        use_one(&table);
        thread.join().unwrap();
        assert_eq!(table.slots.in_use(), 0);
        let all = [0; 3].map(|_| table.slots.claim()).into_iter().flatten().count();
        assert_eq!(all, usize::from(table.slots.len()));
    });
}

/// Checks the ABA case: one thread has read the top and the slot below it, while the other claims both and releases two slots.
/// Top and count are then as before, and only the slot below differs. Without the tag, two threads would claim one slot.
#[test]
fn loom_the_same_top_again_is_not_the_same_list() {
    loom::model(|| {
        let table = Table::new(3);
        let held = table.slots.claim().expect("all are free");
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            let (first, second) = (other.slots.claim(), other.slots.claim());
            other.slots.release(held);
            if let (Some(first), Some(_)) = (first, second) {
                other.slots.release(first);
            }
            if let Some(second) = second {
                other.touch(second);
            }
            if second.is_some() { second } else { first }
        });
        let here = [table.slots.claim(), table.slots.claim()];
        for slot in here.into_iter().flatten() {
            table.touch(slot);
        }
        let there = thread.join().unwrap();
        assert!(there.is_none() || !here.contains(&there), "two threads claimed one slot");
    });
}

#[test]
fn loom_a_reader_sees_whole_notes_only() {
    loom::model(|| {
        let ring = Arc::new(NoteRing::<2>::new());
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
