//! A response given after the link of its request is gone. It is sent on another link only if its request was sent
//! there, too: otherwise it would take a receive that is meant for another response.

use pronto_core::Nanos;
use pronto_core::session::{Executed, Limits};
use pronto_sim::SimOptions;

use super::pair::{Outcome, Pair, Room, enough, few};

const TIMEOUT: Nanos = Nanos::from_millis(20);

/// Calls whose deadline passed on the first link have no waiter: they are not sent again, and must get no response.
///
/// Shows: protocol.response-link
#[test]
fn responses_without_a_resent_request_are_not_sent() {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    let calls = [1, 2, 3].map(|number| pair.call(number, TIMEOUT));
    pair.pass(TIMEOUT + TIMEOUT);
    assert_eq!(calls.map(|call| pair.outcome(call)), [Outcome::Deadline(Executed::Maybe); 3]);
    assert_eq!(pair.callee.numbers(), [1, 2, 3]);
    pair.cut();
    pair.link(enough());
    for asked in pair.callee.asked.clone() {
        pair.respond(&asked);
    }
    pair.turn();
    let exchanged = pair.exchanged();
    assert_eq!(exchanged.requests, 0, "no call was open");
    assert_eq!(exchanged.responses, 0, "{} responses to 0 requests", exchanged.responses);
    assert_eq!(pair.near.open_calls(), 0);
}

/// The slots of those calls are reused, and every receive of the new link is needed: old responses would exceed the
/// receives.
///
/// Shows: protocol.reserves, protocol.credit-replies
#[test]
fn old_responses_do_not_take_the_receives_of_new_ones() {
    let calls = 8;
    let limits = Limits { calls, ..few() };
    let mut pair = Pair::new(SimOptions::like_verbs(), limits);
    for number in 0..calls {
        pair.call(number.into(), TIMEOUT);
    }
    pair.pass(TIMEOUT + TIMEOUT);
    pair.cut();
    pair.link(enough());
    let old = core::mem::take(&mut pair.callee.asked);
    assert_eq!(old.len(), usize::from(calls));
    for number in 0..calls {
        if pair.near.open_calls() < calls {
            pair.call(u64::from(calls + number), Nanos::NEVER);
        }
    }
    pair.turn();
    for asked in old.iter().chain(&pair.callee.asked.clone()) {
        pair.respond(asked);
    }
    pair.turn();
    let exchanged = pair.exchanged();
    assert!(
        exchanged.responses <= exchanged.requests,
        "{} responses to {} requests",
        exchanged.responses,
        exchanged.requests
    );
    assert_eq!((pair.world.overruns(), pair.world.unasked_responses()), (0, 0));
}

/// The request of an open call waits for a credit on the second link. Its response waits, too, until the request
/// arrives again.
///
/// Shows: protocol.resumed, protocol.response-link
#[test]
fn it_waits_until_its_request_comes_again() {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    let calls = [1, 2].map(|number| pair.call(number, Nanos::NEVER));
    pair.turn();
    let asked = pair.callee.asked.clone();
    assert_eq!(pair.callee.numbers(), [1, 2]);
    pair.cut();
    pair.link(Room { requests: 1, ..enough() });
    assert_eq!(pair.exchanged().requests, 1, "the window takes one of them");
    pair.respond(&asked[1]);
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    assert_eq!(pair.exchanged().responses, 0, "a response came before its request");
    // The first request is a duplicate, so its credit is returned immediately, and the second one leaves.
    pair.turn();
    pair.respond(&asked[0]);
    pair.turn();
    assert_eq!(calls.map(|call| pair.outcome(call)), [Outcome::Reply; 2]);
    assert_eq!(pair.callee.numbers(), [1, 2], "each handler ran once");
    assert_eq!(pair.world.unasked_responses(), 0);
}

/// The response is given while there is no link.
///
/// Shows: protocol.response-waits
#[test]
fn a_response_given_without_a_link_waits() {
    let mut pair = Pair::new(SimOptions::like_verbs(), few());
    let calls = [1, 2].map(|number| pair.call(number, Nanos::NEVER));
    pair.turn();
    pair.cut();
    for asked in pair.callee.asked.clone() {
        pair.respond(&asked);
    }
    pair.link(Room { requests: 1, ..enough() });
    pair.world.run_until(pair.world.now() + Nanos::from_millis(1));
    assert_eq!(pair.exchanged().responses, 0, "no request has been received");
    pair.turn();
    assert_eq!(calls.map(|call| pair.outcome(call)), [Outcome::Reply; 2]);
    assert_eq!((pair.callee.numbers(), pair.world.unasked_responses()), (vec![1, 2], 0));
}
