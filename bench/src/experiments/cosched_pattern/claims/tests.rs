//! Tests of the verdicts with made-up rows.

use pronto_sched_sim::policy::observed::Pattern;

use super::super::shuffle;
use super::super::workloads::WORKLOADS;
use super::*;
use crate::claim::Verdict;

const SEEDS: u32 = 20;

/// A job that computes for a share of its time; `time` gives its time with the P of an index and a seed, and `predicting`
/// is the index of the P with the smallest error.
fn job(index: usize, computing: f64, predicting: usize, time: impl Fn(u32, u32) -> f64) -> Job {
    let ratios: Vec<Vec<f64>> = (0..5).map(|p| (0..SEEDS).map(|seed| time(p, seed)).collect()).collect();
    let mut errors = vec![1.0; PASTS.len()];
    errors[predicting] = 0.5;
    Job {
        workload: WORKLOADS[index],
        locals: 5,
        spread: shuffle::spreads(&ratios),
        ratios,
        computing,
        // The less a job computes, the more packets its queues hold.
        pattern: Pattern {
            errors,
            decisions: 1,
            packets: 1.0 + 10.0 * (1.0 - computing),
            ..Pattern::default()
        },
    }
}

/// Jobs from much computing to little, whose times fall with P by `slope` per step of P and tenth of computing.
fn jobs(predicting: usize, slope: impl Fn(f64) -> f64) -> Vec<Job> {
    let of = |index: usize, tenths: f64| {
        let slope = slope(tenths);
        job(index, tenths / 10.0, predicting, move |p, _| 1.0 - slope * f64::from(p))
    };
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        .iter()
        .enumerate()
        .map(|(index, tenths)| of(index, *tenths))
        .collect()
}

fn verdicts(jobs: &[Job]) -> Vec<(&'static str, Verdict)> {
    all(jobs).iter().map(|claim| (claim.id, claim.verdict)).collect()
}

#[test]
fn no_rows_give_no_claims() {
    assert!(all(&[]).is_empty());
}

#[test]
fn a_p_that_matters_more_the_more_a_job_communicates_is_recognised() {
    let found = verdicts(&jobs(4, |tenths| 0.01 * (10.0 - tenths)));
    assert_eq!(found, IDS.map(|id| (id, Verdict::Holds)));
}

#[test]
fn the_opposite_refutes_every_claim() {
    let reversed = jobs(0, |tenths| 0.01 * tenths);
    let found = verdicts(&reversed);
    assert_eq!(found[1..], ["S28b", "S28c", "S28d"].map(|id| (id, Verdict::DoesNotHold)));
    let level = jobs(4, |_| 0.0);
    assert_eq!(verdicts(&level)[0], ("S28a", Verdict::DoesNotHold), "equal times for each P");
}

#[test]
fn differences_below_those_of_seeds_are_not_resolved() {
    let noise = |p: u32, seed: u32| 0.9 + f64::from((p * 7 + seed * 5 + p * seed * 3) % 11) / 20.0;
    let noisy: Vec<_> =
        (0..8_u32).map(|index| job(index as usize, 0.1 * f64::from(index), 4, noise)).collect();
    assert_eq!(verdicts(&noisy), IDS.map(|id| (id, Verdict::NotResolvable)));
}

#[test]
fn a_p_that_matters_to_some_jobs_matters_in_part() {
    let some = jobs(4, |tenths| if tenths > 4.5 { 0.0 } else { 0.02 });
    assert_eq!(verdicts(&some)[0], ("S28a", Verdict::InPart));
}

#[test]
fn few_jobs_have_no_correlation() {
    let few = &jobs(4, |tenths| 0.01 * (10.0 - tenths))[..FEWEST - 1];
    assert_eq!(verdicts(few), [("S28a", Verdict::Holds), ("S28c", Verdict::Holds)]);
}
