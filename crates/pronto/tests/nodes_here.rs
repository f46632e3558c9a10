//! The nodes of a host that are counted against its CPUs.

mod affinity;

use core::time::Duration;
use std::time::Instant;

use pronto::{Builder, Node, WaitPolicy};

use affinity::bind_to_one_cpu;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the address of node 1.
fn address() -> String {
    format!("shm:@pronto-test-nodes-here-{}", std::process::id())
}

fn joins(node: Builder) -> Node {
    let node = node.wait(WaitPolicy::Block).peer(1, &address()).start().expect("the node starts");
    node.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
    node
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "the wait is bounded")]
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Shows: operations.nodes-here
#[test]
fn another_node_counts_while_it_is_connected_and_a_visitor_does_not() {
    bind_to_one_cpu();
    let node = Node::builder(1).wait(WaitPolicy::Block).listen(&address()).start().expect("the node starts");
    let why = || node.status().contention.map(|contention| contention.to_string()).unwrap_or_default();
    let are_too_many = || why() == "there are more nodes on this host than CPUs";
    let visitor = joins(Node::visitor());
    let two = joins(Node::builder(2));
    until("there are more nodes than CPUs", are_too_many);
    drop(two);
    until("the dropped node does not count", || !are_too_many());
    assert!(node.status().peers.iter().any(|peer| peer.node == visitor.id() && peer.linked));
}
