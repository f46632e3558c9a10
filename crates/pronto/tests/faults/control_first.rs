//! Control never queues behind bulk on its way: bulk messages that wait for room, for memory of the receiver or for work slots
//! delay no control message.

use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use pronto::{Class, Limits, Message, Node, Peer, WaitPolicy};
use pronto_wire::Kind;

use crate::raw::Raw;
use crate::rig::{Add, Sum, TIMEOUT, TRANSPORTS, address, counter, pause, server, shared_run};

/// A bulk notification for one lane, whose handler waits until the test lets it go.
#[derive(Message, Debug)]
#[message(name = "faults.heap", class = bulk, order = ordered)]
struct Heap {
    bytes: Vec<u8>,
}

/// A control request that is too long to be copied into a message line.
fn long() -> Add {
    Add { values: vec![1; 500] }
}

/// Calls in every way a control message can be sent.
fn assert_control_passes(peer: &Peer) {
    assert_eq!(peer.call(&Add { values: vec![1, 2] }).unwrap().total, 3, "inline");
    assert_eq!(peer.call(&Add { values: vec![1; 20] }).unwrap().total, 20, "next to the line");
    assert_eq!(peer.call(&long()).unwrap().total, 500, "in send memory");
    peer.notify_sync(&long(), TIMEOUT).unwrap();
}

/// Sends bulk messages until there is no room for more, at most `most`. Returns their number. There is room for at least `least`.
fn fill(peer: &Peer, message: &impl Message, least: u16, most: u16) -> u16 {
    let (mut sent, mut refused) = (0, 0);
    // A refusal may be short: another thread holds the engine, or the peer takes private copies. On a busy machine that takes a while.
    while sent < most && refused < if sent < least { 10_000 } else { 20 } {
        if peer.notify(message).is_ok() {
            (sent, refused) = (sent + 1, 0);
        } else {
            refused += 1;
            pause(Duration::from_millis(2));
        }
    }
    sent
}

/// As many bulk messages as limits allow are held by the callee, and more wait at the caller.
///
/// Shows: protocol.order-classes, operations.backlogged, messages.control-first
#[test]
fn held_bulk_messages_leave_work_slots_for_control() {
    let _shared = shared_run();
    const HELD: u16 = 1_024;
    const LEN: usize = 40_000;
    for transport in TRANSPORTS {
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let limits =
            Limits { requests: [64, HELD], first_requests: [64, HELD], calls: HELD, ..Limits::default() };
        let node = server(1, &address(transport, "held-bulk"))
            .limits(limits)
            .on(move |_, heap: Heap| {
                let _open = gate.lock().unwrap().recv();
                assert_eq!(heap.bytes.len(), LEN);
            })
            .start()
            .unwrap();
        let listening = node.listening()[0].to_string();
        let send_memory = [8 << 20, 256 << 20];
        let caller = Node::builder(2)
            .wait(WaitPolicy::Block)
            .limits(Limits { send_memory, ..limits })
            .peer(1, &listening)
            .start()
            .unwrap();
        let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
        let heap = Heap { bytes: vec![9; LEN] };
        let sent = fill(&peer, &heap, 257, HELD);
        assert!(sent > 256, "{transport}: only {sent} bulk messages were sent");
        if transport == "shm" {
            assert!(counter(&caller, 1, "backlogged") > 0, "no bulk message waits for a work slot");
        }
        assert_control_passes(&peer);
        drop(go);
    }
}

/// An [`Add`] in class bulk: the class is no part of a type's identity, so that the raw peer handles it.
#[derive(Message, Debug)]
#[message(name = "faults.add", class = bulk, reply = Sum)]
struct AddBulk {
    values: Vec<u64>,
}

/// The peer reads nothing from its bulk connection, until the node has no more room for bulk messages.
///
/// Shows: protocol.order-classes, messages.control-first, messages.not-in-layout
#[test]
fn a_stalled_bulk_connection_does_not_delay_control() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "stalled-bulk")).start().unwrap();
        let mut raw = Raw::greet(9, &node.listening()[0].to_string());
        let peer = node.wait_for_peer(9, TIMEOUT).unwrap();
        let heap = AddBulk { values: vec![1; 400_000] };
        let sent = fill(&peer, &heap, 1, u16::MAX);
        assert!((1..u16::MAX).contains(&sent), "{transport}: {sent} bulk messages were sent");
        let caller = std::thread::spawn(move || peer.call(&long()).map(|sum| sum.total));
        let (header, _) = raw.receive(Class::Control);
        let Kind::Request { call, .. } = header.kind else { panic!("{header:?}") };
        raw.post(Class::Control, Kind::Reply { call }, &500_u64.to_le_bytes()).unwrap();
        assert_eq!(caller.join().unwrap().unwrap(), 500, "{transport}");
    }
}
