//! A caller that polls for its reply finds other messages, too: none of them is lost, whatever is polled in between.

use core::ops::Range;
use std::sync::Arc;

use pronto_bench::pair::{Ends, shm_link};
use pronto_core::fabric::{
    Armed, Capabilities, Completion, CompletionChannel, DoorbellEvent, FabricError, Grant, GrantError,
    GrantId, MessageSlot, PollOutcome, PostError, QueuePair, Region, Rights, SendMemory, SendWork,
};
use pronto_fabric_shm::{ShmLease, ShmQueuePair};
use pronto_rpc::{Message, Route};
use pronto_sync::atomic::{AtomicU32, Ordering};

#[derive(Message, Debug, PartialEq)]
#[message(name = "polled.answer")]
struct Answer {
    number: u32,
}

#[derive(Message)]
#[message(name = "polled.ask", reply = Answer)]
struct Ask {
    number: u32,
}

#[derive(Message, Debug, PartialEq)]
#[message(name = "polled.bulk.answer", class = bulk)]
struct BulkAnswer {
    bytes: Vec<u8>,
}

#[derive(Message)]
#[message(name = "polled.bulk", class = bulk, reply = BulkAnswer)]
struct BulkAsk {
    len: u32,
}

/// Shared memory whose next `looks` polls find nothing, like a message that comes a moment later.
#[derive(Debug)]
struct Late {
    inner: ShmQueuePair,
    looks: Arc<AtomicU32>,
}

impl Late {
    fn is_late(&self) -> bool {
        self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |looks| looks.checked_sub(1)).is_ok()
    }
}

impl QueuePair for Late {
    type Lease = ShmLease;

    fn poll(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<ShmLease>, FabricError> {
        if self.is_late() { Ok(PollOutcome::Nothing) } else { self.inner.poll(slot) }
    }

    fn arm(&mut self, events: Armed) -> Result<(), FabricError> {
        self.inner.arm(events)
    }

    the_rest_is_inner!();
}

#[test]
fn another_message_is_found_before_the_reply_comes() {
    // Polls of the caller's control connection that find nothing.
    let looks = Arc::new(AtomicU32::new(0));
    let routes = vec![
        Route::inline(|_, ask: Ask| Answer { number: ask.number }),
        Route::inline(|_, ask: BulkAsk| BulkAnswer { bytes: vec![7; ask.len as usize] }),
    ];
    let ends = Ends::new(routes, |limits| {
        let (near, far) = shm_link(limits)?;
        let late = |inner, looks: &Arc<AtomicU32>| Late { inner, looks: Arc::clone(looks) };
        let never = Arc::new(AtomicU32::new(0));
        let [control, bulk] = near;
        let near = [late(control, &looks), late(bulk, &never)];
        Ok((near, far.map(|inner| late(inner, &never))))
    });
    let (peer, _host) = ends.expect("two nodes over shared memory").carried();
    // Inline, short, and in the send ring.
    for len in [8_u32, 100, 4000] {
        for hidden in 0..4 {
            let mut open = peer.start(&BulkAsk { len }).expect("the request is sent");
            looks.store(hidden, Ordering::Relaxed);
            let answer = peer.call(&Ask { number: hidden }).expect("there is a reply");
            assert_eq!(answer, Answer { number: hidden });
            looks.store(0, Ordering::Relaxed);
            // Messages that were not received yet arrive during the next call.
            peer.call(&Ask { number: 9 }).expect("there is a reply");
            let bulk = open.poll().unwrap_or_else(|| panic!("{len} bytes lost after {hidden} empty polls"));
            assert_eq!(bulk.expect("there is a reply").bytes, vec![7; len as usize]);
        }
    }
}
