//! Once warm, a call allocates nothing, on any thread of either node. One test only, for the count is the process's.
#![expect(unsafe_code, reason = "counting is done by the allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::time::Duration;
use std::alloc::System;

use pronto::{Message, Node, Peer, WaitPolicy};
use pronto_sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is the system allocator's; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SYNC: a count; orders nothing.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on, and `at` came from the system allocator.
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
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls that are counted, and twice as many.
const CALLS: u64 = 500;

const ROUNDS: usize = 20;

/// Allocations of the whole process while so many calls are made.
fn during(calls: u64, peer: &Peer) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for number in 0..calls {
        let bytes = core::array::from_fn(|at| number.to_le_bytes()[at % 8]);
        let echo = peer.call_within(&Ask { bytes }, PATIENCE).expect("the other node lives");
        assert_eq!(echo.bytes, bytes);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_call_does_not_allocate_whoever_waits_and_how() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Block] {
        let address = format!("shm:@pronto-allocations-{policy:?}-{}", std::process::id());
        let node = |id| Node::builder(id).wait(policy).handle_inline(|_, ask: Ask| Echo { bytes: ask.bytes });
        let server = node(SERVER).listen(&address).start().expect("a node");
        let client = node(CLIENT).peer(SERVER, &address).start().expect("a node");
        let peer = client.wait_for_peer(SERVER, PATIENCE).expect("the nodes meet");
        let back = server.wait_for_peer(CLIENT, PATIENCE).expect("the nodes meet");
        during(CALLS, &peer);
        // A thread that serves has taken note of the other node when it has answered it.
        during(CALLS, &back);
        // Once in some rounds: on a busy machine the threads that make links may come late to what has just happened.
        let mut rounds = Vec::new();
        while rounds.last() != Some(&(0, 0)) {
            assert!(rounds.len() < ROUNDS, "{rounds:?} in {CALLS} calls and in twice as many, {policy:?}");
            rounds.push((during(CALLS, &peer), during(2 * CALLS, &peer)));
        }
        drop((client, server));
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(vec![0_u8; 100]);
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before, "allocations are counted");
}
