//! Which nodes of a host are counted against its processors.

use core::time::Duration;
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use pronto::admin::FIRST_VISITOR;
use pronto::{Node, NodeId, WaitPolicy};

const PATIENCE: Duration = Duration::from_secs(20);
const ADDRESS: &str = "shm:@pronto-test-nodes-here";

/// This thread, and with it all that it starts, has one processor.
fn on_one_processor() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("it may be asked for");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).expect("there is one");
    let mut one = CpuSet::new();
    one.set(first).expect("it was in the other set");
    sched_setaffinity(Pid::from_raw(0), &one).expect("it is allowed");
}

fn joins(id: NodeId) -> Node {
    let node = Node::builder(id).wait(WaitPolicy::Block).peer(1, ADDRESS).start().expect("it starts");
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
    let why = || node.status().crowded.map(|crowded| crowded.to_string()).unwrap_or_default();
    let are_too_many = || why() == "there are more nodes here than processors";
    let visitor = joins(FIRST_VISITOR);
    let two = joins(NodeId(2));
    until("node 2 is one too many", are_too_many);
    drop(two);
    until("it has gone, and is counted no more", || !are_too_many());
    assert!(node.status().peers.iter().any(|peer| peer.node == visitor.id() && peer.linked));
}
