//! Waiting and serving: the promises that hold for every history, tried on all small ones and on many large ones.

use pronto_sched_policy::policy::lanes::{Class, Lane, Turn, Work, IN_A_ROW};
use pronto_sched_policy::policy::oversubscription::{
    overran, Evidence, Oversubscription, Poll, Quota, HOLDS,
};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::spin::{
    End, Preference, Processors, Reason, Spin, Standing, Wait, LEAST_COST, MOST_COST,
};
use pronto_sched_policy::policy::time::Nanos;
use proptest::prelude::*;

const COST: Nanos = LEAST_COST;

/// One wait of a message that comes so long `after` its begin: what was learned, what it cost, what the best would have.
fn live(spin: Spin, after: Nanos) -> (Spin, u64, u64) {
    let wait = spin.wait(Preference::Adaptive, Standing::Ordinary, Processors::Enough);
    let slept = End::Slept(after.after(spin.cost()));
    let (end, cost) = match wait {
        Wait::PollFor(bound) if after <= bound => (End::Polled(after), after),
        Wait::PollFor(bound) => (slept, bound.after(spin.cost())),
        Wait::Sleep(_) => (slept, spin.cost()),
        Wait::Poll => unreachable!("not asked for"),
    };
    (spin.ended(wait, end), cost.0, after.min(spin.cost()).0)
}

/// Every history of nine waits out of four lengths: never more than twice the best, and one wake-up.
#[test]
fn every_short_history_costs_at_most_twice_the_best() {
    fn histories(depth: u32, spin: Spin, cost: u64, best: u64, slept_at_once: &mut u32) {
        assert!(cost <= 2 * best + COST.0, "{spin:?}: {cost} against {best}");
        if depth == 0 {
            return;
        }
        for after in [0, COST.0 / 2, COST.0, 20 * COST.0] {
            let at_once = spin.wait(Preference::Adaptive, Standing::Ordinary, Processors::Enough)
                == Wait::Sleep(Reason::Learned);
            *slept_at_once += u32::from(at_once);
            let (next, more, least) = live(spin, Nanos(after));
            histories(depth - 1, next, cost + more, best + least, slept_at_once);
        }
    }
    let mut slept_at_once = 0;
    histories(9, Spin::new(COST), 0, 0, &mut slept_at_once);
    assert!(slept_at_once > 1_000, "learning was tried: {slept_at_once}");
}

/// All sets of up to three lanes in all states, at every turn: what is served is what the rule says, found by sorting.
#[test]
fn every_small_set_of_lanes_is_served_by_the_rule() {
    let ready = |since| Work::Ready { since: Nanos(since) };
    let kinds: Vec<Lane> = [Class::Control, Class::Bulk]
        .into_iter()
        .flat_map(|class| [Work::Idle, Work::Running, ready(0), ready(1)].map(|work| Lane { class, work }))
        .collect();
    let mut turns = vec![Turn::NEW];
    for _ in 0..IN_A_ROW {
        let both = [Class::Control, Class::Bulk].map(|class| Lane { class, work: ready(0) });
        turns.push(turns[turns.len() - 1].next(&both).0);
    }
    let mut sets: Vec<Vec<Lane>> = vec![vec![]];
    for length in 0..3 {
        let longer: Vec<_> = sets
            .iter()
            .filter(|set| set.len() == length)
            .flat_map(|set| kinds.iter().map(|lane| [set.as_slice(), &[*lane]].concat()))
            .collect();
        sets.extend(longer);
    }
    for set in &sets {
        for (passed, turn) in turns.iter().enumerate() {
            let mut order: Vec<_> = set
                .iter()
                .enumerate()
                .filter_map(|(place, lane)| match lane.work {
                    Work::Ready { since } => Some((lane.class == Class::Bulk, since, place)),
                    Work::Idle | Work::Running => None,
                })
                .collect();
            order.sort_unstable();
            if passed == usize::from(IN_A_ROW) && order.iter().any(|lane| lane.0) {
                order.retain(|lane| lane.0);
            }
            let (next, served) = turn.next(set);
            assert_eq!(served, order.first().map(|lane| lane.2), "{set:?} after {passed}");
            assert!(turns.contains(&next));
        }
    }
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let quota = (any::<u64>(), any::<u64>())
        .prop_map(|(time, period)| Quota { time: Nanos(time), period: Nanos(period) });
    let pressure = (0..=1_000_000_u32).prop_map(Share::millionths);
    let small = || prop_oneof![0..4_u64, any::<u64>()];
    (any::<(u32, u32)>(), prop::option::of(quota), (small(), small(), small()), prop::option::of(pressure))
        .prop_map(|((wanting, processors), quota, (preempted, stolen, overruns), pressure)| Evidence {
            wanting,
            processors,
            quota,
            preempted,
            stolen: Nanos(stolen),
            pressure,
            overruns,
        })
}

