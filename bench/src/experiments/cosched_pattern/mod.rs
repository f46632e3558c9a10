//! `cosched-pattern`: P against the message pattern of jobs, simulated. The coscheduling paper leaves this analysis as future work.

mod claims;
mod shuffle;
mod workloads;

use crate::experiment::{Experiment, Run};
use crate::interval::Interval;
use crate::params::{Axis, names};
use crate::plot::{self, Figure, Marks, Panel, Point, Series, Spread};
use crate::report::{Fields, Report};
use workloads::{Job, LOADS, PASTS, WORKLOADS};

/// Jobs with different patterns next to local tasks, under PRED with each P. All values of P share the seeds.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-pattern",
    question: "Which P suits which message pattern?",
    takes: [150, 30],
    paper: Some("coscheduling"),
    about: "simulated: duration of jobs under PRED by P, and the message pattern of each",
    axes: &[
        Axis::new("app", "Only these applications", &APPS),
        Axis::new("local_tasks", "Only these numbers of local tasks per node", &LOADS),
    ],
    draws: true,
    without_aa: Some(
        "simulated: equal seeds give equal numbers. `spread_aa` is the spread that P would show by chance",
    ),
    claims: &claims::IDS,
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let (seeds, loads) = if params.quick { (QUICK_SEEDS, &LOADS[1..]) } else { (SEEDS, &LOADS[..]) };
    let loads = loads.iter().filter(|load| params.keeps("local_tasks", load));
    let wanted: Vec<_> = loads
        .filter_map(|load| load.parse().ok())
        .flat_map(|load: usize| WORKLOADS.iter().map(move |workload| (workload, load)))
        .filter(|(workload, _)| params.keeps("app", workload.name))
        .collect();
    let jobs = workloads::run(&wanted, seeds, run.progress);
    let mut report = Report {
        params: Fields::default()
            .with("seeds", seeds)
            .with("nodes", pronto_sched_sim::paper::coscheduling::NODES)
            .with("link", "100 Mb/s, 0.1 ms")
            .with("kernel", "counters and priorities of Linux 2.2, preemption by goodness, tick 10 ms")
            .with("shuffles", shuffle::SHUFFLES)
            .with("parameters", "documented in crates/sched-sim/src/paper/coscheduling.rs"),
        rows: jobs.iter().map(Job::fields).collect(),
        claims: claims::all(&jobs),
        figures: figure(&jobs).into_iter().collect(),
        ..Report::default()
    };
    report.note(
        "times are simulated. `near_0` to `near_1` are the mean times under PRED with P = 0.01, 0.25, 0.5, 0.75 and 0.99, as fractions \
         of LINUX's with the same seed; `spread` is the largest minus the smallest of them",
    );
    report.note(
        "`spread_aa` is the 99 % quantile of the spread if the values of P are exchanged at random within each seed: a smaller spread \
         does not show that P matters",
    );
    report.note(
        "`received_only`, `sent_only` and `both` are the shares of the scheduler's decisions under LINUX at which these queues hold a \
         packet. `packets` is the mean number of packets at these decisions, and `answer_ms` the mean time from an arrival to the task's \
         next send. `computing` is the share of its time that the job, alone on the nodes, computes",
    );
    report.note("`predicting_p` is the P of formula 1 whose value differs least from the packets at the next decision");
    Ok(report)
}

/// Returns the time by P for the applications of the paper, and the spread over P by the share of computing.
fn figure(jobs: &[Job]) -> Option<Figure> {
    let load = jobs.iter().map(|job| job.locals).max()?;
    let at_load = || jobs.iter().filter(move |job| job.locals == load);
    let by_p = at_load().filter(|job| DRAWN.contains(&job.workload.name)).map(|job| {
        let point = |(past, ratios): (&&str, &Vec<f64>)| {
            Some(Point { x: past.parse().ok()?, y: Spread::exact(Interval::of(ratios).mean) })
        };
        Series::new(job.workload.name, PASTS.iter().zip(&job.ratios).map(point))
    });
    let point = |job: &Job, y: f64| Some(Point { x: job.computing, y: Spread::exact(y) });
    let spreads = [
        Series::new("spread over P", at_load().map(|job| point(job, job.spread.over_p))),
        Series::new("A/A", at_load().map(|job| point(job, job.spread.by_chance))),
    ];
    let title = format!("{load} local tasks per node");
    Figure::of(
        "cosched-pattern",
        "Effect of P by the message pattern",
        [
            Panel::lines(
                &title,
                plot::Axis::linear("P, the weight of the past", ""),
                plot::Axis::zoomed("fraction of LINUX's time", ""),
                Marks::Joined,
                by_p,
            ),
            Panel::lines(
                "all applications",
                plot::Axis::linear("share of computing", ""),
                plot::Axis::linear("spread over P, fraction of LINUX's time", ""),
                Marks::Scattered,
                spreads,
            ),
        ],
    )
}

/// Applications of the first panel: more could not be distinguished.
const DRAWN: [&str; 5] = ["is", "mg", "mg-s", "master-slave", "grid-40ms-64k"];

const APPS: [&str; WORKLOADS.len()] = names!(WORKLOADS);

/// Number of seeds of each cell.
const SEEDS: u64 = 20;
const QUICK_SEEDS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_applications_exist() {
        assert!(DRAWN.iter().all(|name| APPS.contains(name)));
    }
}
