//! Async handlers: on the node's workers and on executors of the program, their order, and nested calls.

mod bound;
mod ends;
mod gate;

use core::future::poll_fn;
use core::task::Poll;
use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pronto::{Builder, CallError, HandlerFuture, Limits, Message, Node, Peer, WaitPolicy};

use crate::executor::block_on;
use crate::rig::{Echo, LONG, Noted, PATIENCE, Sum, TRANSPORTS, address, until};
use gate::Gate;

/// A request whose handler awaits what the test decides.
#[derive(Message, Debug)]
#[message(name = "awaiting.asked", reply = Sum)]
struct Asked {
    number: u64,
}

/// A request whose handlers begin in order.
#[derive(Message, Debug)]
#[message(name = "awaiting.in-order", reply = Sum, order = ordered)]
struct InOrder {
    number: u64,
}

/// A request whose handler calls the caller back, until the depth is 0.
#[derive(Message, Debug)]
#[message(name = "awaiting.hop", reply = Sum)]
struct Hop {
    depth: u64,
}

/// A server with async handlers, a client, and the server as the client's peer.
struct Nodes {
    server: Node,
    client: Node,
    peer: Peer,
}

fn limits() -> Limits {
    Limits { calls: 512, requests: [512, 512], first_requests: [512, 512], ..Limits::default() }
}

fn nodes(transport: &str, name: &str, serve: impl FnOnce(Builder) -> Builder) -> Nodes {
    nodes_with(transport, name, serve, |client| client)
}

/// Starts two nodes with two workers each. The client has a handler of [`Echo`].
fn nodes_with(
    transport: &str,
    name: &str,
    serve: impl FnOnce(Builder) -> Builder,
    call: impl FnOnce(Builder) -> Builder,
) -> Nodes {
    let server = Node::builder(1)
        .wait(WaitPolicy::Block)
        .limits(limits())
        .workers(2)
        .listen(&address(transport, name))
        .handle(|_, echo: Echo| Sum { total: echo.number });
    let server = serve(server).start().unwrap();
    let address = server.listening()[0].to_string();
    let client = Node::builder(2)
        .wait(WaitPolicy::Block)
        .limits(limits())
        .workers(2)
        .peer(1, &address)
        .handle_inline(|_, echo: Echo| Sum { total: echo.number });
    let client = call(client).start().unwrap();
    let peer = client.wait_for_peer(1, PATIENCE).unwrap();
    Nodes { server, client, peer }
}

/// Threads that poll futures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Polls {
    Workers,
    OtherThreads,
}

fn this_thread() -> Polls {
    let is_worker = std::thread::current().name().is_some_and(|name| name.starts_with("pronto-worker"));
    if is_worker { Polls::Workers } else { Polls::OtherThreads }
}

/// Makes 200 calls that are open together, whose handlers each call the client back and are woken by themselves once.
fn calls_are_answered(name: &str, expected: Polls, executor: impl Fn(Builder) -> Builder) {
    const CALLS: u64 = 200;
    let polled = Arc::new(Mutex::new(BTreeSet::new()));
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let (passes, polls) = (gate.clone(), Arc::clone(&polled));
        let Nodes { server: _server, client: _client, peer } = nodes(transport, name, |server| {
            executor(server).handle_async(move |context, asked: Asked| {
                let (passes, polls) = (passes.clone(), Arc::clone(&polls));
                async move {
                    polls.lock().unwrap().insert(this_thread());
                    passes.pass(asked.number).await;
                    let mut polled = false;
                    poll_fn(|context| {
                        polls.lock().unwrap().insert(this_thread());
                        context.waker().wake_by_ref();
                        if core::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    assert_eq!(context.source().0, 2);
                    assert!(context.remaining().is_some_and(|left| left <= LONG));
                    context
                        .peer()
                        .call_async_within(&Echo { number: asked.number }, LONG)
                        .await
                        .map_err(|error| error.to_string())
                }
            })
        });
        let calls: Vec<_> =
            (0..CALLS).map(|number| peer.start_within(&Asked { number }, LONG).unwrap()).collect();
        until("all handlers wait", || gate.begun().len() == 200);
        (0..CALLS).for_each(|number| gate.open(number));
        for (number, call) in (0..).zip(calls) {
            assert_eq!(call.wait().unwrap().total, number, "{transport}");
        }
        until("all futures are dropped", || gate.alive() == 0);
    }
    assert_eq!(*polled.lock().unwrap(), BTreeSet::from([expected]));
}

/// Shows: calls.async-handlers
#[test]
fn workers_poll_handlers() {
    calls_are_answered("handlers-workers", Polls::Workers, |server| server);
}

/// Shows: calls.async-executor
#[test]
fn tokio_polls_handlers() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    calls_are_answered("handlers-tokio", Polls::OtherThreads, |server| {
        let handle = handle.clone();
        server.executor(move |future| drop(handle.spawn(future)))
    });
}

/// Shows: calls.async-executor
#[test]
fn a_handler_on_tokio_uses_its_timers() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    let nodes = nodes("shm", "handlers-timers", |server| {
        server.executor(move |future| drop(handle.spawn(future))).handle_async(|_, asked: Asked| async move {
            tokio::time::sleep(core::time::Duration::from_millis(1)).await;
            Sum { total: asked.number }
        })
    });
    assert_eq!(nodes.peer.call_within(&Asked { number: 4 }, LONG).unwrap().total, 4);
}

/// Shows: calls.async-executor
#[test]
fn smol_polls_handlers() {
    calls_are_answered("handlers-smol", Polls::OtherThreads, |server| {
        server.executor(|future| smol::spawn(future).detach())
    });
}

