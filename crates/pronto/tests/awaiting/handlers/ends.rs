//! Futures of handlers that panic, or are dropped by their caller, their executor or their node.

use core::pin::Pin;
use core::task::{Context, Waker};
use core::time::Duration;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};

use pronto::{Builder, CallError, Executed, FailureCode, Message};

use super::gate::Gate;
use super::{Asked, HandlerFuture, Nodes, nodes};
use crate::rig::{Echo, LONG, Noted, PATIENCE, Sum, TRANSPORTS, until};

#[derive(Message, Debug)]
#[message(name = "awaiting.panic", reply = Sum)]
struct Panic {
    when: u8,
}

/// The function that returns the future panics.
const CALLED: u8 = 0;
/// The future panics when it is polled for the first time.
const POLLED: u8 = 1;
/// The future panics after it has waited.
const WOKEN: u8 = 2;
/// The panic's value panics when it is dropped.
const DROPPED: u8 = 3;

/// The value of a panic that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("meant");
        }
    }
}

/// Suppresses the output of the panics that the tests cause.
fn quiet() {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_meant = info.payload().downcast_ref::<&str>() == Some(&"meant");
            if !is_meant && !info.payload().is::<Bomb>() {
                before(info);
            }
        }));
    });
}

/// Adds a handler that awaits the gate.
fn passes(server: Builder, gate: &Gate) -> Builder {
    let gate = gate.clone();
    server.handle_async(move |_, asked: Asked| {
        let gate = gate.clone();
        async move {
            gate.pass(asked.number).await;
            Sum { total: asked.number }
        }
    })
}

/// Asserts that the only place for a future is free.
fn assert_place_is_free(nodes: &Nodes, gate: &Gate) {
    let call = nodes.peer.start_within(&Asked { number: u64::MAX }, LONG).unwrap();
    gate.open(u64::MAX);
    assert_eq!(call.wait().unwrap().total, u64::MAX);
}

/// There are more panics than workers and places.
///
/// Shows: calls.async-panic
#[test]
fn a_panic_ends_its_call_and_frees_its_place() {
    quiet();
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let nodes = nodes(transport, "handlers-panic", |server| {
            passes(server.max_futures(1), &gate).handle_async(|_, panic: Panic| {
                assert!(panic.when != CALLED, "meant");
                async move {
                    assert!(panic.when != POLLED, "meant");
                    if panic.when == DROPPED {
                        std::panic::panic_any(Bomb);
                    }
                    let mut polls = 0;
                    core::future::poll_fn(|context| {
                        context.waker().wake_by_ref();
                        polls += 1;
                        if polls < 3 { core::task::Poll::<Sum>::Pending } else { panic!("meant") }
                    })
                    .await
                }
            })
        });
        for _ in 0..5 {
            for when in [CALLED, POLLED, WOKEN, DROPPED] {
                let end = nodes.peer.call_within(&Panic { when }, LONG).unwrap_err();
                assert_eq!(end, CallError::NoReply(FailureCode::HandlerPanicked), "{transport}: {when}");
            }
            assert_place_is_free(&nodes, &gate);
        }
    }
}

/// Makes a call that never ends by itself, once the handler waits. If the machine was too busy for the deadline, repeats it with twice the
/// time.
fn meets_its_deadline(nodes: &Nodes, gate: &Gate, is_begun: impl Fn() -> usize) {
    for limit in (0..8).map(|doubled| Duration::from_millis(50 << doubled)) {
        let before = is_begun();
        match nodes.peer.call_within(&Asked { number: 0 }, limit).unwrap_err() {
            CallError::Deadline { executed: Executed::Maybe } if is_begun() > before => return,
            CallError::Deadline { .. } => until("the future is dropped", || gate.alive() == 0),
            other => panic!("{other:?}"),
        }
    }
    panic!("no handler began in time");
}

fn ends_at_deadlines_and_cancellations(name: &str, executor: impl Fn(Builder) -> Builder) {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let nodes = nodes(transport, name, |server| passes(executor(server).max_futures(1), &gate));
        meets_its_deadline(&nodes, &gate, || gate.begun().len());
        until("the deadline drops the future", || gate.alive() == 0);
        assert_place_is_free(&nodes, &gate);
        let call = nodes.peer.start_within(&Asked { number: 1 }, LONG).unwrap();
        until("the handler waits", || gate.alive() == 1);
        // This request waits for the place, and its handler never begins.
        let behind = nodes.peer.start_within(&Asked { number: 2 }, LONG).unwrap();
        drop(behind);
        drop(call);
        until("the cancellation drops the future", || gate.alive() == 0);
        assert_place_is_free(&nodes, &gate);
        assert!(!gate.begun().contains(&2), "{transport}");
    }
}

