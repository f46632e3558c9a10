//! Each claim meets results with which it does not hold.

use std::collections::{BTreeMap, HashMap};

use super::super::trials::{self, Length, Summary, Totals};
use super::*;

/// Results of a trial, for all of its pairs or ranks alike unless a rank is named.
#[derive(Clone, Copy, Debug, Default)]
struct Fake {
    late: f64,
    longest_ms: f64,
    mean_ms: f64,
    /// Mean of the ranks 5 to 7.
    behind_ms: f64,
    granted: u64,
    compute: f64,
}

/// Results in which every claim holds, by figure and boost.
fn good() -> HashMap<(&'static str, Boost), Fake> {
    use Boost::{Counter, None, OnUnblock, Sleepers};
    let late = |late| Fake { late, longest_ms: 5.3, ..Fake::default() };
    let pairs = |late, mean_ms, compute| Fake { late, mean_ms, compute, ..Fake::default() };
    let ranks = |mean_ms, behind_ms| Fake { mean_ms, behind_ms, ..Fake::default() };
    [
        (("alone", None), Fake { longest_ms: 0.4, ..Fake::default() }),
        (("1a", None), late(0.0)),
        (("1b", None), late(0.14)),
        (("1b-anywhere", None), late(0.14)),
        (("2a", Counter), late(0.0)),
        (("2b", Counter), late(0.0005)),
        (("3a", None), pairs(0.1, 2.0, 0.7)),
        (("3b", Counter), pairs(0.0001, 2.1, 0.699)),
        (("5", None), late(0.14)),
        (("5", Counter), Fake { granted: 90, ..late(0.14) }),
        (("5", Sleepers), Fake { granted: 30, ..late(0.1) }),
        (("own", OnUnblock), late(0.14)),
        (("7-unloaded", None), ranks(0.5, 0.6)),
        (("7a", None), ranks(0.6, 6.9)),
        (("7b", None), ranks(0.5, 1.1)),
        (("7c", Counter), ranks(0.5, 0.6)),
    ]
    .into()
}

fn judged(results: &HashMap<(&'static str, Boost), Fake>) -> BTreeMap<&'static str, Verdict> {
    let length = Length { seeds: 1, pings: 1, rounds: 1 };
    let all = trials::all(length).into_iter().filter_map(|trial| {
        let fake = results.get(&(trial.figure, trial.boost()))?;
        let summary = |index: usize| Summary {
            mean_us: 1e3
                * if (5..8).contains(&index) && fake.behind_ms > 0.0 { fake.behind_ms } else { fake.mean_ms },
            longest_us: 1e3 * fake.longest_ms,
            late: fake.late,
        };
        let totals =
            Totals { asked: 100, granted: fake.granted, compute: fake.compute, sleepers: 0.1, events: 0 };
        let seeds = vec![(0..10).map(summary).collect()];
        Some(Measured { trial, seeds, totals: vec![totals], drawn: Vec::new() })
    });
    let all: Vec<_> = all.collect();
    claims(Results(&all)).iter().map(|claim| (claim.id, claim.verdict)).collect()
}

/// Returns the verdict on a claim if the results of one trial differ from those in which every claim holds.
fn with(id: &str, trial: (&'static str, Boost), change: impl FnOnce(&mut Fake)) -> Verdict {
    let mut results = good();
    change(results.get_mut(&trial).expect("the trial is known"));
    judged(&results)[id]
}

#[test]
fn every_claim_can_hold() {
    let verdicts = judged(&good());
    assert_eq!(verdicts.len(), IDS.len());
    assert!(verdicts.values().all(|verdict| *verdict == Verdict::Holds), "{verdicts:?}");
}

#[test]
fn delays_of_pings_can_contradict_each_claim() {
    use Boost::{Counter, None, OnUnblock};
    use Verdict::{DoesNotHold, InPart};
    assert_eq!(with("X23", ("1a", None), |fake| fake.late = 0.001), DoesNotHold);
    assert_eq!(with("X24", ("1b-anywhere", None), |fake| fake.longest_ms = 9.0), InPart, "no ceiling");
    assert_eq!(with("X24", ("1b-anywhere", None), |fake| fake.longest_ms = 2.0), InPart);
    assert_eq!(with("X24", ("1b-anywhere", None), |fake| fake.longest_ms = 1.0), DoesNotHold);
    assert_eq!(with("X24", ("1b-anywhere", None), |fake| fake.late = 0.001), DoesNotHold);
    assert_eq!(with("X25", ("2b", Counter), |fake| fake.late = 0.01), DoesNotHold);
    assert_eq!(with("X25", ("1b", None), |fake| fake.late = 0.0), DoesNotHold, "nothing was removed");
    assert_eq!(with("X26", ("3b", Counter), |fake| fake.late = 0.01), DoesNotHold);
    assert_eq!(with("X26", ("3a", None), |fake| fake.late = 0.0), DoesNotHold);
    assert_eq!(with("X27", ("3b", Counter), |fake| fake.mean_ms = 3.0), DoesNotHold);
    assert_eq!(with("X28", ("3b", Counter), |fake| fake.compute = 0.68), DoesNotHold);
    assert_eq!(with("X16", ("own", OnUnblock), |fake| fake.late = 0.05), DoesNotHold);
}

#[test]
fn boosts_that_are_kept_contradict_the_paper_and_our_budget() {
    use Boost::{Counter, Sleepers};
    assert_eq!(with("X29", ("5", Counter), |fake| fake.late = 0.0), Verdict::DoesNotHold);
    assert_eq!(with("X29", ("5", Counter), |fake| fake.late = 0.2), Verdict::DoesNotHold);
    assert_eq!(with("X29-intent", ("5", Sleepers), |fake| fake.granted = 60), Verdict::DoesNotHold);
}

#[test]
fn a_scatter_can_contradict_each_part() {
    use Boost::{Counter, None};
    use Verdict::{DoesNotHold, InPart};
    assert_eq!(with("X32", ("7a", None), |fake| fake.mean_ms = 2.0), DoesNotHold, "other ranks wait, too");
    assert_eq!(with("X32", ("7a", None), |fake| fake.behind_ms = 0.7), DoesNotHold, "no rank waits");
    assert_eq!(with("X33b", ("7b", None), |fake| fake.behind_ms = 3.0), DoesNotHold);
    assert_eq!(with("X33c", ("7b", None), |fake| fake.behind_ms = 0.9), InPart);
    assert_eq!(with("X33c", ("7b", None), |fake| fake.behind_ms = 0.7), DoesNotHold);
    assert_eq!(with("X33d", ("7c", Counter), |fake| fake.behind_ms = 0.9), DoesNotHold);
    assert_eq!(with("X33", ("7b", None), |fake| fake.behind_ms = 0.9), InPart);
    let mut results = good();
    for trial in [("7b", None), ("7c", Counter)] {
        results.get_mut(&trial).expect("the trial is known").behind_ms = 6.9;
    }
    assert_eq!(judged(&results)["X33"], DoesNotHold);
}
