//! Which nodes of a host are counted against its processors.

mod cpu;

use core::time::Duration;
use std::time::Instant;

use pronto::{Builder, Node, WaitPolicy};

use cpu::on_one_processor;

const PATIENCE: Duration = Duration::from_secs(20);
const ADDRESS: &str = "shm:@pronto-test-nodes-here";

fn joins(node: Builder) -> Node {
    let node = node.wait(WaitPolicy::Block).peer(1, ADDRESS).start().expect("it starts");
    node.wait_for_peer(1, PATIENCE).expect("they meet");
    node
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a node is waited for, and not for ever")]
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn a_node_beside_counts_while_it_is_there_and_a_visitor_does_not() {
    on_one_processor();
    let node = Node::builder(1).wait(WaitPolicy::Block).listen(ADDRESS).start().expect("it starts");
    let why = || node.status().contention.map(|contention| contention.to_string()).unwrap_or_default();
    let are_too_many = || why() == "there are more nodes on this host than CPUs";
    let visitor = joins(Node::visitor());
    let two = joins(Node::builder(2));
    until("node 2 is one too many", are_too_many);
    drop(two);
    until("it has gone, and is counted no more", || !are_too_many());
    assert!(node.status().peers.iter().any(|peer| peer.node == visitor.id() && peer.linked));
}
