//! The send ring's rules, one test each.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Exhausted, Frame, OVERFLOW_CLASSES, Placement, RingConfig, SendRing, SlotClass};
use crate::fabric::HeapMemory;
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
        overflow,
        straggler_after: Nanos::from_millis(50),
        placement: Placement::HotFirst,
    }
}

fn ring(config: RingConfig) -> Arc<SendRing> {
    let overflow: usize =
        config.overflow.iter().map(|class| class.bytes as usize * usize::from(class.count)).sum();
    Arc::new(SendRing::new(Arc::new(HeapMemory::new(CHUNKS * CHUNK + overflow)), config))
}

/// A ring with all its chunks open and empty, the first one current.
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
fn one_call_after_the_other_uses_the_same_lines() {
    let ring = open_ring(config(NONE));
    for len in [41, 64, 65, 1000, 0] {
        let mut loan = Arc::clone(&ring).loan(len, 1).unwrap();
        assert_eq!(loan.as_mut_slice().len(), len);
        assert_eq!(offset(&loan.finish()), 0);
    }
    assert_eq!(ring.stats().live, 0);
}

#[test]
fn what_was_composed_is_what_is_posted() {
    let ring = ring(config(NONE));
    let mut loan = Arc::clone(&ring).loan(100, 1).unwrap();
    loan.as_mut_slice().fill(7);
    loan.shrink(70);
    loan.shrink(90);
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
fn shrinking_gives_lines_back_if_nothing_lies_behind() {
    let ring = ring(config(NONE));
    let mut first = Arc::clone(&ring).loan(640, 1).unwrap();
    first.shrink(65);
    let second = frame(&ring, 64);
    assert_eq!(offset(&second), 128);
    first.shrink(1);
    assert_eq!(offset(&frame(&ring, 64)), 192, "the second lies behind the first");
}

#[test]
fn no_buffer_crosses_a_chunk() {
    let ring = open_ring(config(NONE));
    let frames: Vec<_> = (0..4).map(|_| frame(&ring, 700)).collect();
    let offsets: Vec<_> = frames.iter().map(offset).collect();
    assert_eq!(offsets, [0, 1024, 2048, 3072]);
    assert_eq!(Arc::clone(&ring).loan(700, 0).unwrap_err(), Exhausted::Ring);
    assert_eq!(offset(&frame(&ring, 320)) % CHUNK, 704, "the rest of a chunk serves what fits");
}

#[test]
fn a_straggler_pins_its_chunk_and_nothing_else() {
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
    assert!(offset(&frame(&ring, 10)) < CHUNKS * CHUNK, "back in the chunks");
}

#[test]
fn the_straggler_is_named_with_its_age() {
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
        other => panic!("not named: {other:?}"),
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
    assert!(!ring.is_filling(), "nothing was used yet");
    let half = frame(&ring, CHUNK / 2);
    assert!(ring.is_filling());
    let chunk = ring.commit_next().expect("half of it is used");
    assert!(!ring.is_filling(), "it was asked");
    assert_eq!(chunk.range(), CHUNK..2 * CHUNK);
    assert!(Arc::clone(&ring).loan(CHUNK, 0).is_err(), "not ready yet");
    ring.open(chunk);
    assert_eq!(offset(&frame(&ring, CHUNK)), CHUNK);
    drop(half);
}

#[test]
fn a_chunk_that_cannot_be_made_ready_is_asked_for_again() {
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
fn a_payload_longer_than_the_first_chunk_brings_the_second() {
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
fn idle_chunks_are_given_back_after_a_second_look() {
    let ring = open_ring(config(NONE));
    let held: Vec<_> = (0..2).map(|_| frame(&ring, 900)).collect();
    assert!(ring.trim().is_none(), "the first look only remembers");
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
fn the_memory_of_an_idle_first_chunk_is_given_back_once_and_the_chunk_stays() {
    let ring = ring(config(NONE));
    let held = frame(&ring, 64);
    assert!((0..3).all(|_| ring.trim_first().is_none()), "it is in use");
    drop(held);
    for _ in 0..2 {
        assert!(ring.trim_first().is_none(), "the first look only remembers");
        let chunk = ring.trim_first().expect("it is idle");
        assert_eq!(chunk.range(), 0..CHUNK);
        assert!(Arc::clone(&ring).loan(1, 0).is_err(), "nobody uses it meanwhile");
        ring.open_clean(chunk);
        assert!((0..3).all(|_| ring.trim_first().is_none()), "it has no memory to give back");
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
        let ring = Arc::new(SendRing::new(Arc::new(HeapMemory::new(len)), RingConfig::default()));
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
        let ring = SendRing::new(Arc::new(HeapMemory::new(1 << 20)), config([class; OVERFLOW_CLASSES]));
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
                        assert!(frame.bytes().iter().all(|byte| *byte == thread), "somebody else wrote here");
                    }
                }
            });
        }
    });
    let stats = ring.stats();
    assert_eq!((stats.live, stats.overflow_in_use, ring.oldest()), (0, 0, None));
}
