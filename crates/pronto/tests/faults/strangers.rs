//! Strangers at a TCP port or a socket: the node refuses them with a reason, and a good peer is not affected.

use core::time::Duration;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket};
use pronto::{Epoch, Node, NodeId};
use pronto_core::session::{Identity, Limits, greet};
use pronto_wire::{Greeting, GreetingFault, GreetingRefusal};

use crate::rig::{Watch, add, client, exclusive_run, refused, shared_run, started, until};

/// First bytes of a connection that begins a handshake.
const FIRST: &[u8; 8] = b"pronto\x031";

fn stranger(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    stream
}

fn greeting(node: u16, target: u16) -> Greeting {
    let me = Identity { node: NodeId(node), epoch: Epoch(9), name: String::new(), types: Vec::new() };
    greet(&me, &Limits::default(), NodeId(target), None)
}

/// Sends a greeting over a raw connection and returns the reply.
fn verdict(address: &str, blob: &[u8]) -> Result<Greeting, GreetingFault> {
    let mut stream = stranger(address);
    stream.write_all(FIRST).unwrap();
    stream.write_all(&u32::try_from(blob.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(blob).unwrap();
    let mut reply = Vec::new();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    reply.resize(u32::from_le_bytes(head[8..].try_into().unwrap()) as usize, 0);
    stream.read_exact(&mut reply).unwrap();
    Greeting::decode(&reply)
}

/// Asserts that the other side closes the connection.
fn assert_dropped(mut stream: TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

fn wait_refused(node: &Node, reason: &str, count: u64) {
    until(reason, || refused(node, reason) >= count);
}

/// Shows: operations.refusals, operations.not-pronto
#[test]
fn garbage_is_refused_and_counted() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "garbage");
    let (_good, peer) = client(2, &address);
    for garbage in [&[0xa5; 4096][..], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"pronto\x011padding"] {
        let mut stream = stranger(&address);
        stream.write_all(garbage).unwrap();
        assert_dropped(stream);
        add(&peer);
    }
    wait_refused(&node, "not_pronto", 3);

    let mut truncated = stranger(&address);
    let blob = greeting(7, 1).encode();
    truncated.write_all(&[FIRST, &90_u32.to_le_bytes()[..], &blob[..20]].concat()).unwrap();
    drop(truncated);
    wait_refused(&node, "broken", 1);

    let mut oversized = stranger(&address);
    oversized.write_all(&[FIRST, &u32::MAX.to_le_bytes()[..]].concat()).unwrap();
    assert_dropped(oversized);
    wait_refused(&node, "oversized", 1);

    let mut unasked = stranger(&address);
    unasked.write_all(&[&b"pronto\x032"[..], &[3; 16]].concat()).unwrap();
    assert_dropped(unasked);
    wait_refused(&node, "unknown_token", 1);
    add(&peer);
}

/// Shows: protocol.greeting, protocol.versions, operations.same-id, operations.wrong-node, operations.version, operations.not-pronto
#[test]
fn invalid_greetings_are_refused_with_a_reason() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "greetings");
    let (_good, peer) = client(2, &address);
    let refusals = [
        (greeting(7, 3), GreetingRefusal::WrongNode, "wrong_node"),
        (greeting(1, 1), GreetingRefusal::SameId, "same_id"),
        (Greeting { versions: (40, 41), ..greeting(7, 1) }, GreetingRefusal::Version, "version"),
        (greeting(2, 1), GreetingRefusal::IdTaken, "id_taken"),
    ];
    for (blob, expected, reason) in refusals {
        assert_eq!(
            verdict(&address, &blob.encode()),
            Err(GreetingFault::Refused { refusal: expected, by: NodeId(1) })
        );
        wait_refused(&node, reason, 1);
        add(&peer);
    }
    let mut cut_short = greeting(7, 1).encode();
    cut_short.pop();
    assert_eq!(
        verdict(&address, &cut_short),
        Err(GreetingFault::Refused { refusal: GreetingRefusal::Malformed, by: NodeId(1) })
    );
    wait_refused(&node, "malformed_greeting", 1);
    // None of these greetings left a peer entry, and the good peer was not affected.
    assert!(node.status().peers.iter().all(|known| known.node == NodeId(2)));
    add(&peer);
}

