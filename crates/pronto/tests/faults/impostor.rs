//! Strangers that use the id of another node, or what they have read of its session. Each attack comes from another address than the node.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::channel;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use pronto::admin::WaitingRequest;
use pronto::{Class, Epoch, Node, NodeId, WaitPolicy};
use pronto_core::fabric::poll_by_value;
use pronto_core::session::{Authenticated, Identity, Limits, agree, greet};
use pronto_fabric_tcp as tcp;
use pronto_wire::greeting::MAX_GREETING;
use pronto_wire::{Greeting, GreetingFault, GreetingRefusal, SessionId};

use crate::raw::Raw;
use crate::rig::{TIMEOUT, add, client, counter, refused, server, shared_run, started, until};

/// First bytes of a connection that begins a handshake.
const FIRST: &[u8; 8] = b"pronto\x031";
/// Another loopback address than the one that a connection has by default.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Connects to an address from another address of this host.
pub(crate) fn connected(from: Ipv4Addr, address: &str) -> TcpStream {
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let at = |ip: Ipv4Addr, port| {
        let [a, b, c, d] = ip.octets();
        SockaddrIn::new(a, b, c, d, port)
    };
    bind(made.as_raw_fd(), &at(from, 0)).unwrap();
    connect(made.as_raw_fd(), &at(Ipv4Addr::LOCALHOST, port)).unwrap();
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    stream
}

fn identity(id: u16, epoch: Epoch) -> Identity {
    Identity { node: NodeId(id), epoch, name: String::new(), types: Vec::new() }
}

/// Greets node 1 as node `id` from an address, and does not wait for the reply.
fn greeted(
    from: Ipv4Addr,
    address: &str,
    (id, epoch): (u16, Epoch),
    session: Option<SessionId>,
) -> TcpStream {
    let blob = greet(&identity(id, epoch), &Limits::default(), NodeId(1), session).encode();
    let mut stream = connected(from, address);
    stream.write_all(FIRST).unwrap();
    stream.write_all(&u32::try_from(blob.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(&blob).unwrap();
    stream
}

/// Greets node 1 as node `id` from an address, and returns the reply.
fn verdict(
    from: Ipv4Addr,
    address: &str,
    node: (u16, Epoch),
    session: Option<SessionId>,
) -> Result<Greeting, GreetingFault> {
    let mut stream = greeted(from, address, node, session);
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let mut reply = vec![0; u32::from_le_bytes(head[8..].try_into().unwrap()) as usize];
    stream.read_exact(&mut reply).unwrap();
    Greeting::decode(&reply)
}

fn refuses(found: &Result<Greeting, GreetingFault>, refusal: GreetingRefusal) {
    assert_eq!(found.as_ref().err(), Some(&GreetingFault::Refused { refusal, by: NodeId(1) }));
}

fn is_duplicate(found: &Result<Greeting, GreetingFault>) -> bool {
    matches!(found, Err(GreetingFault::Refused { refusal: GreetingRefusal::Duplicate, .. }))
}

/// Shows: operations.from
#[test]
fn the_id_of_a_configured_peer_is_accepted_from_its_networks_only() {
    let _shared = shared_run();
    // Node 2 listens nowhere. Its connections come from 127.0.0.1.
    let node = server(1, "tcp:127.0.0.1:0").peer_from(2, "127.0.0.1").start().unwrap();
    let address = node.listening()[0].to_string();
    let attack = || verdict(ELSEWHERE, &address, (2, Epoch(9)), None);
    refuses(&attack(), GreetingRefusal::NotPermitted);
    until("the refusal is counted", || refused(&node, "not_permitted") == 1);
    assert!(!node.status().peers.iter().any(|peer| peer.linked));
    // The stranger had the id of node 2 first, and does not keep it.
    let (_real, peer) = client(2, &address);
    add(&peer);
    refuses(&attack(), GreetingRefusal::NotPermitted);
    add(&peer);
    // A node that is not configured may connect from anywhere.
    assert!(verdict(ELSEWHERE, &address, (7, Epoch(9)), None).is_ok());
}

/// A stranger has read the greetings of a link, which are not encrypted.
///
/// Shows: operations.link-source, protocol.session-source
#[test]
fn a_link_that_works_is_not_replaced_from_another_address() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "stolen");
    let mut raw = Raw::greet(9, &address);
    until("the link is up", || node.status().peers.iter().any(|peer| peer.linked));
    let read = Some(raw.agreement.session);
    // The attempt that made the link may end a moment after the link is seen, and has refused other greetings as duplicates until then.
    let mut found = None;
    until("the attempt is over", || {
        let verdict = verdict(ELSEWHERE, &address, (9, Epoch(77)), read);
        let is_over = !is_duplicate(&verdict);
        found = Some(verdict);
        is_over
    });
    refuses(&found.unwrap(), GreetingRefusal::NotPermitted);
    raw.assert_works();
    assert!(node.status().peers.iter().any(|peer| peer.node == NodeId(9) && peer.linked));
    // The peer itself may have lost the link without this node noticing.
    let resumed = verdict(Ipv4Addr::LOCALHOST, &address, (9, Epoch(77)), read).expect("it is the peer");
    assert_eq!(resumed.session, read);
}

