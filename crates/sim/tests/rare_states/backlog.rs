//! A request that waits for room on its first link. The peer has not seen it: its deadline ends it as not executed, it
//! is not sent once its caller has abandoned it, and it carries the time that is left.

use pronto_core::Nanos;
use pronto_core::session::{Executed, OutgoingPayload, SendError};
use pronto_sim::SimOptions;
use pronto_wire::{CallId, Class};

use super::pair::{Outcome, Pair, enough, few, key, spec};

/// Returns a call whose request waits, because the connection takes no message for `full`.
fn waits(timeout: Nanos, full: Nanos) -> (Pair, CallId) {
    let pair = Pair::new(SimOptions::like_tcp(), few());
    pair.fill(full);
    let call = pair.call(1, timeout);
    assert!(pair.world.fired().refused_posts > 0, "the connection was full");
    assert_eq!(pair.exchanged().requests, 0);
    (pair, call)
}

/// Shows: calls.ends-maybe
#[test]
fn its_deadline_ends_it_as_not_executed() {
    let (mut pair, call) = waits(Nanos::from_millis(10), Nanos::from_millis(60));
    pair.pass(Nanos::from_millis(40));
    assert_eq!(pair.outcome(call), Outcome::Deadline(Executed::No));
    pair.pass(Nanos::from_millis(60));
    assert_eq!(pair.callee.numbers(), [], "it was sent after its end");
    assert_eq!(pair.near.open_calls(), 0);
    assert_eq!(pair.near.credits(Class::Control), u32::from(few().requests[0]), "its credit is returned");
}

#[test]
fn an_abandoned_request_is_never_sent() {
    let (mut pair, call) = waits(Nanos::NEVER, Nanos::from_millis(60));
    pair.near.abandon(call, Class::Control, &pair.executor);
    pair.pass(Nanos::from_millis(120));
    assert_eq!(pair.callee.numbers(), [], "it was abandoned before there was room");
    assert_eq!(pair.near.open_calls(), 0, "no response is expected");
    assert_eq!(pair.near.credits(Class::Control), u32::from(few().requests[0]), "its credit is returned");
}

/// Shows: protocol.deadline
#[test]
fn the_request_carries_the_time_that_is_left() {
    let (mut pair, _) = waits(Nanos::from_millis(200), Nanos::from_millis(100));
    pair.pass(Nanos::from_millis(140));
    assert_eq!(pair.callee.numbers(), [1], "there was room in time");
    let left = pair.callee.asked[0].timeout;
    // A deadline is accurate to a few ticks of 4 ms.
    assert!(left <= Nanos::from_millis(120), "{left:?} is more time than its caller has");
    assert!(left >= Nanos::from_millis(50), "{left:?} is less time than its caller has");
}

/// Shows: protocol.end-executed
#[test]
fn the_end_of_the_session_ends_it_as_not_executed() {
    let (mut pair, call) = waits(Nanos::NEVER, Nanos::from_secs(60));
    pair.end_session();
    assert_eq!(pair.outcome(call), Outcome::PeerDown(Executed::No));
    assert_eq!(pair.callee.numbers(), []);
}

/// Two links in succession have no room for it, and the third one has: it is sent once, as a request that was never
/// sent before.
#[test]
fn it_outlives_its_links() {
    let (mut pair, call) = waits(Nanos::NEVER, Nanos::from_secs(1));
    for _ in 0..2 {
        pair.cut();
        pair.link(enough());
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

/// A lost link leaves no credit: until the next link no call is accepted, not even for the credit of a request that has
/// ended.
#[test]
fn no_other_call_is_accepted_while_there_is_no_link() {
    let (mut pair, call) = waits(Nanos::from_millis(200), Nanos::from_secs(1));
    pair.cut();
    let another = |pair: &Pair| {
        let taken =
            pair.near.call(&spec(Class::Control, Nanos::NEVER), OutgoingPayload::EMPTY, &pair.executor);
        assert!(matches!(taken, Err(SendError::NoCredit { class: Class::Control })), "{taken:?}");
    };
    another(&pair);
    pair.pass(Nanos::from_millis(400));
    assert_eq!(pair.outcome(call), Outcome::Deadline(Executed::No));
    another(&pair);
    assert_eq!(pair.near.credits(Class::Control), 0);
}

/// A notification that names a grant waits when its link is lost. The grant ends with the link, so no other link
/// carries it.
#[test]
fn a_notification_that_names_a_grant_stays_with_its_link() {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    pair.fill(Nanos::from_millis(200));
    let granted_on = pair.near.link_generation();
    let payload = |number: u64| {
        OutgoingPayload::inline(&number.to_le_bytes()).expect("eight bytes fit an inline message")
    };
    let notify = |pair: &Pair| {
        let (key, class) = (key(), Class::Control);
        pair.near.notify_with_grant(&key, class, payload(1), granted_on, &pair.executor)
    };
    assert_eq!(notify(&pair), Ok(()));
    assert!(pair.world.fired().refused_posts > 0, "the connection was full");
    pair.cut();
    pair.link(enough());
    assert!(matches!(notify(&pair), Err(SendError::NotConnected { .. })), "the link is gone");
    pair.pass(Nanos::from_millis(400));
    assert_eq!(pair.callee.numbers(), []);
    assert_eq!(pair.near.notify(&key(), Class::Control, payload(2), &pair.executor), Ok(()));
    pair.turn();
    assert_eq!(pair.callee.numbers(), [2]);
}

/// A request that names a grant of an earlier link says so, both if it is posted immediately and if it waits for room
/// first.
///
/// Shows: protocol.earlier-grant
#[test]
fn a_request_reports_that_its_grant_is_of_an_earlier_link() {
    for full in [Nanos::ZERO, Nanos::from_millis(60)] {
        let mut pair = Pair::new(SimOptions::like_verbs(), few());
        let granted_on = pair.near.link_generation();
        pair.cut();
        pair.link(enough());
        if full != Nanos::ZERO {
            pair.fill(full);
        }
        for (number, link) in [(1, granted_on), (2, pair.near.link_generation())] {
            let payload = OutgoingPayload::inline(&u64::to_le_bytes(number))
                .expect("eight bytes fit an inline message");
            let spec = spec(Class::Control, Nanos::NEVER);
            let called = pair.near.call_with_grant(&spec, payload, link, &pair.executor);
            assert!(called.is_ok(), "{called:?}");
            pair.pass(full);
            pair.turn();
        }
        let asked: Vec<_> = pair.callee.asked.iter().map(|asked| (asked.number, asked.resent)).collect();
        assert_eq!(asked, [(1, true), (2, false)]);
    }
}
