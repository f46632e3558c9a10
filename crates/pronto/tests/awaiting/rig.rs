//! Messages, nodes and bounded waits.

use core::time::Duration;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use pronto::{Builder, Limits, Message, Node, Peer, Responder, WaitPolicy};

#[derive(Message, Debug, PartialEq)]
#[message(name = "awaiting.sum")]
pub(crate) struct Sum {
    pub(crate) total: u64,
}

/// A request that the test answers.
#[derive(Message, Debug)]
#[message(name = "awaiting.held", reply = Sum)]
pub(crate) struct Held {
    pub(crate) number: u64,
}

/// A request that is answered immediately.
#[derive(Message, Debug)]
#[message(name = "awaiting.echo", reply = Sum)]
pub(crate) struct Echo {
    pub(crate) number: u64,
}

#[derive(Message, Debug)]
#[message(name = "awaiting.again", reply = Sum, idempotent)]
pub(crate) struct Again {
    pub(crate) number: u64,
}

/// A notification for a handler on the pool.
#[derive(Message, Debug)]
#[message(name = "awaiting.note", order = ordered)]
pub(crate) struct Noted {
    pub(crate) number: u64,
}

/// A long message.
#[derive(Message, Debug)]
#[message(name = "awaiting.page", reply = Sum, class = bulk)]
pub(crate) struct Page {
    pub(crate) bytes: Vec<u8>,
}

/// Time limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Deadline of calls that must not meet it.
pub(crate) const LONG: Duration = Duration::from_secs(50);
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

/// A server, a client, and the requests that the server has received and not answered.
pub(crate) struct Pair {
    pub(crate) server: Node,
    pub(crate) client: Node,
    pub(crate) peer: Peer,
    pub(crate) received: Receiver<(u64, Responder<Sum>)>,
}

pub(crate) fn address(transport: &str, name: &str) -> String {
    match transport {
        "shm" => format!("shm:@pronto-awaiting-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    }
}

/// Starts two nodes, of which the client may have `calls` open calls.
pub(crate) fn pair(transport: &str, name: &str, calls: u16) -> Pair {
    pair_with(transport, name, calls, |server| server)
}

pub(crate) fn pair_with(
    transport: &str,
    name: &str,
    calls: u16,
    adapt: impl FnOnce(Builder) -> Builder,
) -> Pair {
    let (hand, received) = channel();
    let server = Node::builder(1)
        .wait(WaitPolicy::Block)
        .listen(&address(transport, name))
        .handle_inline(|_, echo: Echo| Sum { total: echo.number })
        .handle_inline(|_, again: Again| Sum { total: again.number })
        .handle_deferred(move |_, held: Held, responder| {
            // The test may have ended.
            let _sent = hand.send((held.number, responder));
        });
    let server = adapt(server).start().unwrap();
    let address = server.listening()[0].to_string();
    let limits = Limits { calls, ..Limits::default() };
    let client = Node::builder(2).wait(WaitPolicy::Block).limits(limits).peer(1, &address).start().unwrap();
    let peer = client.wait_for_peer(1, PATIENCE).unwrap();
    Pair { server, client, peer, received }
}

impl Pair {
    /// Returns the next request that the server received.
    pub(crate) fn received(&self) -> (u64, Responder<Sum>) {
        self.received.recv_timeout(PATIENCE).expect("a request arrives")
    }

    /// Returns the next request that the server received, if there is one.
    pub(crate) fn try_received(&self) -> Option<(u64, Responder<Sum>)> {
        self.received.try_recv().ok()
    }

    /// Returns whether no other request has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.try_received().is_none()
    }
}

/// A stopwatch.
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "it bounds the waits of a test")]
        let now = Instant::now();
        Self(now)
    }

    pub(crate) fn passed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits until `is_so` returns true.
pub(crate) fn until(condition: &str, mut is_so: impl FnMut() -> bool) {
    let watch = Watch::start();
    while !is_so() {
        assert!(watch.passed() < PATIENCE, "timed out: {condition}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
