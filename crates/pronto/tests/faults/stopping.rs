//! Nodes that stop: the own subscribers learn it, newcomers are refused meanwhile, and responses without a caller are counted.

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use pronto::{CallError, DownCause, Event, Message, Node, Responder, WaitPolicy};

use crate::rig::{
    Add, Sum, TIMEOUT, TRANSPORTS, add, address, client, counter, event, server, shared_run, started, until,
};

/// A request whose handler waits until the test lets it go.
#[derive(Message, Debug)]
#[message(name = "faults.stopping_hold", reply = Sum)]
struct Hold {}

/// A request to which only the test replies.
#[derive(Message, Debug)]
#[message(name = "faults.stopping_silent", reply = Sum)]
struct Silent {}

/// Shows: embedding.events-end, operations.local
#[test]
fn the_subscribers_of_a_node_that_stops_learn_the_cause() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "stopping-local");
        let (_caller, peer) = client(2, &address);
        add(&peer);
        let events = node.events();
        drop(node);
        let seen: Vec<_> = core::iter::from_fn(|| events.next_within(TIMEOUT)).map(Result::unwrap).collect();
        let [Event::PeerDown { cause, .. }] = seen[..] else { panic!("{transport}: {seen:?}") };
        assert_eq!(cause, DownCause::Local, "{transport}");
    }
}

/// Shows: embedding.events-end
#[test]
fn subscriptions_end_with_their_node_although_the_program_keeps_a_peer() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (_node, address) = started(1, transport, "stopping-kept");
        let (caller, _kept) = client(2, &address);
        let mut events = caller.events();
        drop(caller);
        let mut context = Context::from_waker(Waker::noop());
        let mut next = || match events.poll_next_event(&mut context) {
            Poll::Ready(next) => next.map(Result::unwrap),
            Poll::Pending => panic!("{transport}: the subscription goes on"),
        };
        assert!(matches!(next(), Some(Event::PeerDown { cause: DownCause::Local, .. })), "{transport}");
        assert_eq!(next(), None, "{transport}");
    }
}

/// Starts a node whose handler of [`Hold`] waits for a message of the returned sender. The receiver gets a message when it begins.
fn holding(transport: &str, name: &str) -> (Node, Sender<()>, Receiver<()>) {
    let (go, gate) = channel();
    let (entered, enters) = channel();
    let gate = Mutex::new(gate);
    let node = server(1, &address(transport, name))
        .handle(move |_, _: Hold| {
            entered.send(()).unwrap();
            let _open = gate.lock().unwrap().recv();
            Sum { total: 5 }
        })
        .start()
        .unwrap();
    (node, go, enters)
}

/// Shows: operations.draining
#[test]
fn a_node_that_is_about_to_stop_refuses_newcomers() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, go, enters) = holding(transport, "stopping-drains");
        let listening = node.listening()[0].to_string();
        let (_caller, peer) = client(2, &listening);
        let open = peer.start_within(&Hold {}, 4 * TIMEOUT).unwrap();
        enters.recv_timeout(TIMEOUT).unwrap();
        let stops = std::thread::spawn(move || node.drain(4 * TIMEOUT));
        let is_refused = |outcome: Result<Sum, CallError>| matches!(outcome, Err(CallError::Rejected(_)));
        until("further calls are refused", || is_refused(peer.call(&Add { values: vec![1] })));
        let newcomer = Node::builder(3).wait(WaitPolicy::Block).peer(1, &listening).start().unwrap();
        until("the newcomer is refused", || {
            newcomer.status().failed_dials.iter().any(|(reason, _)| *reason == "draining")
        });
        go.send(()).unwrap();
        assert_eq!(open.wait().unwrap().total, 5, "{transport}");
        stops.join().unwrap().unwrap();
    }
}

/// Shows: operations.replies-lost
#[test]
fn a_reply_to_a_caller_that_is_gone_is_counted() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (hand, handed) = channel::<Responder<Sum>>();
        let node = server(1, &address(transport, "stopping-lost"))
            .handle_deferred(move |_, _: Silent, responder| {
                // The receiver exists until the test ends.
                let _kept = hand.send(responder);
            })
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        // A held peer keeps its counters.
        let held = node.wait_for_peer(2, TIMEOUT).unwrap();
        let pending = peer.start_within(&Silent {}, TIMEOUT).unwrap();
        let responder = handed.recv_timeout(TIMEOUT).unwrap();
        drop((pending, peer, caller));
        until("the caller is gone", || !held.is_up());
        responder.reply(&Sum { total: 1 });
        until("the reply is counted as lost", || counter(&node, 2, "replies_lost") == 1);
    }
}

/// Shows: embedding.drain-limit, embedding.goodbye
#[test]
fn a_node_that_cannot_be_drained_in_time_says_so_and_stops() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, go, enters) = holding(transport, "stopping-late");
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let (events, back) = (caller.events(), node.wait_for_peer(2, TIMEOUT).unwrap());
        let open = peer.start_within(&Hold {}, 4 * TIMEOUT).unwrap();
        enters.recv_timeout(TIMEOUT).unwrap();
        // The handler goes on when the node has given up waiting for it.
        let watcher = std::thread::spawn(move || {
            until("the node stops", || !back.is_up());
            go.send(()).unwrap();
        });
        let error = node.drain(Duration::from_millis(50)).unwrap_err();
        let text = "draining timed out with 0 open calls; handlers may still be running";
        assert_eq!(error.to_string(), text, "{transport}");
        watcher.join().unwrap();
        let down = event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        assert!(matches!(down, Event::PeerDown { cause: DownCause::Goodbye, .. }), "{transport}: {down:?}");
        assert!(open.wait().is_err(), "{transport}: a node that had stopped replied");
    }
}

/// Shows: embedding.drop
#[test]
fn a_node_that_is_dropped_ends_its_open_calls() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "stopping-dropped"))
            .handle_deferred(|_, _: Silent, responder| core::mem::forget(responder))
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let pending = peer.start_within(&Silent {}, 4 * TIMEOUT).unwrap();
        drop(caller);
        let ended = pending.wait();
        assert!(
            matches!(ended, Err(CallError::PeerDown { cause: Some(DownCause::Local), .. })),
            "{transport}: {ended:?}"
        );
    }
}

/// Shows: embedding.from-now-on, embedding.several
#[test]
fn a_subscription_begins_when_it_is_made() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, address) = started(1, transport, "stopping-from-now-on");
        let before = node.events();
        let (_second, peer) = client(2, &address);
        add(&peer);
        let is_up =
            |number: u16| move |event: &Event| matches!(event, Event::PeerUp(info) if info.peer.0 == number);
        event(&before, TIMEOUT, is_up(2));
        let after = node.events();
        let (_third, peer) = client(3, &address);
        add(&peer);
        let first = after.next_within(TIMEOUT).unwrap().unwrap();
        assert!(is_up(3)(&first), "{transport}: {first:?}");
    }
}
