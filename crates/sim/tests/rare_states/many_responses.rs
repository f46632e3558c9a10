//! More responses than the submission queue holds, given while the engine is held. Each of them belongs to an open call
//! on a live link, and none may be lost.

use std::sync::mpsc;
use std::thread;

use pronto_core::Nanos;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Event, Inbound, Limits, OutgoingPayload, Response, Sink};
use pronto_sim::{SimLease, SimOptions};
use pronto_wire::CallId;

use super::pair::{Asked, Outcome, Pair, number, respond};

/// Number of calls whose responses are given together: more than the submission queue holds.
const DEFERRED: u64 = 400;

fn many() -> Limits {
    Limits {
        calls: 512,
        requests: [512, 8],
        first_requests: [512, 8],
        send_memory: [1 << 20; 2],
        ..Limits::default()
    }
}

/// Returns [`DEFERRED`] calls that the callee has received.
fn deferred() -> (Pair, Vec<CallId>) {
    let mut pair = Pair::new(SimOptions::like_shm(), many());
    let calls = (0..DEFERRED).map(|number| pair.call(number, Nanos::NEVER)).collect();
    pair.turn();
    assert_eq!(pair.callee.asked.len() as u64, DEFERRED);
    (pair, calls)
}

/// Asserts that all calls get their replies.
fn all_are_answered(pair: &mut Pair, calls: Vec<CallId>) {
    pair.turn();
    assert_eq!(pair.far.stats().replies_lost.count(), 0, "responses were lost on a live link");
    assert_eq!(pair.exchanged().responses, DEFERRED + 1);
    assert!(calls.into_iter().all(|call| pair.outcome(call) == Outcome::Reply));
    assert_eq!(pair.near.open_calls(), 0);
}

/// An inline handler that gives the deferred responses.
struct AnswersAll {
    deferred: Vec<Asked>,
}

impl Sink<SimLease> for AnswersAll {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        let number = number(&inbound);
        self.deferred.drain(..).for_each(|asked| respond(&asked));
        let payload =
            OutgoingPayload::inline(&number.to_le_bytes()).expect("eight bytes fit an inline message");
        let class = inbound.token.class();
        inbound.token.respond(Response::Reply { class, payload });
    }

    fn event(&mut self, _event: Event) {}
}

#[test]
fn no_response_of_an_inline_handler_is_lost() {
    let (mut pair, mut calls) = deferred();
    calls.push(pair.call(DEFERRED, Nanos::NEVER));
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    let deferred = core::mem::take(&mut pair.callee.asked);
    let mut handler = AnswersAll { deferred };
    let turned = pair.far.turn(1, || false, &mut handler, &pair.executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    assert!(handler.deferred.is_empty(), "the handler ran");
    all_are_answered(&mut pair, calls);
}

/// A handler during which another thread gives all the responses.
struct WhileHeld {
    begin: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
}

impl Sink<SimLease> for WhileHeld {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        self.begin.send(()).expect("the other thread waits");
        self.done.recv().expect("the other thread gives its responses");
        let payload = OutgoingPayload::inline(&[0; 8]).expect("eight bytes fit an inline message");
        let class = inbound.token.class();
        inbound.token.respond(Response::Reply { class, payload });
    }

    fn event(&mut self, _event: Event) {}
}

#[test]
fn no_response_of_another_thread_is_lost() {
    let (mut pair, mut calls) = deferred();
    calls.push(pair.call(DEFERRED, Nanos::NEVER));
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    let deferred = core::mem::take(&mut pair.callee.asked);
    let (begin, begun) = mpsc::channel();
    let (finish, done) = mpsc::channel();
    thread::scope(|scope| {
        let (session, executor) = (&pair.far, &pair.executor);
        let thread = scope.spawn(move || {
            begun.recv().expect("the handler runs");
            for asked in deferred {
                respond(&asked);
            }
            finish.send(()).expect("the handler waits");
        });
        let turned = session.turn(1, || false, &mut WhileHeld { begin, done }, executor);
        assert!(turned.is_some(), "no other thread holds the engine");
        thread.join().expect("the thread gives its responses");
    });
    all_are_answered(&mut pair, calls);
}

/// The connection takes no message for a time, and the responses wait in order.
#[test]
fn no_response_is_lost_while_the_connection_is_full() {
    let (mut pair, mut calls) = deferred();
    calls.push(pair.call(DEFERRED, Nanos::NEVER));
    let [near, far] = pair.nodes;
    let span = Nanos::from_millis(20);
    pair.world.inflict(pronto_sim::Fault::Full { from: far, to: near, span });
    pair.turn();
    for asked in core::mem::take(&mut pair.callee.asked) {
        pair.respond(&asked);
    }
    assert!(pair.world.fired().refused_posts > 0, "the connection was full");
    pair.pass(span + span);
    all_are_answered(&mut pair, calls);
}
