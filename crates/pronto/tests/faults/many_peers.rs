//! A node with more peers than it polls in every round, so that the sources of most of them rest: nothing that happens to a resting peer is lost.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use pronto::{Event, Events, Message, Node, NodeId, Peer, WaitPolicy};
use pronto_core::wait::WaitOverride;
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::proxy::Proxy;
use crate::rig::{Add, Page, Sum, TIMEOUT, add, counter, event, pause, shared_run, started, until};

/// More than the peers that are polled in every round.
const PEERS: u16 = 24;

#[derive(Message, Debug)]
#[message(name = "faults.count")]
struct Count {
    number: u64,
}

/// A node that calls node 1 and counts what it receives.
struct Client {
    node: Node,
    server: Peer,
    counted: Arc<AtomicU64>,
    pages: Arc<Mutex<Vec<usize>>>,
}

impl Client {
    fn start(id: u16, address: &str) -> Self {
        let (counted, pages): (Arc<AtomicU64>, Arc<Mutex<Vec<usize>>>) = Default::default();
        let (counts, lengths) = (Arc::clone(&counted), Arc::clone(&pages));
        let node = Node::builder(id)
            .wait(WaitPolicy::Block)
            .workers(1)
            .peer(1, address)
            .on_inline(move |_, count: Count| {
                counts.fetch_add(count.number, Ordering::Relaxed);
            })
            .on(move |_, page: Page| lengths.lock().unwrap().push(page.bytes.len()))
            .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
            .start()
            .unwrap();
        let server = node.wait_for_peer(1, TIMEOUT).unwrap();
        Self { node, server, counted, pages }
    }
}

fn rests(node: &Node) -> u64 {
    node.status().progress.iter().find(|(name, _)| *name == "rests").unwrap().1
}

/// Starts a server with many clients, the last of them through a proxy, and waits until most of their sources rest.
fn many(name: &str) -> (Node, Vec<Client>, Proxy) {
    let (server, address) = started(1, "tcp", name);
    let wire = Proxy::to(&address);
    let client =
        |id| Client::start(id, if id == PEERS + 1 { wire.address() } else { address.clone() }.as_str());
    let events = server.events();
    let clients: Vec<_> = (2..PEERS + 2).map(client).collect();
    until_up(&events, clients.len());
    until_resting(&server, &clients);
    (server, clients, wire)
}

/// Waits until the node has published that `peers` peers have come, which it may do after they have linked.
fn until_up(events: &Events, peers: usize) {
    for _ in 0..peers {
        event(events, TIMEOUT, |event| matches!(event, Event::PeerUp(_)));
    }
}

/// Makes calls of one client until most sources of the others have begun to rest.
fn until_resting(server: &Node, clients: &[Client]) {
    let before = rests(server);
    until("most peers rest", || {
        add(&clients[0].server);
        rests(server) >= before + u64::from(PEERS) - 17
    });
}

/// Shows: operations.rests
#[test]
fn messages_to_and_from_resting_peers_pass() {
    let _shared = shared_run();
    let (server, clients, _wire) = many("rest");
    for round in 1..=20 {
        for client in &clients {
            // Each of these finds the client's source resting or not, by the order and the round.
            let id = client.node.id();
            let to_client = server.peer(id).unwrap();
            match (round + usize::from(id.0)) % 4 {
                0 => add(&client.server),
                1 => add(&to_client),
                2 => {
                    let before = client.counted.load(Ordering::Relaxed);
                    for _ in 0..100 {
                        to_client.notify_within(&Count { number: 1 }, TIMEOUT).unwrap();
                    }
                    until("the stream has arrived", || {
                        client.counted.load(Ordering::Relaxed) == before + 100
                    });
                }
                _ => {
                    let before = client.pages.lock().unwrap().len();
                    to_client.notify_within(&Page { bytes: vec![1; 2 << 20] }, TIMEOUT).unwrap();
                    until("the page has arrived", || client.pages.lock().unwrap().len() > before);
                }
            }
        }
        add(&clients[0].server);
    }
    assert!(rests(&server) > u64::from(PEERS), "sources rest again");
    let lost =
        |node: &Node| node.status().progress.iter().find(|(name, _)| *name == "lost_wake_ups").unwrap().1;
    assert_eq!(lost(&server), 0);
    for client in &clients {
        let id = client.node.id().0;
        assert_eq!((counter(&server, id, "links_lost"), counter(&server, id, "lost_wake_ups")), (0, 0));
    }
}

