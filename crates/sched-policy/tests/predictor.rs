//! The predictor and its users, compared with exact arithmetic and over the whole range.

use pronto_sched_policy::policy::auto::{Auto, Interval, ENOUGH, LEAST, MOST};
use pronto_sched_policy::policy::coschedule::{goodness, Policy, Prediction, Reading, Task};
use pronto_sched_policy::policy::frequency::{Frequency, Sampled, AVERAGED, PERIOD};
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::occupancy::{Measure, Occupancy, Queue};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;
use proptest::prelude::*;

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![Just(Share::NONE), Just(Share::ALL), (0..=1_000_000_u32).prop_map(Share::millionths)]
}

fn sockets() -> impl Strategy<Value = Vec<Occupancy>> {
    let amount = || prop_oneof![0..20_000_u64, any::<u64>()];
    let queue = move || (amount(), amount()).prop_map(|(bytes, messages)| Queue { bytes, messages });
    let socket = (queue(), queue()).prop_map(|(received, sent)| Occupancy { received, sent });
    prop::collection::vec(socket, 0..5)
}

/// Formula 1, exactly, in units of 2^-32 packet and 10^-6.
fn exact(frequency: Level, current: Level, past: Share) -> u128 {
    let (past, rest) = (u128::from(past.as_millionths()), u128::from(past.rest().as_millionths()));
    past * u128::from(frequency.as_fixed()) + rest * u128::from(current.as_fixed())
}

