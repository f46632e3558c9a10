//! Batched messages to one peer share doorbells, unless the configuration disables this.

mod threads;

use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex};

use pronto::{Doorbells, Limits, Message, Node, Peer, WaitPolicy};

use threads::{Thread, report_thread, wait_until};

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

const TIMEOUT: Duration = Duration::from_secs(10);
const CALLS: u32 = 32;

/// Gate before all replies. While it is closed, no arriving message makes an engine turn ring for held messages.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn set(&self, closed: bool) {
        *self.0.0.lock().expect("no holder panics") = closed;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().expect("no holder panics");
        let (_open, _) =
            self.0.1.wait_timeout_while(closed, TIMEOUT, |closed| *closed).expect("no holder panics");
    }
}

fn pair(name: &str, doorbells: Doorbells) -> (Node, Node, Peer, Gate) {
    let limits = Limits { doorbells, ..Limits::default() };
    let gate = Gate::default();
    let passed = gate.clone();
    // A polling server would post what senders leave, and ring for it.
    let server =
        Node::builder(711).wait(WaitPolicy::Block).listen(name).limits(limits).handle(move |_, ask: Ask| {
            passed.pass();
            Answer { number: ask.number }
        });
    let server = server.start().expect("the server starts");
    let address = server.listening()[0].to_string();
    let client = report_thread(Node::builder(712))
        .wait(WaitPolicy::Block)
        .peer(711, &address)
        .limits(limits)
        .start()
        .expect("the client starts");
    let peer = client.wait_for_peer(711, TIMEOUT).expect("the nodes connect");
    assert_eq!(peer.call(&Ask { number: 1 }).expect("a reply").number, 1);
    (server, client, peer, gate)
}

/// Returns the numbers of doorbells rung while `CALLS` calls are started, and until all replies have arrived.
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
        assert_eq!(call.wait().expect("a reply"), Answer { number });
    }
    assert!(while_held <= rung);
    (rung, doorbells() - before)
}

/// Shows: calls.together, operations.doorbells
#[test]
fn batched_calls_share_a_doorbell() {
    let shm = format!("shm:@pronto-test-together-{}", std::process::id());
    for name in [shm.as_str(), "tcp:127.0.0.1:0"] {
        let (_server, _client, peer, gate) = pair(name, Doorbells::Shared);
        // The serving thread may also ring in between, in its tick.
        let (started, _) = rung(&peer, &gate);
        assert!(started < u64::from(CALLS) / 2, "{name}: {started}");
        // Without a batch, a caller may still find the engine held by the serving thread, which then rings once for several messages.
        // A call whose reply arrives before the next call starts has a doorbell of its own.
        let doorbells = || peer.session().stats().doorbells.count();
        let before = doorbells();
        for number in 0..CALLS {
            assert_eq!(peer.call(&Ask { number }).expect("a reply").number, number);
        }
        assert!(doorbells() - before >= u64::from(CALLS), "{name}: {}", doorbells() - before);
    }
}

/// Shows: calls.together-wait
#[test]
fn a_wait_flushes_the_batch_that_contains_its_call() {
    let (_server, _client, peer, _gate) = pair("tcp:127.0.0.1:0", Doorbells::Shared);
    let together = peer.together();
    let first = peer.start(&Ask { number: 5 }).expect("there is room");
    assert_eq!(first.wait().expect("a reply").number, 5);
    assert_eq!(peer.call(&Ask { number: 6 }).expect("a reply").number, 6);
    drop(together);
}

/// The serving thread may ring in between, in its tick. The rounds count during which it sleeps all the time, and none of them rings.
#[test]
fn a_wait_for_an_available_reply_rings_no_doorbell() {
    const ROUNDS: u32 = 50;
    let shm = format!("shm:@pronto-test-together-answered-{}", std::process::id());
    for name in [shm.as_str(), "tcp:127.0.0.1:0"] {
        let (server, _client, peer, _gate) = pair(name, Doorbells::Shared);
        let serving = Thread::serving(&server.wait_for_peer(712, TIMEOUT).expect("the nodes connect"));
        let stats = peer.session().stats();
        let mut undisturbed = 0;
        for number in 0..ROUNDS {
            let together = peer.together();
            let before = stats.messages_received.count();
            let first = peer.start(&Ask { number }).expect("there is room");
            let second = peer.start(&Ask { number }).expect("there is room");
            assert_eq!(first.wait().expect("a reply").number, number);
            wait_until("the second reply has arrived", || stats.messages_received.count() >= before + 2);
            let held = peer.start(&Ask { number }).expect("there is room");
            let (slept, before) = (serving.sleeps_now(), stats.doorbells.count());
            assert_eq!(second.wait().expect("a reply").number, number);
            let rung = stats.doorbells.count() - before;
            let is_undisturbed = slept.is_some() && serving.sleeps_now() == slept;
            assert!(rung == 0 || !is_undisturbed, "{name}: {rung} doorbells in round {number}");
            undisturbed += u32::from(is_undisturbed);
            drop(together);
            assert_eq!(held.wait().expect("a reply").number, number);
        }
        assert!(undisturbed >= ROUNDS / 10, "{name}: {undisturbed} of {ROUNDS} rounds were undisturbed");
    }
}

#[test]
fn sharing_doorbells_can_be_disabled() {
    let (_server, _client, peer, gate) = pair("tcp:127.0.0.1:0", Doorbells::PerMessage);
    let (_, answered) = rung(&peer, &gate);
    assert!(answered >= u64::from(CALLS), "{answered}");
}
