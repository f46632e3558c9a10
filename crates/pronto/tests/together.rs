//! Messages to one peer share doorbells where their sender says so, and may be told not to.

use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex};

use pronto::{Doorbells, Limits, Message, Node, Peer, WaitPolicy};

#[derive(Debug, Message, PartialEq)]
#[message(name = "together.answer")]
struct Answer {
    number: u32,
}

#[derive(Debug, Message)]
#[message(name = "together.ask", reply = Answer)]
struct Ask {
    number: u32,
}

const PATIENCE: Duration = Duration::from_secs(10);
const CALLS: u32 = 32;

/// What answers wait for, so that nothing that arrives makes a turn ring for what is held back.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn set(&self, closed: bool) {
        *self.0.0.lock().expect("nobody panics with it") = closed;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().expect("nobody panics with it");
        let (_open, _) =
            self.0.1.wait_timeout_while(closed, PATIENCE, |closed| *closed).expect("nobody panics with it");
    }
}

fn pair(name: &str, doorbells: Doorbells) -> (Node, Node, Peer, Gate) {
    let limits = Limits { doorbells, ..Limits::default() };
    let gate = Gate::default();
    let passed = gate.clone();
    // One that polls would post what senders leave, and ring for it.
    let server =
        Node::builder(711).wait(WaitPolicy::Block).listen(name).limits(limits).handle(move |_, ask: Ask| {
            passed.pass();
            Answer { number: ask.number }
        });
    let server = server.start().expect("the server starts");
    let address = server.listening()[0].to_string();
    let client = Node::builder(712)
        .wait(WaitPolicy::Block)
        .peer(711, &address)
        .limits(limits)
        .start()
        .expect("the client starts");
    let peer = client.wait_for_peer(711, PATIENCE).expect("they meet");
    assert_eq!(peer.call(&Ask { number: 1 }).expect("it is answered").number, 1);
    (server, client, peer, gate)
}

/// Doorbells that are rung while so many calls are started, and until they are answered.
fn rung(peer: &Peer, gate: &Gate) -> (u64, u64) {
    gate.set(true);
    let doorbells = || peer.session().stats().doorbells.count();
    let before = doorbells();
    let held = peer.together();
    let pending: Vec<_> =
        (0..CALLS).map(|number| peer.start(&Ask { number }).expect("there is room")).collect();
    let while_held = doorbells() - before;
    drop(held);
    let rung = doorbells() - before;
    gate.set(false);
    for (number, call) in (0..).zip(pending) {
        assert_eq!(call.wait().expect("it is answered"), Answer { number });
    }
    assert!(while_held <= rung);
    (rung, doorbells() - before)
}

#[test]
fn calls_started_together_share_a_doorbell() {
    for name in ["shm:@pronto-test-together", "tcp:127.0.0.1:0"] {
        let (_server, _client, peer, gate) = pair(name, Doorbells::Shared);
        // The serving thread may ring in between all the same, when it keeps time.
        let (started, _) = rung(&peer, &gate);
        assert!(started < u64::from(CALLS) / 2, "{name}: {started}");
        // Whoever starts calls and holds nothing back may find the engine in the serving thread's hands, which rings once for all that
        // was left to it. One that is answered before the next has a doorbell to itself.
        let doorbells = || peer.session().stats().doorbells.count();
        let before = doorbells();
        for number in 0..CALLS {
            assert_eq!(peer.call(&Ask { number }).expect("it is answered").number, number);
        }
        assert!(doorbells() - before >= u64::from(CALLS), "{name}: {}", doorbells() - before);
    }
}

#[test]
fn a_wait_lets_what_was_held_back_leave() {
    let (_server, _client, peer, _gate) = pair("tcp:127.0.0.1:0", Doorbells::Shared);
    let together = peer.together();
    let first = peer.start(&Ask { number: 5 }).expect("there is room");
    assert_eq!(first.wait().expect("it is answered").number, 5);
    assert_eq!(peer.call(&Ask { number: 6 }).expect("it is answered").number, 6);
    drop(together);
}

#[test]
fn a_wait_for_what_was_answered_already_rings_for_nothing() {
    for name in ["shm:@pronto-test-together-answered", "tcp:127.0.0.1:0"] {
        let (_server, _client, peer, _gate) = pair(name, Doorbells::Shared);
        let stats = peer.session().stats();
        // A serving thread that keeps time may ring in between.
        let rings_for_nothing = |number| {
            let together = peer.together();
            let before = stats.messages_received.count();
            let first = peer.start(&Ask { number }).expect("there is room");
            let second = peer.start(&Ask { number }).expect("there is room");
            assert_eq!(first.wait().expect("it is answered").number, number);
            // One that is still on its way is another round's.
            for _ in 0..100_000 {
                if stats.messages_received.count() >= before + 2 {
                    break;
                }
                std::thread::yield_now();
            }
            let held = peer.start(&Ask { number }).expect("there is room");
            let before = stats.doorbells.count();
            assert_eq!(second.wait().expect("it is answered").number, number);
            let rung = stats.doorbells.count() - before;
            drop(together);
            assert_eq!(held.wait().expect("it is answered").number, number);
            rung == 0
        };
        assert!((0..50).any(rings_for_nothing), "{name}");
    }
}

#[test]
fn it_can_be_switched_off() {
    let (_server, _client, peer, gate) = pair("tcp:127.0.0.1:0", Doorbells::PerMessage);
    let (_, answered) = rung(&peer, &gate);
    assert!(answered >= u64::from(CALLS), "{answered}");
}
