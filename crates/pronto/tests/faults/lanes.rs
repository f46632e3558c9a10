//! The order of handlers on the workers. Lanes keep the order of each sender, each key has its own lane, and unordered handlers
//! overtake. Queued control requests start before queued bulk requests, which do not starve.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use pronto::{Message, Node, Peer, WaitPolicy};

use crate::rig::{
    Add, Sum, TIMEOUT, TRANSPORTS, Work, add, address, assert_all_released, client, server, shared_run, until,
};

#[derive(Message, Debug)]
#[message(name = "faults.step", order = ordered)]
struct Step {
    sender: u32,
    number: u32,
}

#[derive(Message, Debug)]
#[message(name = "faults.keyed", reply = Sum, order = by_key(key))]
struct Keyed {
    key: u64,
    number: u64,
}

type Log = Arc<Mutex<HashMap<u64, Vec<u64>>>>;

#[derive(Message, Debug)]
#[message(name = "faults.bulk-work", reply = Sum, class = bulk)]
struct BulkWork {
    key: u64,
}

#[derive(Message, Debug)]
#[message(name = "faults.bulk-mark", reply = Sum, class = bulk)]
struct BulkMark {}

const SENDERS: u32 = 8;
const STEPS: u32 = 500;

/// Sends steps one after another, as fast as there is room.
fn steps(peer: &Peer, sender: u32) {
    for number in 0..STEPS {
        peer.notify_within(&Step { sender, number }, TIMEOUT).unwrap();
    }
}

/// Shows: calls.handle, calls.lane-order, protocol.order-ordered, messages.ordered
#[test]
fn ordered_keeps_every_senders_order() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        for policy in [WaitPolicy::Block, WaitPolicy::Adaptive] {
            let log = Log::default();
            let steps_log = Arc::clone(&log);
            let node = Node::builder(1)
                .wait(policy)
                .listen(&address(transport, &format!("ordered-{policy:?}")))
                .on(move |_, step: Step| {
                    let mut log = steps_log.lock().unwrap();
                    log.entry(step.sender.into()).or_default().push(step.number.into());
                })
                .start()
                .unwrap();
            let listening = node.listening()[0].to_string();
            let caller = Node::builder(2).wait(policy).peer(1, &listening).start().unwrap();
            let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
            std::thread::scope(|scope| {
                for sender in 0..SENDERS {
                    let peer = &peer;
                    scope.spawn(move || steps(peer, sender));
                }
            });
            let all = (SENDERS * STEPS) as usize;
            until("every step is handled", || {
                log.lock().unwrap().values().map(Vec::len).sum::<usize>() == all
            });
            for (sender, numbers) in &*log.lock().unwrap() {
                assert!(
                    numbers.iter().copied().eq(0..STEPS.into()),
                    "{transport} {policy:?} {sender}: {numbers:?}"
                );
            }
        }
    }
}

/// Shows: protocol.order-key, messages.by-key
#[test]
fn each_key_has_its_own_lane() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let log = Log::default();
        let keyed_log = Arc::clone(&log);
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        let node = server(1, &address(transport, "keys"))
            .handle(move |_, keyed: Keyed| {
                if (keyed.key, keyed.number) == (0, 0) {
                    let _released = released.lock().unwrap().recv();
                }
                keyed_log.lock().unwrap().entry(keyed.key).or_default().push(keyed.number);
                Sum { total: keyed.number }
            })
            .start()
            .unwrap();
        let (_caller, peer) = client(2, &node.listening()[0].to_string());
        let held: Vec<_> = (0..5).map(|number| peer.start(&Keyed { key: 0, number }).unwrap()).collect();
        // The lane of key 0 is blocked; the other lanes continue, each in order.
        for number in 0..20 {
            for key in 1..4 {
                assert_eq!(peer.call(&Keyed { key, number }).unwrap().total, number);
            }
        }
        assert!(!log.lock().unwrap().contains_key(&0), "the first request of key 0 must still be running");
        release.send(()).unwrap();
        for (number, call) in (0..).zip(held) {
            assert_eq!(call.wait().unwrap().total, number);
        }
        let log = log.lock().unwrap();
        assert!(log[&0].iter().copied().eq(0..5), "{:?}", log[&0]);
        assert!((1..4).all(|key| log[&key].iter().copied().eq(0..20)));
    }
}

/// Shows: messages.unordered
#[test]
fn unordered_calls_overtake() {
    let _shared = shared_run();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let node = Node::builder(1)
        .listen(&address("shm", "overtake"))
        .handle(move |_, work: Work| {
            if work.key == 0 {
                let _released = released.lock().unwrap().recv();
            }
            Sum { total: work.key }
        })
        .start()
        .unwrap();
    let (_caller, peer) = client(2, &node.listening()[0].to_string());
    let first = peer.start(&Work { key: 0 }).unwrap();
    assert_eq!(peer.call(&Work { key: 1 }).unwrap().total, 1, "the later call must end first");
    release.send(()).unwrap();
    assert_eq!(first.wait().unwrap().total, 0);
}

