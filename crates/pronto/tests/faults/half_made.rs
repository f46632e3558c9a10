//! Links that break or stall while they are established: the next attempt succeeds.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use pronto::{DownCause, Event, Events, Node, NodeId, WaitPolicy};
use pronto_wire::{GreetingFault, GreetingRefusal};

use crate::proxy::Proxy;
use crate::raw::{HalfMade, Raw};
use crate::rig::{
    TIMEOUT, TRANSPORTS, add, all, client, counter, event, refused, shared_run, started, until,
};

/// Waits until the session is resumed, and asserts that it did not end before.
fn wait_until_resumed(events: &Events) {
    let next = event(events, TIMEOUT, |event| {
        matches!(event, Event::LinkResumed { .. } | Event::PeerDown { .. } | Event::PeerUp(_))
    });
    assert!(matches!(next, Event::LinkResumed { .. }), "{next:?}");
}

/// The dialler has no link yet, and the acceptor no longer waits for one.
#[test]
fn a_session_survives_a_cut_between_the_connections_of_a_link() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "half-between");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    // Both sides have the link, and have confirmed it.
    add(&peer);
    let events = [caller.events(), node.events()];
    wire.break_at_connection(2);
    assert!(wire.cut() > 0);
    events.iter().for_each(wait_until_resumed);
    add(&peer);
    assert!(wire.has_failed());
    assert!(!events.iter().flat_map(all).any(|event| matches!(event, Event::PeerDown { .. })));
}

/// The acceptor has a link, and the dialler has none.
///
/// Shows: protocol.ready-lost, operations.links
#[test]
fn a_session_survives_a_cut_before_the_dialler_knows_of_the_link() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "half-before");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    add(&peer);
    let [near, far] = [caller.events(), node.events()];
    wire.lose_ready();
    assert!(wire.cut() > 0);
    wait_until_resumed(&far);
    until("the ready message is lost", || wire.has_failed());
    assert!(wire.cut() > 0);
    [&far, &near].into_iter().for_each(wait_until_resumed);
    add(&peer);
    assert!(![&near, &far].into_iter().flat_map(all).any(|event| matches!(event, Event::PeerDown { .. })));
    assert_eq!((counter(&caller, 1, "links_resumed"), counter(&node, 2, "links_resumed")), (1, 2));
}

/// A dialler without a session loses its first link, which the acceptor has. The acceptor detects by itself that the link is gone.
///
/// Shows: protocol.ready-lost, operations.replaced
#[test]
fn a_first_link_that_only_the_acceptor_has_blocks_no_later_link() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "half-first");
    let events = node.events();
    let wire = Proxy::to(&address);
    wire.lose_ready();
    let caller = Node::builder(2).wait(WaitPolicy::Block).peer(1, &wire.address()).start().unwrap();
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    until("the ready message is lost", || wire.has_failed());
    wire.cut();
    add(&caller.wait_for_peer(1, TIMEOUT).unwrap());
    event(&events, TIMEOUT, |event| matches!(event, Event::LinkLost { .. }));
    // The next attempt replaces the session before it is considered silent.
    let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Replaced, .. }), "{down:?}");
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
}

/// A peer may notice the loss of a link before this node does. Its next link replaces the one that still seems to work.
#[test]
fn a_link_that_only_the_peer_has_lost_is_replaced_by_its_next_link() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "half-lost");
    let events = node.events();
    let lost = Raw::greet(9, &address);
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    // Until the node has finished its part of the first attempt, it refuses another one, which a dialler then repeats.
    let mut greeted = HalfMade::greet_to_resume(9, &lost, &address);
    until("the node has finished the first attempt", || {
        if matches!(greeted, Err(GreetingFault::Refused { refusal: GreetingRefusal::Duplicate, .. })) {
            greeted = HalfMade::greet_to_resume(9, &lost, &address);
        }
        greeted.is_ok()
    });
    let mut raw = greeted.unwrap().finish().unwrap();
    wait_until_resumed(&events);
    raw.assert_works();
    assert_eq!(counter(&node, 9, "links_resumed"), 1);
}

/// Shows: protocol.attempt-ends, operations.broken
#[test]
fn a_broken_attempt_ends_immediately() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "breaks-off");
    drop(HalfMade::greet(9, 1, &address).unwrap());
    // The reason is "broken", not "silent": the node did not wait for a timeout.
    until("the attempt has ended", || refused(&node, "broken") == 1);
    assert_eq!(refused(&node, "silent"), 0);
    // The broken attempt does not block a new one.
    let _link = Raw::greet(9, &address);
}

/// The peer that greeted first and stalls may be a stranger, or have a broken connection that no side has detected.
///
/// Shows: protocol.superseded, operations.superseded
#[test]
fn a_newer_greeting_supersedes_a_stalled_attempt() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "newer");
        let events = node.events();
        let stalled = HalfMade::greet(9, 1, &address).unwrap();
        let mut raw = HalfMade::greet(9, 1, &address).unwrap().finish().unwrap();
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        until("the stalled attempt has ended", || refused(&node, "superseded") == 1);
        assert!(stalled.finish().is_none(), "{transport}");
        // The link is not affected.
        raw.assert_works();
        assert_eq!(counter(&node, 9, "links_lost"), 0);
    }
}

/// Shows: protocol.superseded
#[test]
fn a_bad_greeting_ends_no_attempt() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "bad-greeting");
        let events = node.events();
        let good = HalfMade::greet(9, 1, &address).unwrap();
        let bad = HalfMade::greet(9, 3, &address).err();
        assert_eq!(bad, Some(GreetingFault::Refused { refusal: GreetingRefusal::WrongNode, by: NodeId(1) }));
        let mut raw = good.finish().unwrap();
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        raw.assert_works();
    }
}

/// A stranger that claims to be a configured peer delays the node's own dialling for a short time only.
///
/// Shows: protocol.establish
#[test]
fn a_stalling_stranger_does_not_prevent_dialling() {
    let _shared = shared_run();
    let (_node, address) = started(1, "tcp", "dialled");
    // The proxy does not forward connections yet.
    let wire = Proxy::to(&address);
    wire.close();
    let caller = Node::builder(2)
        .wait(WaitPolicy::Block)
        .listen("tcp:127.0.0.1:0")
        .peer(1, &wire.address())
        .start()
        .unwrap();
    // This connection says that it is a handshake, after which it may take the time of a whole one, and blocks nothing. It measures the time
    // limit for the other.
    let address = caller.listening()[0].to_string();
    let mut silent = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
    silent.write_all(b"pronto\x031").unwrap();
    silent.read_exact(&mut [0; 8]).unwrap();
    let stalled = stalls_as(1, &address);
    wire.recover();
    add(&caller.wait_for_peer(1, TIMEOUT).unwrap());
    silent.set_nonblocking(true).unwrap();
    let error = silent.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "the link took as long as a whole handshake");
    drop(stalled);
}

/// Greets a node as peer `id`, and then stalls. Retries while the node refuses because it is dialling that peer itself.
fn stalls_as(id: u16, address: &str) -> HalfMade {
    let mut stalled = None;
    until("the greeting is accepted", || {
        stalled = HalfMade::greet(id, 2, address).ok();
        stalled.is_some()
    });
    stalled.unwrap()
}