/// Shows: calls.async-unwanted
#[test]
fn a_deadline_or_a_cancellation_drops_the_future_on_a_worker() {
    ends_at_deadlines_and_cancellations("handlers-cancel", |server| server);
}

/// Shows: calls.async-unwanted
#[test]
fn a_deadline_or_a_cancellation_drops_the_future_on_an_executor() {
    ends_at_deadlines_and_cancellations("handlers-cancel-smol", |server| {
        server.executor(|future| smol::spawn(future).detach())
    });
}

/// Shows: calls.async-unwanted, calls.async-notified
#[test]
fn the_end_of_the_caller_drops_the_futures_of_its_calls_only() {
    for transport in TRANSPORTS {
        let (gate, notes) = (Gate::default(), Gate::default());
        let passes_note = notes.clone();
        let nodes = nodes(transport, "handlers-caller", |server| {
            passes(server.max_futures(5), &gate).on_async(move |_, note: Noted| {
                let passes_note = passes_note.clone();
                async move { passes_note.pass(note.number).await }
            })
        });
        nodes.peer.notify_within(&Noted { number: 0 }, LONG).unwrap();
        until("the notification waits", || notes.alive() == 1);
        let calls: Vec<_> =
            (0..9).map(|number| nodes.peer.start_within(&Asked { number }, LONG).unwrap()).collect();
        until("all places are taken", || gate.alive() == 4);
        drop(nodes.client);
        until("the futures of the calls are dropped", || gate.alive() == 0);
        assert_eq!(notes.alive(), 1, "{transport}: a notification goes on");
        notes.open(0);
        until("it ends", || notes.alive() == 0);
        nodes.server.drain(PATIENCE).unwrap();
        assert_eq!(gate.begun().len(), 4, "{transport}: those without a place never begin");
        drop(calls);
    }
}

/// Shows: calls.async-node-ends
#[test]
fn a_node_that_ends_drops_its_futures() {
    for transport in TRANSPORTS {
        let (gate, notes) = (Gate::default(), Gate::default());
        let passes_note = notes.clone();
        let nodes = nodes(transport, "handlers-end", |server| {
            passes(server.workers(1).max_futures(8), &gate).on_async(move |_, note: Noted| {
                let passes_note = passes_note.clone();
                async move { passes_note.pass(note.number).await }
            })
        });
        (0..4).for_each(|number| nodes.peer.notify_within(&Noted { number }, LONG).unwrap());
        until("the notifications wait", || notes.alive() == 4);
        let calls: Vec<_> =
            (0..9).map(|number| nodes.peer.start_within(&Asked { number }, LONG).unwrap()).collect();
        until("the other places are taken", || gate.alive() == 4);
        // The only worker has finished the first polls when it runs another handler.
        assert_eq!(nodes.peer.call_within(&Echo { number: 1 }, LONG).unwrap().total, 1);
        drop(nodes.server);
        assert_eq!(notes.alive(), 0, "{transport}: futures that wait are dropped with the node");
        until("no future is left", || gate.alive() == 0);
        for call in calls {
            let end = call.wait().unwrap_err();
            assert!(matches!(end, CallError::PeerDown { .. }), "{transport}: {end:?}");
        }
    }
}

/// Shows: calls.async-node-ends
#[test]
fn a_node_that_ends_drops_futures_that_wait_for_a_worker() {
    for transport in TRANSPORTS {
        let notes = Gate::default();
        let passes_note = notes.clone();
        let (blocks, blocked) = channel();
        let (frees, freed) = channel::<()>();
        let freed = Mutex::new(freed);
        let nodes = nodes(transport, "handlers-end-queued", |server| {
            let server = server.on_async(move |_, note: Noted| {
                let passes_note = passes_note.clone();
                async move { passes_note.pass(note.number).await }
            });
            server.workers(1).handle(move |_, _: Panic| {
                blocks.send(()).unwrap();
                // Ends when the test has dropped the sender.
                let _ended = freed.lock().unwrap().recv();
                Sum { total: 0 }
            })
        });
        (0..4).for_each(|number| nodes.peer.notify_within(&Noted { number }, LONG).unwrap());
        until("the notifications wait", || notes.alive() == 4);
        let call = nodes.peer.start_within(&Panic { when: WOKEN }, LONG).unwrap();
        blocked.recv_timeout(PATIENCE).unwrap();
        (0..4).for_each(|number| notes.open(number));
        assert_eq!(notes.alive(), 4, "{transport}: the only worker is blocked");
        drop(nodes.server);
        assert_eq!(notes.alive(), 0, "{transport}");
        drop((frees, call));
    }
}

