//! Held doorbells, for a time or forever. Everything posted meanwhile must arrive.

use pronto_core::Nanos;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{Fault, Span};

fn story(seed: u64, traffic: Traffic) -> u64 {
    let (options, limits) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, 2, options, limits, traffic);
    scenario.run(Nanos::from_millis(100));
    // Messages that are held when a link is lost leave on the next one.
    scenario.world().inflict(Fault::CutBetween(scenario.places()[0], scenario.places()[1]));
    scenario.run(Nanos::from_millis(300));
    scenario.finish()
}

#[test]
fn messages_held_for_a_time_arrive() {
    for_each_seed(100, |seed| story(seed, Traffic::mixed().holding(2, Span::micros(0, 10_000))));
}

#[test]
fn messages_held_forever_arrive_by_ticks() {
    for_each_seed(100, |seed| story(seed, Traffic::patient().holding(1, Span::millis(1 << 40, 1 << 41))));
}
