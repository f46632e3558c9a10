//! Links that break, or stall, while they are made: the next attempt gets in.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;

use pronto::{DownCause, Event, Events, Node, NodeId, WaitPolicy};
use pronto_wire::{GreetingFault, GreetingRefusal};

use crate::proxy::Proxy;
use crate::raw::{HalfMade, Raw};
use crate::rig::{
    SOON, TRANSPORTS, add, all, beside_others, client, counter, event, refused, started, until,
};

/// Waits until the session goes on, and it must be the same one all the time.
fn is_resumed(events: &Events) {
    let next = event(events, SOON, |event| {
        matches!(event, Event::LinkResumed { .. } | Event::PeerDown { .. } | Event::PeerUp(_))
    });
    assert!(matches!(next, Event::LinkResumed { .. }), "{next:?}");
}

/// The dialler has no link yet, and the acceptor does not wait for one any longer.
#[test]
fn a_session_survives_a_cut_between_the_connections_of_a_link() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "half-between");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    // Both sides have the link, and have said so.
    add(&peer);
    let events = [caller.events(), node.events()];
    wire.breaks_at_connection(2);
    assert!(wire.cut() > 0);
    events.iter().for_each(is_resumed);
    add(&peer);
    assert!(wire.has_failed());
    assert!(!events.iter().flat_map(all).any(|event| matches!(event, Event::PeerDown { .. })));
}

/// The acceptor has a link and the dialler has none.
#[test]
fn a_session_survives_a_cut_before_the_dialler_knows_of_the_link() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "half-before");
    let wire = Proxy::to(&address);
    let (caller, peer) = client(2, &wire.address());
    add(&peer);
    let [near, far] = [caller.events(), node.events()];
    wire.loses_ready();
    assert!(wire.cut() > 0);
    is_resumed(&far);
    until("the word is lost", || wire.has_failed());
    assert!(wire.cut() > 0);
    [&far, &near].into_iter().for_each(is_resumed);
    add(&peer);
    assert!(![&near, &far].into_iter().flat_map(all).any(|event| matches!(event, Event::PeerDown { .. })));
    assert_eq!((counter(&caller, 1, "links_resumed"), counter(&node, 2, "links_resumed")), (1, 2));
}

/// The same for a dialler that has no session to name: the acceptor has one, and finds out by itself that its link is gone.
#[test]
fn a_first_link_that_only_the_acceptor_has_keeps_nobody_out() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "half-first");
    let events = node.events();
    let wire = Proxy::to(&address);
    wire.loses_ready();
    let caller = Node::builder(2).wait(WaitPolicy::Block).peer(1, &wire.address()).start().unwrap();
    event(&events, SOON, |event| matches!(event, Event::PeerUp(_)));
    until("the word is lost", || wire.has_failed());
    wire.cut();
    add(&caller.wait_for_peer(1, SOON).unwrap());
    event(&events, SOON, |event| matches!(event, Event::LinkLost { .. }));
    // Replaced by the next attempt, and not given up for its silence before.
    let down = event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Replaced, .. }), "{down:?}");
    event(&events, SOON, |event| matches!(event, Event::PeerUp(_)));
}

#[test]
fn an_attempt_that_breaks_off_is_over_at_once() {
    let _beside = beside_others();
    let (node, address) = started(1, "tcp", "breaks-off");
    drop(HalfMade::greets(9, 1, &address).unwrap());
    // Broken, not silent: nothing waited for the end of its time.
    until("it is over", || refused(&node, "broken") == 1);
    assert_eq!(refused(&node, "silent"), 0);
    // Nor is it in the way of the node's own attempts.
    let _link = Raw::greets(9, &address);
}

/// Whoever greeted first and stalls may be a stranger, or have a broken wire that nobody sees.
#[test]
fn a_newer_greeting_takes_the_place_of_an_attempt_that_stalls() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "newer");
        let events = node.events();
        let stalled = HalfMade::greets(9, 1, &address).unwrap();
        let mut raw = HalfMade::greets(9, 1, &address).unwrap().finish().unwrap();
        event(&events, SOON, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        until("the other has ended", || refused(&node, "superseded") == 1);
        assert!(stalled.finish().is_none(), "{transport}");
        // The link was not touched by that.
        raw.proves_itself();
        assert_eq!(counter(&node, 9, "links_lost"), 0);
    }
}

#[test]
fn a_bad_greeting_ends_no_attempt() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "bad-greeting");
        let events = node.events();
        let good = HalfMade::greets(9, 1, &address).unwrap();
        let bad = HalfMade::greets(9, 3, &address).err();
        assert_eq!(bad, Some(GreetingFault::Refused(GreetingRefusal::WrongNode)));
        let mut raw = good.finish().unwrap();
        event(&events, SOON, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        raw.proves_itself();
    }
}

/// A stranger with the name of a node keeps this one from dialling it for a short time only.
#[test]
fn a_stranger_who_stalls_does_not_keep_a_node_from_dialling() {
    let _beside = beside_others();
    let (_node, address) = started(1, "tcp", "dialled");
    // Nobody listens there yet.
    let wire = Proxy::to(&address);
    wire.closes();
    let caller = Node::builder(2)
        .wait(WaitPolicy::Block)
        .listen("tcp:127.0.0.1:0")
        .peer(1, &wire.address())
        .start()
        .unwrap();
    // Has the time of a whole handshake, and is not in the way: the measure for the other.
    let address = caller.listening()[0].to_string();
    let mut says_nothing = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
    let stalled = stalls_as(1, &address);
    wire.recovers();
    add(&caller.wait_for_peer(1, SOON).unwrap());
    says_nothing.set_nonblocking(true).unwrap();
    let patient = says_nothing.read(&mut [0]).unwrap_err();
    assert_eq!(patient.kind(), ErrorKind::WouldBlock, "it took as long as a whole handshake");
    drop(stalled);
}

/// Greets a node by the name of another, and says no more. Refused as long as the node itself is dialling that one.
fn stalls_as(id: u16, address: &str) -> HalfMade {
    let mut stalled = None;
    until("it is greeted", || {
        stalled = HalfMade::greets(id, 2, address).ok();
        stalled.is_some()
    });
    stalled.unwrap()
}
