//! The jobs, and one cell for each job and number of local tasks: its pattern, and its time with each P and seed.

use pronto_sched_policy::policy::coschedule::Policy;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::paper::coscheduling::{self, App, Grid, Outcome, Scheme, Setting, predicted};
use pronto_sched_sim::policy::observed::Pattern;
use pronto_sched_sim::workload::parallel::mg::Class;
use pronto_sched_sim::workload::parallel::stencil::Grain;

use super::shuffle::{self, Spreads};
use crate::interval::Interval;
use crate::progress::Progress;
use crate::report::{Fields, decimals};
use crate::sample::approximate;
use crate::workers;

/// A job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Workload {
    /// Value of the column `app`.
    pub(super) name: &'static str,
    app: App,
}

/// The applications of the paper, and grids from fine to coarse with short and long messages. Chosen by us so that computing takes from
/// a fifth of a job's time to nearly all of it.
pub(super) const WORKLOADS: [Workload; 14] = [
    Workload { name: "is", app: App::Is },
    Workload { name: "mg", app: App::Mg },
    Workload { name: "mg-t", app: App::MgOf(Class::T) },
    Workload { name: "mg-s", app: App::MgOf(Class { iterations: 150, ..Class::S }) },
    Workload { name: "master-slave", app: App::MasterSlave },
    grid("grid-1ms-4k", 1, 4, 1_000),
    grid("grid-2ms-16k", 2, 16, 500),
    grid("grid-5ms-4k", 5, 4, 500),
    grid("grid-5ms-64k", 5, 64, 200),
    grid("grid-10ms-16k", 10, 16, 300),
    grid("grid-20ms-256k", 20, 256, 60),
    grid("grid-40ms-4k", 40, 4, 150),
    grid("grid-40ms-64k", 40, 64, 100),
    grid("grid-40ms-512k", 40, 512, 40),
];

/// Returns a grid that computes for `millis` milliseconds in each of `rounds` rounds, and exchanges borders of `kib` KiB.
const fn grid(name: &'static str, millis: u64, kib: u32, rounds: u32) -> Workload {
    let grain = Grain { compute: Nanos::from_millis(millis), bytes: kib * 1024 };
    Workload { name, app: App::Stencil(Grid { side: 2, grain, rounds }) }
}

/// Numbers of local tasks: those from which the paper's effects begin, and of its figure about P.
pub(super) const LOADS: [&str; 2] = ["3", "5"];

/// Values of P: near 0 and near 1 as in the paper, and between.
pub(super) const PASTS: [&str; 5] = ["0.01", "0.25", "0.5", "0.75", "0.99"];
const HUNDREDTHS: [u32; PASTS.len()] = [1, 25, 50, 75, 99];

/// A job with a number of local tasks, and its results.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) workload: Workload,
    pub(super) locals: usize,
    /// Time as a fraction of LINUX's with the same seed, for each P. NaN if a run was given up.
    pub(super) ratios: Vec<Vec<f64>>,
    /// Share of its time that the job computes if it is alone.
    pub(super) computing: f64,
    /// Pattern under LINUX, over all seeds.
    pub(super) pattern: Pattern,
    pub(super) spread: Spreads,
}

/// One simulated run of a cell.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The job without local tasks.
    Alone,
    /// Under LINUX, with its pattern.
    Observed,
    /// Under PRED with a P of [`HUNDREDTHS`].
    Predicted(u32),
}

/// First seed. Smaller ones were used for forming the hypotheses, which the claims then test with others.
const FIRST_SEED: u64 = 1_001;

