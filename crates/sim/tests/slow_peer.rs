//! A peer that is late, stopped briefly, or stopped for long: only the last one counts as down, and it returns as the
//! same incarnation.

use pronto_core::Nanos;
use pronto_sim::Fault;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};

fn scenario(seed: u64) -> Scenario {
    let (options, limits) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, 2, options, limits, Traffic::patient());
    scenario.run(Nanos::from_millis(150));
    scenario
}

fn assert_undisturbed(scenario: &Scenario) {
    for (node, peer) in [(0, 1), (1, 0)] {
        let events = scenario.peer_events(node, peer);
        assert_eq!((events.ups, events.downs), (1, 0), "node {node}: {events:?}");
    }
}

fn late(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    let node = scenario.places()[1];
    scenario.world().inflict(Fault::Slow { node, by: Nanos::from_millis(20) });
    scenario.run(Nanos::from_secs(4));
    assert_eq!(scenario.world().fired().slowdowns, 1);
    assert_undisturbed(&scenario);
    scenario.finish()
}

fn stopped_for_a_second(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    let fault = Fault::Pause { node: scenario.places()[1], span: Nanos::from_secs(1) };
    scenario.world().inflict(fault);
    scenario.run(Nanos::from_secs(4));
    assert_eq!(scenario.world().fired().pauses, 1);
    assert_undisturbed(&scenario);
    scenario.finish()
}

fn stopped_for_eight_seconds(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    let fault = Fault::Pause { node: scenario.places()[1], span: Nanos::from_secs(8) };
    scenario.world().inflict(fault);
    scenario.run(Nanos::from_secs(12));
    let awake = scenario.peer_events(0, 1);
    assert_eq!((awake.ups, awake.downs), (2, 1), "seen by the running node: {awake:?}");
    assert!(
        scenario.peer_events(1, 0).downs <= 1,
        "seen by the stopped node: {:?}",
        scenario.peer_events(1, 0)
    );
    assert_eq!(scenario.world().incarnation(scenario.places()[1]), 1);
    scenario.finish()
}

#[test]
fn lateness_takes_no_peer_down() {
    for_each_seed(60, late);
}

#[test]
fn a_second_without_a_turn_causes_no_event() {
    for_each_seed(60, stopped_for_a_second);
}

/// Shows: protocol.down
#[test]
fn eight_seconds_without_a_turn_take_the_peer_down_once() {
    for_each_seed(60, stopped_for_eight_seconds);
}
