//! Handlers that fail, wait, or never respond: each call ends by itself and reports whether it was executed.

use core::time::Duration;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

use pronto::{CallError, CallRejection, Executed, Limits, Message, Node, Peer, Responder, WaitPolicy};
use pronto_wire::FailureCode;

use crate::rig::{
    Add, Sum, TIMEOUT, TRANSPORTS, Work, add, address, assert_all_released, client, server, shared_run, until,
};

#[derive(Message, Debug)]
#[message(name = "faults.panic", reply = Sum)]
struct Panic {}

#[derive(Message, Debug)]
#[message(name = "faults.panic-inline", reply = Sum)]
struct PanicInline {}

#[derive(Message, Debug)]
#[message(name = "faults.panic-lane", reply = Sum, order = ordered)]
struct PanicInLane {
    really: bool,
}

#[derive(Message, Debug)]
#[message(name = "faults.silent", reply = Sum)]
struct Silent {}

#[derive(Message, Debug)]
#[message(name = "faults.nested", reply = Sum)]
struct Nested {
    depth: u64,
}

pub(crate) fn quiet<R>(run: impl FnOnce() -> R) -> R {
    // Suppresses the output of the panics that the tests cause.
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload().downcast_ref::<&str>();
            if payload != Some(&"meant") {
                before(info);
            }
        }));
    });
    run()
}

/// Shows: calls.panic, calls.ends-no-reply
#[test]
fn a_panic_fails_its_call_and_nothing_else() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "panic"))
            .handle(|_, _: Panic| -> Sum { panic!("meant") })
            .handle_inline(|_, _: PanicInline| -> Sum { panic!("meant") })
            .handle(|_, call: PanicInLane| -> Sum {
                assert!(!call.really, "meant");
                Sum { total: 1 }
            })
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let panicked = CallError::NoReply(FailureCode::HandlerPanicked);
        quiet(|| {
            // More panics than workers: none of the workers is lost.
            for _ in 0..20 {
                assert_eq!(peer.call(&Panic {}).unwrap_err(), panicked);
                assert_eq!(peer.call(&PanicInline {}).unwrap_err(), panicked);
                assert_eq!(peer.call(&PanicInLane { really: true }).unwrap_err(), panicked);
                assert_eq!(
                    peer.call(&PanicInLane { really: false }).unwrap().total,
                    1,
                    "the lane must continue"
                );
                add(&peer);
            }
        });
        assert_eq!(panicked.executed(), Executed::Yes);
        assert_all_released(&caller, &peer);
    }
}

/// Makes a call that its callee receives and that still ends by its deadline. A request that arrives too late is not executed, so if
/// this machine was busy, the call is repeated with twice the time.
fn too_late(held: &Receiver<Responder<Sum>>, call: impl Fn(Duration) -> CallError) -> Responder<Sum> {
    for limit in (0..6).map(|doubled| Duration::from_millis(50 << doubled)) {
        match call(limit) {
            CallError::Deadline { executed: Executed::Maybe } => {}
            CallError::Deadline { executed: Executed::No } => continue,
            other => panic!("{other:?}"),
        }
        if let Ok(responder) = held.recv_timeout(limit) {
            return responder;
        }
    }
    panic!("no call reached the callee in time");
}

/// Shows: calls.pending, calls.ends-no-reply, calls.skipped, operations.stale
#[test]
fn a_dropped_responder_ends_its_call_and_a_late_reply_is_ignored() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (hand, held) = channel::<Responder<Sum>>();
        let node = server(1, &address(transport, "responder"))
            .handle_deferred(move |_, _: Silent, responder| {
                // The receiver exists until the test ends.
                let _kept = hand.send(responder);
            })
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let pending = peer.start(&Silent {}).unwrap();
        drop(held.recv_timeout(TIMEOUT).unwrap());
        assert_eq!(pending.wait().unwrap_err(), CallError::NoReply(FailureCode::NoReply));

        let responder = too_late(&held, |limit| peer.call_within(&Silent {}, limit).unwrap_err());
        until("the callee is notified", || responder.is_cancelled());
        // A reply after the end of the call is stale.
        responder.reply(&Sum { total: 9 });
        until("the stale reply is counted", || crate::rig::counter(&caller, 1, "stale_replies") >= 1);

        // Also a call that is only polled, not waited for.
        let responder = too_late(&held, |limit| {
            let mut pending = peer.start_within(&Silent {}, limit).unwrap();
            let mut late = None;
            until("the call ends by its deadline", || {
                late = pending.poll();
                late.is_some()
            });
            late.unwrap().unwrap_err()
        });
        responder.reply(&Sum { total: 1 });
        assert_all_released(&caller, &peer);
    }
}

