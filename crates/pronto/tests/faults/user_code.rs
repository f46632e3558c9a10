//! Code of the program that the library calls on its own threads and panics: the message fails, the connection goes on.

use pronto::{CallError, Key, Message, Node, Payload, WaitPolicy};
use pronto_wire::FailureCode;

use crate::handlers::quiet;
use crate::rig::{SOON, Sum, TRANSPORTS, add, address, assert_all_back, beside_others, client, server};

/// A key whose lane cannot be computed if it is 0.
#[derive(Clone, Copy, Debug, Payload)]
struct Fragile {
    lane: u64,
}

impl Key for Fragile {
    fn lane(&self) -> u64 {
        if self.lane == 0 {
            panic!("meant");
        }
        self.lane
    }
}

#[derive(Message, Debug)]
#[message(name = "faults.panic-key", reply = Sum, order = by_key(key))]
struct Keyed {
    key: Fragile,
}

#[derive(Message, Debug)]
#[message(name = "faults.panic-key-notification", order = by_key(key))]
struct KeyedNotification {
    key: Fragile,
}

#[derive(Message, Debug)]
#[message(name = "faults.panic-key-back", reply = Sum)]
struct CallBack {
    lane: u64,
}

const BAD: Fragile = Fragile { lane: 0 };
const GOOD: Fragile = Fragile { lane: 7 };
const ROUNDS: u64 = 20;

/// A node-wide counter.
fn counted(node: &Node, name: &str) -> u64 {
    node.status().counters.iter().find(|(counter, _)| *counter == name).unwrap().1
}

#[test]
fn a_panic_in_a_key_fails_its_message_and_nothing_else() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "panic-key"))
            .handle(|_, keyed: Keyed| Sum { total: keyed.key.lane })
            .on(|_, _: KeyedNotification| {})
            .start()
            .unwrap();
        let (caller, peer) = client(2, &node.listening()[0].to_string());
        let panicked = CallError::NoReply(FailureCode::HandlerPanicked);
        quiet(|| {
            for _ in 0..ROUNDS {
                peer.notify_within(&KeyedNotification { key: BAD }, SOON).unwrap();
                assert_eq!(peer.call_within(&Keyed { key: BAD }, SOON).unwrap_err(), panicked, "{transport}");
                assert_eq!(peer.call_within(&Keyed { key: GOOD }, SOON).unwrap().total, 7);
                add(&peer);
            }
        });
        assert_eq!(counted(&node, "key_panics"), 2 * ROUNDS, "{transport}: each was caught");
        assert_all_back(&caller, &peer);
    }
}

/// The waiting caller polls its connection itself, so it may be the thread that chooses the lane of its peer's request.
#[test]
fn a_panic_in_a_key_does_not_reach_the_waiting_caller() {
    let _beside = beside_others();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "panic-key-back"))
            .handle(|context, call: CallBack| {
                match context.peer().call_within(&Keyed { key: Fragile { lane: call.lane } }, SOON) {
                    Ok(sum) => sum,
                    Err(CallError::NoReply(FailureCode::HandlerPanicked)) => Sum { total: 1_000 },
                    Err(other) => panic!("{other:?}"),
                }
            })
            .start()
            .unwrap();
        let caller = Node::builder(2)
            .wait(WaitPolicy::Spin)
            .peer(1, &node.listening()[0].to_string())
            .handle(|_, keyed: Keyed| Sum { total: keyed.key.lane })
            .start()
            .unwrap();
        let peer = caller.wait_for_peer(1, SOON).unwrap();
        quiet(|| {
            for _ in 0..ROUNDS {
                let back = |lane| peer.call_within(&CallBack { lane }, SOON).map(|sum| sum.total);
                assert_eq!(back(0), Ok(1_000), "{transport}");
                assert_eq!(back(7), Ok(7));
            }
        });
        assert_eq!(counted(&caller, "key_panics"), ROUNDS, "{transport}: each was caught");
        assert_all_back(&caller, &peer);
    }
}
