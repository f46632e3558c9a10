//! Nodes that start in any order, two that claim one id, and inline handlers that run in the order of arrival.

use core::time::Duration;

use pronto::progress::Engine;
use pronto::{DownCause, Event, Message, Node};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::rig::{
    SOON, TRANSPORTS, Watch, add, address, all, beside_others, client, event, free_address, refused, server,
    started, until,
};

/// Two nodes that each know the other, so that both dial.
fn pair(addresses: [&str; 2], first: usize) -> [Node; 2] {
    let start = |n: usize| {
        let id = u16::try_from(n).unwrap() + 1;
        let other = u16::try_from(1 - n).unwrap() + 1;
        server(id, addresses[n]).peer(other, addresses[1 - n]).start().unwrap()
    };
    let one = start(first);
    let two = start(1 - first);
    if first == 0 { [one, two] } else { [two, one] }
}

fn both_answer(nodes: &[Node; 2]) {
    for (node, other) in [(&nodes[0], 2), (&nodes[1], 1)] {
        add(&node.wait_for_peer(other, SOON).unwrap());
    }
}

#[test]
fn any_order_leads_to_one_session() {
    let _beside = beside_others();
    for round in 0..6 {
        for transport in ["shm", "tcp"] {
            let addresses = if transport == "shm" {
                [1, 2].map(|n| address("shm", &format!("order-{round}-{n}")))
            } else {
                [free_address(), free_address()]
            };
            let nodes = pair([&addresses[0], &addresses[1]], round % 2);
            let events = nodes.each_ref().map(Node::events);
            both_answer(&nodes);
            // Both dialled, one link stands, and it stays.
            for _ in 0..50 {
                both_answer(&nodes);
            }
            let ends = events.iter().flat_map(all).filter(|event| !matches!(event, Event::PeerUp(_)));
            assert_eq!(ends.collect::<Vec<_>>(), [], "{transport} {round}");
        }
    }
}

#[test]
fn both_at_once_many_times() {
    let _beside = beside_others();
    for round in 0..10 {
        let addresses = [1, 2].map(|n| address("shm", &format!("once-{round}-{n}")));
        let nodes = std::thread::scope(|scope| {
            let start = |n: usize| {
                let addresses = &addresses;
                move || {
                    let (id, other) = if n == 0 { (1, 2_u16) } else { (2, 1) };
                    server(id, &addresses[n]).peer(other, &addresses[1 - n]).start().unwrap()
                }
            };
            let both = [scope.spawn(start(0)), scope.spawn(start(1))];
            both.map(|node| node.join().unwrap())
        });
        both_answer(&nodes);
        // The attempt that was one too many is no reason why a peer is not there, which is there.
        let mut peers = nodes.iter().flat_map(|node| node.status().peers);
        assert!(peers.all(|peer| peer.linked && peer.last_failure.is_none()), "{round}");
    }
}

#[test]
fn a_client_waits_for_its_server() {
    let _beside = beside_others();
    let listen = address("shm", "late");
    let client = Node::builder(2).peer(1, &listen).start().unwrap();
    assert!(client.wait_for_peer(1, Duration::from_millis(50)).is_err(), "nobody is there yet");
    let _server = server(1, &listen).start().unwrap();
    add(&client.wait_for_peer(1, SOON).unwrap());
}

