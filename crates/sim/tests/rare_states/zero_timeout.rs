//! A wait without time: the thread polls once, as no other thread does.

use pronto_core::Nanos;
use pronto_core::executor::WaitPolicy;
use pronto_core::session::{End, WaitOutcome};
use pronto_sim::SimOptions;
use pronto_wire::CallId;

use super::pair::{Nothing, Pair, few};

#[test]
fn a_wait_without_time_finds_a_reply_that_has_arrived() {
    let mut pair = Pair::new(SimOptions::like_tcp(), few());
    let call = pair.call(1, Nanos::NEVER);
    let has_reply = |pair: &Pair, call: CallId| {
        let outcome = pair.near.wait(call, Nanos::ZERO, WaitPolicy::Spin, &mut Nothing, &pair.executor);
        matches!(outcome, WaitOutcome::Ended(End::Reply(_)))
    };
    pair.receive();
    assert!(!has_reply(&pair, call), "the handler has not ended");
    pair.respond(&pair.callee.asked[0]);
    pair.receive();
    assert!(has_reply(&pair, call));
    assert_eq!(pair.near.open_calls(), 0);
}
