//! Send memory is prepared ahead of need, chunk by chunk, and retired.

use pronto_core::fabric::{ConnectionLimits, QueuePair};

use super::tests;
use crate::rig::{CHUNK, End, Form, LIMITS, Rig};
use crate::suite::Chapter;
use crate::{Harness, Pair, memory};

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "registration",
        tests: tests![
            send_memory_is_one_aligned_piece,
            send_memory_has_one_writer_across_all_handles,
            the_next_chunk_is_prepared_while_one_is_in_use,
            an_idle_chunk_is_retired_and_prepared_again,
            send_memory_outlives_its_queue_pair,
            a_registered_region_is_sent_from needs [ByReference],
            a_region_can_be_registered_twice_and_on_two_connections,
        ],
    }
}

const CHUNKS: usize = 3;

fn three_chunks() -> ConnectionLimits {
    let send_memory = u32::try_from(CHUNKS * CHUNK).expect("three chunks are 32 bit");
    ConnectionLimits { send_memory, ..LIMITS }
}

fn send_memory_is_one_aligned_piece<H: Harness>(harness: &H) {
    let Pair { a, b, link } = harness.pair(three_chunks());
    for qp in [&a, &b] {
        let memory = qp.send_memory();
        assert!(memory.len() >= CHUNKS * CHUNK);
        assert_eq!(memory.base().align_offset(64), 0);
        assert_eq!(memory.base(), qp.send_memory().base(), "send memory moved");
    }
    assert_ne!(a.send_memory().base(), b.send_memory().base());
    drop((a, b, link));
}

/// Two writers would lend the same bytes twice.
fn send_memory_has_one_writer_across_all_handles<H: Harness>(harness: &H) {
    let Pair { a, b, link } = harness.pair(LIMITS);
    for qp in [&a, &b] {
        let claims = [(); 3].map(|()| qp.send_memory().claim());
        assert_eq!(claims, [true, false, false], "one claim per queue pair");
    }
    drop((a, b, link));
}

fn the_next_chunk_is_prepared_while_one_is_in_use<H: Harness>(harness: &H) {
    let mut rig = Rig::with_limits(harness, three_chunks());
    for chunk in 1..CHUNKS {
        for _ in 0..4 {
            rig.post(End::A, Form::Ring, 2000).expect("four messages fit");
        }
        rig.ring(End::A);
        let next = chunk * CHUNK..(chunk + 1) * CHUNK;
        rig.qp(End::A).prepare(next.clone()).expect("a chunk can be prepared while another is in use");
        rig.at(End::A).compose_in(next);
        for _ in 0..4 {
            rig.post(End::A, Form::Ring, 64 << 10).expect("eight messages fit");
        }
        rig.ring(End::A);
        rig.wait_idle();
    }
    rig.finish();
}

fn an_idle_chunk_is_retired_and_prepared_again<H: Harness>(harness: &H) {
    let mut rig = Rig::with_limits(harness, three_chunks());
    let [first, second] = [0..CHUNK, CHUNK..2 * CHUNK];
    for _ in 0..5 {
        for (from, to) in [(&first, &second), (&second, &first)] {
            rig.qp(End::A).prepare(to.clone()).expect("a retired chunk can be prepared");
            rig.send(End::A, Form::Ring, 3000);
            rig.at(End::A).compose_in(to.clone());
            rig.send(End::A, Form::Ring, 4000);
            rig.wait_idle();
            rig.qp(End::A).retire(from.clone()).expect("an idle chunk can be retired");
            rig.send(End::A, Form::Ring, 5000);
            rig.wait_idle();
        }
    }
    rig.finish();
}

/// The composer of a payload may be late: it holds the memory, not the queue pair.
fn send_memory_outlives_its_queue_pair<H: Harness>(harness: &H) {
    let Pair { mut a, b, link } = harness.pair(LIMITS);
    a.prepare(0..CHUNK).expect("a new queue pair prepares its first chunk");
    let held = a.send_memory();
    a.close();
    drop((a, b, link));
    memory::compose(&*held, CHUNK - 64, &[1; 64]);
    memory::compose(&*held, 0, &[1; 64]);
}

/// A region can be sent from whether or not it was registered ahead, and a registered one may be dropped afterwards.
fn a_registered_region_is_sent_from<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for len in [0, 40, 41, 3000, 70_000] {
        rig.send(End::A, Form::Region, len);
    }
    rig.wait_idle();
    rig.ready_outbox(End::A);
    for len in [0, 40, 41, 3000, 70_000] {
        rig.send(End::A, Form::Region, len);
    }
    rig.finish();
}

fn a_region_can_be_registered_twice_and_on_two_connections<H: Harness>(harness: &H) {
    let mut rigs = [(); 2].map(|()| Rig::new(harness));
    let region = harness.region(9000);
    for rig in &mut rigs {
        for _ in 0..2 {
            rig.qp(End::A).register(&region).expect("a live queue pair registers a region");
        }
    }
    drop(region);
    for mut rig in rigs {
        rig.send(End::A, Form::Ring, 500);
        rig.finish();
    }
}