/// Shows: calls.async-executor
#[test]
fn a_thread_per_handler_polls_it() {
    calls_are_answered("handlers-threads", Polls::OtherThreads, |server| {
        server.executor(|future| drop(std::thread::spawn(|| block_on(future))))
    });
}

/// With ordinary handlers, the nodes would need a worker for each open call, of which they have 66.
///
/// Shows: calls.async-nested
#[test]
fn nested_calls_go_deep_with_two_workers() {
    async fn hop(peer: Peer, depth: u64) -> Result<Sum, String> {
        if depth == 0 {
            return Ok(Sum { total: 0 });
        }
        let sum = peer.call_async_within(&Hop { depth: depth - 1 }, LONG).await;
        sum.map(|sum| Sum { total: sum.total + 1 }).map_err(|error| error.to_string())
    }
    for transport in TRANSPORTS {
        let hops = |node: Builder| node.handle_async(|from, call: Hop| hop(from.peer(), call.depth));
        let nodes = nodes_with(transport, "handlers-nested", hops, hops);
        let calls: Vec<_> =
            (0..3).map(|_| nodes.peer.start_within(&Hop { depth: 150 }, LONG).unwrap()).collect();
        for call in calls {
            assert_eq!(call.wait().unwrap().total, 150, "{transport}");
        }
    }
}

/// Shows: calls.async-begin
#[test]
fn handlers_of_an_ordered_type_begin_in_order_and_end_in_any() {
    const CALLS: u64 = 100;
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let passes = gate.clone();
        let order = Arc::new(Mutex::new(Vec::new()));
        let begins = Arc::clone(&order);
        let nodes = nodes(transport, "handlers-order", |server| {
            server.handle_async(move |_, call: InOrder| {
                let (passes, begins) = (passes.clone(), Arc::clone(&begins));
                async move {
                    let number = call.number;
                    // Another worker that begins the next handler now would overtake this one.
                    std::thread::yield_now();
                    begins.lock().unwrap().push(number);
                    passes.pass(number).await;
                    Sum { total: number }
                }
            })
        });
        let mut calls: Vec<_> =
            (0..CALLS).map(|number| nodes.peer.start_within(&InOrder { number }, LONG).unwrap()).collect();
        until("all handlers have begun", || gate.begun().len() == 100);
        assert_eq!(*order.lock().unwrap(), (0..CALLS).collect::<Vec<_>>(), "{transport}");
        for number in (0..CALLS).rev() {
            gate.open(number);
            assert_eq!(calls.pop().unwrap().wait().unwrap().total, number, "{transport}");
        }
    }
}

/// Shows: calls.async-spawn-order
#[test]
fn an_executor_is_given_the_futures_of_an_ordered_type_in_order() {
    for transport in TRANSPORTS {
        let called = Arc::new(Mutex::new(Vec::new()));
        let (calls, spawned) = (Arc::clone(&called), Arc::new(Mutex::new(Vec::new())));
        let spawns = Arc::clone(&spawned);
        let nodes = nodes(transport, "handlers-spawn-order", |server| {
            server.executor(move |future| spawns.lock().unwrap().push(future)).handle_async(
                move |_, call: InOrder| {
                    std::thread::yield_now();
                    calls.lock().unwrap().push(call.number);
                    async move { Sum { total: call.number } }
                },
            )
        });
        let calls: Vec<_> =
            (0..100).map(|number| nodes.peer.start_within(&InOrder { number }, LONG).unwrap()).collect();
        until("all handlers were called", || spawned.lock().unwrap().len() == 100);
        assert_eq!(*called.lock().unwrap(), (0..100).collect::<Vec<_>>(), "{transport}");
        for (number, mut call) in (0..).zip(calls) {
            assert!(call.poll().is_none(), "{transport}: its future was not polled");
            block_on(spawned.lock().unwrap().remove(0));
            assert_eq!(call.wait().unwrap().total, number, "{transport}");
        }
    }
}

/// Shows: calls.async-notified
#[test]
fn notifications_are_handled_in_order_up_to_the_first_await() {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let passes = gate.clone();
        let (hand, ended) = channel();
        let nodes = nodes(transport, "handlers-notes", |server| {
            server.on_async(move |_, note: Noted| {
                let (passes, hand) = (passes.clone(), hand.clone());
                async move {
                    passes.pass(note.number).await;
                    hand.send(note.number).unwrap();
                }
            })
        });
        (0..50).for_each(|number| nodes.peer.notify_within(&Noted { number }, LONG).unwrap());
        until("all handlers have begun", || gate.begun().len() == 50);
        assert_eq!(gate.begun(), (0..50).collect::<Vec<_>>(), "{transport}");
        for number in (0..50).rev() {
            gate.open(number);
            assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), number, "{transport}");
        }
        until("all futures are dropped", || gate.alive() == 0);
    }
}

/// Shows: calls.async-handlers
#[test]
fn a_handler_returns_a_reply_or_its_own_error() {
    let nodes = nodes("shm", "handlers-error", |server| {
        server.handle_async(|_, asked: Asked| async move {
            if asked.number == 0 { Err(7_u64) } else { Ok(Sum { total: asked.number }) }
        })
    });
    assert_eq!(nodes.peer.call(&Asked { number: 3 }).unwrap().total, 3);
    let error = nodes.peer.call(&Asked { number: 0 }).unwrap_err();
    assert!(matches!(&error, CallError::Handler(error) if error.decode::<u64>() == Ok(7)), "{error}");
}
