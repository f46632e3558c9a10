//! Tests of the send ring's rules, one for each.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::thread_arena::ARENAS;
use super::{Exhausted, Frame, OVERFLOW_CLASSES, Placement, PresentRing, RingConfig, SendRing, SlotClass};
use crate::fabric::{HeapSendMemory, MemoryClaimed};
use crate::time::Nanos;

const CHUNK: usize = 1024;
const CHUNKS: usize = 4;

/// No overflow slots.
const NONE: [SlotClass; OVERFLOW_CLASSES] = [SlotClass { bytes: 64, count: 0 }; OVERFLOW_CLASSES];
/// Two slots of 128 bytes, one of 256.
const THREE: [SlotClass; OVERFLOW_CLASSES] = [
    SlotClass { bytes: 128, count: 2 },
    SlotClass { bytes: 256, count: 1 },
    SlotClass { bytes: 512, count: 0 },
];

fn config(overflow: [SlotClass; OVERFLOW_CLASSES]) -> RingConfig {
    RingConfig {
        chunk_bytes: 1024,
        first_chunk_bytes: 1024,
        arena_bytes: 0,
        long_bytes: 32 << 10,
        overflow,
        straggler_after: Nanos::from_millis(50),
        placement: Placement::HotFirst,
    }
}

fn ring(config: RingConfig) -> Arc<SendRing> {
    let overflow: usize =
        config.overflow.iter().map(|class| class.bytes as usize * usize::from(class.count)).sum();
    ring_of(CHUNKS * CHUNK + overflow, config)
}

/// Returns a ring with memory of `len` bytes.
fn ring_of(len: usize, config: RingConfig) -> Arc<SendRing> {
    Arc::new(SendRing::new(Arc::new(HeapSendMemory::new(len)), config).expect("the memory is new"))
}

/// Returns a ring with all its chunks open and empty. The first one is current.
fn open_ring(config: RingConfig) -> Arc<SendRing> {
    let ring = ring(config);
    let mut held = Vec::new();
    while (ring.stats().open_chunks as usize) < CHUNKS {
        held.push(frame(&ring, CHUNK));
        let chunk = ring.commit_next().expect("the last open chunk is full");
        ring.open(chunk);
    }
    let last = frame(&ring, CHUNK);
    held.clear();
    drop(frame(&ring, CHUNK));
    drop(last);
    ring
}

fn frame(ring: &Arc<SendRing>, len: usize) -> Frame {
    Arc::clone(ring).loan(len, 0).expect("there is room").finish()
}

fn offset(frame: &Frame) -> usize {
    frame.extent().offset as usize
}

#[test]
fn consecutive_calls_use_the_same_lines() {
    let ring = open_ring(config(NONE));
    for len in [41, 64, 65, 1000, 0] {
        let mut loan = Arc::clone(&ring).loan(len, 1).unwrap();
        assert_eq!((loan.len(), loan.is_empty()), (len, len == 0));
        assert_eq!(loan.as_mut_slice().len(), len);
        assert_eq!(offset(&loan.finish()), 0);
    }
    assert_eq!(ring.stats().live, 0);
}

#[test]
fn the_posted_bytes_are_those_composed() {
    let ring = ring(config(NONE));
    let mut loan = Arc::clone(&ring).loan(100, 1).unwrap();
    loan.as_mut_slice().fill(7);
    loan.shrink(70);
    loan.shrink(90);
    assert_eq!(loan.len(), 70);
    let frame = loan.finish();
    assert_eq!(frame.bytes(), [7; 70]);
    let posted = frame.post();
    assert_eq!((posted.extent().len, posted.bytes()), (70, &[7; 70][..]));
    let frame = posted.completed();
    assert_eq!((frame.len(), ring.stats().live), (70, 1));
    drop(frame);
    assert_eq!((ring.stats().live, ring.stats().abandoned), (0, 0));
}

#[test]
fn shrinking_frees_lines_if_no_buffer_follows() {
    let ring = ring(config(NONE));
    let mut first = Arc::clone(&ring).loan(640, 1).unwrap();
    first.shrink(65);
    let second = frame(&ring, 64);
    assert_eq!(offset(&second), 128);
    first.shrink(1);
    assert_eq!(offset(&frame(&ring, 64)), 192, "the second follows the first");
    let mut last = Arc::clone(&ring).loan(300, 1).unwrap();
    last.shrink(64);
    assert_eq!(offset(&frame(&ring, 64)), offset(&last.finish()) + 64, "the lines behind it are free again");
}