#[test]
fn two_nodes_with_one_id() {
    let _beside = beside_others();
    for transport in ["shm", "tcp"] {
        let (node, address) = started(1, transport, "twins");
        let (_first, peer) = client(2, &address);
        // Answered: the link stands at both ends. A half-made one would give way to the twin's.
        add(&peer);
        // Another node 2 is refused while the first lives, and both sides can see why.
        let twin = Node::builder(2).peer(1, &address).start().unwrap();
        until("the twin is refused", || refused(&node, "id_taken") >= 1);
        until("and knows why", || twin.status().failed_dials.iter().any(|(reason, _)| *reason == "id_taken"));
        assert!(!twin.peer(1).unwrap().is_up());
        // A node that has this node's own id, too.
        let namesake = server(1, &crate::rig::address("shm", "other")).peer(7, &address).start().unwrap();
        until("the namesake is refused", || refused(&node, "same_id") >= 1);
        assert!(!namesake.peer(7).unwrap().is_up());
        add(&peer);
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.numbered")]
struct Numbered {
    number: u64,
}

/// Messages for inline handlers are taken in by the serving thread, or by callers that wait: whoever it is, they run in the
/// order in which they arrived.
#[test]
fn inline_handlers_run_in_order_while_callers_wait() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let (next, overtaken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (expected, wrong) = (Arc::clone(&next), Arc::clone(&overtaken));
        let node = server(1, &address(transport, "inline-order"))
            .on_inline(move |_, note: Numbered| {
                let expected = expected.fetch_add(1, Ordering::Relaxed);
                wrong.fetch_add(u64::from(note.number != expected), Ordering::Relaxed);
            })
            .start()
            .unwrap();
        let other = server(2, &address(transport, "inline-order-2"))
            .peer(1, &node.listening()[0].to_string())
            .start()
            .unwrap();
        let to_node = other.wait_for_peer(1, SOON).unwrap();
        let to_other = node.wait_for_peer(2, SOON).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        add(&to_other);
                    }
                });
            }
            // Whatever fails here must end the callers, too.
            let sent = (0..20_000).try_for_each(|number| to_node.notify_within(&Numbered { number }, SOON));
            let watch = Watch::start();
            while sent.is_ok() && next.load(Ordering::Relaxed) < 20_000 && watch.passed() < SOON {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            done.store(true, Ordering::Relaxed);
            sent.unwrap();
        });
        assert_eq!(next.load(Ordering::Relaxed), 20_000, "{transport}: all have run");
        assert_eq!(overtaken.load(Ordering::Relaxed), 0, "{transport}");
    }
}

#[test]
fn the_places_of_visitors_are_free_again() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "visitors"))
            .max_peers(3)
            .peer(99, &address("shm", "nobody"))
            .start()
            .unwrap();
        let listening = node.listening()[0].to_string();
        // Somebody stays, and a peer that the node was told of has its place, though it never comes.
        let (_stays, peer) = client(2, &listening);
        for visitor in 10..20 {
            let (visitor, to_node) = client(visitor, &listening);
            add(&to_node);
            let id = visitor.id();
            drop((visitor, to_node));
            until("it has gone", || {
                let status = node.status();
                status.peers.iter().find(|known| known.node == id).is_none_or(|known| known.info.is_none())
            });
        }
        add(&peer);
        assert!(node.status().peers.iter().any(|known| known.node.0 == 99), "{transport}");
    }
}

/// Nobody polls, so that its end is noticed before its goodbye is read.
#[test]
fn a_goodbye_counts_that_lies_there_unread_when_the_peer_ends() {
    let _beside = beside_others();
    let node = server(1, &address("shm", "goodbye")).engine(Engine::None).start().unwrap();
    let events = node.events();
    let (leaves, _) = client(2, &node.listening()[0].to_string());
    event(&events, SOON, |event| matches!(event, Event::PeerUp(_)));
    drop(leaves);
    let down = event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Goodbye, .. }), "{down:?}");
}

#[test]
fn of_a_hundred_visitors_nothing_is_left() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        // Each finds a place, though there are few.
        let node = server(1, &address(transport, "hundred")).max_peers(6).start().unwrap();
        let listening = node.listening()[0].to_string();
        let (_stays, peer) = client(2, &listening);
        let visit = |id| {
            let (visitor, to_node) = client(id, &listening);
            add(&to_node);
            drop((visitor, to_node));
        };
        let are_left = |ids: &[u16]| {
            let known: Vec<_> = node.status().peers.iter().map(|known| known.node.0).collect();
            known == ids && node.manager().sources() == ids.len()
        };
        let held = node.peer(3).unwrap();
        visit(3);
        (10..110).for_each(visit);
        until("those are left who stay, or are held", || are_left(&[2, 3]));
        drop(held);
        visit(4);
        until("nobody is held", || are_left(&[2]));
        add(&peer);
    }
}

#[test]
fn a_peer_that_is_not_there_has_a_reason() {
    let _beside = beside_others();
    for (transport, unused) in [("shm", address("shm", "unused")), ("tcp", free_address())] {
        let node = Node::builder(2).peer(1, &unused).start().unwrap();
        until("the first attempt has failed", || {
            node.status().peers.iter().any(|p| p.last_failure.is_some())
        });
        let error = node.wait_for_peer(1, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(
            error.contains(&unused) && error.contains("nobody listens at this address"),
            "{transport}: {error}"
        );
    }
}