/// Shows: calls.async-node-ends
#[test]
fn a_node_that_ends_wakes_its_futures_on_an_executor() {
    for transport in TRANSPORTS {
        let notes = Gate::default();
        let passes_note = notes.clone();
        let nodes = nodes(transport, "handlers-end-smol", |server| {
            let server = server.executor(|future| smol::spawn(future).detach());
            server.on_async(move |_, note: Noted| {
                let passes_note = passes_note.clone();
                async move { passes_note.pass(note.number).await }
            })
        });
        (0..4).for_each(|number| nodes.peer.notify_within(&Noted { number }, LONG).unwrap());
        until("the notifications wait", || notes.alive() == 4);
        drop(nodes.server);
        until("no future is left", || notes.alive() == 0);
    }
}

/// The futures that an executor was given, which it polls when the test says so.
type Given = Arc<Mutex<Vec<HandlerFuture>>>;

fn given() -> (Given, impl Fn(HandlerFuture)) {
    let given = Given::default();
    let takes = Arc::clone(&given);
    (given, move |future| takes.lock().unwrap().push(future))
}

fn takes(given: &Given) -> HandlerFuture {
    until("the executor is given a future", || !given.lock().unwrap().is_empty());
    given.lock().unwrap().pop().unwrap()
}

fn poll(future: &mut HandlerFuture) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Shows: calls.async-executor-drops
#[test]
fn an_executor_that_drops_a_future_ends_its_call() {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let (given, spawn) = given();
        let nodes =
            nodes(transport, "handlers-drops", |server| passes(server.executor(spawn).max_futures(1), &gate));
        for polls in 0..3 {
            let call = nodes.peer.start_within(&Asked { number: 1 }, LONG).unwrap();
            let mut future = takes(&given);
            assert!((0..polls).all(|_| !poll(&mut future)));
            assert_eq!(gate.alive(), usize::from(polls > 0));
            drop(future);
            assert_eq!(gate.alive(), 0);
            assert_eq!(call.wait().unwrap_err(), CallError::NoReply(FailureCode::NoReply), "{transport}");
        }
        let call = nodes.peer.start_within(&Asked { number: 2 }, LONG).unwrap();
        let mut future = takes(&given);
        gate.open(2);
        assert!(poll(&mut future) && poll(&mut future), "{transport}: it has ended");
        assert_eq!(call.wait().unwrap().total, 2, "{transport}");
    }
}

/// Shows: calls.async-executor-hangs
#[test]
fn an_executor_that_stops_polling_keeps_the_place_until_it_drops_the_future() {
    for transport in TRANSPORTS {
        let gate = Gate::default();
        let (given, spawn) = given();
        let nodes =
            nodes(transport, "handlers-hangs", |server| passes(server.executor(spawn).max_futures(1), &gate));
        meets_its_deadline(&nodes, &gate, || given.lock().unwrap().len());
        let kept = takes(&given);
        let call = nodes.peer.start_within(&Asked { number: 3 }, LONG).unwrap();
        std::thread::park_timeout(Duration::from_millis(20));
        assert!(given.lock().unwrap().is_empty(), "{transport}: the place is taken");
        drop(kept);
        let mut next = takes(&given);
        gate.open(3);
        assert!(poll(&mut next));
        assert_eq!(call.wait().unwrap().total, 3, "{transport}");
    }
}

/// Shows: calls.async-unwanted
#[test]
fn an_unwanted_future_is_dropped_by_its_next_poll() {
    let gate = Gate::default();
    let (given, spawn) = given();
    let nodes = nodes("shm", "handlers-next-poll", |server| passes(server.executor(spawn), &gate));
    let call = nodes.peer.start_within(&Asked { number: 1 }, LONG).unwrap();
    let mut future = takes(&given);
    assert!(!poll(&mut future));
    drop(call);
    until("the cancellation has arrived", || poll(&mut future));
    assert_eq!(gate.alive(), 0);
    drop(nodes);
    drop(future);
}
