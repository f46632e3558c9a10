//! A partition longer than the liveness limit: both sides take the other one down once, open calls end, and after
//! healing the same incarnations have a new session. A shorter partition has no effect.

use pronto_core::Nanos;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{Fault, SimOptions};

/// Returns a scenario with a transport that retries as long as the partition lasts, or one that gives the connection
/// up.
fn scenario(seed: u64) -> Scenario {
    let patient = seed.is_multiple_of(2);
    let options = if patient { SimOptions::like_tcp() } else { SimOptions::like_verbs() };
    let (_, limits) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, 2, options, limits, Traffic::patient());
    scenario.run(Nanos::from_millis(200));
    scenario
}

/// Starts the partition in both directions, or in one only.
fn begin(scenario: &Scenario, one_way: bool) {
    let (from, to) = (scenario.places()[0], scenario.places()[1]);
    let fault = if one_way { Fault::BlockOneWay { from, to } } else { Fault::Partition(from, to) };
    scenario.world().inflict(fault);
}

fn end(scenario: &Scenario) {
    scenario.world().inflict(Fault::Heal(scenario.places()[0], scenario.places()[1]));
}

fn long(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    begin(&scenario, seed % 4 >= 2);
    scenario.run(Nanos::from_secs(8));
    for (node, peer) in [(0, 1), (1, 0)] {
        let events = scenario.peer_events(node, peer);
        assert_eq!((events.ups, events.downs), (1, 1), "node {node} during the partition: {events:?}");
    }
    assert!(scenario.world().fired().stalled_frames > 0, "the fault never happened");
    assert!(scenario.ledger().tally().peer_downs > 0, "no call was open when the partition began");
    end(&scenario);
    scenario.run(Nanos::from_secs(3));
    for (node, peer) in [(0, 1), (1, 0)] {
        let events = scenario.peer_events(node, peer);
        assert_eq!((events.ups, events.downs), (2, 1), "node {node} after it: {events:?}");
        assert_eq!(scenario.world().incarnation(scenario.places()[node]), 1);
    }
    scenario.finish()
}

fn short(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    begin(&scenario, seed % 4 >= 2);
    scenario.run(Nanos::from_millis(1_200));
    end(&scenario);
    scenario.run(Nanos::from_millis(1_500));
    assert!(scenario.world().fired().stalled_frames > 0, "the fault never happened");
    for (node, peer) in [(0, 1), (1, 0)] {
        let events = scenario.peer_events(node, peer);
        assert_eq!((events.ups, events.downs), (1, 0), "node {node}: {events:?}");
    }
    assert_eq!(scenario.ledger().tally().peer_downs, 0);
    scenario.finish()
}

/// Shows: protocol.down
#[test]
fn a_long_partition_ends_the_session_once() {
    for_each_seed(60, long);
}

#[test]
fn a_short_partition_ends_nothing() {
    for_each_seed(60, short);
}
