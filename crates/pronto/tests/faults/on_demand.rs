//! Links that are made when a message needs one, and end when they are idle.

use core::task::{Context, Poll, Waker};
use core::time::Duration;

use pronto::{CallError, CallRejection, Class, Connect, DownCause, Event, Events, Node, NodeId, SendError};
use pronto_core::fabric::PeerFault;
use pronto_wire::Kind;

use crate::raw_peer::Scenario;
use crate::rig::{
    Add, Fetch, TIMEOUT, TRANSPORTS, Work, add, all, counter, event, free_address, pause, server, shared_run,
    until,
};

/// Time after which an idle link ends.
const IDLE: Duration = Duration::from_millis(150);

/// Returns the builder of a node that makes its links on demand.
fn on_demand(id: u16, listen: &str, peer: u16, address: &str) -> pronto::Builder {
    server(id, listen).peer(peer, address).connect(Connect::OnDemand { idle: IDLE })
}

/// Starts nodes 1 and 2, each with the address of the other.
fn pair() -> [Node; 2] {
    let addresses = [free_address(), free_address()];
    [1, 2].map(|id: u16| {
        let (own, other) = (usize::from(id - 1), usize::from(2 - id));
        on_demand(id, &addresses[own], 3 - id, &addresses[other]).start().unwrap()
    })
}

fn is_paused(node: &Node, peer: u16) -> bool {
    node.status().peers.iter().any(|known| known.node == NodeId(peer) && known.paused)
}

/// Waits until the sessions of both nodes are paused.
fn until_paused(nodes: &[Node; 2]) {
    until("both sides are paused", || is_paused(&nodes[0], 2) && is_paused(&nodes[1], 1));
}

/// Asserts that a node has seen only one session, whose idle links ended and were replaced.
fn assert_one_session(events: &Events) {
    let all = all(events);
    let count = |fits: fn(&Event) -> bool| all.iter().filter(|event| fits(event)).count();
    assert_eq!(count(|event| matches!(event, Event::PeerUp(_))), 1, "{all:?}");
    let failures = count(|event| matches!(event, Event::PeerDown { .. } | Event::LinkLost { .. }));
    assert_eq!(failures, 0, "{all:?}");
}

/// Shows: operations.on-demand, operations.paused, protocol.pause
#[test]
fn the_first_call_makes_a_link_which_ends_when_it_is_idle() {
    let _shared = shared_run();
    let nodes = pair();
    let events = [nodes[0].events(), nodes[1].events()];
    pause(IDLE);
    assert!(events.iter().all(|events| all(events).is_empty()), "nothing needs a link yet");
    assert!(nodes[0].status().failed_dials.is_empty());
    let [to_two, to_one] = [nodes[0].peer(2).unwrap(), nodes[1].peer(1).unwrap()];
    assert!(!to_two.is_up());
    let execute = |peer: &pronto::Peer, times: u64| {
        assert_eq!(peer.call(&Work { key: 5 }).unwrap().total, times, "executed more or less than once");
    };
    execute(&to_two, 1);
    for round in 0..3 {
        until_paused(&nodes);
        assert!(to_two.is_up() && to_one.is_up(), "a paused session stays up");
        // Either side makes the next link.
        match round {
            0 => execute(&to_one, 1),
            1 => execute(&to_two, 2),
            _ => std::thread::scope(|scope| {
                scope.spawn(|| execute(&to_one, 2));
                execute(&to_two, 3);
            }),
        }
    }
    until_paused(&nodes);
    events.iter().for_each(assert_one_session);
    for (node, peer) in [(&nodes[0], 2), (&nodes[1], 1)] {
        let [paused, resumed] = ["links_paused", "links_resumed"].map(|name| counter(node, peer, name));
        assert!(paused >= 4 && resumed == paused - 1, "{paused} {resumed}");
        assert_eq!(counter(node, peer, "requests_resent"), 0);
    }
}

