//! A message of up to 64 KiB never waits for a registration.

use std::sync::Arc;
use std::thread;

use pronto_core::fabric::{
    DoorbellEvent, Extent, Gather, HeapMemory, Operation, QueuePair, Region, SendWork, Signal, Status, WrId,
    poll_by_value,
};
use pronto_fabric_verbs::VerbsQueuePair;
use pronto_wire::RawHeader;

use crate::grants::LIMITS;
use crate::pair::Devices;

/// Sends one message with this payload, and polls until it has arrived and completed.
pub(crate) fn deliver(a: &mut VerbsQueuePair, b: &mut VerbsQueuePair, payload: Gather<'_>) {
    let header = RawHeader::default();
    let signal = Signal::Signalled(WrId { slot: 1, generation: 1 });
    a.post(SendWork { signal, operation: Operation::Send { header: &header, payload } }).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let (mut arrived, mut done) = (false, false);
    for _ in 0..2_000_000 {
        arrived |= poll_by_value(b).unwrap().is_some();
        assert!(poll_by_value(a).unwrap().is_none());
        if let Some(completion) = a.poll_send() {
            assert_eq!(completion.status, Status::Done(0));
            done = true;
        }
        if arrived && done {
            return;
        }
        thread::yield_now();
    }
    panic!("a message of {} bytes: arrived {arrived}, done {done}", payload.len());
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn no_message_up_to_64_kib_registers_anything() {
    let devices = Devices::open();
    let [mut a, mut b] = devices.link(LIMITS);
    let (a, b) = (&mut a.bulk, &mut b.bulk);
    a.prepare(0..1 << 20).unwrap();
    let [ahead, never] = [(); 2].map(|()| Region::new(Arc::new(HeapMemory::new(1 << 20))));
    a.register(&ahead).unwrap();
    let counts = || devices.0.each_ref().map(|device| device.counters());
    let before = counts();
    for len in [0, 1, 40, 41, 2024, 2025, 4096, 65_535, 65_536] {
        deliver(a, b, Gather::Ring(Extent { offset: 64, len }));
        deliver(a, b, Gather::Region { region: &ahead, offset: 3, len });
        deliver(a, b, Gather::Region { region: &never, offset: 3, len });
    }
    assert_eq!(counts(), before, "a message caused a registration");
    let counters = a.counters();
    assert_eq!(counters.registered_on_the_way, 0);
    assert_eq!((counters.eager, counters.rendezvous), (3 * 5, 3 * 4));
    // A longer one may, once, and it is counted.
    deliver(a, b, Gather::Region { region: &never, offset: 0, len: 65_537 });
    deliver(a, b, Gather::Region { region: &never, offset: 0, len: 65_537 });
    assert_eq!(a.counters().registered_on_the_way, 1);
}

/// A message that is copied when it is posted is complete: its buffer is free before the peer has received it.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_message_that_is_copied_completes_when_it_is_posted() {
    let [mut a, mut b] = Devices::open().link(LIMITS);
    let (a, b) = (&mut a.bulk, &mut b.bulk);
    a.prepare(0..1 << 20).unwrap();
    let header = RawHeader::default();
    for generation in 0..100 {
        let wr = WrId { slot: 1, generation };
        let payload = Gather::Ring(Extent { offset: 64, len: 232 });
        let operation = Operation::Send { header: &header, payload };
        a.post(SendWork { signal: Signal::Signalled(wr), operation }).unwrap();
        assert!(a.poll_send().is_none(), "no doorbell was rung for it");
        a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        assert_eq!(a.poll_send().map(|done| (done.wr, done.status)), Some((wr, Status::Done(0))));
        let arrived = (0..2_000_000).any(|_| {
            assert!(a.poll_send().is_none(), "it completes once");
            thread::yield_now();
            poll_by_value(b).unwrap().is_some()
        });
        assert!(arrived);
    }
}
