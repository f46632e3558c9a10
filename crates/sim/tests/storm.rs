//! All faults together: three or five nodes with random windows over random transports, and faults of every kind that overlap.
//! The ledger must be correct in the end.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{FaultRates, Fired, Random, Span};

fn story(seed: u64, nodes: usize, limits: Limits, traffic: Traffic) -> (u64, Fired) {
    let (options, _) = Scenario::random_options(seed);
    let mut scenario = Scenario::new(seed, nodes, options, limits, traffic);
    scenario.run(Nanos::from_millis(20));
    let begin = scenario.world().now();
    let span = Nanos::from_millis(1_500);
    for (at, fault) in rates(seed).plan(scenario.places(), span, seed) {
        scenario.world().schedule(begin + at, fault);
    }
    scenario.run(span);
    let fired = scenario.world().fired();
    (scenario.finish(), fired)
}

/// Returns rates with each kind of fault in every other seed.
fn rates(seed: u64) -> FaultRates {
    let mut random = Random::new(seed ^ 0x570);
    let mut sometimes = |every: u64| (random.below(2) == 0).then(|| Nanos::from_millis(every));
    let long = Span::millis(1, 5_000);
    FaultRates {
        cut: sometimes(150),
        partition: sometimes(700).map(|every| (every, long)),
        one_way: sometimes(700).map(|every| (every, long)),
        crash: sometimes(800).map(|every| (every, Span::millis(1, 2_000))),
        pause: sometimes(500).map(|every| (every, long)),
        suspend: sometimes(700).map(|every| (every, long)),
        full: sometimes(150).map(|every| (every, Span::micros(100, 60_000))),
        // Tested separately in `backlogs.rs`.
        starved: None,
        slow: sometimes(400).map(|every| (every, Nanos::from_millis(3), long)),
        damage: sometimes(500),
        leap: sometimes(500).map(|every| (every, long)),
        exhaust: sometimes(300).map(|every| (every, Span::millis(1, 400))),
    }
}

/// Shows: calls.notify, protocol.order, protocol.notifications, messages.once
#[test]
fn the_ledger_is_correct_under_all_faults() {
    let fired = all_faults(1000, |seed| story(seed, 3, Scenario::random_options(seed).1, Traffic::mixed()));
    assert!(fired.each().iter().all(|count| *count > 0), "some fault never happened: {fired:?}");
}

/// Shows: calls.notify, protocol.order, protocol.notifications, messages.once
#[test]
fn the_ledger_of_five_nodes_is_correct_under_all_faults() {
    let fired = all_faults(120, |seed| story(seed, 5, Scenario::random_options(seed).1, Traffic::mixed()));
    assert!(fired.cuts > 0 && fired.crashes > 0 && fired.pauses > 0, "{fired:?}");
}

/// The limits of a production system, and bursts that exceed its windows. In one seed of four, payloads are up to 4 MiB long.
///
/// Shows: calls.notify, protocol.order, protocol.notifications, messages.once
#[test]
fn the_ledger_is_correct_under_all_faults_within_the_default_limits() {
    let traffic = Traffic { gap: Some(Span::millis(5, 60)), burst: 120, ..Traffic::mixed() };
    let fired = all_faults(8, |seed| {
        let usual = Limits::default();
        let max_payload = if seed % 4 == 3 { usual.max_payload } else { [8 << 10, 64 << 10] };
        story(seed, 3, Limits { max_payload, ..usual }, traffic)
    });
    assert!(fired.cuts > 0 && fired.crashes > 0 && fired.pauses > 0, "{fired:?}");
}

/// Tells a story for each seed. Returns the faults that have happened.
fn all_faults(seeds: u64, story: impl Fn(u64) -> (u64, Fired) + Sync) -> Fired {
    let all = Mutex::new(Fired::default());
    for_each_seed(seeds, |seed| {
        let (hash, fired) = story(seed);
        *all.lock().expect("no holder panics") += fired;
        hash
    });
    let fired = all.into_inner().expect("no holder panicked");
    println!("{fired:?}");
    fired
}