#[test]
fn no_buffer_crosses_a_chunk() {
    let ring = open_ring(config(NONE));
    let frames: Vec<_> = (0..4).map(|_| frame(&ring, 700)).collect();
    let offsets: Vec<_> = frames.iter().map(offset).collect();
    assert_eq!(offsets, [0, 1024, 2048, 3072]);
    assert_eq!(Arc::clone(&ring).loan(700, 0).unwrap_err(), Exhausted::Ring);
    assert_eq!(offset(&frame(&ring, 320)) % CHUNK, 704, "a short buffer fits the rest of the chunk");
}

#[test]
fn a_straggler_pins_only_its_chunk() {
    let ring = open_ring(config(NONE));
    let straggler = frame(&ring, 64);
    for _ in 0..100 {
        let burst: Vec<_> = (0..2).map(|_| frame(&ring, 900)).collect();
        let chunks: Vec<_> = burst.iter().map(|frame| offset(frame) / CHUNK).collect();
        assert!(chunks.iter().all(|chunk| (0..3).contains(chunk)), "warm chunks first: {chunks:?}");
    }
    assert_eq!(ring.stats().refused, 0);
    drop(straggler);
    assert_eq!(ring.stats().live, 0);
}

#[test]
fn circular_placement_stops_at_a_straggler() {
    let ring = open_ring(RingConfig { placement: Placement::Circular, ..config(NONE) });
    let straggler = frame(&ring, 960);
    let mut held = frame(&ring, 960);
    for expected in [2, 3] {
        held = frame(&ring, 960);
        assert_eq!(offset(&held) / CHUNK, expected);
    }
    assert_eq!(
        Arc::clone(&ring).loan(960, 0).unwrap_err(),
        Exhausted::Ring,
        "chunks 1 and 2 are free, but chunk 0 is next"
    );
    drop(straggler);
    assert_eq!(offset(&frame(&ring, 960)) / CHUNK, 0);
    drop(held);
}

/// Shows: operations.ring-overflowed
#[test]
fn overflow_slots_come_last_and_are_counted() {
    let ring = open_ring(config(THREE));
    let full: Vec<_> = (0..CHUNKS).map(|_| frame(&ring, CHUNK)).collect();
    let slots: Vec<_> = [100, 128, 10].map(|len| frame(&ring, len)).into();
    let offsets: Vec<_> = slots.iter().map(offset).collect();
    assert_eq!(offsets, [4096, 4096 + 128, 4096 + 256], "the smallest free slot that fits");
    assert_eq!(Arc::clone(&ring).loan(10, 0).unwrap_err(), Exhausted::Ring);
    let stats = ring.stats();
    assert_eq!((stats.overflow_in_use, stats.overflowed, stats.refused), (3, 3, 1));
    drop(slots);
    assert_eq!(ring.stats().overflow_in_use, 0);
    drop(full);
    assert!(offset(&frame(&ring, 10)) < CHUNKS * CHUNK, "the buffer is in a chunk again");
}

#[test]
fn a_straggler_is_reported_with_its_age() {
    let ring = ring(config(NONE));
    ring.tick(Nanos::from_secs(1));
    let early = Arc::clone(&ring).loan(64, 1).unwrap();
    ring.tick(Nanos::from_secs(2));
    let culprit = Arc::clone(&ring).loan(64, 77).unwrap();
    let late = Arc::clone(&ring).loan(CHUNK - 128, 3).unwrap();
    drop(early);
    ring.tick(Nanos::from_millis(2020));
    assert_eq!(Arc::clone(&ring).loan(64, 9).unwrap_err(), Exhausted::Ring, "20 ms is not long");
    ring.tick(Nanos::from_secs(5));
    match Arc::clone(&ring).loan(64, 9).unwrap_err() {
        Exhausted::Straggler { age, owner: 77 } => {
            assert!(Nanos::from_millis(2990) <= age && age <= Nanos::from_millis(3010), "{age:?}");
        }
        other => panic!("no straggler: {other:?}"),
    }
    assert_eq!(ring.oldest().map(|oldest| oldest.owner), Some(77));
    drop(culprit);
    assert_eq!(ring.oldest().map(|oldest| oldest.owner), Some(3));
    drop(late);
    assert_eq!(ring.oldest(), None);
}

