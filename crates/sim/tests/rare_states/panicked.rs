//! A thread panics while it holds an engine: the session ends once, and the next link starts another one.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;

use pronto_core::fabric::{Arrived, HeapMemory, Region};
use pronto_core::session::{DownCause, End, Event, Executed, Inbound, OutgoingPayload, SendError, Sink};
use pronto_core::{Clock as _, Nanos};
use pronto_sim::{SimLease, SimOptions};
use pronto_wire::Class;

use crate::pair::{Outcome, Pair, SimSession, few, key, number, respond, spec};

/// Collects events, and panics when it is asked for anything, or as often as it is to in events.
#[derive(Default)]
struct Fragile {
    events: Vec<Event>,
    panics_in_events: u32,
}

impl Sink<SimLease> for Fragile {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        panic!("meant: request {}", number(&inbound));
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
        if self.panics_in_events != 0 {
            self.panics_in_events -= 1;
            panic!("meant: {event:?}");
        }
    }
}

fn panics<R>(what: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(what)).is_err(), "a panic was expected");
}

/// Recovers the near side's session, once. Returns the events of its sink.
fn recover(pair: &Pair, session: &SimSession) -> Vec<Event> {
    let mut sink = Fragile::default();
    assert!(session.has_failed());
    assert!(session.turn(1, || false, &mut sink, &pair.executor).is_none(), "the engine is free");
    assert!(session.tick(pair.executor.now(), Nanos::ZERO, &mut sink, &pair.executor).is_none());
    assert!(session.info(&pair.executor).is_none());
    assert!(session.fail(&mut sink, &pair.executor));
    assert!(!session.fail(&mut sink, &pair.executor), "the session was recovered before");
    assert!(!session.has_failed() && !session.is_up() && !session.is_linked(&pair.executor));
    assert_eq!(session.stats().failures.count(), 1);
    sink.events
}

fn assert_panicked(events: &[Event]) {
    assert!(matches!(events, [Event::PeerDown { cause: DownCause::Panicked, .. }]), "{events:?}");
}

/// Links both sides again and asserts that a call gets its reply.
fn assert_good_as_new(pair: &mut Pair) {
    pair.link_anew();
    pair.callee.asked.clear();
    for round in 100..120 {
        let call = pair.call(round, Nanos::NEVER);
        pair.turn();
        let asked = pair.callee.asked.pop().expect("the request has come");
        assert_eq!(asked.number, round);
        respond(&asked);
        pair.turn();
        assert_eq!(pair.outcome(call), Outcome::Reply);
    }
    assert_eq!((pair.near.open_calls(), pair.far.open_calls()), (0, 0));
    assert_eq!(pair.near.work_in_flight(&pair.executor), 0);
}

#[test]
fn a_panic_in_a_callers_turn_ends_each_of_its_calls_once_and_closes_the_link() {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    let responded = pair.call(1, Nanos::NEVER);
    pair.turn();
    respond(&pair.callee.asked[0]);
    pair.turn();
    let [posted, left, long] =
        [pair.call(2, Nanos::NEVER), pair.call(3, Nanos::NEVER), pair.long_call(4, 3_000)];
    let region = Region::new(Arc::new(HeapMemory::new(64)));
    let received =
        pair.near.post_receive(9, &region, (0, 64), &pair.executor).expect("there is room for a receive");
    pair.turn();
    pair.near.abandon(left, Class::Control, &pair.executor);
    let executor = pair.executor.clone();
    panics(|| pair.near.turn(1, || panic!("meant"), &mut Fragile::default(), &executor));
    // Accepted, but never posted.
    let submitted = pair.call(5, Nanos::NEVER);
    let payload = OutgoingPayload::inline(&[1]).expect("a byte fits an inline message");
    let sent = pair
        .near
        .notify_sync(&key(), Class::Control, payload, &pair.executor)
        .expect("the message is queued");
    let near = Arc::clone(&pair.near);
    assert_panicked(&recover(&pair, &near));
    assert_eq!(pair.outcome(responded), Outcome::Reply, "it had ended before");
    for call in [posted, long, received] {
        assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::Maybe));
    }
    assert_eq!(pair.outcome(submitted), Outcome::PeerDown(Executed::No), "it never left");
    assert!(near.has_ended(sent) && matches!(near.take(sent, &executor), End::Flushed));
    assert_eq!(near.open_calls(), 0, "every slot is free, including that of the abandoned call");
    let refused = near.call(&spec(Class::Control, Nanos::NEVER), OutgoingPayload::EMPTY, &pair.executor);
    assert!(matches!(refused, Err(SendError::NotConnected { .. })), "{refused:?}");
    pair.turn();
    assert!(!pair.far.is_linked(&pair.executor), "the peer sees the link closed");
    // Sends responses to the session that has failed.
    pair.callee.asked.split_off(1).iter().for_each(respond);
    assert_good_as_new(&mut pair);
}

/// Shows: operations.panicked
#[test]
fn a_panic_of_the_callee_ends_its_session_and_the_caller_may_call_again() {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    let call = pair.call(1, Nanos::NEVER);
    pair.world.run_until(pair.world.now() + Nanos::from_millis(5));
    let (far, executor) = (Arc::clone(&pair.far), pair.executor.clone());
    panics(|| far.turn(1, || false, &mut Fragile::default(), &executor));
    assert_panicked(&recover(&pair, &far));
    pair.turn();
    assert!(
        !pair.near.has_ended(call) && !pair.near.is_linked(&executor),
        "its link is lost, and the call waits"
    );
    pair.link_anew();
    assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::Maybe));
    assert_good_as_new(&mut pair);
}

#[test]
fn a_link_that_is_installed_recovers_the_session_first() {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    let call = pair.call(1, Nanos::NEVER);
    pair.turn();
    let executor = pair.executor.clone();
    panics(|| pair.near.turn(1, || panic!("meant"), &mut Fragile::default(), &executor));
    pair.link_anew();
    assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::Maybe));
    assert_eq!(pair.near.stats().failures.count(), 1);
    assert_good_as_new(&mut pair);
}

#[test]
fn a_session_that_panics_while_it_ends_still_ends() {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    let [first, second] = [pair.call(1, Nanos::NEVER), pair.call(2, Nanos::NEVER)];
    pair.turn();
    let executor = pair.executor.clone();
    let mut sink = Fragile { panics_in_events: 1, ..Fragile::default() };
    panics(|| pair.near.take_down(DownCause::Silent, &mut sink, &executor));
    let near = Arc::clone(&pair.near);
    assert!(recover(&pair, &near).is_empty(), "the sink was notified of the end before it panicked");
    for call in [first, second] {
        assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::Maybe));
    }
    pair.turn();
    assert_good_as_new(&mut pair);
}

#[test]
fn a_panic_while_a_session_is_recovered_leaves_it_to_be_recovered_again() {
    let mut pair = Pair::new(SimOptions::like_shm(), few());
    let call = pair.call(1, Nanos::NEVER);
    pair.turn();
    let executor = pair.executor.clone();
    panics(|| pair.near.turn(1, || panic!("meant"), &mut Fragile::default(), &executor));
    let mut sink = Fragile { panics_in_events: 1, ..Fragile::default() };
    panics(|| pair.near.fail(&mut sink, &executor));
    assert!(pair.near.has_failed());
    assert!(pair.near.fail(&mut Fragile::default(), &executor));
    assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::Maybe));
    pair.turn();
    assert_good_as_new(&mut pair);
}