/// Shows: protocol.duplicate
#[test]
fn a_replayed_byte_stream_makes_no_second_link() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "replay");
    let recorder = crate::proxy::Proxy::to(&address);
    let (good, peer) = client(2, &recorder.address());
    add(&peer);
    // The bytes of the dialler on its first connection: preamble, greeting, and the messages that followed.
    let recorded = recorder.first_bytes();
    assert!(recorded.starts_with(FIRST) && recorded.len() > 100, "{} bytes", recorded.len());
    let mut replayed = stranger(&address);
    replayed.write_all(&recorded).unwrap();
    assert_dropped(replayed);
    until("the replay is refused", || refused(&node, "duplicate") + refused(&node, "id_taken") >= 1);
    add(&peer);

    // The replay also fails after the original peer has left, because the token of the second connection cannot be replayed.
    drop((good, peer));
    until("the peer has left", || node.status().peers.iter().all(|known| !known.linked));
    let mut replayed = stranger(&address);
    replayed.write_all(&recorded).unwrap();
    until("the handshake is not completed", || refused(&node, "silent") + refused(&node, "broken") >= 1);
    assert!(node.status().peers.iter().all(|known| !known.linked));
}

/// Shows: operations.no-answer, operations.crowded
#[test]
fn silent_strangers_time_out_and_excess_ones_are_refused() {
    let _shared = shared_run();
    let (node, address) = started(1, "tcp", "silence");
    let (_good, peer) = client(2, &address);
    let half_open: Vec<_> = (0..200).map(|_| stranger(&address)).collect();
    // Calls of the good peer succeed all the time.
    until("some are refused immediately", || {
        add(&peer);
        refused(&node, "crowded") >= 100
    });
    for stream in half_open {
        assert_dropped(stream);
    }
    until("the silent ones are counted", || refused(&node, "silent") >= 16);
    until("all 200 are counted", || refused(&node, "silent") + refused(&node, "crowded") >= 200);
    add(&peer);
    // A new peer can connect.
    let (_another, peer) = client(3, &address);
    add(&peer);
}

/// More connections than handshake slots. They send nothing, or begin a handshake and send no more.
#[test]
fn idle_strangers_do_not_block_a_peer() {
    let _shared = shared_run();
    for words in [&b""[..], FIRST] {
        let (node, address) = started(1, "tcp", "idle");
        let idle: Vec<_> = (0..64)
            .map(|_| {
                let mut stream = stranger(&address);
                // Fails if the connection has lost its slot and is already closed.
                let _closed = stream.write_all(words);
                stream
            })
            .collect();
        until("all handshake slots are in use", || refused(&node, "crowded") >= 32);
        let (_client, peer) = client(3, &address);
        add(&peer);
        // Connections that do not say what they want end after half a second anyway.
        let waited = refused(&node, "silent") != 0 && !words.is_empty();
        assert!(!waited, "the peer had to wait until a stranger timed out");
        drop(idle);
    }
}

/// Connects to the abstract name of a node.
fn dialled(address: &str) -> OwnedFd {
    let name = UnixAddr::new_abstract(address.strip_prefix("shm:@").unwrap().as_bytes()).unwrap();
    let made = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(made.as_raw_fd(), &name).unwrap();
    made
}

/// A process of the same user connects over shared memory and sends nothing, or the length of a greeting and no more.
///
/// Shows: operations.first-bytes
#[test]
fn a_silent_connection_over_shared_memory_ends_as_soon_as_one_over_tcp() {
    // Alone, because it measures time.
    let _alone = exclusive_run();
    let (node, address) = started(1, "shm", "first-bytes");
    let watch = Watch::start();
    let slow = dialled(&address);
    send(slow.as_raw_fd(), &90_u32.to_le_bytes(), MsgFlags::empty()).unwrap();
    let silent = dialled(&address);
    assert_eq!(recv(silent.as_raw_fd(), &mut [0], MsgFlags::empty()), Ok(0), "the node closes it");
    let passed = watch.passed();
    assert!((Duration::from_millis(400)..Duration::from_secs(3)).contains(&passed), "{passed:?}");
    wait_refused(&node, "silent", 1);
    let still = recv(slow.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT);
    assert_eq!(still, Err(Errno::EAGAIN), "it may take the time of a whole handshake");
    let (_good, peer) = client(2, &address);
    add(&peer);
}