#[test]
fn chunks_are_made_ready_ahead_of_need() {
    let ring = ring(config(NONE));
    assert_eq!(ring.initial(), [0..CHUNK, CHUNKS * CHUNK..CHUNKS * CHUNK]);
    assert!(ring.commit_next().is_none(), "the first chunk is empty");
    assert!(!ring.is_filling(), "no buffer was allocated yet");
    let half = frame(&ring, CHUNK / 2);
    assert!(ring.is_filling());
    let chunk = ring.commit_next().expect("half of it is used");
    assert!(!ring.is_filling(), "`commit_next` was called");
    assert_eq!(chunk.range(), CHUNK..2 * CHUNK);
    assert!(Arc::clone(&ring).loan(CHUNK, 0).is_err(), "the chunk is not ready yet");
    ring.open(chunk);
    assert_eq!(offset(&frame(&ring, CHUNK)), CHUNK);
    drop(half);
}

#[test]
fn a_chunk_that_cannot_be_made_ready_is_lent_again() {
    let ring = ring(config(NONE));
    let full = frame(&ring, CHUNK);
    for _ in 0..2 {
        assert!(Arc::clone(&ring).loan(1, 0).is_err());
        let chunk = ring.commit_next().expect("there is demand");
        assert_eq!(chunk.range().start, CHUNK);
        ring.close(chunk);
    }
    drop(full);
}

#[test]
fn a_payload_longer_than_the_first_chunk_needs_the_second() {
    let ring = ring(RingConfig { first_chunk_bytes: 256, ..config(NONE) });
    assert_eq!(ring.initial()[0], 0..256);
    assert_eq!(Arc::clone(&ring).loan(257, 0).unwrap_err(), Exhausted::Ring);
    let chunk = ring.commit_next().expect("there is demand, though the first chunk is empty");
    ring.open(chunk);
    assert_eq!(offset(&frame(&ring, 257)), CHUNK);
    assert_eq!(
        Arc::clone(&ring).loan(CHUNK + 1, 0).unwrap_err(),
        Exhausted::TooLarge { len: CHUNK + 1, max: CHUNK }
    );
}

#[test]
fn idle_chunks_are_reclaimed_at_the_second_check() {
    let ring = open_ring(config(NONE));
    let held: Vec<_> = (0..2).map(|_| frame(&ring, 900)).collect();
    assert!(ring.trim().is_none(), "the first check only records the state");
    let mut trimmed = Vec::new();
    while let Some(chunk) = ring.trim() {
        trimmed.push(chunk.range().start / CHUNK);
        ring.close(chunk);
    }
    assert_eq!(trimmed, [3], "chunk 2 is the last one with room");
    drop(held);
    assert_eq!(ring.stats().open_chunks, 3);
    drop(frame(&ring, 900).post().completed());
    while let Some(chunk) = ring.trim() {
        ring.close(chunk);
    }
    while let Some(chunk) = ring.trim() {
        ring.close(chunk);
    }
    assert_eq!(ring.stats().open_chunks, 1, "the first chunk stays");
    assert_eq!(offset(&frame(&ring, 1)), 0);
}

#[test]
fn the_memory_of_an_idle_first_chunk_is_reclaimed_once_and_the_chunk_stays() {
    let ring = ring(config(NONE));
    let held = frame(&ring, 64);
    assert!((0..3).all(|_| ring.trim_first().is_none()), "the chunk is in use");
    drop(held);
    for _ in 0..2 {
        assert!(ring.trim_first().is_none(), "the first check only records the state");
        let chunk = ring.trim_first().expect("the chunk is idle");
        assert_eq!(chunk.range(), 0..CHUNK);
        assert!(Arc::clone(&ring).loan(1, 0).is_err(), "the chunk is lent");
        ring.open_clean(chunk);
        assert!((0..3).all(|_| ring.trim_first().is_none()), "the memory was reclaimed already");
        assert_eq!(offset(&frame(&ring, 1)), 0);
    }
}

#[test]
fn a_posted_buffer_that_is_dropped_stays_taken_and_is_counted() {
    let ring = ring(config(NONE));
    drop(frame(&ring, 64).post());
    let stats = ring.stats();
    assert_eq!((stats.live, stats.abandoned), (1, 1));
    assert_eq!(offset(&frame(&ring, 64)), 64);
}

