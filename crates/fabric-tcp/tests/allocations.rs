//! After warm-up, no message of any kind allocates.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(unsafe_code, reason = "the allocator counts")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::time::Duration;
use std::alloc::System;
use std::sync::Arc;
use std::thread;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Extent, Gather, HeapMemory, Operation, QueuePair, Region, RemoteRange,
    Rights, SendWork, Signal, Status, WrId, poll_by_value,
};
use pronto_fabric_tcp::{Handshake, Listener, Options, ReceivePool, TcpQueuePair};
use pronto_wire::RawHeader;

struct Counting;

thread_local! {
    /// Allocations of this thread only, which has both ends: the test harness allocates in another thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all memory is the system allocator's; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on, and `at` came from the system allocator.
        unsafe { System.dealloc(at, layout) };
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const LIMITS: [ConnectionLimits; 2] = [ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 1 << 20,
}; 2];

fn pair() -> (TcpQueuePair, TcpQueuePair) {
    let listener = Listener::bind("127.0.0.1:0", Options::default()).unwrap();
    let pool = ReceivePool::new(8 << 20).unwrap();
    let dialler = Handshake::dial(listener.local_addr().unwrap(), PATIENCE, Options::default()).unwrap();
    let acceptor = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    thread::scope(|threads| {
        let far = threads.spawn(|| acceptor.establish(LIMITS, &pool).unwrap());
        threads.spawn(move || assert!(listener.accept().unwrap().begin(PATIENCE).unwrap().is_none()));
        (dialler.establish(LIMITS, &pool).unwrap().bulk, far.join().unwrap().bulk)
    })
}

/// Posts every kind of work request at the same time, and polls until all have completed and arrived.
fn round(a: &mut TcpQueuePair, b: &mut TcpQueuePair, region: &Region, remote: RemoteRange) {
    let header = RawHeader::default();
    let word = remote.part(0..8).unwrap();
    let message = |payload| Operation::Send { header: &header, payload };
    let operations = [
        message(Gather::Short(&[1; 40])),
        message(Gather::Ring(Extent { offset: 0, len: 300 })),
        message(Gather::Ring(Extent { offset: 0, len: 1 << 20 })),
        message(Gather::Region { region, offset: 0, len: 500 }),
        message(Gather::Region { region, offset: 0, len: 200_000 }),
        Operation::Write { local: region, local_offset: 0, remote },
        Operation::Read { local: region, local_offset: 0, remote },
        Operation::CompareSwap { remote: word, expected: 0, desired: 1 },
        Operation::FetchAdd { remote: word, add: 1 },
    ];
    for (slot, operation) in (0..).zip(operations) {
        let signal = Signal::Signalled(WrId { slot, generation: 0 });
        a.post(SendWork { signal, operation }).unwrap();
    }
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let (mut completions, mut messages) = (0, 0);
    while completions < operations.len() || messages < 5 {
        messages += usize::from(poll_by_value(b).unwrap().is_some());
        assert!(b.poll_send().is_none());
        assert!(poll_by_value(a).unwrap().is_none());
        if let Some(completion) = a.poll_send() {
            assert!(matches!(completion.status, Status::Done(_)));
            completions += 1;
        }
    }
}

#[test]
fn no_message_allocates_once_warm() {
    let (mut a, mut b) = pair();
    let region = Region::new(Arc::new(HeapMemory::new(400_000)));
    let target = Region::new(Arc::new(HeapMemory::new(400_000)));
    let remote = b.grant(&target, 0..400_000, Rights::ALL).unwrap().remote;
    for _ in 0..5 {
        round(&mut a, &mut b, &region, remote);
    }
    let before = ALLOCATIONS.get();
    assert!(before > 0, "allocations are counted");
    for _ in 0..50 {
        round(&mut a, &mut b, &region, remote);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
