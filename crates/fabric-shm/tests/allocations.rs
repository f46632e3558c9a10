//! After warm-up, neither a message of any kind nor a copy of one allocates.
#![expect(unsafe_code, reason = "the allocator counts")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use std::alloc::System;

use pronto_core::fabric::{
    Armed, ConnectionLimits, DoorbellEvent, Extent, Gather, Operation, QueuePair, Rights, SendWork, Signal,
    Status, WrId, poll_by_value,
};
use pronto_fabric_shm::{Link, ShmQueuePair, ShmRegion};
use pronto_wire::RawHeader;

struct Counting;

thread_local! {
    /// Allocations of this thread only, because the test harness allocates in another thread.
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

const LEN: u32 = 5000;
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: LEN,
    max_receive_payload: LEN,
    send_memory: 1 << 20,
};

fn post(qp: &mut ShmQueuePair, operation: Operation<'_>) {
    let signal = Signal::Signalled(WrId { slot: 1, generation: 2 });
    qp.post(SendWork { signal, operation }).expect("there is room");
}

#[test]
fn messages_and_one_sided_operations_do_not_allocate() {
    let (mut near, mut far) = Link::pair([LIMITS; 2]).expect("memory is available");
    let (near, far) = (&mut near.bulk, &mut far.bulk);
    let region = ShmRegion::allocate(LEN as usize).expect("memory is available");
    let grant = far.grant(&region, 0..u64::from(LEN), Rights::ALL).expect("the first grant fits").remote;
    let word = grant.part(0..8).expect("inside");
    let header = RawHeader::default();
    let mut exchange = || {
        let payloads = [
            Gather::Short(b"four"),
            Gather::Ring(Extent { offset: 64, len: LEN }),
            Gather::Region { region: &region, offset: 0, len: LEN },
        ];
        for payload in payloads.into_iter().cycle().take(30) {
            post(near, Operation::Send { header: &header, payload });
        }
        near.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
        for _ in 0..30 {
            let message = poll_by_value(far).expect("alive").expect("it was posted");
            let mut read = 0;
            message.payload.read_copy(&mut |bytes| read = bytes.len());
            assert_eq!(read, message.payload.len());
        }
        post(near, Operation::Read { local: &region, local_offset: 0, remote: grant });
        post(near, Operation::Write { local: &region, local_offset: 0, remote: grant });
        post(near, Operation::FetchAdd { remote: word, add: 1 });
        for _ in 0..33 {
            let done = near.poll_send().expect("every lease is dropped");
            assert!(matches!(done.status, Status::Done(_)));
        }
        near.arm(Armed::All).expect("alive");
        near.arm(Armed::Nothing).expect("disarming never fails");
    };
    exchange();
    let before = ALLOCATIONS.get();
    (0..100).for_each(|_| exchange());
    assert_eq!(ALLOCATIONS.get() - before, 0, "in 3,300 work requests");
    drop(vec![0; 100]);
    assert!(ALLOCATIONS.get() > before, "allocations are counted");
}
