//! Callers that always want more than their peers grant, handlers that take their time, windows down to one message: every
//! refusal is a value, and everything that was taken is answered.

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
    assert!(tally.no_credit > tally.calls, "credits were never short: {tally:?}");
    assert!(tally.replies > 100, "hardly anything was answered: {tally:?}");
    assert_eq!(scenario.world().overruns(), 0);
    scenario.finish()
}

#[test]
fn no_credit_is_a_value_and_no_deadlock() {
    for_each_seed(100, story);
}
