//! Claims about P and the message pattern.

use core::cmp::Ordering;

use super::shuffle::correlation;
use super::workloads::{Job, PASTS};
use crate::claim::Claim;
use crate::interval::{self, Interval};

/// Every claim of a whole run.
pub(super) const IDS: [&str; 4] = ["S28a", "S28b", "S28c", "S28d"];

/// An effect below this fraction of LINUX's time does not matter. Chosen by us; no source.
const NEGLIGIBLE: f64 = 0.01;

/// Jobs from which a correlation can be judged: with fewer, chance gives any. Chosen by us; no source.
const FEWEST: usize = 6;

/// Evaluates the claims for which the run has the rows.
pub(super) fn all(jobs: &[Job]) -> Vec<Claim> {
    [s28a, s28b, s28c, s28d].into_iter().filter_map(|judge| judge(jobs)).collect()
}

impl Job {
    /// Returns whether P matters to the job: more if its spread is above that of A/A; less if it is not, and an effect
    /// that matters would have been.
    fn sensitivity(&self) -> Option<Ordering> {
        if self.spread.over_p > self.spread.by_chance.max(NEGLIGIBLE) {
            Some(Ordering::Greater)
        } else if self.spread.by_chance <= NEGLIGIBLE {
            Some(Ordering::Less)
        } else {
            None
        }
    }
}

/// P matters.
fn s28a(jobs: &[Job]) -> Option<Claim> {
    let sides: Vec<_> = jobs.iter().map(Job::sensitivity).collect();
    let verdict = interval::verdict(Ordering::Greater, &sides);
    let to = |job: &Job| format!("{} {:.3}:{:.3}", job.name(), job.spread.over_p, job.spread.by_chance);
    let clear = |job: &&Job| job.sensitivity() == Some(Ordering::Greater);
    let found: Vec<_> = jobs.iter().filter(clear).map(to).collect();
    let measured = format!("{} of {} jobs: {}", found.len(), jobs.len(), found.join(", "));
    let open: Vec<_> = jobs.iter().filter(|job| job.sensitivity().is_none()).map(Job::name).collect();
    let mut detail =
        "jobs to which P matters: spread over P and spread of A/A, fractions of LINUX's time".to_owned();
    if !open.is_empty() {
        detail += &format!("; not clear of A/A: {}", open.join(", "));
    }
    (!jobs.is_empty()).then(|| Claim::new("S28a", detail, measured, verdict).bar(NEGLIGIBLE))
}

/// The pattern decides how much P matters. A spread that is not clear of A/A counts as none.
fn s28b(jobs: &[Job]) -> Option<Claim> {
    let pair = |job: &Job| {
        let clear = job.sensitivity() == Some(Ordering::Greater);
        (job.computing, if clear { job.spread.over_p } else { 0.0 })
    };
    let about = "of the share of computing and the spread over P, where a spread that is not clear of A/A counts as 0";
    of_correlations("S28b", jobs, Ordering::Less, pair, about)
}

/// Returns a claim that two quantities of a job are correlated, at each number of local tasks.
fn of_correlations(
    id: &'static str,
    jobs: &[Job],
    wanted: Ordering,
    pair: impl Fn(&Job) -> (f64, f64),
    about: &str,
) -> Option<Claim> {
    let mut loads: Vec<_> = jobs.iter().map(|job| job.locals).collect();
    loads.sort_unstable();
    loads.dedup();
    let of_load = |load: usize| {
        let pairs: Vec<_> = jobs.iter().filter(|job| job.locals == load).map(&pair).collect();
        (pairs.len() >= FEWEST).then(|| (load, correlation(&pairs)))
    };
    let found: Vec<_> = loads.into_iter().filter_map(of_load).collect();
    let side = |tau: f64, by_chance: f64| (tau.abs() > by_chance).then(|| tau.total_cmp(&0.0));
    let sides: Vec<_> = found.iter().map(|(_, found)| side(found.tau, found.by_chance)).collect();
    let verdict = interval::verdict(wanted, &sides);
    let measured: Vec<_> = found
        .iter()
        .map(|(load, found)| format!("{load} local tasks {:.2} ({:.2})", found.tau, found.by_chance))
        .collect();
    let detail = format!(
        "Kendall's rank correlation {about}; in brackets the magnitude that 99 % of random orders do not exceed"
    );
    (!found.is_empty()).then(|| Claim::new(id, detail, measured.join(", "), verdict))
}

/// The paper explains the best P by its prediction.
fn s28c(jobs: &[Job]) -> Option<Claim> {
    let sensitive: Vec<_> = jobs.iter().filter(|job| job.sensitivity() == Some(Ordering::Greater)).collect();
    let loss = |job: &&Job| {
        let (predicting, best) = (&job.ratios[job.predicting()], &job.ratios[job.best()]);
        Interval::of(&predicting.iter().zip(best).map(|(own, best)| own / best).collect::<Vec<_>>())
    };
    let sides: Vec<_> = sensitive.iter().map(|job| loss(job).side_of(1.0 + NEGLIGIBLE)).collect();
    let verdict = interval::verdict(Ordering::Less, &sides);
    let measured: Vec<_> = sensitive
        .iter()
        .map(|job| {
            format!(
                "{} {:.3} ({}:{})",
                job.name(),
                loss(job).mean,
                PASTS[job.predicting()],
                PASTS[job.best()]
            )
        })
        .collect();
    let detail = "time with the P that predicts the queues best, as a fraction of the time with the best P, and both in brackets; jobs to \
                  which P matters";
    (!jobs.is_empty()).then(|| Claim::new("S28c", detail, measured.join(", "), verdict).bar(1.0 + NEGLIGIBLE))
}

/// The memory of a long past is worth the more, the fuller the queues are.
fn s28d(jobs: &[Job]) -> Option<Claim> {
    let pair = |job: &Job| {
        let [near_0, .., near_1] = &job.ratios[..] else { return (f64::NAN, f64::NAN) };
        let gains: Vec<_> = near_0.iter().zip(near_1).map(|(near_0, near_1)| near_0 - near_1).collect();
        let gain = Interval::of(&gains);
        let clear = gain.side_of(0.0).is_some();
        (job.packets(), if clear { gain.mean } else { 0.0 })
    };
    let about = "of the packets in the queues of a task and the time that P near 1 saves against P near 0, where a difference that is \
                 not clear of zero counts as 0";
    of_correlations("S28d", jobs, Ordering::Greater, pair, about)
}

#[cfg(test)]
mod tests;
