//! A reply wakes only the caller that sleeps for it: the node's serving thread keeps sleeping. The reply to a future wakes that thread.

mod threads;

use core::time::Duration;
use std::sync::Arc;

use pronto::{Builder, Limits, Message, Nanos, Node, Peer, WaitPolicy};

use threads::{Thread, report_thread};

#[derive(Message, Clone, Debug, PartialEq)]
#[message(name = "wake_ups.echo")]
struct Echo {
    number: u64,
}

#[derive(Message, Clone, Debug)]
#[message(name = "wake_ups.ask", reply = Echo)]
struct Ask {
    number: u64,
    /// The thread that makes the call, and how often it had slept before.
    caller: u64,
    slept: u64,
}

const SERVER: u16 = 1;
const CLIENT: u16 = 2;
const TIMEOUT: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 20;
const CALLS_PER_ROUND: u64 = 25;
/// Wake-ups of the serving thread that are tolerated in all rounds. There are none in a usual run.
const TOLERATED: u64 = 5;
/// Longer than the tests, so that no heartbeat ends a sleep.
const HOUR: Nanos = Nanos::from_secs(3_600);

fn node(id: u16) -> Builder {
    let limits = Limits::default().with_liveness(Some(HOUR), Some(HOUR));
    Node::builder(id).wait(WaitPolicy::Block).limits(limits)
}

/// Starts a node that calls `server`. Returns it, its handle of the server, and its serving thread.
fn client_of(server: &Node) -> (Node, Peer, Thread) {
    let address = server.listening()[0].to_string();
    let client = report_thread(node(CLIENT).peer(SERVER, &address)).start().expect("a node");
    let peer = client.wait_for_peer(SERVER, TIMEOUT).expect("the peer connects");
    let serving = Thread::serving(&server.wait_for_peer(CLIENT, TIMEOUT).expect("the peer connects"));
    (client, peer, serving)
}

/// The handler replies when the caller sleeps, because a reply that arrives earlier may wake the serving thread. The rounds begin when
/// the serving thread sleeps until its next idle tick, seconds later, because it ticks every 4 ms once it has found an open call.
#[test]
fn a_blocking_call_does_not_wake_the_serving_thread() {
    let server = node(SERVER).listen("tcp:127.0.0.1:0").handle_inline(|_, ask: Ask| {
        Thread(ask.caller).wait_for_sleep(ask.slept);
        Echo { number: ask.number }
    });
    let server = server.start().expect("a node");
    let (_client, peer, serving) = client_of(&server);
    let caller = Thread::current();
    let call = |number| {
        let ask = Ask { number, caller: caller.0, slept: caller.sleeps() };
        assert_eq!(peer.call_within(&ask, TIMEOUT).expect("a reply"), Echo { number });
    };
    let round = |_| {
        serving.wait_until_quiet();
        let before = serving.sleeps();
        (0..CALLS_PER_ROUND).for_each(call);
        serving.sleeps() - before
    };
    let slept: Vec<u64> = (0..ROUNDS).map(round).collect();
    assert!(
        slept.iter().sum::<u64>() <= TOLERATED,
        "sleeps of the serving thread in rounds of {CALLS_PER_ROUND} calls: {slept:?}"
    );
}

/// Runs a future on this thread, which sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = core::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut core::task::Context::from_waker(&waker)) {
            core::task::Poll::Ready(output) => return output,
            core::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// A request whose reply is sent when each of two threads has gone to sleep since its count of sleeps was read: thread, and count.
#[derive(Message, Debug)]
#[message(name = "wake_ups.asleep", reply = ())]
struct Asleep {
    serving: [u64; 2],
    caller: [u64; 2],
}

/// Each round starts a call while the serving thread sleeps for long. Its first event is the start, for which it ticks more often from then
/// on. The handler replies when the serving thread and the caller's thread sleep again, so that the second event is the reply. If only
/// ticks found the replies, the sleeps after the first event would end by their time limits.
///
/// Shows: calls.pending, operations.sleeps
#[test]
fn a_reply_wakes_the_node_for_a_future() {
    const ROUNDS: u64 = 50;
    for transport in ["shm", "tcp"] {
        let listen = match transport {
            "shm" => format!("shm:@pronto-test-wake-ups-{}", std::process::id()),
            _ => "tcp:127.0.0.1:0".into(),
        };
        let server = node(SERVER).listen(&listen).handle_inline(|_, ask: Asleep| {
            Thread(ask.serving[0]).wait_for_sleep(ask.serving[1]);
            Thread(ask.caller[0]).wait_for_sleep(ask.caller[1]);
        });
        let server = server.start().expect("the node starts");
        let (client, peer, serving) = client_of(&server);
        let caller = Thread::current();
        let events = || {
            let counters = client.status().progress;
            let counted = |name| counters.iter().find(|(known, _)| *known == name).expect("it is counted").1;
            counted("sleeps") - counted("timeouts")
        };
        let before = events();
        for _ in 0..ROUNDS {
            serving.wait_until_quiet();
            let [serving, caller] = [serving, caller].map(|thread| [thread.0, thread.sleeps()]);
            block_on(peer.start(&Asleep { serving, caller }).expect("sent")).expect("a reply");
        }
        let events = events() - before;
        // On a busy machine a tick may come before a wake-up.
        assert!(events >= 2 * ROUNDS - ROUNDS / 10, "{transport}: {events} events for {ROUNDS} replies");
        assert_eq!(peer.session().stats().lost_wake_ups.count(), 0, "{transport}: a wake-up was lost");
    }
}
