//! Nodes whose systems make no more send memory ready for a time: messages wait or are refused, links that need memory are lost and made
//! again, and nothing is lost or executed twice.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{Fault, FaultRates, Fired, Span};

/// Shows: messages.once
#[test]
fn nodes_without_memory_go_on_when_there_is_some() {
    let all = Mutex::new((Fired::default(), 0));
    for_each_seed(100, |seed| {
        let (options, limits) = Scenario::random_options(seed);
        let mut scenario = Scenario::new(seed, 2, options, limits, Traffic::mixed());
        scenario.run(Nanos::from_millis(20));
        let rates = FaultRates {
            exhaust: Some((Nanos::from_millis(80), Span::millis(1, 200))),
            // New links need memory, too.
            cut: (seed % 2 == 0).then_some(Nanos::from_millis(100)),
            ..FaultRates::default()
        };
        let (begin, span) = (scenario.world().now(), Nanos::from_millis(800));
        for (at, fault) in rates.plan(scenario.places(), span, seed) {
            scenario.world().schedule(begin + at, fault);
        }
        scenario.run(span + Nanos::from_millis(500));
        let fired = scenario.world().fired();
        let replies = scenario.ledger().tally().replies;
        let mut all = all.lock().expect("no holder panics");
        all.0 += fired;
        all.1 += u64::from(replies == 0);
        drop(all);
        scenario.finish()
    });
    let (fired, silent) = all.into_inner().expect("no holder panicked");
    println!("{fired:?}, {silent} without a reply");
    assert!(fired.exhaustions > 0 && fired.refused_memory > 0 && fired.cuts > 0, "{fired:?}");
    assert_eq!(silent, 0, "in some worlds no call was answered");
}

/// Each link ends as soon as it is made, so the next attempt is made after a longer pause.
///
/// Shows: protocol.short-link
#[test]
fn links_that_end_soon_are_made_less_and_less_often() {
    for_each_seed(10, |seed| {
        let (options, limits) = Scenario::random_options(seed);
        let mut scenario = Scenario::new(seed, 2, options, limits, Traffic::mixed());
        let [place, other] = *scenario.places() else { unreachable!("there are two nodes") };
        scenario.run(Nanos::from_millis(700));
        let world = scenario.world();
        let (before, span) = (world.connections(), Nanos::from_secs(3));
        world.inflict(Fault::Exhaust { node: place, span });
        world.inflict(Fault::CutBetween(place, other));
        scenario.run(span);
        let made = (scenario.world().connections() - before) / 2;
        // Both nodes dial, at most 13 times each in 3 s: after 5, 10, 20, 40, 80, 160, 320, and then every 500 ms.
        assert!((1..=2 * 13).contains(&made), "{made} links in {span:?}");
        scenario.run(Nanos::from_secs(1));
        scenario.finish()
    });
}
