//! Lanes: ordered handlers keep the order of each sender, keys have lanes of their own, unordered ones overtake.

use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pronto::{Message, Node, Peer, WaitPolicy};

use crate::rig::{SOON, Sum, TRANSPORTS, Work, address, beside_others, client, server, until};

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

const SENDERS: u32 = 8;
const STEPS: u32 = 500;

/// Sends steps one after another, as fast as there is room.
fn steps(peer: &Peer, sender: u32) {
    for number in 0..STEPS {
        peer.notify_within(&Step { sender, number }, SOON).unwrap();
    }
}

#[test]
fn ordered_keeps_every_senders_order() {
    let _beside = beside_others();
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
            let peer = caller.wait_for_peer(1, SOON).unwrap();
            std::thread::scope(|scope| {
                for sender in 0..SENDERS {
                    let peer = &peer;
                    scope.spawn(move || steps(peer, sender));
                }
            });
            let all = (SENDERS * STEPS) as usize;
            until("every step is taken", || log.lock().unwrap().values().map(Vec::len).sum::<usize>() == all);
            for (sender, numbers) in &*log.lock().unwrap() {
                assert!(
                    numbers.iter().copied().eq(0..STEPS.into()),
                    "{transport} {policy:?} {sender}: {numbers:?}"
                );
            }
        }
    }
}

#[test]
fn keys_have_lanes_of_their_own() {
    let _beside = beside_others();
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
        // Key 0 stands still; others go on, each in its order.
        for number in 0..20 {
            for key in 1..4 {
                assert_eq!(peer.call(&Keyed { key, number }).unwrap().total, number);
            }
        }
        assert!(!log.lock().unwrap().contains_key(&0), "the first of key 0 has not come back");
        release.send(()).unwrap();
        for (number, call) in (0..).zip(held) {
            assert_eq!(call.wait().unwrap().total, number);
        }
        let log = log.lock().unwrap();
        assert!(log[&0].iter().copied().eq(0..5), "{:?}", log[&0]);
        assert!((1..4).all(|key| log[&key].iter().copied().eq(0..20)));
    }
}

#[test]
fn unordered_calls_overtake() {
    let _beside = beside_others();
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
    assert_eq!(peer.call(&Work { key: 1 }).unwrap().total, 1, "the later call is answered first");
    release.send(()).unwrap();
    assert_eq!(first.wait().unwrap().total, 0);
}
