//! Leases that are held for long, and memory that is freed.

use std::collections::HashSet;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Extent, Gather, Operation, Payload, QueuePair, SendWork, Signal, Status,
    WrId, poll_by_value,
};

use crate::lease::{MAX_COPIED, MAX_LENT, ShmLease};
use crate::queue_pair::ShmQueuePair;
use crate::setup::Link;
use pronto_core::fabric::Arrived;

const PAYLOAD: u32 = 1 << 20;
/// Deep enough for a test to exceed both bounds.
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: PAYLOAD,
    max_receive_payload: PAYLOAD,
    send_memory: 32 << 20,
};

fn post(qp: &mut ShmQueuePair, generation: u32) {
    let payload = Gather::Ring(Extent { offset: generation * PAYLOAD, len: PAYLOAD });
    let operation = Operation::Send { header: &Default::default(), payload };
    qp.post(SendWork { signal: Signal::Signalled(WrId { slot: 0, generation }), operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

fn receive(qp: &mut ShmQueuePair) -> ShmLease {
    match poll_by_value(qp).unwrap().unwrap().payload {
        Arrived::Buffer(lease) => lease,
        Arrived::Inline(_) => panic!("a payload of 1 MiB is not inline"),
    }
}

fn completed(qp: &mut ShmQueuePair) -> HashSet<u32> {
    core::iter::from_fn(|| qp.poll_send())
        .map(|done| {
            assert_eq!(done.status, Status::Done(0));
            done.wr.generation
        })
        .collect()
}

#[test]
fn payloads_beyond_the_bound_are_copied_and_released() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    let (lent, copied) = (8, 8);
    assert_eq!((MAX_LENT, MAX_COPIED), (lent << 20, copied << 20));
    let mut held = Vec::new();
    for i in 0..20 {
        post(&mut a.bulk, i);
        held.push(receive(&mut b.bulk));
    }
    for (i, lease) in held.iter().enumerate() {
        let expected = (8..16).contains(&i);
        assert_eq!(lease.as_private().is_some(), expected, "lease {i}");
        assert_eq!(lease.len(), PAYLOAD as usize);
    }
    let counts = b.bulk.counts();
    assert_eq!((counts.copied, counts.lent), (copied, 12 << 20), "beyond both bounds the memory stays lent");
    assert_eq!(completed(&mut a.bulk), (8..16).collect(), "copied payloads may be overwritten");
    held.truncate(16);
    assert_eq!(completed(&mut a.bulk), (16..20).collect());
    drop(held);
    assert_eq!(completed(&mut a.bulk), (0..8).collect());
    assert_eq!(b.bulk.counts().lent, 0);
    post(&mut a.bulk, 20);
    assert!(receive(&mut b.bulk).as_private().is_none(), "the bound counts only held leases");
}

#[test]
fn read_copy_copies_one_whole_payload() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    let memory = (0..4).map(|generation| vec![generation; PAYLOAD as usize]).collect::<Vec<_>>();
    a.bulk.sending.memory.mapping().write(0, &memory.concat()).unwrap();
    (0..4).for_each(|generation| post(&mut a.bulk, generation));
    let [first, second, third, last] = core::array::from_fn(|_| receive(&mut b.bulk));
    // A copy that is read while another one is being read has its own memory.
    first.read_copy(&mut |bytes| {
        second.read_copy(&mut |bytes| assert!(bytes == memory[1]));
        assert!(bytes == memory[0]);
    });
    let mut times = 0;
    for (lease, memory) in [(third, &memory[2]), (last, &memory[3])] {
        lease.read_copy(&mut |bytes| times += usize::from(bytes == memory));
    }
    assert_eq!(times, 2);
}

#[test]
fn leases_outlive_their_queue_pair() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    post(&mut a.bulk, 0);
    let lease = receive(&mut b.bulk);
    drop(b);
    let mut bytes = [1; 100];
    lease.copy_to(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 100]);
    drop(lease);
    assert_eq!(completed(&mut a.bulk), HashSet::from([0]), "its done word still reaches the peer");
}

#[test]
fn prepared_memory_is_allocated_and_retired_memory_is_freed() {
    let (mut a, _b) = Link::pair([LIMITS; 2]).unwrap();
    assert_eq!(a.bulk.sending.memory.committed().unwrap(), 0);
    a.bulk.prepare(0..8 << 20).unwrap();
    assert_eq!(a.bulk.sending.memory.committed().unwrap(), 8 << 20);
    a.bulk.retire(4 << 20..8 << 20).unwrap();
    assert_eq!(a.bulk.sending.memory.committed().unwrap(), 4 << 20);
    assert!(a.bulk.prepare(0..(32 << 20) + 1).is_err());
}
