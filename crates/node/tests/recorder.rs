//! The rings of the flight recorder. All threads of a process share them, so this is the only test of its program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use pronto_node::recorder::{KEPT, Thread, note, threads, time};

fn of(name: &str) -> Option<Thread> {
    threads(KEPT).into_iter().rfind(|thread| thread.name == name)
}

fn in_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn(work).unwrap().join().unwrap();
}

/// Shows: operations.recorder
#[test]
fn a_ring_outlives_its_thread_until_another_one_takes_it() {
    assert_eq!(KEPT, 4_096, "documented");
    in_thread("one", || {
        time(640);
        note(1, 10);
        time(1280);
        note(2, 20);
        let mine = of("one").expect("the thread has written notes");
        assert!(mine.runs);
    });
    let one = of("one").expect("the notes outlive the thread");
    assert!(!one.runs);
    let seen: Vec<_> = one.entries.iter().map(|entry| (entry.word, entry.low, entry.time_ns)).collect();
    assert_eq!(seen, [(1, 10, 640), (2, 20, 1280)]);
    in_thread("two", || note(3, 30));
    let last = |name| of(name).and_then(|thread| thread.entries.last().copied()).unwrap();
    assert_eq!(last("two").time_ns, 0, "the time of the ring's previous owner is not used");
    assert_eq!(last("two").number, 2, "the ring of an ended thread is reused");
    let words = |name| of(name).map(|thread| thread.entries.iter().map(|e| e.word).collect::<Vec<_>>());
    assert_eq!((words("one"), words("two")), (Some(vec![1, 2]), Some(vec![3])));
    in_thread("three", || (0..KEPT as u64 + 9).for_each(|word| note(word, 0)));
    assert_eq!((words("one"), words("two")), (Some(vec![]), Some(vec![])), "their notes are replaced");
    in_thread("four", || note(4, 40));
    assert_eq!((words("one"), words("two"), words("four")), (None, None, Some(vec![4])));
}