#[test]
fn any_memory_makes_a_ring() {
    for len in [0, 1, 63, 64, 127, 128, 1000, 70_000, 800_000, 5 << 20] {
        let ring = ring_of(len, RingConfig::default());
        let max = ring.max_len();
        assert!(max <= len);
        assert_eq!(max == 0, len < 64, "{len}");
        assert_eq!(
            Arc::clone(&ring).loan(len + 1, 0).unwrap_err(),
            Exhausted::TooLarge { len: len + 1, max }
        );
        if max > 0 {
            let mut loan = Arc::clone(&ring).loan(max, 0).unwrap();
            loan.as_mut_slice().fill(1);
        }
    }
}

#[test]
fn impossible_overflow_slots_are_left_out() {
    for class in [
        SlotClass { bytes: 0, count: 3 },
        SlotClass { bytes: 100, count: 1 },
        SlotClass { bytes: 64, count: u16::MAX },
        SlotClass { bytes: u32::MAX, count: 2 },
    ] {
        let ring = ring_of(1 << 20, config([class; OVERFLOW_CLASSES]));
        assert!(ring.initial()[1].is_empty());
    }
}

#[test]
fn threads_never_share_bytes() {
    const ROUNDS: u32 = 5_000;
    let ring = open_ring(config(THREE));
    std::thread::scope(|scope| {
        for thread in 1..=3u8 {
            let ring = &ring;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..ROUNDS {
                    match Arc::clone(ring).loan(round as usize * 37 % 300, u32::from(thread)) {
                        Ok(mut loan) => {
                            loan.as_mut_slice().fill(thread);
                            held.push(loan.finish());
                        }
                        Err(_) => held.clear(),
                    }
                    if round % 3 == 0 && !held.is_empty() {
                        let frame: Frame = held.swap_remove(round as usize % held.len());
                        assert!(
                            frame.bytes().iter().all(|byte| *byte == thread),
                            "another thread wrote here"
                        );
                    }
                }
            });
        }
    });
    let stats = ring.stats();
    assert_eq!((stats.live, stats.overflow_in_use, ring.oldest()), (0, 0, None));
}

/// Returns a ring of four chunks with thread arenas of 1 KiB, and the value that holds it.
fn present() -> (PresentRing, Arc<SendRing>) {
    let ring = ring_of((CHUNKS + 4 * ARENAS) * CHUNK, RingConfig { arena_bytes: 1024, ..config(NONE) });
    let present = PresentRing::new();
    present.set(Some(Arc::clone(&ring)), || unreachable!("no other thread is here"));
    (present, ring)
}

fn loan_by(present: &PresentRing, thread: usize, len: usize) -> Frame {
    present.loan_by(thread, len, 7).expect("there is a ring").expect("there is room").finish()
}

#[test]
fn threads_use_their_own_arenas_and_consecutive_calls_use_the_same_lines() {
    let (present, ring) = present();
    let [_, ready] = ring.initial();
    for thread in 0..ARENAS {
        let first = offset(&loan_by(&present, thread, 100));
        let next = loan_by(&present, thread, 256);
        assert_eq!(offset(&next), first, "the first buffer was freed");
        assert_eq!(first, ready.start + thread * 1024);
        assert_eq!(offset(&loan_by(&present, thread, 64)), first + 256, "the second buffer is live");
    }
    assert_eq!(ring.stats().live, 0);
}

#[test]
fn a_buffer_that_does_not_fit_its_arena_comes_from_the_chunks() {
    let (present, ring) = present();
    assert_eq!(offset(&loan_by(&present, 0, 257)), 0);
    let full: Vec<_> = (0..4).map(|_| loan_by(&present, 1, 256)).collect();
    assert!(full.iter().all(|frame| ring.initial()[1].contains(&offset(frame))));
    assert_eq!(offset(&loan_by(&present, 1, 64)), 0);
    assert!(offset(&loan_by(&present, 2, 64)) > 0, "another thread's arena has room");
    assert_eq!(ring.stats().live, 4);
}

#[test]
fn a_shortened_buffer_of_an_arena_keeps_its_lines() {
    let (present, _ring) = present();
    let mut loan = present.loan_by(0, 200, 7).unwrap().unwrap();
    loan.as_mut_slice().fill(3);
    loan.shrink(10);
    let frame = loan.finish();
    let next = loan_by(&present, 0, 64);
    assert_eq!((frame.bytes(), frame.extent().len), (&[3; 10][..], 10));
    assert_eq!(offset(&next) - offset(&frame), 256);
}

