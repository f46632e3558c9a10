//! Doorbells that are held back: for a while, or for ever. Whatever was posted meanwhile arrives.

use pronto_core::Nanos;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{Fault, Span};

fn story(seed: u64, traffic: Traffic) -> u64 {
    let (options, limits) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, 2, options, limits, traffic);
    scenario.run(Nanos::from_millis(100));
    // What was held back when a link is lost leaves on the next one.
    scenario.world().inflict(Fault::CutBetween(scenario.places()[0], scenario.places()[1]));
    scenario.run(Nanos::from_millis(300));
    scenario.finish()
}

#[test]
fn what_is_held_back_for_a_while_arrives() {
    for_each_seed(100, |seed| story(seed, Traffic::mixed().holding(2, Span::micros(0, 10_000))));
}

#[test]
fn what_nobody_ever_lets_go_arrives_as_time_passes() {
    for_each_seed(100, |seed| story(seed, Traffic::patient().holding(1, Span::millis(1 << 40, 1 << 41))));
}