/// Shows: operations.rests
#[test]
fn a_resting_peer_that_loses_its_link_or_ends_is_noticed() {
    let _shared = shared_run();
    let (server, mut clients, wire) = many("rest-cut");
    let events = server.events();
    let of = |id: u16| move |event: &Event| matches!(event, Event::LinkResumed { peer, .. } if *peer == NodeId(id));
    for _ in 0..3 {
        until_resting(&server, &clients[..1]);
        assert!(wire.cut() > 0);
        event(&events, TIMEOUT, of(PEERS + 1));
        let cut = clients.last().unwrap();
        add(&cut.server);
        add(&server.peer(PEERS + 1).unwrap());
    }
    until_resting(&server, &clients[..1]);
    drop(clients.remove(5));
    let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
    assert!(matches!(down, Event::PeerDown { peer: NodeId(7), .. }), "{down:?}");
}

/// Shows: operations.rests, protocol.heartbeat
#[test]
fn resting_peers_stay_up() {
    let _shared = shared_run();
    let (server, clients, _wire) = many("rest-up");
    let events = server.events();
    let sent = |id| counter(&server, id, "messages_sent");
    let before: Vec<_> = clients.iter().map(|client| sent(client.node.id().0)).collect();
    // The heartbeats of both sides pass, each after 1.8 s.
    until("every peer gets two heartbeats", || {
        pause(Duration::from_millis(20));
        clients.iter().zip(&before).all(|(client, before)| sent(client.node.id().0) >= before + 2)
    });
    assert_eq!(events.try_next(), None, "no peer is taken for silent");
}

/// Shows: operations.rests
#[test]
fn a_reply_of_a_resting_peer_wakes_its_caller_alone() {
    let _shared = shared_run();
    let (server, clients, _wire) = many("rest-calls");
    let peers: Vec<_> = clients.iter().map(|client| server.peer(client.node.id()).unwrap()).collect();
    let sleeps = || server.status().progress.iter().find(|(name, _)| *name == "sleeps").unwrap().1;
    // The first calls make the epolls of the calling threads.
    peers.iter().for_each(add);
    let rests_again = || {
        // Peers rest when the serving thread goes back to sleep.
        add(&clients[0].server);
    };
    // On a busy machine the calls take long enough for many heartbeats.
    let messages = || {
        let counters = server.status().peers.into_iter().flat_map(|peer| peer.counters);
        let of_kind = counters.filter(|(name, _)| ["messages_sent", "messages_received"].contains(name));
        of_kind.map(|(_, count)| count).sum::<u64>()
    };
    rests_again();
    let (before, messages_before, rounds) = (sleeps(), messages(), 20);
    for _ in 0..rounds {
        peers.iter().for_each(add);
        rests_again();
    }
    let (slept, calls) = (sleeps() - before, rounds * u64::from(PEERS));
    let others = (messages() - messages_before).saturating_sub(2 * (calls + rounds));
    assert!(
        slept < calls / 2 + others,
        "{calls} calls and {others} other messages have woken the serving thread {slept} times"
    );
}

/// Shows: operations.rests
#[test]
fn resting_peers_are_served_while_the_serving_thread_does_not_sleep() {
    let _shared = shared_run();
    let (server, mut clients, _wire) = many("rest-spins");
    let spin = WaitOverride { policy: WaitPolicy::Spin, bound: None };
    server.peer(2).unwrap().session().set_wait_override(Some(spin));
    // The serving thread reads overrides when a peer comes.
    let events = server.events();
    clients.push(Client::start(PEERS + 2, &server.listening()[0].to_string()));
    until_up(&events, 1);
    until("the serving thread spins", || server.status().serves.contains("spin"));
    clients.iter().for_each(|client| add(&client.server));
    // Longer than the liveness limit, within which heartbeats have to be received.
    pause(Duration::from_millis(4_000));
    clients.iter().for_each(|client| add(&client.server));
    assert_eq!(events.try_next(), None, "a resting peer was taken for silent");
}