/// Shows: calls.pending, calls.skipped
#[test]
fn expired_and_cancelled_requests_are_not_executed() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let executed: Arc<Mutex<Vec<u64>>> = Arc::default();
        let log = Arc::clone(&executed);
        let node = Node::builder(1)
            .workers(1)
            .wait(WaitPolicy::Block)
            .listen(&address(transport, "turn"))
            .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
            .handle(move |_, work: Work| {
                log.lock().unwrap().push(work.key);
                if work.key == 0 {
                    let _released = released.lock().unwrap().recv();
                }
                Sum { total: work.key }
            })
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let holder = peer.start(&Work { key: 0 }).unwrap();
        until("the only worker is busy", || !executed.lock().unwrap().is_empty());
        let expired = peer.call_within(&Work { key: 1 }, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(expired, CallError::Deadline { .. }), "{expired:?}");
        let given_up = peer.start(&Work { key: 2 }).unwrap().cancel();
        assert_eq!(given_up, CallError::Cancelled { executed: Executed::Maybe });
        let last = peer.start(&Work { key: 3 }).unwrap();
        // A reply to a call that was sent after both cancellations shows that they have arrived.
        add(&peer);
        release.send(()).unwrap();
        assert_eq!(holder.wait().unwrap().total, 0);
        assert_eq!(last.wait().unwrap().total, 3);
        assert_eq!(
            *executed.lock().unwrap(),
            [0, 3],
            "neither the expired nor the cancelled request may run"
        );
        assert_all_released(&caller, &peer);
    }
}

/// Starts two nodes whose handlers call each other, each with one worker.
fn nested(transport: &str, policy: WaitPolicy, name: &str, limits: Limits) -> [Node; 2] {
    let handler = |context: &pronto::Context<'_>, call: Nested| -> Result<Sum, u64> {
        if call.depth == 0 {
            return Ok(Sum { total: 0 });
        }
        match context.peer().call(&Nested { depth: call.depth - 1 }) {
            Ok(sum) => Ok(Sum { total: sum.total + 1 }),
            Err(CallError::Rejected(CallRejection::NoWorker)) => Err(call.depth),
            Err(CallError::Handler(error)) => Err(error.decode().unwrap()),
            Err(other) => panic!("{other:?}"),
        }
    };
    let one = Node::builder(1)
        .workers(1)
        .wait(policy)
        .limits(limits)
        .listen(&address(transport, name))
        .handle(handler)
        .start()
        .unwrap();
    let listening = one.listening()[0].to_string();
    let two = Node::builder(2)
        .workers(1)
        .wait(policy)
        .limits(limits)
        .peer(1, &listening)
        .handle(handler)
        .start()
        .unwrap();
    [one, two]
}

/// Shows: calls.handle-blocks, calls.remaining, embedding.on-a-worker
#[test]
fn nested_calls_go_deep_with_one_worker() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for policy in [WaitPolicy::Block, WaitPolicy::Adaptive, WaitPolicy::Spin] {
            let [one, two] = nested(transport, policy, &format!("nested-{policy:?}"), Limits::default());
            let peer = two.wait_for_peer(1, TIMEOUT).unwrap();
            one.wait_for_peer(2, TIMEOUT).unwrap();
            let depth = 64;
            assert_eq!(peer.call(&Nested { depth }).unwrap().total, depth, "{transport} {policy:?}");
        }
    }
}

#[test]
fn spare_workers_have_a_bound() {
    let _shared = shared_run();
    // Room for more calls than there are spare workers.
    let limits = Limits { calls: 200, requests: [200, 200], first_requests: [200, 200], ..Limits::default() };
    let [one, two] = nested("shm", WaitPolicy::Block, "spares", limits);
    let peer = two.wait_for_peer(1, TIMEOUT).unwrap();
    one.wait_for_peer(2, TIMEOUT).unwrap();
    // The nesting exceeds the spare workers of both nodes: an error reports this, and there is no deadlock.
    let error = peer.call(&Nested { depth: 400 }).unwrap_err();
    let CallError::Handler(error) = error else { panic!("{error:?}") };
    assert!(error.decode::<u64>().unwrap() < 400);
    // Later calls succeed.
    assert_eq!(peer.call(&Nested { depth: 20 }).unwrap().total, 20);
}

/// A lock that counts the handlers that found it taken.
#[derive(Default)]
struct CountedLock {
    total: Mutex<u64>,
    contended: Mutex<u64>,
}