/// Every P of whole per cents, every pair of levels up to eight packets: the formula, rounded down by less than two units.
#[test]
fn the_formula_is_exact_but_for_rounding() {
    for percent in 0..=100 {
        let past = Share::percent(percent);
        for before in 0..=8 {
            let mut frequency = Frequency::NEW;
            for _ in 0..AVERAGED {
                frequency = frequency.advanced(Level::packets(before), past);
            }
            for current in 0..=8 {
                let current = Level::packets(current);
                let next = u128::from(frequency.advanced(current, past).level().as_fixed()) * 1_000_000;
                let exact = exact(frequency.level(), current, past);
                assert!(next <= exact && exact < next + 2_000_000, "{past:?} {before} {current:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_share_of_anything_is_exact(share in share(), whole in any::<u64>()) {
        let exact = u128::from(whole) * u128::from(share.as_millionths()) / 1_000_000;
        prop_assert_eq!(u128::from(share.of(whole)), exact);
    }

    #[test]
    fn a_ratio_is_exact_to_a_millionth(part in any::<u64>(), whole in 1..=u64::MAX) {
        let exact = u128::from(part.min(whole)) * 1_000_000 / u128::from(whole);
        let ratio = u128::from(Share::ratio(part, whole).as_millionths());
        prop_assert!(ratio.abs_diff(exact) <= 1, "{ratio} {exact}");
    }

    #[test]
    fn a_frequency_never_exceeds_the_observed_one(
        levels in prop::collection::vec((any::<u64>(), 0..64_u32), 1..100),
        past in share(),
    ) {
        let mut frequency = Frequency::NEW;
        let mut most = Level::ZERO;
        for (bytes, shift) in levels {
            let level = Level::bytes(bytes >> shift);
            most = most.max(level);
            frequency = frequency.advanced(level, past);
            prop_assert!(frequency.level() <= most);
        }
    }

    #[test]
    fn the_time_form_is_the_decision_form_once_per_period(
        spans in prop::collection::vec((0..200_u64, 0..100_000_u64), 1..20),
        past in (0..=990_000_u32).prop_map(Share::millionths),
    ) {
        let (mut sampled, mut frequency) = (Sampled::new(Nanos::ZERO), Frequency::NEW);
        let (mut now, mut held) = (Nanos::ZERO, Level::ZERO);
        for (periods, bytes) in spans {
            now = now.after(PERIOD.times(periods));
            for _ in 0..periods {
                frequency = frequency.advanced(held, past);
            }
            held = Level::bytes(bytes);
            sampled = sampled.sampled(held, past, now);
            let off = sampled.level().as_fixed().abs_diff(frequency.level().as_fixed());
            // A thousandth of a packet at levels of up to 25 packets.
            prop_assert!(off < Level::PACKET.part_of(1_000).as_fixed(), "{off}");
        }
    }

    #[test]
    fn queries_do_not_change_the_time_form(
        moments in prop::collection::vec(0..3_000_000_000_u64, 0..50),
        past in share(),
        begun in 0..1_000_000_000_u64,
    ) {
        let begin = Sampled::new(Nanos(begun)).sampled(Level::packets(9), past, Nanos(begun));
        let (mut looked, mut last) = (begin, Nanos(begun));
        for moment in moments {
            let now = Nanos(moment);
            looked = looked.at(past, now);
            last = last.max(now);
        }
        let apart = looked.level().as_fixed().abs_diff(begin.at(past, last).level().as_fixed());
        prop_assert!(apart < Level::PACKET.part_of(100).as_fixed(), "{apart}");
    }

    #[test]
    fn no_time_and_no_level_is_too_large(
        (begun, one, other) in (any::<u64>(), any::<u64>(), any::<u64>()),
        bytes in any::<u64>(),
        past in share(),
    ) {
        let sampled = Sampled::new(Nanos(begun)).sampled(Level::bytes(bytes), past, Nanos(one));
        prop_assert!(sampled.at(past, Nanos(other)).level() <= Level::bytes(bytes));
        prop_assert_eq!(sampled.at(past, Nanos::ZERO), sampled);
    }

    #[test]
    fn pred_sees_at_least_as_much_as_dyn_and_linux_nothing(
        sockets in sockets(),
        (counter, priority) in (0..1_u32 << 30, 0..1_u32 << 30),
        past in share(),
        packets in any::<bool>(),
    ) {
        let measure = if packets { Measure::Packets } else { Measure::BytesAndMessages };
        let weight = |policy, reading, counter| {
            let prediction = Prediction { policy, measure, past, reading };
            goodness(Task::Normal { counter, priority }, Frequency::NEW, &sockets, &prediction).1
        };
        let [linux, receive, both] = [Policy::Linux, Policy::Dynamic, Policy::Predictive]
            .map(|policy| weight(policy, Reading::Corrected, counter));
        prop_assert!(linux <= receive && receive <= both);
        if counter > 0 {
            prop_assert_eq!(linux.whole(), u64::from(counter) + u64::from(priority));
        }
        prop_assert_eq!(weight(Policy::Predictive, Reading::Corrected, 0), Level::ZERO, "nothing starves");
        let ours = Policy::Predictive.current(Measure::BytesAndMessages, &sockets);
        prop_assert!(Policy::Predictive.current(Measure::Packets, &sockets) <= ours);
    }

    #[test]
    fn p_comes_near_its_best_from_anywhere_also_with_noise(
        bests in prop::collection::vec((0..=1_000_000_u32, 2..12_u64), 1..4),
        noise in prop::collection::vec(0..2_000_u64, 64),
    ) {
        let mut auto = Auto::NEW;
        for (best, slope) in bests {
            let wait = |past: Share| 100_000 + u64::from(past.as_millionths().abs_diff(best)) * slope / 10;
            for (round, noise) in (0..600).zip(noise.iter().cycle()) {
                let past = auto.past();
                prop_assert!(past >= LEAST && past <= MOST);
                let waited = Nanos((wait(past) + noise + round % 7) * ENOUGH);
                auto = auto.handle(&Interval { messages: ENOUGH, waited, waits: 0, without_sleep: 0 }).0;
            }
            let (found, least) = (wait(auto.settled()), wait(Share::millionths(best.clamp(15_625, 984_375))));
            prop_assert!(found <= least + least / 5, "{found} instead of {least}: {auto:?}");
        }
    }

    #[test]
    fn no_interval_is_too_large(intervals in prop::collection::vec(any::<(u64, u64, u64, u64)>(), 1..50)) {
        let mut auto = Auto::NEW;
        for (messages, waited, waits, without_sleep) in intervals {
            let interval = Interval { messages, waited: Nanos(waited), waits, without_sleep };
            let again = auto.handle(&interval);
            prop_assert_eq!(again, auto.handle(&interval), "equal inputs give equal outputs");
            auto = again.0;
            prop_assert!(auto.past() >= LEAST && auto.past() <= MOST);
        }
    }
}
