//! A process dies under load and restarts as a new incarnation. Its peers end everything that was open, and nothing of
//! the old incarnation is executed or answered in the new one.

use pronto_core::Nanos;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{Fault, Span};

fn story(seed: u64) -> u64 {
    let (options, limits) = Scenario::random_options(seed);
    let traffic = Traffic { gap: Some(Span::millis(1, 20)), ..Traffic::mixed() };
    let mut scenario = Scenario::new(seed, 3, options, limits, traffic);
    scenario.run(Nanos::from_millis(150));
    let place = scenario.places()[1];
    let machine = seed % 3 == 2;
    let crash = if machine { Fault::CrashMachine(place) } else { Fault::CrashProcess(place) };
    scenario.world().inflict(crash);
    // The process restarts soon, before a peer notices; or late, when every peer has taken it down.
    let away = if seed % 4 < 2 { Nanos::from_millis(20) } else { Nanos::from_secs(7) };
    scenario.run(away);
    scenario.world().inflict(Fault::Restart(place));
    scenario.run(Nanos::from_secs(8));
    assert_eq!((scenario.world().fired().crashes, scenario.world().incarnation(place)), (1, 2));
    for survivor in [0, 2] {
        let events = scenario.peer_events(survivor, 1);
        assert_eq!((events.ups, events.downs), (2, 1), "survivor {survivor}: {events:?}");
        let other = scenario.peer_events(survivor, 2 - survivor);
        assert_eq!((other.ups, other.downs), (1, 0), "the survivors were affected by each other: {other:?}");
    }
    scenario.finish()
}

#[test]
fn a_new_incarnation_starts_from_nothing() {
    for_each_seed(100, story);
}
