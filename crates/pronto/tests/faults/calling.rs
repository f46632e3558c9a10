//! The ways to send, and their ends: which of them wait for room, which fail immediately, and which errors name a cause.

use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use pronto::{
    CallError, CallRejection, Executed, Limits, Message, Node, NodeId, Peer, Region, Responder, SendError,
};

use crate::rig::{
    Add, Sum, TIMEOUT, TRANSPORTS, Watch, add, address, client, free_address, refused, server, shared_run,
    started, until,
};

/// A request that only the node of one test handles.
#[derive(Message, Debug)]
#[message(name = "faults.ask_source", reply = Source)]
struct AskSource {}

#[derive(Message, Debug)]
#[message(name = "faults.source")]
struct Source {
    of_context: u16,
    of_peer: u16,
}

/// A notification whose handler waits until the test lets it go.
#[derive(Message, Debug)]
#[message(name = "faults.calling_hold", order = ordered)]
struct Hold {}

/// A request to which only the test replies.
#[derive(Message, Debug)]
#[message(name = "faults.calling_silent", reply = Sum)]
struct Silent {}

/// Two types of one name, with different layouts.
mod layouts {
    use super::{Message, Sum};

    #[derive(Message, Debug)]
    #[message(name = "faults.layout", reply = Sum)]
    pub(super) struct Old {
        pub(super) value: u32,
    }

    #[derive(Message, Debug)]
    #[message(name = "faults.layout", reply = Sum)]
    pub(super) struct New {
        pub(super) value: u64,
    }
}

/// A time limit that no wait of these tests comes near.
const LONG: Duration = Duration::from_secs(60);

/// Returns an encoded [`Add`] in a region, and its length.
fn encoded_add() -> (Region, u64) {
    let mut bytes = [0; 20];
    let len = pronto::rpc::encode_message(&Add { values: vec![1, 2] }, &mut bytes).unwrap();
    let region = pronto::region(4_096).unwrap();
    region.write(0, &bytes).unwrap();
    (region, len as u64)
}

/// Sends a message in every way, also from a region with an encoded one. Returns the outcomes, none of which may have waited.
fn all_ways<M: pronto::Request>(
    peer: &Peer,
    message: &M,
    region: &Region,
    len: u64,
) -> [Result<(), CallError>; 7] {
    let watch = Watch::start();
    let outcomes = [
        peer.call_within(message, LONG).map(drop),
        peer.notify_within(message, LONG),
        peer.start(message).map(drop),
        peer.start_within(message, LONG).map(drop),
        peer.notify(message),
        peer.start_from::<M>(region, 0..len).map(drop),
        peer.notify_from::<M>(region, 0..len),
    ];
    assert!(watch.passed() < LONG / 2, "a way to send has waited");
    outcomes
}

/// Shows: calls.call-fails, calls.notify-within-fails, calls.not-connected, calls.no-handler
#[test]
fn all_ways_to_send_fail_immediately_without_a_peer_or_a_handler() {
    let _shared = shared_run();
    let (region, len) = encoded_add();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "calling-down");
        let (_caller, peer) = client(2, &address);
        for outcome in all_ways(&peer, &AskSource {}, &region, 0) {
            let error = outcome.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("no handler for messages of type `faults.ask_source`"), "{text}");
            let expected =
                matches!(error, CallError::Rejected(CallRejection::Here(SendError::NoHandler { .. })));
            assert!(expected && !error.is_retryable(), "{transport}: {error:?}");
        }
        drop(node);
        until("the peer is down", || !peer.is_up());
        for outcome in all_ways(&peer, &Add { values: vec![1, 2] }, &region, len) {
            let error = outcome.unwrap_err();
            let expected =
                matches!(error, CallError::Rejected(CallRejection::Here(SendError::NotConnected { .. })));
            assert!(expected && error.executed() == Executed::No, "{transport}: {error:?}");
        }
    }
}

/// Starts a node whose handler of [`Hold`] waits until the sender is dropped, and whose window does not grow.
fn holding(transport: &str, name: &str) -> (Node, Sender<()>) {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let limits = Limits::default();
    let node = server(1, &address(transport, name))
        .limits(Limits { requests: limits.first_requests, ..limits })
        .on(move |_, _: Hold| {
            let _released = released.lock().unwrap().recv();
        })
        .start()
        .unwrap();
    (node, release)
}