/// Shows: calls.on-demand
#[test]
fn messages_of_every_form_wait_for_the_link() {
    let _shared = shared_run();
    let nodes = pair();
    let peer = nodes[0].peer(2).unwrap();
    let long = Add { values: (0..1000).collect() };
    // Neither a short nor a long message is queued where no wait is possible: the refusal makes a link.
    assert!(matches!(
        peer.start(&Add { values: vec![1] }).map(drop),
        Err(CallError::Rejected(CallRejection::Here(SendError::NotConnected { .. })))
    ));
    until("the refused call has made a link", || peer.is_up());
    until_paused(&nodes);
    assert!(matches!(
        peer.start(&Add { values: vec![1] }).map(drop),
        Err(CallError::Rejected(CallRejection::Here(SendError::Connecting { .. })))
    ));
    until("the refused call has made a link", || !is_paused(&nodes[0], 2));
    until_paused(&nodes);
    assert_eq!(peer.call(&long).unwrap().total, 999 * 500);
    until_paused(&nodes);
    assert_eq!(block_on(peer.call_async(&Add { values: vec![1, 2] })).unwrap().total, 3);
    until_paused(&nodes);
    assert_eq!(block_on(peer.call_async(&long)).unwrap().total, 999 * 500);
    until_paused(&nodes);
    peer.notify_within(&Add { values: vec![1] }, TIMEOUT).unwrap();
    until("the notification has arrived", || counter(&nodes[1], 1, "messages_received") != 0);
    until_paused(&nodes);
    assert_eq!(peer.call(&Fetch { len: 100_000 }).unwrap().bytes.len(), 100_000);
    until_paused(&nodes);
    // A long message by reference needs a grant, which ends with its link.
    let (region, buffer) = (pronto::region(1 << 20).unwrap(), pronto::region(1 << 20).unwrap());
    region.write(5, b"by reference").unwrap();
    let mut receive = nodes[1].peer(1).unwrap().post(7, &buffer, 0..1 << 20).unwrap();
    peer.send(7, &region, 0..1 << 20, TIMEOUT).unwrap();
    assert!(receive.wait(TIMEOUT).is_ok());
    let mut arrived = [0; 12];
    buffer.read(5, &mut arrived).unwrap();
    assert_eq!(&arrived, b"by reference");
    until_paused(&nodes);
    let error = peer.grant(&region, 0..8, pronto::Rights::READ).unwrap_err();
    assert!(matches!(error, pronto::GrantError::Failed(_)), "{error:?}");
    until("the refused grant has made a link", || !is_paused(&nodes[0], 2));
    until_paused(&nodes);
    assert!(nodes[0].wait_for_peer(2, TIMEOUT).is_ok());
    assert_eq!(counter(&nodes[0], 2, "notifications_lost"), 0);
}

/// Shows: calls.on-demand
#[test]
fn the_first_message_may_be_a_task() {
    let _shared = shared_run();
    let nodes = pair();
    let peer = nodes[0].peer(2).unwrap();
    assert_eq!(block_on(peer.call_async(&Add { values: vec![1, 2] })).unwrap().total, 3);
    let nodes = pair();
    nodes[0].wait_for_peer(2, TIMEOUT).unwrap();
    let nodes = pair();
    block_on(nodes[0].wait_for_peer_async(2, TIMEOUT)).unwrap();
}

/// Shows: operations.on-demand-stays, protocol.pause-declined
#[test]
fn a_link_stays_while_it_is_used_or_the_peer_keeps_links() {
    let _shared = shared_run();
    let addresses = [free_address(), free_address()];
    let keeps = server(2, &addresses[1]).peer(1, &addresses[0]).start().unwrap();
    let node = on_demand(1, &addresses[0], 2, &addresses[1]).start().unwrap();
    let events = node.events();
    let peer = node.wait_for_peer(2, TIMEOUT).unwrap();
    let sent = || counter(&node, 2, "messages_sent");
    let before = sent();
    until("this side asks for a pause twice", || sent() >= before + 2);
    add(&peer);
    assert_eq!((counter(&node, 2, "links_paused"), counter(&keeps, 1, "links_paused")), (0, 0));
    assert!(all(&events).iter().all(|event| matches!(event, Event::PeerUp(_))));
    drop(keeps);

    let nodes = pair();
    let peer = nodes[0].peer(2).unwrap();
    add(&peer);
    let region = pronto::region(4096).unwrap();
    let grant = peer.grant(&region, 0..4096, pronto::Rights::READ).unwrap();
    let sent = || counter(&nodes[0], 2, "messages_sent");
    let before = sent();
    until("heartbeats pass", || sent() >= before + 2);
    assert!(!is_paused(&nodes[0], 2), "a grant ends with its link");
    peer.revoke(grant.id).unwrap();
    until_paused(&nodes);
}

/// Shows: operations.paused-peer-ends
#[test]
fn the_end_of_a_peer_is_noticed_by_the_next_message() {
    let _shared = shared_run();
    let nodes = pair();
    let peer = nodes[0].peer(2).unwrap();
    add(&peer);
    until_paused(&nodes);
    let events = nodes[0].events();
    let [one, two] = nodes;
    let listened = two.listening()[0].to_string();
    drop(two);
    assert!(peer.is_up() && all(&events).is_empty(), "nothing reports the end of the peer");
    let limit = Duration::from_millis(300);
    let error = peer.call_within(&Add { values: vec![1] }, limit).unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Rejected(CallRejection::Here(
                SendError::Connecting { .. } | SendError::NotConnected { .. }
            ))
        ),
        "{error:?}"
    );
    let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Silent, .. }), "{down:?}");
    // Another incarnation is found by the next call, also if that begins before it is there.
    std::thread::scope(|scope| {
        let call = scope.spawn(|| peer.call(&Add { values: vec![1, 2] }).unwrap().total);
        pause(Duration::from_millis(50));
        let _two = on_demand(2, &listened, 1, &one.listening()[0].to_string()).start().unwrap();
        assert_eq!(call.join().unwrap(), 3);
    });
}

