//! A suspended machine: its clock stands still, and those of others continue. A short suspension has no effect. One
//! longer than the liveness limit takes the peer down once at the running node, and at most once at the suspended one.
//! Everything open ends once, by its own node's clock.

use pronto_core::{Clock as _, Nanos};
use pronto_sim::Fault;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};

/// Returns a scenario with two nodes, the second of which is suspended for `span` in the middle of its traffic.
fn suspended(seed: u64, traffic: Traffic, span: Nanos) -> Scenario {
    let (options, limits) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, 2, options, limits, traffic);
    scenario.run(Nanos::from_millis(150));
    let [awake, asleep] = [scenario.places()[0], scenario.places()[1]];
    scenario.world().inflict(Fault::Suspend { node: asleep, span });
    scenario.run(span + Nanos::from_secs(4));
    assert_eq!(scenario.world().fired().suspends, 1);
    let [awake_now, asleep_now] = [awake, asleep].map(|node| scenario.world().clock_of(node).now());
    assert_eq!(awake_now.since(asleep_now), span, "one clock stood still");
    scenario
}

fn for_a_second(seed: u64) -> u64 {
    let scenario = suspended(seed, Traffic::patient(), Nanos::from_secs(1));
    for (node, peer) in [(0, 1), (1, 0)] {
        let events = scenario.peer_events(node, peer);
        assert_eq!((events.ups, events.downs), (1, 0), "node {node}: {events:?}");
    }
    scenario.finish()
}

fn for_half_a_minute(seed: u64) -> u64 {
    let scenario = suspended(seed, Traffic::mixed(), Nanos::from_secs(30));
    let awake = scenario.peer_events(0, 1);
    assert_eq!((awake.ups, awake.downs), (2, 1), "seen by the running node: {awake:?}");
    let asleep = scenario.peer_events(1, 0);
    assert_eq!((asleep.ups, asleep.downs), (2, 1), "seen by the suspended node: {asleep:?}");
    assert_eq!(scenario.world().incarnation(scenario.places()[1]), 1, "the incarnation is unchanged");
    scenario.finish()
}

#[test]
fn a_second_causes_no_event() {
    for_each_seed(20, for_a_second);
}

#[test]
fn half_a_minute_takes_the_peer_down_once() {
    for_each_seed(6, for_half_a_minute);
}
