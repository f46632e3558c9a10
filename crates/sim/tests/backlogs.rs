//! Messages that wait for room, in states that a seed reaches by itself. Connections are full, or have windows of one
//! request, also right after a resumption and until the next loss. Waiting calls pass their deadlines or are dropped.
//! Handlers respond long after the link of their request is gone, and many of them at a time while the engine is held.
//! Memory is reused by its owner when a message ends.

use std::sync::Mutex;

use pronto_core::Nanos;
use pronto_core::session::Limits;
use pronto_sim::scenario::{Scenario, Tally, Traffic, for_each_seed_or_soak};
use pronto_sim::{FaultRates, Fired, Random, SimOptions, Span};

/// Seeds of an ordinary run: about a minute on two CPUs, optimised.
const SEEDS: u64 = 300;
/// Seeds of a soak.
const SOAK: u64 = 100_000;
/// One seed in 16 has windows that exceed the submission queue, and bursts that fill them.
const WIDE_ONE_IN: u64 = 16;
/// Number of calls of such a seed.
const WIDE: u16 = 600;

/// Counters of sessions that must be positive in some run, or the runs prove nothing.
const COUNTERS: [&str; 5] =
    ["backlogged", "links_resumed", "requests_resent", "duplicates_dropped", "replies_resent"];

struct Outcome {
    fired: Fired,
    tally: Tally,
    counters: [u64; COUNTERS.len()],
}

fn story(seed: u64) -> (u64, Outcome) {
    let mut random = Random::new(seed ^ 0xbac1);
    let (options, limits) = Scenario::random_options(seed);
    // Without completions that depend on the receiver, sessions outlive their links.
    let options = match random.below(4) {
        0 => options,
        1 | 2 => SimOptions::like_verbs(),
        _ => SimOptions::like_tcp(),
    };
    let traffic = Traffic { by_reference_one_in: 2, ..Traffic::mixed() };
    // A transfer's response is sent in another class than its request, so the counts of one connection cannot be
    // compared.
    let transfers = seed % 2 == 1;
    let traffic = if transfers { traffic.transferring(Span::micros(200, 6_000)) } else { traffic };
    let traffic = traffic.responding_late(3, Nanos::from_millis(random.below(30))).over_tight_links(3);
    let (limits, traffic, span) = if seed % WIDE_ONE_IN == WIDE_ONE_IN - 1 {
        let limits = Limits { calls: WIDE, requests: [WIDE; 2], first_requests: [WIDE; 2], ..limits };
        // Calls of a lane run one after another: each is short, or the last one would take minutes.
        let traffic = Traffic { burst: 400, bulk_one_in: 8, late_one_in: 0, ..traffic };
        let traffic = Traffic { hoard: Some(Nanos::from_millis(30)), ..traffic };
        (limits, traffic.working(Span::micros(1, 40)), Nanos::from_millis(60))
    } else {
        (Limits { calls: limits.calls + 4, ..limits }, traffic, Nanos::from_millis(500))
    };
    let mut scenario = Scenario::new(seed, 2, options, limits, traffic);
    scenario.run(Nanos::from_millis(40));
    let mut sometimes =
        |every: u64| (random.below(3) != 0).then(|| (Nanos::from_millis(every), Span::micros(100, 40_000)));
    let rates = FaultRates {
        cut: sometimes(120).map(|(every, _)| every),
        full: sometimes(40),
        starved: sometimes(80),
        ..FaultRates::default()
    };
    let begin = scenario.world().now();
    for (at, fault) in rates.plan(scenario.places(), span, seed) {
        scenario.world().schedule(begin + at, fault);
    }
    scenario.run(span + Nanos::from_millis(100));
    let counters = COUNTERS.map(|counter| scenario.counted(counter));
    let (world, tally) = (scenario.world().clone(), scenario.ledger().tally());
    let hash = scenario.finish();
    assert!(transfers || world.unasked_responses() == 0, "responses on links without their requests");
    (hash, Outcome { fired: world.fired(), tally, counters })
}

#[test]
fn every_waiting_message_ends_once() {
    let all = Mutex::new((Fired::default(), [0; COUNTERS.len()], [0; 4]));
    for_each_seed_or_soak(SEEDS, SOAK, |seed| {
        let (hash, Outcome { fired, tally, counters }) = story(seed);
        let mut all = all.lock().expect("no holder panics");
        all.0 += fired;
        all.1.iter_mut().zip(counters).for_each(|(sum, count)| *sum += count);
        let ends = [tally.replies, tally.deadlines, tally.abandoned, tally.sends_ended];
        all.2.iter_mut().zip(ends).for_each(|(sum, count)| *sum += count);
        hash
    });
    let (fired, counters, ends) = all.into_inner().expect("no holder panicked");
    println!("{fired:?}, {COUNTERS:?}: {counters:?}, ends: {ends:?}");
    assert!(fired.cuts > 0 && fired.fulls > 0 && fired.refused_posts > 0, "a fault never happened");
    assert!(counters.iter().chain(&ends).all(|count| *count > 0), "something never happened");
}
