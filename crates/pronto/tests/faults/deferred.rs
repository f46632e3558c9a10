//! Deferred handlers that panic, or drop or leak their responder: each call ends once, and its credit returns once.

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use pronto::{CallError, Event, Message, Peer, Responder};
use pronto_sync::atomic::{AtomicU64, Ordering};
use pronto_wire::FailureCode;

use crate::handlers::quiet;
use crate::rig::{
    Sum, TRANSPORTS, add, address, all, assert_all_released, client, counter, server, shared_run,
};

#[derive(Message, Debug)]
#[message(name = "faults.deferred", reply = Sum)]
struct Deferred {
    way: u8,
}

/// Ways in which a handler gives up its responder.
const PANICS_FIRST: u8 = 0;
const REPLIES_THEN_PANICS: u8 = 1;
const FAILS_THEN_PANICS: u8 = 2;
const HANDS_OVER_THEN_PANICS: u8 = 3;
const HANDS_OVER_TO_A_THREAD_THAT_PANICS: u8 = 4;
const DROPS: u8 = 5;
const LEAKS: u8 = 6;
const REPLIES: u8 = 7;

/// A way, and a check of the end of the call.
type Expected = (u8, fn(&Result<Sum, CallError>) -> bool);

fn no_reply(end: &Result<Sum, CallError>) -> bool {
    *end == Err(CallError::NoReply(FailureCode::NoReply))
}

fn sum(end: &Result<Sum, CallError>) -> bool {
    matches!(end, Ok(Sum { total: 9 }))
}

fn own_error(end: &Result<Sum, CallError>) -> bool {
    matches!(end, Err(CallError::Handler(error)) if error.decode::<u64>() == Ok(7))
}

const WAYS: [Expected; 7] = [
    (PANICS_FIRST, no_reply),
    (REPLIES_THEN_PANICS, sum),
    (FAILS_THEN_PANICS, own_error),
    (HANDS_OVER_THEN_PANICS, sum),
    (HANDS_OVER_TO_A_THREAD_THAT_PANICS, no_reply),
    (DROPS, no_reply),
    (REPLIES, sum),
];

/// Calls of each way, more than half a window of credits.
const ROUNDS: usize = 20;
/// Leaked responders, fewer than a window of credits.
const LEAKED: u64 = 5;

/// Starts a server whose deferred handler does what its caller requests; returns it and the number of the handler's panics.
fn deferring(transport: &str, name: &str) -> (pronto::Node, Arc<AtomicU64>) {
    let (hand, handed) = channel::<Responder<Sum>>();
    // The thread ends with the handler, which owns the sender.
    let _thread: JoinHandle<()> = std::thread::spawn(move || {
        handed.iter().for_each(|responder| responder.reply(&Sum { total: 9 }));
    });
    let panics = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&panics);
    let panic = move || -> ! {
        // SYNC: a statistics counter; orders nothing.
        counted.fetch_add(1, Ordering::Relaxed);
        panic!("meant")
    };
    let handler =
        move |_: &pronto::InlineContext<'_>, call: Deferred, responder: Responder<Sum>| match call.way {
            PANICS_FIRST => panic(),
            REPLIES_THEN_PANICS => {
                responder.reply(&Sum { total: 9 });
                panic()
            }
            FAILS_THEN_PANICS => {
                responder.fail(&7_u64);
                panic()
            }
            HANDS_OVER_THEN_PANICS => {
                hand.send(responder).unwrap();
                panic()
            }
            HANDS_OVER_TO_A_THREAD_THAT_PANICS => {
                let thread = std::thread::spawn(move || {
                    let _responder = responder;
                    panic!("meant")
                });
                assert!(thread.join().is_err(), "the thread must panic");
            }
            DROPS => drop(responder),
            LEAKS => core::mem::forget(responder),
            _ => responder.reply(&Sum { total: 9 }),
        };
    (server(1, &address(transport, name)).handle_deferred(handler).start().unwrap(), panics)
}

fn call(peer: &Peer, way: u8) -> Result<Sum, CallError> {
    peer.call(&Deferred { way })
}

/// Shows: calls.deferred, calls.own-error
#[test]
fn a_deferred_call_ends_once_however_its_handler_ends() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, panics) = deferring(transport, "deferred");
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let events = caller.events();
        quiet(|| {
            for _ in 0..ROUNDS {
                for (way, expected) in WAYS {
                    let end = call(&peer, way);
                    assert!(expected(&end), "{transport}: way {way} ended as {end:?}");
                    add(&peer);
                }
            }
        });
        // SYNC: a statistics counter; orders nothing.
        assert_eq!(panics.load(Ordering::Relaxed), 4 * ROUNDS as u64, "every panic must happen");
        assert_eq!(counter(&caller, 1, "stale_replies"), 0, "{transport}: a call got two responses");
        let lost: Vec<_> =
            all(&events).into_iter().filter(|event| !matches!(event, Event::PeerUp(_))).collect();
        assert!(lost.is_empty(), "{transport}: {lost:?}");
        assert_all_released(&caller, &peer);
    }
}

/// Shows: calls.panic
#[test]
fn a_panic_in_a_deferred_handler_ends_its_call_but_not_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, panics) = deferring(transport, "deferred-panic");
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let events = caller.events();
        quiet(|| {
            for round in 0..ROUNDS {
                let end = call(&peer, PANICS_FIRST);
                let failed = matches!(end, Err(CallError::NoReply(_)));
                assert!(failed, "{transport}: the session must continue, call {round} ended as {end:?}");
            }
        });
        // SYNC: a statistics counter; orders nothing.
        assert_eq!(panics.load(Ordering::Relaxed), ROUNDS as u64, "every panic must happen");
        let lost: Vec<_> =
            all(&events).into_iter().filter(|event| !matches!(event, Event::PeerUp(_))).collect();
        assert!(lost.is_empty(), "{transport}: the session must continue: {lost:?}");
        assert_eq!(counter(&caller, 1, "stale_replies"), 0, "{transport}: a call got two responses");
        add(&peer);
    }
}

#[test]
fn a_leaked_responder_costs_its_credit_but_not_the_session() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (node, _panics) = deferring(transport, "leaked");
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        for _ in 0..LEAKED {
            let end = peer.call_within(&Deferred { way: LEAKS }, Duration::from_millis(20)).unwrap_err();
            assert!(matches!(end, CallError::Deadline { .. }), "{end:?}");
        }
        for _ in 0..ROUNDS {
            assert!(sum(&call(&peer, REPLIES)));
            add(&peer);
        }
        assert_eq!(counter(&caller, 1, "stale_replies"), 0, "{transport}");
    }
}
