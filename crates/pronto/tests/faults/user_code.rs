//! User code that panics on threads of the library: the message fails, and the connection continues.

use pronto::{CallError, Key, Message, Node, Payload, WaitPolicy};
use pronto_wire::FailureCode;

use crate::handlers::quiet;
use crate::rig::{Sum, TIMEOUT, TRANSPORTS, add, address, assert_all_released, client, server, shared_run};

/// A key whose lane computation panics if the key is 0.
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

/// Returns a node-wide counter.
fn counted(node: &Node, name: &str) -> u64 {
    node.status().counters.iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// Shows: operations.json-node
#[test]
fn a_panic_in_a_key_fails_only_its_message() {
    let _shared = shared_run();
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
                peer.notify_within(&KeyedNotification { key: BAD }, TIMEOUT).unwrap();
                assert_eq!(
                    peer.call_within(&Keyed { key: BAD }, TIMEOUT).unwrap_err(),
                    panicked,
                    "{transport}"
                );
                assert_eq!(peer.call_within(&Keyed { key: GOOD }, TIMEOUT).unwrap().total, 7);
                add(&peer);
            }
        });
        assert_eq!(counted(&node, "key_panics"), 2 * ROUNDS, "{transport}: every panic must be caught");
        assert_all_released(&caller, &peer);
    }
}

/// The waiting caller polls its connection itself, so it may be the thread that chooses the lane of its peer's request.
#[test]
fn a_panic_in_a_key_does_not_reach_the_waiting_caller() {
    let _shared = shared_run();
    for transport in TRANSPORTS {
        let node = server(1, &address(transport, "panic-key-back"))
            .handle(|context, call: CallBack| {
                match context.peer().call_within(&Keyed { key: Fragile { lane: call.lane } }, TIMEOUT) {
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
        let peer = caller.wait_for_peer(1, TIMEOUT).unwrap();
        quiet(|| {
            for _ in 0..ROUNDS {
                let back = |lane| peer.call_within(&CallBack { lane }, TIMEOUT).map(|sum| sum.total);
                assert_eq!(back(0), Ok(1_000), "{transport}");
                assert_eq!(back(7), Ok(7));
            }
        });
        assert_eq!(counted(&caller, "key_panics"), ROUNDS, "{transport}: every panic must be caught");
        assert_all_released(&caller, &peer);
    }
}