proptest! {
    #[test]
    fn any_history_costs_at_most_twice_the_best(
        afters in prop::collection::vec(prop_oneof![0..100_000_u64, 0..10_000_u64, 0..10_000_000_000_u64], 1..300),
        cost in LEAST_COST.0..=MOST_COST.0,
    ) {
        let (mut spin, mut total, mut least) = (Spin::new(Nanos(cost)), 0, 0);
        for after in afters {
            let (next, cost, best) = live(spin, Nanos(after));
            (spin, total, least) = (next, total + cost, least + best);
            prop_assert!(total <= 2 * least + spin.cost().0);
        }
    }

    #[test]
    fn no_wait_is_too_long_and_none_polls_longer_than_a_wake_up(
        ends in prop::collection::vec((any::<bool>(), any::<u64>(), any::<u64>()), 1..50),
        cost in any::<u64>(),
    ) {
        let mut spin = Spin::new(Nanos(cost));
        for (polled, took, woken) in ends {
            let wait = spin.wait(Preference::Adaptive, Standing::Ordinary, Processors::Enough);
            if let Wait::PollFor(bound) = wait {
                prop_assert!(bound <= MOST_COST && bound == spin.cost());
            }
            let end = if polled { End::Polled(Nanos(took)) } else { End::Slept(Nanos(took)) };
            spin = spin.ended(wait, end).woken(Nanos(woken));
            prop_assert!(spin.cost() >= LEAST_COST && spin.cost() <= MOST_COST);
            for preference in [Preference::Spin, Preference::Block, Preference::Adaptive] {
                let boosted = spin.wait(preference, Standing::RealTime, Processors::Enough);
                prop_assert!(matches!(boosted, Wait::Sleep(_)), "a boosted thread polls");
            }
        }
    }

    #[test]
    fn a_record_replays_to_the_same_verdicts(
        record in prop::collection::vec((evidence(), any::<u64>()), 1..30),
    ) {
        let replay = || {
            let mut state = Oversubscription::NEW;
            record
                .iter()
                .map(|(evidence, now)| {
                    let (next, verdict) = state.handle(evidence, Nanos(*now));
                    state = next;
                    verdict
                })
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(replay(), replay());
    }

    #[test]
    fn without_new_evidence_every_verdict_ends(evidence in evidence(), begun in 0..u64::MAX / 2) {
        let quiet = Evidence { processors: 1, ..Evidence::default() };
        let (state, _) = Oversubscription::NEW.handle(&quiet, Nanos(begun));
        let (state, _) = state.handle(&evidence, Nanos(begun).after(Nanos(1)));
        let later = Nanos(begun).after(Nanos(1)).after(HOLDS);
        prop_assert_eq!((state.at(later), state.handle(&quiet, later).1), (None, None));
    }

    #[test]
    fn a_poll_that_kept_its_bound_never_overran(bound in any::<u64>(), lasted in any::<u64>(), ran in any::<u64>()) {
        let poll = Poll { bound: Nanos(bound), lasted: Nanos(lasted), ran: Nanos(ran) };
        prop_assert!(!overran(&poll) || lasted > bound && ran <= bound);
    }

    #[test]
    fn no_lane_that_is_ready_waits_for_ever(
        classes in prop::collection::vec(any::<bool>(), 1..8),
        arrivals in prop::collection::vec(0..8_usize, 200),
    ) {
        // Lanes are refilled as fast as they are served, and a lane's next item is always the youngest of all.
        let mut lanes: Vec<_> = classes
            .iter()
            .map(|control| Lane { class: if *control { Class::Control } else { Class::Bulk }, work: Work::Idle })
            .collect();
        let mut waited = vec![0; lanes.len()];
        let mut turn = Turn::NEW;
        for (now, lane) in (1..).zip(arrivals) {
            for other in [lane, lane + 1, lane + 2] {
                let place = other % lanes.len();
                if lanes[place].work == Work::Idle {
                    lanes[place].work = Work::Ready { since: Nanos(now) };
                }
            }
            let (next, served) = turn.next(&lanes);
            turn = next;
            for (place, waited) in waited.iter_mut().enumerate() {
                *waited = if lanes[place].work == Work::Idle { 0 } else { *waited + 1 };
            }
            if let Some(place) = served {
                lanes[place].work = Work::Idle;
                waited[place] = 0;
            }
            let most = lanes.len() * (usize::from(IN_A_ROW) + 1);
            prop_assert!(waited.iter().all(|waited| *waited <= most), "{waited:?}");
        }
    }
}
