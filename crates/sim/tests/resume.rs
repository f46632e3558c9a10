//! Connections are lost repeatedly, and sessions resume over new ones: every call ends with its reply.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{FaultRates, SimOptions};

/// Counters of sessions that must be positive in some run, or the runs prove nothing.
const COUNTERS: [&str; 4] = ["links_resumed", "requests_resent", "duplicates_dropped", "replies_resent"];

fn story(seed: u64) -> (u64, [u64; 4]) {
    let options = if seed.is_multiple_of(2) { SimOptions::like_tcp() } else { SimOptions::like_verbs() };
    let (_, limits) = Scenario::random_options(seed);
    let limits = Limits { calls: limits.calls + 4, ..limits };
    let mut scenario = Scenario::new(seed, 2, options, limits, Traffic::patient());
    scenario.run(Nanos::from_millis(300));
    let rates = FaultRates { cut: Some(Nanos::from_millis(60)), ..FaultRates::default() };
    let begin = scenario.world().now();
    for (at, fault) in rates.plan(scenario.places(), Nanos::from_millis(600), seed) {
        scenario.world().schedule(begin + at, fault);
    }
    scenario.run(Nanos::from_millis(800));
    assert!(scenario.world().fired().cuts >= 2, "the fault never happened");
    let events = [scenario.peer_events(0, 1), scenario.peer_events(1, 0)];
    assert!(events.iter().all(|events| events.resumes >= 1), "no session was resumed: {events:?}");
    assert!(events.iter().all(|events| events.downs == 0), "a short loss took a peer down: {events:?}");
    assert_eq!(scenario.ledger().tally().peer_downs, 0);
    let counts = COUNTERS.map(|counter| scenario.counted(counter));
    (scenario.finish(), counts)
}

/// Shows: protocol.survives, operations.resent, operations.duplicates
#[test]
fn sessions_outlive_their_links() {
    let all = Mutex::new([0; COUNTERS.len()]);
    for_each_seed(100, |seed| {
        let (hash, counts) = story(seed);
        let mut all = all.lock().expect("no holder panics");
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        hash
    });
    for (counter, sum) in COUNTERS.iter().zip(all.into_inner().expect("no holder panicked")) {
        println!("{counter}: {sum}");
        assert!(sum > 0, "{counter} stayed 0 over all seeds");
    }
}
