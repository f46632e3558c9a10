//! After a warm-up, a call does not allocate on any thread of either node. This file has only one test, because the count covers
//! the whole process.
#![expect(unsafe_code, reason = "the allocator counts")]

use core::alloc::{GlobalAlloc, Layout};
use core::time::Duration;
use std::alloc::System;

use pronto::{Message, Node, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls go to the system allocator; counting accesses no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SYNC: a statistics counter; orders nothing.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract, and `at` came from the system allocator.
        unsafe { System.dealloc(at, layout) };
    }
}

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "allocations.echo")]
struct Echo {
    bytes: [u8; 32],
}

#[derive(Message, Clone, Debug)]
#[message(name = "allocations.ask", reply = Echo)]
struct Ask {
    bytes: [u8; 32],
}

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const TIMEOUT: Duration = Duration::from_secs(20);
/// Calls per count; each round also counts twice this number.
const CALLS: u64 = 500;

const ROUNDS: usize = 20;

/// Returns the allocations of the whole process during `calls` calls.
fn during(calls: u64, peer: &Peer) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for number in 0..calls {
        let bytes = core::array::from_fn(|at| number.to_le_bytes()[at % 8]);
        let echo = peer.call_within(&Ask { bytes }, TIMEOUT).expect("the other node is alive");
        assert_eq!(echo.bytes, bytes);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_call_does_not_allocate_under_any_policy() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Block] {
        let address = format!("shm:@pronto-allocations-{policy:?}-{}", std::process::id());
        let node = |id| Node::builder(id).wait(policy).handle_inline(|_, ask: Ask| Echo { bytes: ask.bytes });
        let server = node(SERVER).listen(&address).start().expect("a node");
        let client = node(CLIENT).peer(SERVER, &address).start().expect("a node");
        let peer = client.wait_for_peer(SERVER, TIMEOUT).expect("the nodes connect");
        let back = server.wait_for_peer(CLIENT, TIMEOUT).expect("the nodes connect");
        during(CALLS, &peer);
        // Also warms up the thread that serves calls in the other direction.
        during(CALLS, &back);
        // One round without allocations is enough: on a busy machine the threads that establish links may finish late.
        let mut rounds = Vec::new();
        while rounds.last() != Some(&(0, 0)) {
            assert!(
                rounds.len() < ROUNDS,
                "{rounds:?} allocations in {CALLS} and in twice {CALLS} calls, {policy:?}"
            );
            rounds.push((during(CALLS, &peer), during(2 * CALLS, &peer)));
        }
        drop((client, server));
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(vec![0_u8; 100]);
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before, "the allocator must count");
}
