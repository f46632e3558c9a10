//! Peers that receive nothing, and more calls than there is room for: back-pressure is reported by value, and other peers are not delayed.

use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use pronto::{CallError, CallRejection, Class, Event, Node, NodeId, SendError, WaitPolicy};

use crate::raw::Raw;
use crate::rig::{
    Add, Fetch, Sum, TIMEOUT, TRANSPORTS, Work, add, address, all, assert_all_released, client, counter,
    event, shared_run, started, until,
};

/// Starts a node whose `Work` handler blocks until the sender is dropped.
fn stuck(id: u16, transport: &str, name: &str) -> (Node, Sender<()>) {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let node = Node::builder(id)
        .wait(WaitPolicy::Block)
        .listen(&address(transport, name))
        .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
        .handle(move |_, work: Work| {
            let _released = released.lock().unwrap().recv();
            Sum { total: work.key }
        })
        .start()
        .unwrap();
    (node, release)
}

/// Shows: calls.start-fails, operations.slow-handlers
#[test]
fn a_slow_receiver_refuses_by_value() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (slow, release) = stuck(1, transport, "slow");
        let (_other, address) = started(3, transport, "fast");
        let caller = Node::builder(2)
            .wait(WaitPolicy::Block)
            .peer(1, &slow.listening()[0].to_string())
            .peer(3, &address)
            .start()
            .unwrap();
        let (peer, fast) =
            (caller.wait_for_peer(1, TIMEOUT).unwrap(), caller.wait_for_peer(3, TIMEOUT).unwrap());
        let mut pending = Vec::new();
        let refused = loop {
            match peer.start(&Work { key: pending.len() as u64 }) {
                Ok(call) => pending.push(call),
                Err(error) => break error,
            }
            assert!(pending.len() < 10_000, "no call was refused");
        };
        let CallError::Rejected(CallRejection::Here(reason)) = refused else { panic!("{refused:?}") };
        assert!(matches!(reason, SendError::NoCallSlot { .. } | SendError::NoCredit { .. }), "{reason:?}");
        assert!(refused.is_retryable() && reason.is_retryable());
        // A call that may wait for room waits no longer than its deadline.
        assert!(peer.call_within(&Work { key: 0 }, Duration::from_millis(50)).is_err());
        // Another peer is not delayed.
        for _ in 0..100 {
            add(&fast);
        }
        drop(release);
        for (key, call) in (0..).zip(pending) {
            assert_eq!(call.wait().unwrap().total, key);
        }
        assert_all_released(&caller, &peer);
    }
}

/// Shows: calls.notify-fails, protocol.credit-requests, operations.slow-handlers
#[test]
fn notifications_run_out_of_credit() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (slow, release) = stuck(1, transport, "credit");
        let (caller, peer) = client(2, &slow.listening()[0].to_string());
        let refused = (0..10_000).find_map(|key| peer.notify(&Work { key }).err());
        let expected = SendError::NoCredit { class: Class::Control };
        assert_eq!(refused, Some(CallError::Rejected(CallRejection::Here(expected))));
        drop(release);
        until("credits come back", || caller.status().peers[0].credits[0] > 32);
        add(&peer);
    }
}

#[test]
fn a_peer_that_receives_no_reply_delays_no_other_peer() {
    let _shared = shared_run();
    // Only these events count: the server may report its client as up later than the client its server.
    let ends_9 = |event: &Event| {
        matches!(event, Event::PeerDown { peer: NodeId(9), .. } | Event::LinkLost { peer: NodeId(9), .. })
    };
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "takes-none");
        let (_good, peer) = client(2, &address);
        let events = node.events();
        let mut raw = Raw::greet(9, &address);
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerUp(info) if info.peer == NodeId(9)));
        // The peer requests as many large replies as it may without a larger window, and receives none of them.
        let slots = raw.agreement.peer_windows[0].requests;
        for slot in 0..slots {
            let request = raw.request::<Fetch>(slot, 1);
            raw.post(Class::Control, request, &(4_u32 << 20).wrapping_sub(64).to_le_bytes()).unwrap();
        }
        until("the requests have arrived", || counter(&node, 9, "messages_received") >= slots.into());
        add(&peer);
        let ended: Vec<_> = all(&events).into_iter().filter(ends_9).collect();
        assert_eq!(ended, [], "the call has waited for the end of the other peer");
        for _ in 0..200 {
            add(&peer);
        }
        assert_eq!(peer.call(&Fetch { len: 100_000 }).unwrap().bytes.len(), 100_000);
        assert_eq!(counter(&node, 9, "corrupt_peers"), 0);
        drop(raw);
        event(&events, TIMEOUT, ends_9);
        add(&peer);
    }
}
