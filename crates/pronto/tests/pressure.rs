//! The pressure of a sender arrives with its messages, if both nodes want that.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pronto::{Builder, Config, Message, Node, NodeId, Peer, Pressure, WaitPolicy};
use pronto_sync::atomic::{AtomicU16, Ordering};

const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Message, Debug)]
#[message(name = "pressure.echo", reply = Echoed)]
struct Echo {
    bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "pressure.echoed")]
struct Echoed {
    bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "pressure.note")]
struct Note {
    bytes: Vec<u8>,
}

/// Payloads of every form: inline, copied, in send memory of either transport.
const LENGTHS: [usize; 4] = [4, 150, 4_000, 60_000];

/// Returns an address to listen at, a different one each time.
fn listen(transport: &str) -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    match transport {
        "shm" => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            format!("shm:@pronto-pressure-{}-{number}", std::process::id())
        }
        _ => "tcp:127.0.0.1:0".to_owned(),
    }
}

fn server(builder: Builder, transport: &str) -> (Node, String) {
    let node = builder
        .listen(&listen(transport))
        .handle(|_, echo: Echo| Echoed { bytes: echo.bytes })
        .on(|_, note: Note| drop(note))
        .start()
        .unwrap();
    let address = node.listening()[0].to_string();
    (node, address)
}

fn client(builder: Builder, address: &str) -> (Node, Peer) {
    let node = builder.wait(WaitPolicy::Block).peer(1, address).start().unwrap();
    let peer = node.wait_for_peer(1, TIMEOUT).unwrap();
    (node, peer)
}

/// Evaluates `holds` until it is true.
fn until(mut holds: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a wait is limited by time, not by a number of attempts")]
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "never");
        std::thread::yield_now();
    }
}

/// Sets the pressure of a node, and sends messages until they arrive with it. The first ones may leave while another thread of the node holds
/// the connection.
fn settled(node: &Node, pressure: Pressure, other: &Node, mut send: impl FnMut()) {
    other.take_pressure();
    until(|| {
        node.set_pressure(pressure);
        send();
        other.take_pressure() == pressure
    });
}

fn echo(peer: &Peer, len: usize) {
    let bytes = vec![7; len];
    assert_eq!(peer.call(&Echo { bytes: bytes.clone() }).unwrap().bytes, bytes);
}

/// Shows: protocol.pressure, operations.coschedule-headers
#[test]
fn the_pressure_of_a_sender_arrives_with_its_messages() {
    for transport in ["shm", "tcp"] {
        let (callee, address) = server(Node::builder(1).carry_pressure(), transport);
        let (caller, peer) = client(Node::builder(2).carry_pressure(), &address);
        echo(&peer, 4);
        assert_eq!((callee.take_pressure(), caller.take_pressure()), (Pressure::NONE, Pressure::NONE));
        for len in LENGTHS {
            // In requests.
            settled(&caller, Pressure::of(20), &callee, || echo(&peer, len));
            assert_eq!(callee.take_pressure(), Pressure::NONE, "it was taken");
            assert_eq!(caller.take_pressure(), Pressure::NONE, "the callee has none");
            // In responses, while requests have none.
            settled(&caller, Pressure::NONE, &callee, || echo(&peer, len));
            settled(&callee, Pressure::MOST, &caller, || echo(&peer, len));
            assert_eq!(callee.take_pressure(), Pressure::NONE);
            settled(&callee, Pressure::NONE, &caller, || echo(&peer, len));
            // In notifications, of which nothing returns.
            settled(&caller, Pressure::of(2), &callee, || echo(&peer, 4));
            callee.take_pressure();
            peer.notify(&Note { bytes: vec![1; len] }).unwrap();
            until(|| callee.take_pressure() == Pressure::of(2));
            settled(&caller, Pressure::NONE, &callee, || echo(&peer, 4));
        }
    }
}

/// Shows: protocol.pressure, operations.coschedule-off
#[test]
fn a_node_or_a_peer_without_it_sees_none() {
    let config = |policy: &str| {
        let text = format!("node = 1\n[coschedule]\npolicy = \"{policy}\"\n");
        Node::from_config(&Config::parse(&text).unwrap()).unwrap()
    };
    for transport in ["shm", "tcp"] {
        for (policy, caller, arrives) in [
            ("off", Node::builder(2).carry_pressure(), false),
            ("pred", Node::builder(2).carry_pressure(), false),
            ("carried", Node::builder(2), false),
            ("carried", Node::builder(2).carry_pressure(), true),
        ] {
            let (callee, address) = server(config(policy), transport);
            let (caller, peer) = client(caller, &address);
            let (mut of_caller, mut of_callee) = (Pressure::NONE, Pressure::NONE);
            for len in LENGTHS.repeat(4) {
                callee.set_pressure(Pressure::MOST);
                caller.set_pressure(Pressure::MOST);
                echo(&peer, len);
                of_caller = of_caller.max(callee.take_pressure());
                of_callee = of_callee.max(caller.take_pressure());
            }
            let expected = if arrives { Pressure::MOST } else { Pressure::NONE };
            assert_eq!((of_caller, of_callee), (expected, expected), "{policy}");
            let status = callee.status();
            let of_peer = status.peers.iter().find(|peer| peer.node == NodeId(2)).unwrap();
            assert!(of_peer.counters.contains(&("corrupt_peers", 0)), "{:?}", of_peer.counters);
        }
    }
}

/// A pressure that was set before there is a session is in its first message.
#[test]
fn a_new_session_begins_with_the_pressure_of_its_node() {
    for transport in ["shm", "tcp"] {
        let (callee, address) = server(Node::builder(1).carry_pressure(), transport);
        callee.set_pressure(Pressure::of(4));
        let (caller, peer) = client(Node::builder(2).carry_pressure(), &address);
        echo(&peer, 4);
        assert_eq!(caller.take_pressure(), Pressure::of(4), "{transport}");
    }
}

/// Shows: operations.coschedule-headers
#[test]
fn messages_in_hand_are_counted() {
    let (callee, address) = server(Node::builder(1), "shm");
    let (caller, peer) = client(Node::builder(2), &address);
    assert_eq!((caller.messages(), callee.messages()), (0, 0));
    let pending: Vec<_> = (0..3).map(|_| peer.start(&Echo { bytes: vec![1] }).unwrap()).collect();
    assert_eq!(caller.messages(), 3);
    for call in pending {
        call.wait().unwrap();
    }
    assert_eq!(caller.messages(), 0);
}

/// Shows: operations.coschedule-headers
#[test]
fn messages_whose_handlers_run_or_wait_are_counted() {
    let gate = Arc::new(Mutex::new(()));
    let of_handlers = Arc::clone(&gate);
    let callee = Node::builder(1)
        .listen(&listen("shm"))
        .handle(move |_, echo: Echo| {
            drop(of_handlers.lock().unwrap());
            Echoed { bytes: echo.bytes }
        })
        .start()
        .unwrap();
    let (caller, peer) = client(Node::builder(2), &callee.listening()[0].to_string());
    let closed = gate.lock().unwrap();
    let pending: Vec<_> = (0..3).map(|_| peer.start(&Echo { bytes: vec![1] }).unwrap()).collect();
    until(|| callee.messages() == 3);
    assert_eq!(caller.messages(), 3);
    drop(closed);
    for call in pending {
        call.wait().unwrap();
    }
    // A handler runs until after its reply.
    until(|| callee.messages() == 0);
}
