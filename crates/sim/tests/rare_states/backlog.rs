//! A request that waits for room on its first link. Nobody has seen it yet: its deadline ends it as not executed, it is not sent
//! once its caller has given it up, and the time that travels with it is what is left.

use pronto_core::Nanos;
use pronto_core::session::{Executed, OutgoingPayload, Refused};
use pronto_sim::SimOptions;
use pronto_wire::{CallId, Class};

use super::pair::{Outcome, Pair, few, spec};

/// A call whose request waits, as the connection takes no message for `full`.
fn waits(timeout: Nanos, full: Nanos) -> (Pair, CallId) {
    let pair = Pair::new(SimOptions::like_tcp(), few());
    pair.fill(full);
    let call = pair.call(1, timeout);
    assert!(pair.world.fired().refused_posts > 0, "the connection was full");
    assert_eq!(pair.exchanged().requests, 0);
    (pair, call)
}

#[test]
fn its_deadline_ends_it_as_not_executed() {
    let (mut pair, call) = waits(Nanos::from_millis(10), Nanos::from_millis(60));
    pair.pass(Nanos::from_millis(40));
    assert_eq!(pair.outcome(call), Outcome::Deadline(Executed::No));
    pair.pass(Nanos::from_millis(60));
    assert_eq!(pair.callee.numbers(), [], "it was sent after its end");
    assert_eq!(pair.near.open_calls(), 0);
    assert_eq!(pair.near.credits(Class::Control), u32::from(few().requests[0]), "its credit is back");
}

#[test]
fn given_up_it_is_never_sent() {
    let (mut pair, call) = waits(Nanos::NEVER, Nanos::from_millis(60));
    pair.near.abandon(call, Class::Control, &pair.executor);
    pair.pass(Nanos::from_millis(120));
    assert_eq!(pair.callee.numbers(), [], "it was given up before there was room");
    assert_eq!(pair.near.open_calls(), 0, "nothing is to come for it");
    assert_eq!(pair.near.credits(Class::Control), u32::from(few().requests[0]), "its credit is back");
}

#[test]
fn the_time_that_travels_is_what_is_left() {
    let (mut pair, _) = waits(Nanos::from_millis(200), Nanos::from_millis(100));
    pair.pass(Nanos::from_millis(140));
    assert_eq!(pair.callee.numbers(), [1], "there was room in time");
    let left = pair.callee.asked[0].timeout;
    // A few ticks of 4 ms are the precision of a deadline.
    assert!(left <= Nanos::from_millis(120), "{left:?} is more time than its caller has");
    assert!(left >= Nanos::from_millis(50), "{left:?} is less time than its caller has");
}

#[test]
fn the_end_of_the_session_ends_it_as_not_executed() {
    let (mut pair, call) = waits(Nanos::NEVER, Nanos::from_secs(60));
    pair.end_session();
    assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::No));
    assert_eq!(pair.callee.numbers(), []);
}

/// Two links in a row have no room for it, the third one has: it is sent once, as one that was never sent before.
#[test]
fn it_outlives_its_links() {
    let (mut pair, call) = waits(Nanos::NEVER, Nanos::from_secs(1));
    for _ in 0..2 {
        pair.cut();
        pair.link(super::pair::enough());
        pair.pass(Nanos::from_millis(100));
        assert_eq!(pair.exchanged().requests, 0, "the connection is full");
    }
    pair.pass(Nanos::from_secs(1));
    assert_eq!(pair.callee.numbers(), [1]);
    let asked = pair.callee.asked[0].clone();
    pair.respond(&asked);
    pair.turn();
    assert_eq!(pair.outcome(call), Outcome::Reply);
}

/// A link that is lost leaves no credit: until the next link no call is taken, not even for the credit of a request that ended.
#[test]
fn while_its_link_is_away_no_other_call_is_taken() {
    let (mut pair, call) = waits(Nanos::from_millis(200), Nanos::from_secs(1));
    pair.cut();
    let another = |pair: &Pair| {
        let taken =
            pair.near.call(&spec(Class::Control, Nanos::NEVER), OutgoingPayload::EMPTY, &pair.executor);
        assert!(matches!(taken, Err(Refused::NoCredit { class: Class::Control })), "{taken:?}");
    };
    another(&pair);
    pair.pass(Nanos::from_millis(400));
    assert_eq!(pair.outcome(call), Outcome::Deadline(Executed::No));
    another(&pair);
    assert_eq!(pair.near.credits(Class::Control), 0);
}
