//! Waiting and serving: properties that hold for every history, checked on all small ones and on many large ones.

use pronto_sched_policy::policy::lanes::{Class, Lane, Turn, Work, IN_A_ROW};
use pronto_sched_policy::policy::spin::{
    Circumstances, CpuSupply, End, Preference, Reason, SchedClass, Spin, Wait, WaitRequest, FAR, LEAST_COST,
    LONGER, MOST_COST,
};
use pronto_sched_policy::policy::time::Nanos;
use proptest::prelude::*;

const COST: Nanos = LEAST_COST;

const fn alone(bound: Nanos) -> Circumstances {
    Circumstances { sched_class: SchedClass::Ordinary, cpus: CpuSupply::Enough, bound }
}

/// Runs one wait for a message that arrives `after` its begin. Returns the history, its cost and the cost of the
/// optimum.
fn live(spin: Spin, after: Nanos, bound: Nanos) -> (Spin, u64, u64) {
    let wait = spin.wait(WaitRequest::default(), alone(bound));
    let slept = End::Slept(after.after(bound));
    let (end, cost) = match wait {
        Wait::PollFor(polls) if after <= polls => (End::Polled(after), after),
        Wait::PollFor(polls) => (slept, polls.after(bound)),
        Wait::Sleep(_) => (slept, bound),
        Wait::Poll => unreachable!("the request is adaptive"),
    };
    (spin.ended(wait, end, bound), cost.0, after.min(bound).0)
}

/// Returns whether `cost` is at most 33/16 of `best` plus one wake-up, exactly.
fn is_paid(cost: u64, best: u64, bound: Nanos) -> bool {
    16 * cost <= 33 * best + 16 * bound.0
}

/// Every history of eight waits out of five lengths, from an empty history and from one of long waits: the cost is
/// never more than 33/16 of the optimum plus one wake-up.
#[test]
fn every_short_history_costs_at_most_twice_the_best() {
    fn histories(depth: u32, spin: Spin, cost: u64, best: u64, slept_at_once: &mut u32) {
        assert!(is_paid(cost, best, COST), "{spin:?}: {cost} against {best}");
        if depth == 0 {
            return;
        }
        for after in [0, COST.0 / 2, COST.0, 3 * COST.0 / 2, 400 * COST.0] {
            let at_once = spin.wait(WaitRequest::default(), alone(COST)) == Wait::Sleep(Reason::Learned);
            *slept_at_once += u32::from(at_once);
            let (next, more, least) = live(spin, Nanos(after), COST);
            histories(depth - 1, next, cost + more, best + least, slept_at_once);
        }
    }
    let (mut slow, mut cost, mut best) = (Spin::NEW, 0, 0);
    for _ in 0..12 {
        let (next, more, least) = live(slow, COST.times(400), COST);
        (slow, cost, best) = (next, cost + more, best + least);
    }
    for (spin, cost, best) in [(Spin::NEW, 0, 0), (slow, cost, best)] {
        let mut slept_at_once = 0;
        histories(8, spin, cost, best, &mut slept_at_once);
        assert!(slept_at_once > 1_000 || spin == Spin::NEW, "immediate sleeps were tried: {slept_at_once}");
    }
}

/// All sets of up to three lanes in all states, at every turn: the served lane is the one that the rule gives, found by
/// sorting.
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

proptest! {
    #[test]
    fn any_history_costs_at_most_twice_the_best(
        afters in prop::collection::vec(prop_oneof![0..100_000_u64, 0..10_000_u64, 0..10_000_000_000_u64], 1..300),
        bound in LEAST_COST.0..=MOST_COST.0,
    ) {
        let (mut spin, mut total, mut least) = (Spin::NEW, 0, 0);
        for after in afters {
            let (next, cost, best) = live(spin, Nanos(after), Nanos(bound));
            (spin, total, least) = (next, total + cost, least + best);
            prop_assert!(is_paid(total, least, Nanos(bound)));
        }
    }

    #[test]
    fn no_wait_is_too_long_and_none_polls_for_longer_than_two_bounds(
        ends in prop::collection::vec((any::<bool>(), any::<u64>(), any::<u64>(), any::<Option<u64>>()), 1..50),
    ) {
        let mut spin = Spin::NEW;
        for (polled, took, bound, expected) in ends {
            let here = alone(Nanos(bound));
            let asked = expected.map_or_else(WaitRequest::default, |expected| WaitRequest::default().expecting(Nanos(expected)));
            if let Wait::PollFor(polls) = spin.wait(asked, here) {
                let bounds = [here.bound, here.bound.times(LONGER)];
                let is_due = asked.expected().is_none_or(|expected| polls == here.bound && expected <= polls);
                prop_assert!(bounds.contains(&polls) && is_due);
            }
            let end = if polled { End::Polled(Nanos(took)) } else { End::Slept(Nanos(took)) };
            spin = spin.ended(spin.wait(WaitRequest::default(), here), end, here.bound);
            prop_assert_eq!(Spin::from_bits(spin.to_bits()), spin);
            for preference in [Preference::Spin, Preference::Block, Preference::Adaptive] {
                let boosted = Circumstances { sched_class: SchedClass::RealTime, ..here };
                prop_assert!(matches!(spin.wait(preference.into(), boosted), Wait::Sleep(_)), "a boosted thread polls");
            }
        }
    }

    /// Invariant 3, for any earlier history.
    #[test]
    fn short_waits_are_polled_and_far_longer_ones_sleep_immediately(
        before in prop::collection::vec(prop_oneof![0..100_000_u64, 0..10_000_000_000_u64], 0..100),
        shorts in prop::collection::vec(0..1_000_u64, 32),
        longs in prop::collection::vec(1_000..1_000_000_u64, 32),
        bound in LEAST_COST.0..=MOST_COST.0,
    ) {
        let bound = Nanos(bound);
        let spin = before.into_iter().fold(Spin::NEW, |spin, after| live(spin, Nanos(after), bound).0);
        let wait = |spin: Spin| spin.wait(WaitRequest::default(), alone(bound));
        // In thousandths of half the bound, and of the length from which waits are far longer.
        let short = |part: u64| Nanos(bound.0 / 2 * part / 1_000);
        let long = |part: u64| Nanos(bound.0 * FAR * 2 * part / 1_000);
        let after_short = shorts.into_iter().fold(spin, |spin, part| live(spin, short(part), bound).0);
        prop_assert!(matches!(wait(after_short), Wait::PollFor(_)));
        let after_long = longs.into_iter().fold(spin, |spin, part| live(spin, long(part), bound).0);
        prop_assert_eq!(wait(after_long), Wait::Sleep(Reason::Learned));
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
