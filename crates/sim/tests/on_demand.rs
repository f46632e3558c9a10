//! Links that are made when a message needs one, and end when they are idle, under all faults. `pauses.rs` has them in good health.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::scenario::{Scenario, Traffic, for_each_seed};
use pronto_sim::{FaultRates, Fired, Random, SimOptions, Span};

/// Time after which an idle link ends.
const IDLE: Nanos = Nanos::from_millis(30);

fn on_demand(limits: Limits) -> Limits {
    Limits { pause_after: IDLE, heartbeat: Nanos::from_millis(50), ..limits }
}

/// Bursts with pauses in which links end.
fn rare() -> Traffic {
    Traffic { gap: Some(Span::millis(5, 400)), ..Traffic::mixed() }
}

/// Shows: protocol.pause, protocol.pause-declined
#[test]
fn the_ledger_is_correct_under_all_faults_with_links_on_demand() {
    let all = Mutex::new((Fired::default(), 0_u64, 0_u64));
    for_each_seed(400, |seed| {
        let (_, limits) = Scenario::random_options(seed);
        let options = [SimOptions::like_tcp, SimOptions::like_verbs][usize::from(seed % 2 == 1)]();
        let mut scenario = Scenario::new(seed, 3, options, on_demand(limits), rare());
        scenario.run(Nanos::from_millis(20));
        let begin = scenario.world().now();
        let span = Nanos::from_millis(3_000);
        for (at, fault) in rates(seed).plan(scenario.places(), span, seed) {
            scenario.world().schedule(begin + at, fault);
        }
        scenario.run(span);
        let pauses: u64 =
            [(0, 1), (0, 2), (1, 2)].into_iter().map(|(a, b)| scenario.peer_events(a, b).pauses).sum();
        let mut all = all.lock().expect("no holder panics");
        all.0 += scenario.world().fired();
        all.1 += pauses;
        all.2 += 1;
        drop(all);
        scenario.finish()
    });
    let (fired, pauses, seeds) = all.into_inner().expect("no holder panicked");
    println!("{pauses} links paused; {fired:?}");
    assert!(pauses > seeds, "few links have paused: {pauses} in {seeds} runs");
    assert!(fired.cuts > 0 && fired.crashes > 0 && fired.pauses > 0 && fired.blocks > 0, "{fired:?}");
}

fn rates(seed: u64) -> FaultRates {
    let mut random = Random::new(seed ^ 0x0d3a);
    let mut sometimes = |every: u64| (random.below(2) == 0).then(|| Nanos::from_millis(every));
    let long = Span::millis(1, 5_000);
    FaultRates {
        cut: sometimes(150),
        partition: sometimes(900).map(|every| (every, long)),
        one_way: sometimes(900).map(|every| (every, long)),
        crash: sometimes(900).map(|every| (every, Span::millis(1, 2_000))),
        pause: sometimes(500).map(|every| (every, long)),
        suspend: sometimes(900).map(|every| (every, long)),
        full: sometimes(150).map(|every| (every, Span::micros(100, 60_000))),
        starved: None,
        slow: sometimes(400).map(|every| (every, Nanos::from_millis(3), long)),
        damage: sometimes(700),
        leap: sometimes(500).map(|every| (every, long)),
        exhaust: sometimes(500).map(|every| (every, Span::millis(1, 400))),
    }
}
