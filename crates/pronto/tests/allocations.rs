//! After a warm-up, a call does not allocate on any thread of either node. This file has only one test, because the count covers
//! the whole process.

mod counting;

use core::time::Duration;

use pronto::{Message, Node, Peer, WaitPolicy};

use counting::allocated;

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
/// Calls per round.
const CALLS: u64 = 500;
const ROUNDS: u64 = 4;
/// Allocations that are tolerated in all rounds together: the threads that establish links may finish late, and a preempted thread may
/// make others need more slots, which are allocated once.
const TOLERATED: u64 = 8;

/// Returns the allocations of the whole process during `calls` calls.
fn during(calls: u64, peer: &Peer) -> u64 {
    let before = allocated().times;
    for number in 0..calls {
        let bytes = core::array::from_fn(|at| number.to_le_bytes()[at % 8]);
        let echo = peer.call_within(&Ask { bytes }, TIMEOUT).expect("the other node is alive");
        assert_eq!(echo.bytes, bytes);
    }
    allocated().times - before
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
        let rounds: Vec<u64> = (0..ROUNDS).map(|_| during(CALLS, &peer)).collect();
        assert!(
            rounds.iter().sum::<u64>() <= TOLERATED,
            "{policy:?}: allocations in rounds of {CALLS} calls: {rounds:?}"
        );
        drop((client, server));
    }
    let before = allocated().times;
    drop(vec![0_u8; 100]);
    assert!(allocated().times > before, "the allocator must count");
}
