//! Peers that send nothing: heartbeats keep them connected, even if one of them is stopped for a second at the worst
//! moment, and cost almost nothing.

use pronto_core::Nanos;
use pronto_sim::Fault;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};

/// Returns a scenario with three nodes that have communicated and do so no more.
fn scenario(seed: u64) -> Scenario {
    let (options, limits) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, 3, options, limits, Traffic::patient());
    scenario.run(Nanos::from_millis(50 + seed * 37 % 1000));
    scenario.set_traffic(Traffic::patient().silent());
    scenario.run(Nanos::from_secs(2));
    scenario
}

fn assert_together(scenario: &Scenario) {
    for (node, peer) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let events = scenario.peer_events(node, peer);
        assert_eq!((events.ups, events.downs, events.losses), (1, 0, 0), "{node} of {peer}: {events:?}");
    }
}

fn a_minute(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    let turns = scenario.turns();
    scenario.run(Nanos::from_secs(60));
    assert_together(&scenario);
    // One tick a second, and the wake-ups by the heartbeats of two peers.
    let each = (scenario.turns() - turns) / 3;
    assert!(each <= 60 * 3, "{each} turns of each node in an idle minute");
    scenario.finish()
}

fn a_second_without_a_turn(seed: u64) -> u64 {
    let mut scenario = scenario(seed);
    for stop in 0..10 {
        scenario.run(Nanos::from_millis(2_000 + (seed * 97 + stop * 211) % 1_000));
        let node = scenario.places()[usize::try_from(stop % 3).expect("below three")];
        scenario.world().inflict(Fault::Pause { node, span: Nanos::from_secs(1) });
    }
    scenario.run(Nanos::from_secs(5));
    assert_eq!(scenario.world().fired().pauses, 10);
    assert_together(&scenario);
    scenario.finish()
}

fn a_short_limit(seed: u64) -> u64 {
    let (options, limits) = Scenario::random_options(seed);
    let limits = limits.with_liveness(Some(Nanos::from_millis(600)), None);
    let mut scenario = Scenario::new(seed, 3, options, limits, Traffic::patient());
    scenario.run(Nanos::from_millis(50 + seed * 37 % 1000));
    scenario.set_traffic(Traffic::patient().silent());
    scenario.run(Nanos::from_secs(20));
    assert_together(&scenario);
    scenario.finish()
}

/// Heartbeats at the usual interval would come after the end of the session.
///
/// Shows: protocol.heartbeat
#[test]
fn a_short_limit_has_short_heartbeats() {
    for_each_seed(100, a_short_limit);
}

/// Shows: protocol.heartbeat
#[test]
fn a_minute_of_silence_takes_no_peer_down() {
    for_each_seed(60, a_minute);
}

/// Shows: protocol.lateness
#[test]
fn a_second_without_a_turn_causes_no_event() {
    for_each_seed(100, a_second_without_a_turn);
}