/// Keys in the order in which their handlers began.
type Executed = Arc<Mutex<Vec<u64>>>;

/// A caller, and a node with one worker. Work with key 0 occupies the worker until the test releases it. Marks need no worker.
struct OneWorker {
    _node: Node,
    caller: Node,
    peer: Peer,
    executed: Executed,
    release: Sender<()>,
}

impl OneWorker {
    fn start(transport: &str, name: &str) -> Self {
        let executed = Executed::default();
        let (release, released) = channel();
        let released = Arc::new(Mutex::new(released));
        let work = {
            let executed = Arc::clone(&executed);
            move |key| {
                executed.lock().unwrap().push(key);
                if key == 0 {
                    let _released: Result<(), _> = released.lock().unwrap().recv();
                }
                Sum { total: key }
            }
        };
        let bulk_work = work.clone();
        let node = Node::builder(1)
            .workers(1)
            .wait(WaitPolicy::Block)
            .listen(&address(transport, name))
            .handle_inline(|_, add: Add| Sum { total: add.values.iter().sum() })
            .handle_inline(|_, _: BulkMark| Sum { total: 0 })
            .handle(move |_, request: Work| work(request.key))
            .handle(move |_, request: BulkWork| bulk_work(request.key))
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        Self { _node: node, caller, peer, executed, release }
    }

    fn wait_until_held(&self) {
        until("the only worker is busy", || *self.executed.lock().unwrap() == [0]);
    }

    /// Waits until all posted requests are queued. Messages of one class arrive in the order of posting, so the reply to a mark shows that
    /// the earlier requests of its class have arrived.
    fn wait_until_queued(&self) {
        self.peer.call(&BulkMark {}).unwrap();
        add(&self.peer);
        assert_eq!(*self.executed.lock().unwrap(), [0], "the worker must still be busy");
    }
}

/// Shows: calls.handle, calls.control-first, calls.not-interrupted, protocol.order-workers, messages.control-first, messages.order-in-class
#[test]
fn a_control_request_passes_queued_bulk_requests() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let rig = OneWorker::start(transport, "control-first");
        let holder = rig.peer.start(&BulkWork { key: 0 }).unwrap();
        rig.wait_until_held();
        let bulk: Vec<_> = (1..=10).map(|key| rig.peer.start(&BulkWork { key }).unwrap()).collect();
        rig.wait_until_queued();
        let control = rig.peer.start(&Work { key: 100 }).unwrap();
        rig.wait_until_queued();
        rig.release.send(()).unwrap();
        assert_eq!(control.wait().unwrap().total, 100);
        assert_eq!(holder.wait().unwrap().total, 0);
        for (key, call) in (1..).zip(bulk) {
            assert_eq!(call.wait().unwrap().total, key);
        }
        let expected: Vec<_> = [0, 100].into_iter().chain(1..=10).collect();
        assert_eq!(*rig.executed.lock().unwrap(), expected, "{transport}: control requests must start first");
        assert_all_released(&rig.caller, &rig.peer);
    }
}

/// Consecutive control requests that may pass a bulk request: `lanes::IN_A_ROW` of the scheduling policy.
const IN_A_ROW: u64 = 16;

/// Shows: calls.sixteen, protocol.order-workers
#[test]
fn a_bulk_request_starts_among_queued_control_requests() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let rig = OneWorker::start(transport, "bulk-in-turn");
        let holder = rig.peer.start(&Work { key: 0 }).unwrap();
        rig.wait_until_held();
        let last = IN_A_ROW + 4;
        let control: Vec<_> = (1..=last).map(|key| rig.peer.start(&Work { key }).unwrap()).collect();
        let bulk = [100, 101].map(|key| rig.peer.start(&BulkWork { key }).unwrap());
        rig.wait_until_queued();
        rig.release.send(()).unwrap();
        for (key, call) in (0..).zip([holder].into_iter().chain(control)) {
            assert_eq!(call.wait().unwrap().total, key);
        }
        for (key, call) in (100..).zip(bulk) {
            assert_eq!(call.wait().unwrap().total, key);
        }
        let expected: Vec<_> = (0..=IN_A_ROW).chain([100]).chain(IN_A_ROW + 1..=last).chain([101]).collect();
        assert_eq!(*rig.executed.lock().unwrap(), expected, "{transport}: bulk requests must not starve");
        assert_all_released(&rig.caller, &rig.peer);
    }
}
