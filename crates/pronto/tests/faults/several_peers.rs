//! One request to several peers, of which some are down: each peer has its own outcome.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use pronto::{CallError, CallRejection, Executed, Limits, Message, Node, NodeId, SendError, WaitPolicy};

use crate::child::Child;
use crate::rig::{Add, Sum, TIMEOUT, TRANSPORTS, address, server, shared_run, started, until};

/// A notification whose handler waits until the test lets it go.
#[derive(Message, Debug)]
#[message(name = "faults.hold", order = ordered)]
struct Hold {}

const SUM: u64 = 3;

/// Starts a node that is linked to all of these peers.
fn caller(id: u16, peers: &[(u16, &String)]) -> Node {
    let builder = Node::builder(id).wait(WaitPolicy::Block);
    let node =
        peers.iter().fold(builder, |builder, (peer, address)| builder.peer(*peer, address)).start().unwrap();
    for (peer, _) in peers {
        let _linked = node.wait_for_peer(*peer, TIMEOUT).unwrap();
    }
    node
}

/// Shows: calls.multicall
#[test]
fn a_peer_that_is_down_does_not_fail_the_others() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (_one, first) = started(1, transport, "several-1");
        let (_three, third) = started(3, transport, "several-3");
        let (mut child, killed) = Child::node(4, &address(transport, "several-4"));
        let node = caller(9, &[(1, &first), (3, &third), (4, &killed)]);
        child.kill();
        if transport == "shm" {
            let four = node.peer(4).unwrap();
            until("node 4 is down", || !four.is_up());
        }
        // Node 2 was never up, and node 4 is not up any more: over TCP it is not known yet.
        let limit = if transport == "shm" { TIMEOUT } else { 2 * TIMEOUT };
        let peers = [4, 1, 2, 3].map(NodeId);
        let outcomes = node.multicall(&peers, &Add { values: vec![1, 2] }, limit);
        assert_eq!(outcomes.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), peers, "{transport}");
        for (peer, outcome) in outcomes {
            match (peer.0, outcome) {
                (1 | 3, Ok(reply)) => assert_eq!(reply.total, SUM),
                (2, Err(CallError::Rejected(CallRejection::Here(SendError::NotConnected { peer })))) => {
                    assert_eq!(peer, NodeId(2));
                }
                (4, Err(error)) => assert_ne!(error.executed(), Executed::Yes, "{error:?}"),
                (peer, outcome) => panic!("{transport}: the outcome of node {peer} is {outcome:?}"),
            }
        }
    }
}

/// The first peer has no room until the second one handles its request. The first one gets the request then.
///
/// Shows: calls.multicall
#[test]
fn a_peer_without_room_gets_the_request_later() {
    let _shared = shared_run();
    const ROOM: u16 = 4;
    for transport in TRANSPORTS {
        let (go, gate) = channel();
        let gate = Mutex::new(gate);
        let one = server(1, &address(transport, "several-room"))
            .limits(Limits { requests: [ROOM; 2], ..Limits::default() })
            .on(move |_, _: Hold| gate.lock().unwrap().recv().unwrap())
            .start()
            .unwrap();
        let three = Node::builder(3)
            .wait(WaitPolicy::Block)
            .listen(&address(transport, "several-opener"))
            .handle_inline(move |_, add: Add| {
                (0..ROOM).for_each(|_| go.send(()).unwrap());
                Sum { total: add.values.iter().sum() }
            })
            .start()
            .unwrap();
        let node = caller(9, &[(1, &one.listening()[0].to_string()), (3, &three.listening()[0].to_string())]);
        let peer = node.peer(1).unwrap();
        (0..ROOM).for_each(|_| peer.notify(&Hold {}).unwrap());
        let full = peer.notify(&Hold {}).unwrap_err();
        assert!(full.is_retryable(), "{full}");
        let outcomes = node.multicall(&[NodeId(1), NodeId(3)], &Add { values: vec![1, 2] }, TIMEOUT);
        for (peer, outcome) in outcomes {
            assert_eq!(outcome.unwrap().total, SUM, "{transport}: node {peer}");
        }
    }
}