impl CountedLock {
    fn add(&self, more: u64) {
        let mut total = self.total.try_lock().unwrap_or_else(|_| {
            *self.contended.lock().unwrap() += 1;
            self.total.lock().unwrap()
        });
        *total += more;
    }

    fn contended(&self) -> u64 {
        *self.contended.lock().unwrap()
    }
}

/// Each caller holds a lock that the other's handler needs. While both hold theirs, no call gets a reply: the waits end by deadline.
#[test]
fn handlers_may_take_a_lock_that_their_callers_hold() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let locks = [Arc::new(CountedLock::default()), Arc::new(CountedLock::default())];
        let handler = |lock: &Arc<CountedLock>| {
            let lock = Arc::clone(lock);
            move |_: &pronto::Context<'_>, work: Work| {
                lock.add(work.key);
                Sum { total: work.key }
            }
        };
        let one =
            Node::builder(1).listen(&address(transport, "locks")).handle(handler(&locks[0])).start().unwrap();
        let listening = one.listening()[0].to_string();
        let two = Node::builder(2).peer(1, &listening).handle(handler(&locks[1])).start().unwrap();
        let peers: [Peer; 2] =
            [one.wait_for_peer(2, TIMEOUT).unwrap(), two.wait_for_peer(1, TIMEOUT).unwrap()];
        let (held, ended) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            for (own, other) in [(0, 1), (1, 0)] {
                let (locks, peer, held, ended) = (&locks, &peers[own], &held, &ended);
                scope.spawn(move || {
                    let own = locks[own].total.lock().unwrap();
                    held.wait();
                    // The callee's workers block; this thread does not. A request that arrives too late is not executed.
                    let mut limits = (0..7).map(|doubled| Duration::from_millis(100 << doubled));
                    while locks[other].contended() == 0 {
                        let limit = limits.next().expect("a handler finds the lock taken");
                        let end = peer.call_within(&Work { key: 1 }, limit).unwrap_err();
                        assert!(matches!(end, CallError::Deadline { .. }), "{end:?}");
                    }
                    ended.wait();
                    drop(own);
                });
            }
        });
        for peer in &peers {
            assert_eq!(peer.call(&Work { key: 1 }).unwrap().total, 1);
        }
        for lock in &locks {
            until("every handler has had its lock", || *lock.total.lock().unwrap() > lock.contended());
        }
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.echoes", reply = Sum)]
struct Echoes {}

#[derive(Message, Debug)]
#[message(name = "faults.echo")]
struct Echo {}

/// An inline handler runs under the engine lock of its connection. Operations that need this lock to get room are refused.
#[test]
fn an_inline_handler_is_refused_without_room() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "room"))
            .handle_inline(|context, _: Echoes| {
                let mut sent = 0;
                let refused = loop {
                    match context.try_notify(&Echo {}) {
                        Ok(()) => sent += 1,
                        Err(error) => break error,
                    }
                };
                assert!(refused.is_retryable(), "{refused:?}");
                Sum { total: sent }
            })
            .start()
            .unwrap();
        let listening = node.listening()[0].to_string();
        let taken = Arc::new(Mutex::new(0_u64));
        let count = Arc::clone(&taken);
        let caller = Node::builder(2)
            .wait(WaitPolicy::Block)
            .peer(1, &listening)
            .on(move |_, _: Echo| *count.lock().unwrap() += 1)
            .start()
            .unwrap();
        let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
        let mut sent = 0;
        for _ in 0..20 {
            sent += peer.call_within(&Echoes {}, TIMEOUT).unwrap().total;
        }
        assert!(sent > 0, "{transport}");
        until("every echo has arrived", || *taken.lock().unwrap() == sent);
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.calls-inline", reply = Sum)]
struct CallsInline {}

/// Shows: calls.inline-calls, embedding.inline
#[test]
fn an_inline_handler_that_calls_is_refused() {
    let _shared = shared_run();
    let back: Arc<OnceLock<Peer>> = Arc::default();
    let peer_of_server = Arc::clone(&back);
    let node = server(1, &address("shm", "inline"))
        .handle_inline(move |_, _: CallsInline| -> Sum {
            // A peer handle from outside the inline context.
            let end = peer_of_server.get().unwrap().call(&Add { values: vec![] });
            Sum { total: u64::from(end == Err(CallError::Rejected(CallRejection::InlineHandler))) }
        })
        .start()
        .unwrap();
    let (_caller, peer) = client(2, &node.listening()[0].to_string());
    back.set(node.wait_for_peer(2, TIMEOUT).unwrap()).unwrap();
    assert_eq!(peer.call(&CallsInline {}).unwrap().total, 1);
}
