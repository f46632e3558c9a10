//! `cosched-sim`: figures 2 to 4 of the coscheduling paper, simulated: LINUX, DYN and PRED, and what else there is.

mod cells;
mod claims;
mod figures;
mod models;

use anyhow::ensure;

use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Fields, Report};
use cells::{Cell, TIMED, Timed};
use models::{Model, PASTS, POLICIES};

/// The experiment. Each cell is run with every seed; all models meet the same seeds, and are compared seed by seed.
#[derive(Debug)]
pub(crate) struct CoschedSim;

impl Experiment for CoschedSim {
    fn name(&self) -> &'static str {
        "cosched-sim"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("coscheduling")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Figs. 2-4")
    }

    fn about(&self) -> &'static str {
        "simulated: duration of parallel jobs with local tasks, under LINUX, DYN, PRED and their rivals"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "policy", help: "Only these policies", values: &POLICIES },
            Axis {
                column: "p",
                help: "Only these weights of the past, for policies that have one",
                values: &PASTS,
            },
            Axis { column: "wait", help: "Only these waiting policies", values: &["block"] },
            Axis {
                column: "local_tasks",
                help: "Only these numbers of local tasks per node",
                values: &LOADS,
            },
            Axis { column: "app", help: "Only these applications", values: &APPS },
        ]
    }

    fn draws(&self) -> bool {
        true
    }

    fn without_aa(&self) -> Option<&'static str> {
        Some("simulated: equal seeds give equal numbers; the rows show the spread over seeds")
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let seeds = if params.quick { QUICK_SEEDS } else { SEEDS };
        let wanted: Vec<_> = wanted(params.quick).into_iter().filter(|cell| keeps(params, cell)).collect();
        let cells = cells::run(&wanted, seeds, progress);
        let mut report = Report::default();
        report.params = Fields::default()
            .with("seeds", seeds)
            .with("nodes", pronto_sched_sim::paper::coscheduling::NODES)
            .with("link", "100 Mb/s, 0.1 ms")
            .with("kernel", "counters and priorities of Linux 2.2, tick 10 ms")
            .with("parameters", "documented in crates/sched-sim/src/paper/coscheduling.rs");
        report.rows = cells.iter().map(|cell| cell.fields(linux(&cells, cell))).collect();
        report.claims = claims::all(&claims::Table(&cells));
        report.figures = figures::all(&cells);
        if params.chosen().next().is_none() {
            for id in claims::IDS {
                ensure!(report.claims.iter().any(|claim| claim.id == id), "the run has no claim {id}");
            }
        }
        report.note(
            "times are simulated. `to_linux` is the median, over seeds, of the time as a fraction of LINUX's with the same seed",
        );
        report.note(
            "`local_share` is the local tasks' share of all CPUs; it is meaningless where they are timed themselves",
        );
        Ok(report)
    }
}

/// The same cell under LINUX, on the same kernel.
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

/// All cells of a run.
fn wanted(quick: bool) -> Vec<(Model, Timed, usize)> {
    let loads: &[usize] = if quick { &[0, 3, 5] } else { &[0, 1, 2, 3, 4, 5] };
    let mut of_figures = models::paper();
    if !quick {
        of_figures.extend(models::between());
    }
    let mut wanted = Vec::new();
    for timed in TIMED {
        let loads = match timed.name {
            // "A workload of five local tasks in each node" (section 4.2); the paper does not say how many `calcula` are timed.
            "master-slave" => &[5],
            _ if timed.job.is_none() => &[3],
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
    }
    wanted
}

const LOADS: [&str; 6] = ["0", "1", "2", "3", "4", "5"];

const APPS: [&str; TIMED.len()] = {
    let mut names = [""; TIMED.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = TIMED[index].name;
        index += 1;
    }
    names
};

/// Of each cell.
const SEEDS: u64 = 20;
/// See [`SEEDS`].
const QUICK_SEEDS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_its_linux_beside_it() {
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
    fn a_quick_run_has_every_cell_that_a_claim_asks_for() {
        let all = wanted(true);
        for timed in TIMED {
            assert!(all.iter().any(|(_, of, _)| *of == timed), "{timed:?}");
        }
        let rows_by_load = |load| all.iter().filter(|(.., of)| *of == load).count();
        assert!([0, 3, 5].iter().all(|load| rows_by_load(*load) > 10));
    }
}