/// Shows: calls.call, calls.start-fails, calls.notify-fails, calls.notify-within, calls.from-region-fails
#[test]
fn a_call_waits_for_room_and_a_start_does_not() {
    let _shared = shared_run();
    let (region, len) = encoded_add();
    for transport in TRANSPORTS {
        let (node, release) = holding(transport, "calling-room");
        let (_caller, peer) = client(2, &node.listening()[0].to_string());
        while peer.notify(&Hold {}).is_ok() {}
        let message = Add { values: vec![1, 2] };
        let without_room = [
            peer.start(&message).map(drop),
            peer.notify(&message),
            peer.start_from::<Add>(&region, 0..len).map(drop),
            peer.notify_from::<Add>(&region, 0..len),
        ];
        for outcome in without_room {
            let error = outcome.unwrap_err();
            let expected =
                matches!(error, CallError::Rejected(CallRejection::Here(SendError::NoCredit { .. })));
            assert!(expected && error.is_retryable(), "{transport}: {error:?}");
        }
        std::thread::scope(|scope| {
            let called = scope.spawn(|| peer.call_within(&message, TIMEOUT));
            let notified = scope.spawn(|| peer.notify_within(&Hold {}, TIMEOUT));
            assert!(!called.is_finished() && !notified.is_finished(), "{transport}: all credits are taken");
            drop(release);
            assert_eq!(called.join().unwrap().unwrap().total, 3, "{transport}");
            notified.join().unwrap().unwrap();
        });
    }
}

/// Starts a node that hands the responders of [`Silent`] to the test.
fn silent(transport: &str, name: &str) -> (Node, Receiver<Responder<Sum>>) {
    let (hand, handed) = channel();
    let node = server(1, &address(transport, name))
        .handle_deferred(move |_, _: Silent, responder| {
            // The receiver exists until the test ends.
            let _kept = hand.send(responder);
        })
        .start()
        .unwrap();
    (node, handed)
}

/// Shows: calls.pending-dropped
#[test]
fn a_pending_call_that_is_dropped_is_cancelled() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, handed) = silent(transport, "calling-dropped");
        let (_caller, peer) = client(2, &node.listening()[0].to_string());
        let pending = peer.start_within(&Silent {}, LONG).unwrap();
        let responder = handed.recv_timeout(TIMEOUT).unwrap();
        add(&peer);
        assert!(!responder.is_cancelled(), "{transport}: its caller waits");
        drop(pending);
        until("the callee is notified", || responder.is_cancelled());
    }
}

/// Shows: calls.source, calls.remaining
#[test]
fn a_handler_learns_its_caller() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "calling-source"))
            .handle(|context, _: AskSource| Source {
                of_context: context.source().0,
                of_peer: context.peer().node().0,
            })
            .start()
            .unwrap();
        for id in [2, 3] {
            let (_caller, peer) = client(id, &node.listening()[0].to_string());
            let source = peer.call(&AskSource {}).unwrap();
            assert_eq!((source.of_context, source.of_peer), (id, id), "{transport}");
        }
    }
}

/// Shows: calls.other-layout, calls.why-not-up, protocol.layout, protocol.other-layout, operations.version, messages.compared
/// Shows: messages.two-layouts, messages.one-handles
#[test]
fn a_type_with_two_layouts_is_refused() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "calling-layout"))
            .handle(|_, old: layouts::Old| Sum { total: old.value.into() })
            .start()
            .unwrap();
        let listening = node.listening()[0].to_string();
        // A node that does not handle the type connects, and its calls are rejected before they are sent.
        let (_caller, peer) = client(2, &listening);
        assert_eq!(peer.call(&layouts::Old { value: 7 }).unwrap().total, 7);
        let error = peer.call(&layouts::New { value: 7 }).unwrap_err();
        let expected =
            matches!(error, CallError::Rejected(CallRejection::Here(SendError::OtherLayout { .. })));
        assert!(expected && error.executed() == Executed::No, "{transport}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("type `{}` has another layout", layouts::New::NAME)), "{text}");
        // A node that handles it does not connect.
        let other = Node::builder(3)
            .peer(1, &listening)
            .handle(|_, new: layouts::New| Sum { total: new.value })
            .start()
            .unwrap();
        until("the node refuses the other layout", || refused(&node, "layout") >= 1);
        until("the error names the cause", || {
            other.wait_for_peer(1, Duration::ZERO).unwrap_err().to_string().contains("layout")
        });
        assert!(!other.peer(1).unwrap().is_up(), "{transport}");
        add(&peer);
    }
}

/// Asserts that `wait_for_peer` fails with an error that has `cause`.
fn assert_error(node: &Node, peer: u16, cause: &str) {
    until(cause, || {
        node.wait_for_peer(peer, Duration::ZERO).is_err_and(|error| error.to_string().contains(cause))
    });
}

/// Shows: calls.why-not-up
#[test]
fn the_error_for_a_missing_peer_names_the_cause() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (_one, listening) = started(1, transport, "calling-cause");
        let unused = if transport == "shm" { address("shm", "calling-unused") } else { free_address() };
        let node = Node::builder(2).peer(7, &listening).peer(8, &unused).start().unwrap();
        assert_error(&node, 7, "node 1 listens at this address, not node 7: correct the address or the id");
        assert_error(&node, 8, "nobody listens at this address");
        let (_first, peer) = client(3, &listening);
        // The reply shows that both ends have the link.
        add(&peer);
        let twin = Node::builder(3).peer(1, &listening).start().unwrap();
        assert_error(
            &twin,
            1,
            "node 1 refused: another live process has the id of the dialling node: stop it, or",
        );
        assert_eq!(peer.node(), NodeId(1));
    }
}
