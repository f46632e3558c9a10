//! Ten thousand connections of strangers, of every kind, while a peer calls.

use core::net::Ipv4Addr;
use std::io::Write;
use std::net::{Shutdown, TcpStream};

use pronto::credentials::rustls::ClientConnection;
use pronto::credentials::{Credentials, server_name};
use pronto::{Builder, Epoch, Node, NodeId};
use pronto_core::session::{Identity, Limits, greet};
use pronto_sync::atomic::{AtomicBool, Ordering};

use crate::impostor::connected;
use crate::rig::{TIMEOUT, add, counter, event, exclusive_run, refused, server, until};
use crate::secured::{Authorized, dialling};

const CONNECTIONS: usize = 10_000;
/// Threads that make connections, each from an address of its own.
const STRANGERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
/// Connections that a thread keeps open.
const HELD: usize = 40;

/// Returns the first bytes of a connection that asks for a link as a node.
fn greeting(id: u16) -> Vec<u8> {
    let me = Identity { node: NodeId(id), epoch: Epoch(9), name: String::new(), types: Vec::new() };
    let blob = greet(&me, &Limits::default(), NodeId(1), None).encode();
    [b"pronto\x031", &u32::try_from(blob.len()).unwrap().to_le_bytes()[..], &blob].concat()
}

/// Returns the first bytes of a TLS handshake that a stranger begins well, for which a node computes most.
fn client_hello() -> Vec<u8> {
    let stranger = Authorized::new();
    let config = Credentials::load(&stranger.node(9), NodeId(9)).unwrap().client();
    let mut tls = ClientConnection::new(config, server_name()).unwrap();
    let mut bytes = b"pronto\x033".to_vec();
    tls.write_tls(&mut bytes).unwrap();
    bytes
}

/// Returns the bytes that a connection sends, by its number.
fn bytes(number: usize, client_hello: &[u8]) -> Vec<u8> {
    match number % 11 {
        0 => Vec::new(),
        1 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        2 => b"pronto".to_vec(),
        3 => [&b"pronto\x032"[..], &[7; 16]].concat(),
        4 => [&b"pronto\x031"[..], &u32::MAX.to_le_bytes()].concat(),
        5 => greeting(1000 + u16::try_from(number % 5_000).unwrap()),
        // The ids of the configured peer, and of the node itself.
        6 => greeting(2),
        7 => greeting(1),
        8 => client_hello.to_vec(),
        9 => client_hello[..client_hello.len() / 2].to_vec(),
        _ => [&b"pronto\x033"[..], &[22, 3, 1, 0, 200], &[7; 200]].concat(),
    }
}

fn attack(from: Ipv4Addr, address: &str, connections: usize) {
    let client_hello = client_hello();
    let mut held = std::collections::VecDeque::<TcpStream>::new();
    for number in 0..connections {
        let mut stream = connected(from, address);
        // Fails if the node has refused the connection already.
        let _refused = stream.write_all(&bytes(number, &client_hello));
        held.push_back(stream);
        if held.len() > HELD
            && let Some(oldest) = held.pop_front()
        {
            let _closed = oldest.shutdown(Shutdown::Both);
        }
    }
}

/// Returns the resident memory of this process, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn all_refused(node: &Node) -> u64 {
    node.status().refused.iter().map(|(_, count)| count).sum()
}

/// Shows: operations.crowded, operations.not-pronto
#[test]
fn ten_thousand_hostile_connections_fail_no_call() {
    withstands(
        None,
        &["not_pronto", "unknown_token", "oversized", "not_permitted", "same_id", "crowded", "untrusted"],
    );
}

/// Shows: operations.crowded, operations.untrusted
#[test]
fn ten_thousand_hostile_connections_fail_no_call_over_tls() {
    withstands(Some(&Authorized::new()), &["not_pronto", "crowded", "untrusted"]);
}

/// Starts a node and a peer of it, and checks that calls succeed while strangers connect, and that each is refused for one of the reasons.
fn withstands(world: Option<&Authorized>, reasons: &[&str]) {
    // Alone, because the memory of the process is measured.
    let _alone = exclusive_run();
    let trusted = |id, builder: Builder| match world {
        Some(world) => builder.trust(world.node(id)),
        None => builder,
    };
    let node = trusted(1, server(1, "tcp:127.0.0.1:0").peer_from(2, "127.0.0.1")).start().unwrap();
    let address = node.listening()[0].to_string();
    let client = || {
        let node = trusted(2, dialling(2, &address)).start().unwrap();
        let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
        (node, peer)
    };
    let (good, peer) = client();
    let events = node.events();
    let done = AtomicBool::new(false);
    let before = resident();
    let calls = std::thread::scope(|scope| {
        let strangers = STRANGERS.map(|from| {
            let address = &address;
            scope.spawn(move || attack(from, address, CONNECTIONS / STRANGERS.len()))
        });
        let calls = scope.spawn(|| {
            let mut calls = 0_u64;
            while !done.load(Ordering::Relaxed) {
                add(&peer);
                calls += 1;
            }
            calls
        });
        let joined = strangers.map(|stranger| stranger.join());
        // SYNC: ends the loop of calls; orders nothing.
        done.store(true, Ordering::Relaxed);
        assert!(joined.iter().all(Result::is_ok));
        calls.join().unwrap()
    });
    assert!(calls > 0, "no call was made during the attack");
    // Those that were still in the queue of the socket are refused afterwards. Greetings that were good and not followed by anything end
    // in one of the reasons, too.
    until("every connection is refused", || all_refused(&node) >= CONNECTIONS as u64);
    for reason in reasons {
        assert!(refused(&node, reason) > 0, "no connection was refused as {reason}");
    }
    let status = node.status();
    assert!(status.peers.iter().filter(|peer| peer.linked).all(|peer| peer.node == NodeId(2)));
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 10, "the memory has grown by {grown} KiB");
    assert_eq!(counter(&node, 2, "links_lost"), 0);
    // A new peer is as welcome as before.
    drop(good);
    event(&events, TIMEOUT, |event| matches!(event, pronto::Event::PeerDown { peer: NodeId(2), .. }));
    let (_again, peer) = client();
    add(&peer);
}
