//! Nodes that start in any order, two nodes with the same id, and inline handlers that run in the order of arrival.

use core::time::Duration;

use pronto::progress::Engine;
use pronto::{DownCause, Event, Message, Node};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::rig::{
    TIMEOUT, TRANSPORTS, Watch, add, address, all, client, event, free_address, refused, server, shared_run,
    started, until,
};

/// Starts two nodes that each list the other, so that both dial.
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

fn assert_both_reply(nodes: &[Node; 2]) {
    for (node, other) in [(&nodes[0], 2), (&nodes[1], 1)] {
        add(&node.wait_for_peer(other, TIMEOUT).unwrap());
    }
}

/// Shows: protocol.duplicate, operations.both-dial
#[test]
fn any_order_leads_to_one_session() {
    let _shared = shared_run();
    for round in 0..6 {
        for transport in ["shm", "tcp"] {
            let addresses = if transport == "shm" {
                [1, 2].map(|n| address("shm", &format!("order-{round}-{n}")))
            } else {
                [free_address(), free_address()]
            };
            let nodes = pair([&addresses[0], &addresses[1]], round % 2);
            let events = nodes.each_ref().map(Node::events);
            assert_both_reply(&nodes);
            // Both dialled; exactly one link is established, and it stays.
            for _ in 0..50 {
                assert_both_reply(&nodes);
            }
            let ends = events.iter().flat_map(all).filter(|event| !matches!(event, Event::PeerUp(_)));
            assert_eq!(ends.collect::<Vec<_>>(), [], "{transport} {round}");
        }
    }
}

/// Shows: protocol.duplicate, operations.both-dial, operations.duplicate
#[test]
fn nodes_that_dial_each_other_simultaneously_connect() {
    let _shared = shared_run();
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
        assert_both_reply(&nodes);
        // The surplus attempt must not be reported as a failure of a connected peer.
        let mut peers = nodes.iter().flat_map(|node| node.status().peers);
        assert!(peers.all(|peer| peer.linked && peer.last_failure.is_none()), "{round}");
    }
}

/// Shows: calls.wait-for-peer, operations.any-order, operations.dials
#[test]
fn a_client_waits_for_its_server() {
    let _shared = shared_run();
    let listen = address("shm", "late");
    let client = Node::builder(2).peer(1, &listen).start().unwrap();
    assert!(client.wait_for_peer(1, Duration::from_millis(50)).is_err(), "the server has not started yet");
    let _server = server(1, &listen).start().unwrap();
    add(&client.wait_for_peer(1, TIMEOUT).unwrap());
}

/// Shows: calls.tries-again, calls.why-not-up, operations.id-taken, operations.refusals, operations.same-id
#[test]
fn two_nodes_with_one_id() {
    let _shared = shared_run();
    for transport in ["shm", "tcp"] {
        let (node, address) = started(1, transport, "twins");
        let (first, peer) = client(2, &address);
        // The reply shows that both ends have the link. A half-made link would give way to the twin's.
        add(&peer);
        // Another node 2 is refused while the first one lives, and both sides can see the reason.
        let twin = Node::builder(2).peer(1, &address).start().unwrap();
        until("the twin is refused", || refused(&node, "id_taken") >= 1);
        until("the twin has recorded the reason", || {
            twin.status().failed_dials.iter().any(|(reason, _)| *reason == "id_taken")
        });
        let why = twin.wait_for_peer(1, Duration::ZERO).unwrap_err().to_string();
        let advice = "node 1 refused: another live process has the id of the dialling node: stop it, or";
        assert!(why.contains(advice), "{why}");
        // Also a node with the same id as this node.
        let namesake = server(1, &crate::rig::address("shm", "other")).peer(7, &address).start().unwrap();
        until("the namesake is refused", || refused(&node, "same_id") >= 1);
        let why = || namesake.wait_for_peer(7, Duration::ZERO).unwrap_err().to_string();
        until("the namesake knows why", || why().contains("node 1 refused: both nodes have the same id"));
        add(&peer);
        drop((first, peer));
        add(&twin.wait_for_peer(1, TIMEOUT).unwrap());
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.numbered")]
struct Numbered {
    number: u64,
}

/// The serving thread or a waiting caller may process messages for inline handlers. In either case, the handlers run in the order
/// of arrival.
///
/// Shows: protocol.order, protocol.order-inline, messages.order-in-class
#[test]
fn inline_handlers_run_in_order_while_callers_wait() {
    let _shared = shared_run();
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
        let to_node = other.wait_for_peer(1, TIMEOUT).unwrap();
        let to_other = node.wait_for_peer(2, TIMEOUT).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        add(&to_other);
                    }
                });
            }
            // A failure here must also end the callers.
            let sent =
                (0..20_000).try_for_each(|number| to_node.notify_within(&Numbered { number }, TIMEOUT));
            let watch = Watch::start();
            while sent.is_ok() && next.load(Ordering::Relaxed) < 20_000 && watch.passed() < TIMEOUT {
                std::thread::park_timeout(Duration::from_millis(2));
            }
            done.store(true, Ordering::Relaxed);
            sent.unwrap();
        });
        assert_eq!(next.load(Ordering::Relaxed), 20_000, "{transport}: all handlers must run");
        assert_eq!(overtaken.load(Ordering::Relaxed), 0, "{transport}");
    }
}

#[test]
fn the_slots_of_visitors_are_reused() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "visitors"))
            .max_peers(3)
            .peer(99, &address("shm", "nobody"))
            .start()
            .unwrap();
        let listening = node.listening()[0].to_string();
        // One peer stays, and a configured peer keeps its slot although it never connects.
        let (_stays, peer) = client(2, &listening);
        for visitor in 10..20 {
            let (visitor, to_node) = client(visitor, &listening);
            add(&to_node);
            let id = visitor.id();
            drop((visitor, to_node));
            until("the visitor has left", || {
                let status = node.status();
                status.peers.iter().find(|known| known.node == id).is_none_or(|known| known.info.is_none())
            });
        }
        add(&peer);
        assert!(node.status().peers.iter().any(|known| known.node.0 == 99), "{transport}");
    }
}

/// Without an engine no thread polls, so the end of the peer is detected before its goodbye is read.
///
/// Shows: operations.goodbye
#[test]
fn an_unread_goodbye_counts_when_the_peer_ends() {
    let _shared = shared_run();
    let node = server(1, &address("shm", "goodbye")).engine(Engine::None).start().unwrap();
    let events = node.events();
    let (leaves, _) = client(2, &node.listening()[0].to_string());
    event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    drop(leaves);
    let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { cause: DownCause::Goodbye, .. }), "{down:?}");
}

/// Shows: operations.forgotten
#[test]
fn a_hundred_visitors_leave_no_state() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        // Each visitor gets a slot, although there are few.
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
        until("only peers that stay or are held are left", || are_left(&[2, 3]));
        drop(held);
        visit(4);
        until("the released peers are removed", || are_left(&[2]));
        add(&peer);
    }
}

/// Shows: calls.why-not-up, calls.last-failure
#[test]
fn the_error_for_a_missing_peer_has_a_reason() {
    let _shared = shared_run();
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
