//! `cosched-sim`: figures 2 to 4 of the coscheduling paper, simulated: LINUX, DYN and PRED, and other policies.

mod cells;
mod claims;
mod figures;
mod models;

use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Params, names};
use crate::report::{Fields, Report};
use cells::{Cell, Conditions, TIMED, Timed};
pub(super) use models::scheme;
use models::{Model, PASTS, POLICIES};

/// Simulated jobs with local tasks. Each cell is run with every seed; the models share the seeds, and are compared seed by seed.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-sim",
    question: "Does scheduling by communication frequency shorten parallel jobs next to local tasks?",
    takes: [120, 15],
    paper: Some("coscheduling"),
    figure: Some("Figs. 2-4"),
    about: "simulated: duration of parallel jobs with local tasks, under LINUX, DYN, PRED and their rivals",
    axes: &[
        Axis::new("policy", "Only these policies", &POLICIES),
        Axis::new("p", "Only these weights of the past, for policies that have one", &PASTS),
        Axis::new("wait", "Only these waiting policies", &["block"]),
        Axis::new("local_tasks", "Only these numbers of local tasks per node", &LOADS),
        Axis::new("app", "Only these applications", &APPS),
    ],
    draws: true,
    without_aa: Some("simulated: equal seeds give equal numbers; the rows show the spread over seeds"),
    claims: &claims::IDS,
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let seeds = if params.quick { QUICK_SEEDS } else { SEEDS };
    let wanted: Vec<_> = wanted(params.quick).into_iter().filter(|cell| keeps(params, cell)).collect();
    let cells = cells::run(&wanted, seeds, run.progress);
    let mut report = Report {
        params: Fields::default()
            .with("seeds", seeds)
            .with("nodes", pronto_sched_sim::paper::coscheduling::NODES)
            .with("link", "100 Mb/s, 0.1 ms")
            .with("mg_t", "the exchanges of 32^3 points, and between them the computing of class A; class S has 600 iterations")
            .with("kernel", "counters and priorities of Linux 2.2, tick 10 ms")
            .with("parameters", "documented in crates/sched-sim/src/paper/coscheduling.rs"),
        rows: cells.iter().map(|cell| cell.fields(linux(&cells, cell))).collect(),
        claims: claims::all(&claims::Table(&cells)),
        figures: figures::all(&cells),
        ..Report::default()
    };
    report.note(
        "times are simulated. `to_linux` is the median, over seeds, of the time as a fraction of LINUX's with the same seed",
    );
    report.note(
        "apps with `faults`, `switches` and `far` are the benchmarks with a page fault per 50 ms of CPU time that takes 10 ms, with switches of 1 ms, \
         and with messages of 10 ms",
    );
    report.note("a claim compares times seed by seed: a difference counts if the 99 % interval of its mean is clear of zero");
    report.note(
        "`local_share` is the local tasks' share of all CPUs; it is meaningless where they are timed themselves",
    );
    Ok(report)
}

/// Returns the corresponding cell under LINUX, on the same kernel.
fn linux<'a>(cells: &'a [Cell], cell: &Cell) -> Option<&'a Cell> {
    cells.iter().find(|other| {
        other.model.policy == "linux"
            && other.model.preemption == cell.model.preemption
            && (other.timed, other.locals) == (cell.timed, cell.locals)
    })
}

fn keeps(params: &Params, (model, timed, locals): &(Model, Timed, usize)) -> bool {
    params.keeps("policy", model.policy)
        && model.p.is_none_or(|p| params.keeps("p", p))
        && params.keeps("local_tasks", LOADS[*locals])
        && params.keeps("app", timed.name)
}

/// Returns all cells of a run.
fn wanted(quick: bool) -> Vec<(Model, Timed, usize)> {
    let loads: &[usize] = if quick { &[0, 3, 5] } else { &[0, 1, 2, 3, 4, 5] };
    let mut of_figures = models::paper();
    if !quick {
        of_figures.extend(models::between());
    }
    let mut wanted = Vec::new();
    for timed in TIMED {
        let loads: &[usize] = match timed.name {
            // "A workload of five local tasks in each node" (section 4.2); the paper does not say how many `calcula` are timed.
            "master-slave" => &[5],
            _ if timed.job.is_none() => &[3],
            _ if timed.conditions != Conditions::Paper => &[],
            _ => loads,
        };
        wanted
            .extend(loads.iter().flat_map(|load| of_figures.iter().map(move |model| (*model, timed, *load))));
    }
    let benchmarks = || TIMED.iter().filter(|timed| ["is", "mg"].contains(&timed.name));
    for load in loads.iter().filter(|load| !quick && **load >= 3 || **load == 5) {
        for timed in benchmarks() {
            wanted.extend(models::others().into_iter().map(|model| (model, *timed, *load)));
        }
        for timed in TIMED.iter().filter(|timed| timed.conditions != Conditions::Paper) {
            wanted.extend(models::costly().into_iter().map(|model| (model, *timed, *load)));
        }
    }
    wanted
}

const LOADS: [&str; 6] = ["0", "1", "2", "3", "4", "5"];

const APPS: [&str; TIMED.len()] = names!(TIMED);

/// Number of seeds of each cell.
const SEEDS: u64 = 20;
const QUICK_SEEDS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_corresponding_linux_cell() {
        for quick in [true, false] {
            let all = wanted(quick);
            for (model, timed, load) in &all {
                let found = |(other, t, l): &&(Model, Timed, usize)| {
                    (other.policy, other.preemption) == ("linux", model.preemption) && (t, l) == (timed, load)
                };
                assert!(all.iter().any(|cell| found(&cell)), "{model:?} {timed:?} {load}");
            }
        }
    }

    #[test]
    fn a_quick_run_has_every_cell_that_a_claim_needs() {
        let all = wanted(true);
        for timed in TIMED {
            assert!(all.iter().any(|(_, of, _)| *of == timed), "{timed:?}");
        }
        let rows_by_load = |load| all.iter().filter(|(.., of)| *of == load).count();
        assert!([0, 3, 5].iter().all(|load| rows_by_load(*load) > 10));
    }
}