#[test]
fn a_straggler_in_an_arena_is_reported() {
    let (present, ring) = present();
    let _straggler = loan_by(&present, 3, 64);
    ring.tick(Nanos::from_millis(100));
    let oldest = ring.oldest().expect("a buffer is live");
    assert!((oldest.owner, oldest.age >= Nanos::from_millis(90)) == (7, true), "{oldest:?}");
}

#[test]
fn a_freed_buffer_of_an_arena_is_not_reported() {
    let (present, ring) = present();
    let early = loan_by(&present, 3, 64);
    ring.tick(Nanos::from_millis(100));
    let late = loan_by(&present, 3, 64);
    drop(early);
    let oldest = ring.oldest().expect("the late buffer is live");
    assert!(oldest.age < Nanos::from_millis(10), "{oldest:?}");
    drop(late);
    assert_eq!(ring.oldest(), None);
}

#[test]
fn a_buffer_of_an_arena_leaves_the_record_of_a_straggler_in_a_chunk() {
    let (present, ring) = present();
    let straggler = loan_by(&present, 0, 257);
    assert_eq!(offset(&straggler), 0, "the buffer has the first record");
    drop(loan_by(&present, 3, 64));
    ring.tick(Nanos::from_millis(100));
    let oldest = ring.oldest().expect("the straggler is live");
    assert!(oldest.age >= Nanos::from_millis(90), "{oldest:?}");
}

#[test]
fn a_replaced_ring_lives_until_its_last_buffer_is_freed() {
    let (present, ring) = present();
    let weak = Arc::downgrade(&ring);
    let of_ring = |frame: &Frame| weak.upgrade().is_some_and(|ring| frame.is_of(&ring));
    let held = [loan_by(&present, 0, 64), loan_by(&present, 0, 64), loan_by(&present, 1, 64)];
    assert!(held.iter().all(of_ring));
    drop(ring);
    present.set(None, || unreachable!("no other thread is here"));
    assert!(present.loan(64, 7).is_none());
    for frame in held {
        assert!(weak.strong_count() > 0, "a buffer of the ring is live");
        assert_eq!(frame.bytes().len(), 64);
        drop(frame);
    }
    assert_eq!(weak.strong_count(), 0, "no buffer of the ring is live");
}

#[test]
fn a_ring_without_live_buffers_is_dropped_with_its_holder() {
    let (present, ring) = present();
    drop(loan_by(&present, 0, 64));
    let weak = Arc::downgrade(&ring);
    drop((present, ring));
    assert_eq!(weak.strong_count(), 0);
}

#[test]
fn the_memory_of_an_idle_arena_is_reclaimed_once() {
    let (present, ring) = present();
    let idle = || present.idle_arena().map(|arena| arena.range());
    assert_eq!(idle(), None, "the arena was never used");
    let first = offset(&loan_by(&present, 1, 64));
    assert_eq!(idle(), None, "the arena was used since the last check");
    let arena = present.idle_arena().expect("the arena was not used since");
    assert_eq!(arena.range(), first..first + 1024);
    assert_eq!(offset(&loan_by(&present, 1, 64)), 0, "the arena is lent");
    drop(arena);
    assert_eq!(idle(), None, "the memory was reclaimed");
    let held = loan_by(&present, 1, 64);
    assert_eq!([idle(), idle()], [None, None], "a buffer of the arena is live");
    assert_eq!(offset(&held), first);
    drop(held);
    assert_eq!([idle(), idle()], [None, Some(first..first + 1024)]);
    assert_eq!(ring.stats().live, 0);
}

#[test]
#[should_panic(expected = "the arenas of a ring are claimed once")]
fn the_arenas_of_a_ring_are_claimed_once() {
    let (_present, ring) = present();
    PresentRing::new().set(Some(ring), || unreachable!("no other thread is here"));
}

/// A sender that got the ring before its link ended must get no loan. It could overwrite messages that the peer has not read yet.
#[test]
fn a_ring_whose_link_has_ended_makes_no_loans() {
    let (present, ring) = present();
    let found = present.ring().expect("no other thread is here").unwrap();
    let unread = Arc::clone(&found).loan(300, 7).unwrap().finish();
    present.set(None, || unreachable!("no other thread is here"));
    drop(unread);
    assert_eq!(found.loan(300, 7).unwrap_err(), Exhausted::Ring);
    assert!(present.loan(300, 7).is_none());
    assert_eq!(ring.stats().live, 0);
}

