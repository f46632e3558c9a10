//! Hints about reply times reach the wait, which shows in the wait history: a wait with a hint leaves it unchanged.

use core::time::Duration;
use std::sync::mpsc::channel;

use pronto::{Context, Message, Node, Peer};

#[derive(Debug, Message)]
#[message(name = "expecting.answer")]
struct Answer {}

/// A request whose handler takes [`WORK`].
#[derive(Debug, Message)]
#[message(name = "expecting.ask", reply = Answer)]
struct Ask {}

/// Time until a reply, at least: a thousand times the mean of an empty history.
const WORK: Duration = Duration::from_millis(3);
/// Number of calls that change a history for certain.
const CALLS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(20);
/// A hint that exceeds every polling time.
const LATE: Duration = Duration::from_secs(3_600);

struct Pair {
    _server: Node,
    client: Node,
    peer: Peer,
}

impl Pair {
    fn start(name: &str) -> Self {
        let address = format!("shm:@pronto-test-expecting-{name}-{}", std::process::id());
        let server = Node::builder(1)
            .listen(&address)
            .handle(|_: &Context<'_>, _: Ask| {
                let (_hold, never) = channel::<()>();
                assert!(never.recv_timeout(WORK).is_err(), "no message is sent on this channel");
                Answer {}
            })
            .start()
            .expect("the node starts");
        let client = Node::builder(2).peer(1, &address).start().expect("the node starts");
        let peer = client.wait_for_peer(1, TIMEOUT).expect("the nodes connect");
        Self { _server: server, client, peer }
    }

    /// Returns the mean of recent reply times as the status shows it, which is the wait history's.
    fn history(&self) -> String {
        let waits = self.client.status().peers[0].waits.clone();
        let (_, after) = waits.split_once("replies take ").expect("the peer was called");
        after.split(';').next().expect("there is a text").to_owned()
    }
}

type Call = fn(&Peer, Duration);

/// The ways to call with a hint.
const WAYS: [(&str, Call); 2] = [
    ("Peer::expecting", |peer, after| {
        peer.expecting(after).call(&Ask {}).expect("a reply");
    }),
    ("Pending::expecting", |peer, after| {
        peer.start(&Ask {}).expect("there is room").expecting(after).wait().expect("a reply");
    }),
];

/// Shows: calls.expecting, calls.pending-expecting, calls.status-waits
#[test]
fn waits_with_a_hint_do_not_change_the_history() {
    for (way, call) in WAYS {
        let pair = Pair::start("history");
        call(&pair.peer, LATE);
        let initial = pair.history();
        for after in [Duration::ZERO, LATE] {
            (0..CALLS).for_each(|_| call(&pair.peer, after));
            assert_eq!(pair.history(), initial, "{way} with the hint {after:?}");
        }
        for _ in 0..CALLS {
            pair.peer.call(&Ask {}).expect("a reply");
        }
        assert_ne!(pair.history(), initial, "these calls had no hint, and took far longer than that");
    }
}