/// A stranger listens where the configuration expects node 2, and answers when node 2 has made a link itself.
///
/// Shows: operations.link-source
#[test]
fn a_dialled_link_does_not_replace_one_that_the_peer_has_made() {
    let _shared = shared_run();
    let listener = Arc::new(tcp::Listener::bind("127.0.0.1:0", tcp::Options::default()).unwrap());
    let there = format!("tcp:{}", listener.local_addr().unwrap());
    let (dialled, is_dialled) = channel();
    let (linked, is_linked) = channel();
    let stranger = std::thread::spawn(move || {
        let mut handshake = listener.accept().unwrap().begin(TIMEOUT).unwrap().unwrap();
        let theirs = Greeting::decode(&handshake.receive(MAX_GREETING).unwrap()).unwrap();
        dialled.send(()).unwrap();
        is_linked.recv_timeout(TIMEOUT).unwrap();
        let (me, limits) = (identity(2, Epoch(9)), Limits::default());
        let session = SessionId(5);
        handshake.send(&greet(&me, &limits, NodeId(1), Some(session)).encode()).unwrap();
        let agreement = agree(&me, &limits, Authenticated::claimed(theirs), session, None).unwrap();
        // The second connection of the link.
        let second = std::thread::spawn(move || listener.accept().unwrap().begin(TIMEOUT));
        let pool = tcp::ReceivePool::new(64 << 20).unwrap();
        let link = handshake.establish(Class::ALL.map(|class| agreement.connection(class)), &pool);
        assert!(second.join().unwrap().is_ok_and(|handshake| handshake.is_none()));
        let mut link = link.expect("the node has taken the stranger for node 2");
        // The node drops the link instead of installing it.
        until("the stranger's link is closed", || {
            poll_by_value(&mut link.control).is_err() || poll_by_value(&mut link.bulk).is_err()
        });
    });
    let node = server(1, "tcp:127.0.0.1:0").peer(2, &there).start().unwrap();
    let address = node.listening()[0].to_string();
    is_dialled.recv_timeout(TIMEOUT).expect("the node dials the stranger");
    let (_two, peer) = client(2, &address);
    add(&peer);
    linked.send(()).unwrap();
    stranger.join().unwrap();
    add(&peer);
    assert_eq!(counter(&node, 2, "links_lost"), 0);
}

/// A good greeting proves nothing, so that a stranger can send any number.
///
/// Shows: operations.crowded
#[test]
fn strangers_with_good_greetings_do_not_block_a_configured_peer() {
    let _shared = shared_run();
    let node = server(1, "tcp:127.0.0.1:0").peer_from(3, "127.0.0.1").start().unwrap();
    let address = node.listening()[0].to_string();
    let mut id = 100;
    let mut held = Vec::new();
    let mut attack = || {
        id += 1;
        held.push(greeted(ELSEWHERE, &address, (id, Epoch(9)), None));
    };
    until("strangers have all places that they can have", || {
        attack();
        refused(&node, "crowded") > 0
    });
    (0..48).for_each(|_| attack());
    let (peers_node, peer) = client(3, &address);
    add(&peer);
    assert_eq!(peers_node.status().failed_dials, [], "the peer had to dial again");
}

/// On one host every user reaches a loopback address. A rule does not change that.
///
/// Shows: operations.own-user
#[test]
fn only_a_process_of_the_same_user_over_shared_memory_changes_waits() {
    let _shared = shared_run();
    let shm = crate::rig::address("shm", "waiting");
    let rule = (&["anyone"], &["faults.*", "pronto.waiting"]);
    let node = server(1, &shm).listen("tcp:127.0.0.1:0").allow(rule.0, rule.1).start().unwrap();
    let tcp = node.listening()[1].to_string();
    let request = WaitingRequest { peer: 2, policy: Some("spin".into()), bound_ns: None };
    let asks = |id: u16, address: &str| {
        let asker = Node::builder(id).wait(WaitPolicy::Block).peer(1, address).start().unwrap();
        let peer = asker.wait_for_peer(1, TIMEOUT).unwrap();
        peer.call(&request).unwrap().refused
    };
    let (_two, peer) = client(2, &tcp);
    let refusal = asks(3, &tcp).expect("a process over TCP may be anybody's");
    assert!(refusal.contains("own user"), "{refusal}");
    assert_eq!(asks(4, &shm), None, "the kernel knows the user of this process");
    add(&peer);
}
