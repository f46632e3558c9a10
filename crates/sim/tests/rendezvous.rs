//! Messages into posted buffers while links are lost, nodes die, and both sides give up: no message is lost, received
//! twice, changed, or left behind.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::scenario::{Scenario, Traffic, TransferTally, for_each_seed};
use pronto_sim::{Fault, FaultRates, Span};

/// Returns the counts of a tally, with their names.
fn each(tally: &TransferTally) -> [(&'static str, u64); 9] {
    [
        ("sent", tally.sent),
        ("received", tally.received),
        ("by reference", tally.by_reference),
        ("sends given up", tally.sends_given_up),
        ("deadlines", tally.deadlines),
        ("cancelled", tally.cancelled),
        ("refused", tally.refused),
        ("peer downs", tally.peer_downs),
        ("regrants", tally.regrants),
    ]
}

/// Runs a scenario for many seeds. Each event in `must` must happen in at least one of them.
fn tell(seeds: u64, rates: FaultRates, nodes: usize, must: &[&str]) {
    let all = Mutex::new([0; 9]);
    for_each_seed(seeds, |seed| {
        let (options, limits) = Scenario::random_options(seed);
        let limits = Limits { calls: limits.calls + 4, ..limits };
        let traffic = Traffic::mixed().transferring(Span::micros(200, 6_000));
        let mut scenario = Scenario::new(seed, nodes, options, limits, traffic);
        scenario.run(Nanos::from_millis(300));
        let begin = scenario.world().now();
        let plan = rates.plan(scenario.places(), Nanos::from_millis(600), seed);
        let suspends = plan.iter().filter(|(_, fault)| matches!(fault, Fault::Suspend { .. })).count();
        for (at, fault) in plan {
            scenario.world().schedule(begin + at, fault);
        }
        scenario.run(Nanos::from_millis(700));
        assert_eq!(scenario.world().fired().suspends, suspends as u64);
        let tally = scenario.transfers();
        assert!(tally.received > 0 && tally.sent > 0, "no message was transferred: {tally:?}");
        let mut all = all.lock().expect("no holder panics");
        all.iter_mut().zip(each(&tally)).for_each(|(sum, (_, count))| *sum += count);
        drop(all);
        scenario.finish()
    });
    let sums = all.into_inner().expect("no holder panicked");
    for ((name, _), sum) in each(&TransferTally::default()).iter().zip(sums) {
        println!("{name}: {sum}");
        assert!(sum > 0 || !must.contains(name), "{name} never happened in any seed");
    }
}

const ALWAYS: [&str; 6] = ["sent", "received", "by reference", "sends given up", "deadlines", "cancelled"];

#[test]
fn in_good_health() {
    tell(20, FaultRates::default(), 2, &ALWAYS);
}

/// Shows: protocol.rendezvous
#[test]
fn links_are_lost_and_transfers_go_on() {
    let rates = FaultRates { cut: Some(Nanos::from_millis(40)), ..FaultRates::default() };
    let mut must = ALWAYS.to_vec();
    must.push("regrants");
    tell(20, rates, 2, &must);
}

/// Deadlines of the suspended machine and of others differ by the time of the suspension.
#[test]
fn machines_are_suspended_in_the_middle() {
    let suspend = Some((Nanos::from_millis(150), Span::millis(1, 5_000)));
    let rates = FaultRates { suspend, ..FaultRates::default() };
    tell(20, rates, 2, &ALWAYS);
}

#[test]
fn peers_die_in_every_phase() {
    let crash = Some((Nanos::from_millis(150), Span::millis(1, 40)));
    let rates = FaultRates { crash, ..FaultRates::default() };
    let mut must = ALWAYS.to_vec();
    must.push("peer downs");
    tell(20, rates, 3, &must);
}
