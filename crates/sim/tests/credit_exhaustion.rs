//! Callers always want more than their peers grant, handlers are slow, and windows are as small as one message. Every
//! refusal must be returned as a value, and every accepted call must get a response.

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::Span;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};

fn story(seed: u64) -> u64 {
    let (options, limits) = Scenario::random_options(seed);
    let window = u16::try_from(1 + seed % 3).expect("below four");
    let limits = Limits { calls: 24, requests: [window, window], ..limits };
    let flood = Traffic { gap: Some(Span::micros(5, 200)), burst: 12, ..Traffic::patient() };
    let traffic = flood.working(Span::micros(100, 5_000));
    let mut scenario = Scenario::new(seed, 3, options, limits, traffic);
    scenario.run(Nanos::from_millis(200));
    let tally = scenario.ledger().tally();
    assert!(tally.no_credit > tally.calls, "credits were never exhausted: {tally:?}");
    assert!(tally.replies > 100, "too few calls got a reply: {tally:?}");
    assert_eq!(scenario.world().overruns(), 0);
    scenario.finish()
}

/// Shows: protocol.credit-free
#[test]
fn exhausted_credits_are_reported_without_deadlock() {
    for_each_seed(100, story);
}
