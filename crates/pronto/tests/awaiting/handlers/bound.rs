//! The bound of the futures, and replies that wait for send memory.

use core::cell::Cell;
use std::sync::Mutex;

use pronto::{CallError, FailureCode, Limits, Message, Node, Peer};

use super::gate::Gate;
use super::{Asked, nodes};
use crate::executor::Executor;
use crate::rig::{Echo, LONG, PATIENCE, Page, Sum, TRANSPORTS, until};

#[derive(Message)]
#[message(name = "awaiting.long", class = bulk)]
struct Long {
    bytes: Vec<u8>,
}

#[derive(Message, Debug)]
#[message(name = "awaiting.ask-long", reply = Long)]
struct AskLong {
    number: u64,
}

/// Returns a counter of a node.
fn counted(node: &Node, name: &str) -> u64 {
    node.status().counters.into_iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// Shows: calls.async-bound, operations.json-futures
#[test]
fn further_messages_wait_for_a_place_in_their_order() {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let passes = gate.clone();
        let nodes = nodes(transport, "handlers-bound", |server| {
            server.max_futures(2).handle_async(move |_, asked: Asked| {
                let passes = passes.clone();
                async move {
                    passes.pass(asked.number).await;
                    Sum { total: asked.number }
                }
            })
        });
        let mut calls: Vec<_> =
            (0..6).map(|number| nodes.peer.start_within(&Asked { number }, LONG).unwrap()).collect();
        until("two handlers wait", || gate.alive() == 2);
        until("the other messages wait", || counted(&nodes.server, "futures_waited") == 4);
        assert_eq!(counted(&nodes.server, "futures"), 2, "{transport}");
        // This request arrived later, and its handler needs no place.
        assert_eq!(nodes.peer.call_within(&Echo { number: 9 }, LONG).unwrap().total, 9);
        for number in 0..6 {
            assert_eq!(gate.alive(), 2.min(6 - number), "{transport}");
            let mut begun = gate.begun();
            begun.sort_unstable();
            assert_eq!(begun, (0..6.min(number as u64 + 2)).collect::<Vec<_>>(), "{transport}");
            gate.open(number as u64);
            assert_eq!(calls.remove(0).wait().unwrap().total, number as u64);
            until("the next handler begins", || gate.begun().len() == 6.min(number + 3));
        }
        until("all places are free", || counted(&nodes.server, "futures") == 0);
    }
}

/// The replies are longer than the send memory together. Each waits for a second at most, which is short on a busy machine, so there are
/// several attempts.
///
/// Shows: calls.async-reply-memory
#[test]
fn replies_wait_for_send_memory() {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let passes = gate.clone();
        let nodes = nodes(transport, "handlers-memory", |server| {
            let limits = Limits { send_memory: [8 << 20; 2], ..Limits::default() };
            let server = server.limits(limits).handle_inline(|_, _: Page| Sum { total: 0 });
            server.handle_async(move |_, ask: AskLong| {
                let passes = passes.clone();
                async move {
                    passes.pass(ask.number).await;
                    Long { bytes: vec![1; 1 << 20] }
                }
            })
        });
        let all_arrive = (0..10).any(|_| ask_for_replies(&nodes.peer, &gate));
        assert!(all_arrive, "{transport}: in each attempt a reply found no memory");
    }
}

/// Makes calls whose handlers reply at the same time. Returns whether all replies arrived.
fn ask_for_replies(peer: &Peer, gate: &Gate) -> bool {
    const CALLS: usize = 12;
    let arrived = Cell::new(0);
    let mut executor = Executor::default();
    let begun = gate.begun().len();
    for number in 0..CALLS as u64 {
        let arrived = &arrived;
        executor.spawn(async move {
            match peer.call_async_within(&AskLong { number }, LONG).await {
                Ok(reply) => {
                    assert_eq!(reply.bytes.len(), 1 << 20);
                    arrived.set(arrived.get() + 1);
                }
                Err(end) => assert_eq!(end, CallError::NoReply(FailureCode::NoBuffer)),
            }
        });
    }
    until("all handlers wait", || gate.begun().len() == begun + CALLS);
    (0..CALLS as u64).for_each(|number| gate.open(number));
    executor.run_until("all calls end", |executor| {
        // The server keeps a reply until another bulk message of its caller acknowledges it.
        assert_eq!(peer.call_within(&Page { bytes: Vec::new() }, LONG).unwrap().total, 0);
        (0..CALLS).all(|task| executor.has_ended(task))
    });
    arrived.get() == CALLS
}

/// Shows: calls.async-drain
#[test]
fn a_node_drains_its_futures() {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let passes = gate.clone();
        let ended = Mutex::new(false);
        let nodes = nodes(transport, "handlers-drain", |server| {
            server.handle_async(move |_, asked: Asked| {
                let passes = passes.clone();
                async move {
                    passes.pass(asked.number).await;
                    Sum { total: asked.number }
                }
            })
        });
        let call = nodes.peer.start_within(&Asked { number: 5 }, LONG).unwrap();
        until("the handler waits", || gate.alive() == 1);
        std::thread::scope(|scope| {
            let drains = scope.spawn(|| {
                let drained = nodes.server.drain(PATIENCE);
                assert!(*ended.lock().unwrap(), "{transport}: it must wait for the handler");
                drained.unwrap();
            });
            until("the server refuses requests", || {
                nodes.peer.call_within(&Echo { number: 1 }, LONG).is_err()
            });
            *ended.lock().unwrap() = true;
            gate.open(5);
            assert_eq!(call.wait().unwrap().total, 5, "{transport}");
            drains.join().unwrap();
        });
    }
}
