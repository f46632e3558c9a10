//! The memory for received messages that a node keeps is what its configuration says.

use pronto::{Config, Node};

use crate::rig::{TIMEOUT, add, shared_run, started, until};

/// Returns the builder of node 2 with one peer, and a budget that is shorter than its longest message.
fn small(peer: &str) -> pronto::Builder {
    let text = format!(
        "node = 2\nwait = \"block\"\n[[peer]]\nnode = 1\naddress = [\"{peer}\"]\n[limits]\nreceive_budget = 65536\n"
    );
    Node::from_config(&Config::parse(&text).unwrap()).unwrap()
}

/// Shows: operations.receive-budget
#[test]
fn a_receive_budget_that_holds_no_message_refuses_links_over_tcp() {
    let _shared = shared_run();
    let (_node, over_tcp) = started(1, "tcp", "budget");
    let dialler = small(&over_tcp).start().unwrap();
    let why =
        || dialler.status().peers.first().and_then(|peer| peer.last_failure.clone()).unwrap_or_default();
    until("the attempt fails", || !why().is_empty());
    let expected = "receive pool of 65536 bytes is too small: one message needs 4194304";
    assert!(why().contains(expected), "{}", why());
    assert!(dialler.status().peers.iter().all(|peer| !peer.linked));

    // Shared memory needs no receive buffers.
    let (_other, over_shm) = started(1, "shm", "budget");
    let dialler = small(&over_shm).start().unwrap();
    add(&dialler.wait_for_peer(1, TIMEOUT).unwrap());
}