/// Shows: calls.on-demand
#[test]
fn a_task_waits_for_the_next_incarnation() {
    let _shared = shared_run();
    let nodes = pair();
    let peer = nodes[0].peer(2).unwrap();
    add(&peer);
    until_paused(&nodes);
    let events = nodes[0].events();
    let [one, two] = nodes;
    let listened = two.listening()[0].to_string();
    drop(two);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| block_on(peer.call_async(&Add { values: vec![1, 2] })).unwrap().total);
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        let _two = on_demand(2, &listened, 1, &one.listening()[0].to_string()).start().unwrap();
        assert_eq!(call.join().unwrap(), 3);
    });
}

/// Shows: operations.on-demand
#[test]
fn a_peer_that_no_message_needs_any_more_is_not_dialled() {
    let _shared = shared_run();
    let node = on_demand(1, &free_address(), 2, &free_address()).start().unwrap();
    let dials = || node.status().failed_dials.iter().map(|(_, count)| count).sum::<u64>();
    let peer = node.peer(2).unwrap();
    assert!(peer.notify(&Add { values: vec![1] }).is_err());
    until("the refused message makes the node dial", || dials() != 0);
    until("the node gives up", || !peer.session().wants_link());
    let before = dials();
    // A thread that waits goes on asking.
    assert!(node.wait_for_peer(2, Duration::from_secs(4)).is_err());
    assert!(dials() > before);
}

/// Shows: operations.paused-peer-ends
#[test]
fn the_end_of_one_of_many_peers_is_noticed() {
    let _shared = shared_run();
    let addresses = [free_address(), free_address()];
    let two = on_demand(2, &addresses[1], 1, &addresses[0]).start().unwrap();
    let mut one = on_demand(1, &addresses[0], 2, &addresses[1]);
    // With these, sessions without a link rest.
    for id in 3..30_u16 {
        one = one.peer(id, &free_address());
    }
    let nodes = [one.start().unwrap(), two];
    let peer = nodes[0].peer(2).unwrap();
    for _ in 0..3 {
        add(&peer);
        until_paused(&nodes);
    }
    let events = nodes[0].events();
    let [one, two] = nodes;
    drop(two);
    assert!(peer.call_within(&Add { values: vec![1] }, Duration::from_millis(50)).is_err());
    let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Silent, .. }), "{down:?}");
    drop(one);
}

/// Shows: operations.paused-peer-ends
#[test]
fn a_peer_that_was_restarted_meanwhile_is_another_incarnation() {
    let _shared = shared_run();
    let nodes = pair();
    let peer = nodes[0].peer(2).unwrap();
    add(&peer);
    until_paused(&nodes);
    let events = nodes[0].events();
    let [one, two] = nodes;
    let (listened, epoch) = (two.listening()[0].to_string(), two.epoch());
    drop(two);
    let two = on_demand(2, &listened, 1, &one.listening()[0].to_string()).start().unwrap();
    add(&peer);
    let seen = all(&events);
    assert!(
        matches!(
            seen[..],
            [Event::PeerDown { epoch: ended, cause: DownCause::Replaced, .. }, Event::PeerUp(info)]
                if ended == epoch && info.epoch == two.epoch()
        ),
        "{seen:?}"
    );
}

/// Shows: protocol.pause-declined, protocol.pause-unasked
#[test]
fn a_peer_cannot_pause_a_link_that_stays_nor_answer_without_a_question() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for kind in [Kind::PauseAccepted, Kind::PauseDeclined] {
            let mut scenario = Scenario::start(transport, "pause-answers");
            scenario.raw.post(Class::Control, kind, &[]).unwrap();
            scenario.ends_with(PeerFault::Unasked);
        }
        let mut scenario = Scenario::start(transport, "pause-bulk");
        scenario.raw.post(Class::Bulk, Kind::Pause, &[]).unwrap();
        scenario.ends_with(PeerFault::Unasked);
    }
    // The node keeps its link to a peer whose address it does not have.
    let mut scenario = Scenario::start("tcp", "pauses");
    for _ in 0..20 {
        scenario.raw.post(Class::Control, Kind::Pause, &[]).unwrap();
        let (header, _) = scenario.raw.receive(Class::Control);
        assert_eq!(header.kind, Kind::PauseDeclined);
    }
    scenario.assert_works();
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = core::pin::pin!(future);
    let mut outcome = None;
    until("the future ends", || {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            outcome = Some(ready);
        }
        outcome.is_some()
    });
    outcome.unwrap()
}