/// Returns a ring with chunks of 128 KiB, of which the first is open.
fn long_ring() -> Arc<SendRing> {
    let config = RingConfig { chunk_bytes: 128 << 10, first_chunk_bytes: 128 << 10, ..config(NONE) };
    ring_of(4 * LONG_CHUNK, config)
}

const LONG_CHUNK: usize = 128 << 10;

#[test]
fn consecutive_long_buffers_use_the_whole_chunk_and_no_other() {
    let ring = long_ring();
    let walk: Vec<_> = (0..6).map(|_| offset(&frame(&ring, 40 << 10)) >> 10).collect();
    assert_eq!(walk, [0, 40, 80, 0, 40, 80]);
    assert_eq!(offset(&frame(&ring, 100)), 0, "a short buffer starts over");
    assert!(!ring.is_filling(), "each was alone in the chunk");
    assert_eq!(ring.commit_next().map(|chunk| chunk.range()), None);
    assert!(!ring.is_filling());
}

#[test]
fn consecutive_long_buffers_use_few_pages_of_a_large_chunk() {
    let config = RingConfig { chunk_bytes: 1 << 20, first_chunk_bytes: 1 << 20, ..config(NONE) };
    let ring = ring_of(2 << 20, config);
    let walk = |len: usize| (0..6).map(|_| offset(&frame(&ring, len << 10)) >> 10).collect::<Vec<_>>();
    assert_eq!(walk(60), [0, 60, 120, 180, 0, 60], "256 KiB have room for four");
    assert_eq!(walk(100), [120, 220, 0, 100, 200, 300], "four of these are longer than 256 KiB");
    let burst: Vec<_> = (0..9).map(|_| frame(&ring, 100 << 10)).collect();
    assert_eq!(offset(&burst[8]) >> 10, 800, "live buffers do not end the chunk");
    drop(burst);
    assert_eq!(walk(60)[0], 0);
}

#[test]
fn the_length_of_long_buffers_is_a_choice() {
    let config = RingConfig { long_bytes: 128, arena_bytes: 1024, ..config(NONE) };
    let ring = ring_of((CHUNKS + 4 * ARENAS) * CHUNK, config);
    let present = PresentRing::new();
    present.set(Some(Arc::clone(&ring)), || unreachable!("no other thread is here"));
    let walk: Vec<_> = (0..4).map(|_| offset(&frame(&ring, 256))).collect();
    assert_eq!(walk, [0, 256, 512, 768]);
    let shortest: Vec<_> = (0..3).map(|_| offset(&frame(&ring, 128))).collect();
    assert_eq!(shortest, [0, 128, 256], "a buffer of this length is long");
    assert!(present.loan_of_arena(100, 7).is_some(), "a short buffer comes from an arena");
    assert!(present.loan_of_arena(200, 7).is_none(), "a long buffer comes from a chunk");
}

#[test]
fn a_live_long_buffer_is_never_overwritten() {
    let ring = long_ring();
    drop(frame(&ring, 40 << 10));
    let held = frame(&ring, 40 << 10);
    let behind = frame(&ring, 40 << 10);
    assert_eq!([offset(&held) >> 10, offset(&behind) >> 10], [40, 80]);
    assert!(ring.is_filling(), "several live buffers fill the chunk");
    assert_eq!(Arc::clone(&ring).loan(40 << 10, 0).unwrap_err(), Exhausted::Ring);
    drop((held, behind));
    assert_eq!(offset(&frame(&ring, 128 << 10)), 0, "an empty chunk takes a buffer of its size");
}

#[test]
fn two_rings_never_lend_the_same_bytes() {
    let memory = Arc::new(HeapSendMemory::new(CHUNKS * CHUNK));
    let ring = || SendRing::new(Arc::clone(&memory) as _, config(NONE));
    let first = Arc::new(ring().expect("the memory is not claimed yet"));
    let loan = first.loan(64, 0).expect("there is room");
    assert_eq!(ring().unwrap_err(), MemoryClaimed, "a loan is live");
    drop(loan);
    assert_eq!(ring().unwrap_err(), MemoryClaimed, "the provider may still read what was posted");
}
