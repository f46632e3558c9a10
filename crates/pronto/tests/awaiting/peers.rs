//! Tasks that await a peer and its events.

use core::time::Duration;

use pronto::{Event, Node, NodeError, NodeId, WaitPolicy};

use crate::executor::{Executor, block_on};
use crate::rig::{LONG, address};

fn client(listen: &str) -> Node {
    Node::builder(2).wait(WaitPolicy::Block).peer(1, listen).start().unwrap()
}

/// Shows: calls.async-peer
#[test]
fn a_task_awaits_a_peer_that_starts_later() {
    let listen = address("shm", "later");
    let client = client(&listen);
    let mut executor = Executor::default();
    let task = executor.spawn(async {
        assert_eq!(client.wait_for_peer_async(1, LONG).await.unwrap().node(), NodeId(1));
    });
    assert!(!executor.has_ended(task));
    let _server = Node::builder(1).listen(&listen).start().unwrap();
    executor.run_all();
}

/// Shows: calls.async-peer
#[test]
fn a_deadline_ends_the_wait_for_a_peer_without_polls() {
    let client = client(&address("shm", "never"));
    let (found, polls) = block_on(client.wait_for_peer_async(1, Duration::from_millis(150)));
    assert!(matches!(found, Err(NodeError::NotUp { peer: NodeId(1), .. })), "{found:?}");
    assert!(polls <= 2, "{polls} polls of a wait that ended by its deadline");
}

#[test]
fn a_task_gets_the_events_of_a_peer() {
    let listen = address("shm", "events");
    let client = client(&listen);
    let mut events = client.events();
    let mut executor = Executor::default();
    let task = executor.spawn(async move {
        assert!(matches!(events.next().await, Some(Ok(Event::PeerUp(_)))));
        assert!(matches!(events.next().await, Some(Ok(Event::PeerDown { peer: NodeId(1), .. }))));
    });
    let server = Node::builder(1).listen(&listen).start().unwrap();
    client.wait_for_peer(1, LONG).unwrap();
    executor.run_woken();
    assert!(!executor.has_ended(task));
    drop(server);
    executor.run_all();
}