/// Runs the wanted cells with `seeds` seeds.
pub(super) fn run(wanted: &[(&'static Workload, usize)], seeds: u64, progress: &mut Progress) -> Vec<Job> {
    let parts = |seed| {
        let predicted = HUNDREDTHS.map(Part::Predicted);
        [Part::Alone, Part::Observed].into_iter().chain(predicted).map(move |part| (part, seed))
    };
    let of_cell = |(workload, locals): &(&'static Workload, usize)| {
        let (app, locals) = (workload.app, *locals);
        (FIRST_SEED..FIRST_SEED + seeds)
            .flat_map(parts)
            .map(move |(part, seed)| (app, locals, part, seed))
            .collect::<Vec<_>>()
    };
    let runs: Vec<_> = wanted.iter().flat_map(of_cell).collect();
    progress.begin(runs.len() as u64);
    let results =
        workers::all(&runs, progress, |(app, locals, part, seed)| simulate(*app, *locals, *part, *seed));
    let of_each = wanted.iter().zip(results.chunks(runs.len() / wanted.len().max(1)));
    of_each.map(|((workload, locals), results)| Job::new(**workload, *locals, results)).collect()
}

fn simulate(app: App, locals: usize, part: Part, seed: u64) -> (Outcome, Pattern) {
    let plain = Setting::plain(app, locals, seed);
    match part {
        Part::Alone => (coscheduling::run(&Setting { locals: 0, ..plain }), Pattern::default()),
        Part::Observed => coscheduling::observe(&plain, &HUNDREDTHS.map(Share::percent)),
        Part::Predicted(past) => {
            let scheme = Scheme::Predicted(predicted(Policy::Predictive, Share::percent(past)));
            (coscheduling::run(&Setting { scheme, ..plain }), Pattern::default())
        }
    }
}

impl Job {
    /// Evaluates the results of all runs of a cell: seed by seed alone, observed, and each P.
    fn new(workload: Workload, locals: usize, results: &[(Outcome, Pattern)]) -> Self {
        let seconds = |(outcome, _): &(Outcome, Pattern)| outcome.jobs[0].unwrap_or(f64::NAN);
        let seeds = || results.chunks(2 + PASTS.len());
        let of_past =
            |past: usize| seeds().map(|seed| seconds(&seed[2 + past]) / seconds(&seed[1])).collect();
        let ratios: Vec<Vec<f64>> = (0..PASTS.len()).map(of_past).collect();
        let computing: Vec<_> = seeds().map(|seed| seed[0].0.computing).collect();
        let pattern = seeds().fold(Pattern::default(), |sum, seed| sum.plus(&seed[1].1));
        let spread = shuffle::spreads(&ratios);
        Self { workload, locals, ratios, computing: Interval::of(&computing).mean, pattern, spread }
    }

    /// Returns the name in claims: application and number of local tasks.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.workload.name, self.locals)
    }

    /// Returns the index of the P with the shortest mean time.
    pub(super) fn best(&self) -> usize {
        let means: Vec<_> = self.ratios.iter().map(|ratios| Interval::of(ratios).mean).collect();
        least(&means)
    }

    /// Returns the index of the P that predicts the queues best.
    pub(super) fn predicting(&self) -> usize {
        least(&self.pattern.errors)
    }

    /// Returns the mean number of packets in the queues of a task at a decision.
    pub(super) fn packets(&self) -> f64 {
        self.pattern.packets / approximate(self.pattern.decisions)
    }

    /// Returns the row of the table.
    pub(super) fn fields(&self) -> Fields {
        let share =
            |decisions: u64| decimals(approximate(decisions) / approximate(self.pattern.decisions), 3);
        let answer = approximate(self.pattern.until_answer.0) / approximate(self.pattern.answers) / 1e6;
        let past = |index: usize| PASTS[index].parse::<f64>().ok();
        let mean = |index: usize| decimals(Interval::of(&self.ratios[index]).mean, 3);
        Fields::default()
            .with("app", self.workload.name)
            .with("local_tasks", self.locals)
            .with("computing", decimals(self.computing, 2))
            .with("received_only", share(self.pattern.received_only))
            .with("sent_only", share(self.pattern.sent_only))
            .with("both", share(self.pattern.both))
            .with("packets", decimals(self.packets(), 2))
            .with("answer_ms", decimals(answer, 1))
            .with("near_0", mean(0))
            .with("p_25", mean(1))
            .with("p_50", mean(2))
            .with("p_75", mean(3))
            .with("near_1", mean(4))
            .with("predicting_p", past(self.predicting()))
            .with("best_p", past(self.best()))
            .with("spread", decimals(self.spread.over_p, 3))
            .with("spread_aa", decimals(self.spread.by_chance, 3))
    }
}

/// Returns the index of the smallest value, the first of equals.
fn least(values: &[f64]) -> usize {
    values.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_p_match_their_names() {
        let named = PASTS.map(|past| past.parse::<f64>().unwrap());
        assert_eq!(HUNDREDTHS.map(|hundredths| f64::from(hundredths) / 100.0), named);
    }

    #[test]
    fn results_are_taken_apart_by_seed_and_p() {
        let outcome =
            |seconds: f64| Outcome { jobs: vec![Some(seconds)], computing: 0.25, ..Outcome::default() };
        let seed = |factor: f64| {
            let with_p = [1.0, 0.9, 0.8, 0.9, 1.0].map(|ratio| outcome(10.0 * factor * ratio));
            let observed =
                Pattern { decisions: 2, errors: vec![3.0, 2.0, 1.0, 2.0, 3.0], ..Pattern::default() };
            let first = [(outcome(3.0), Pattern::default()), (outcome(10.0 * factor), observed)];
            first.into_iter().chain(with_p.map(|outcome| (outcome, Pattern::default()))).collect::<Vec<_>>()
        };
        let job = Job::new(WORKLOADS[0], 5, &[seed(1.0), seed(2.0)].concat());
        assert_eq!((job.best(), job.predicting(), job.pattern.decisions), (2, 2, 4));
        assert!((job.spread.over_p - 0.2).abs() < 1e-9 && job.ratios.iter().all(|ratios| ratios.len() == 2));
        assert_eq!(job.fields().value("computing"), Some(&serde_json::json!(0.25)));
    }
}
