//! More peers than a node takes: it refuses the next one with the reason, serves the others, and takes another when a slot is free.

use pronto::{Node, NodeId, WaitPolicy};

use crate::rig::{TIMEOUT, TRANSPORTS, add, address, client, refused, server, shared_run, until};

/// Shows: operations.too-many-peers
#[test]
fn a_peer_beyond_the_limit_is_refused_until_a_slot_is_free() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "crowd")).max_peers(2).start().unwrap();
        let listening = node.listening()[0].to_string();
        let (_second, stays) = client(2, &listening);
        let (third, leaves) = client(3, &listening);
        add(&leaves);
        let fourth = Node::builder(4).wait(WaitPolicy::Block).peer(1, &listening).start().unwrap();
        until("the node refuses the third peer", || refused(&node, "too_many_peers") >= 1);
        until("the refused node knows the reason", || {
            fourth.status().failed_dials.iter().any(|(reason, _)| *reason == "too_many_peers")
        });
        let status = node.status();
        assert!(status.peers.iter().all(|peer| peer.node != NodeId(4)), "{transport}: it has a slot");
        assert_eq!(status.peers.iter().filter(|peer| peer.linked).count(), 2, "{transport}");
        add(&stays);
        add(&leaves);
        // A goodbye frees the slot: nobody holds the peer, and no configuration names it.
        drop(leaves);
        third.drain(TIMEOUT).unwrap();
        add(&fourth.wait_for_peer(1, TIMEOUT).unwrap());
        add(&stays);
    }
}

/// Shows: calls.no-handle
#[test]
fn no_handle_of_a_peer_beyond_the_limit_is_given_out() {
    let _shared = shared_run();
    let node = server(1, &address("shm", "handles")).max_peers(2).start().unwrap();
    let known = [7, 8].map(|peer| node.peer(peer).unwrap());
    assert!(node.peer(9).is_none(), "two peers are known");
    assert_eq!(node.peer(7).unwrap().node(), known[0].node());
}
