//! `wait-sim`: waiting for a message while other tasks want the CPU: by sleeping, polling, or polling first.
//!
//! According to the coscheduling paper, implicit coscheduling (spin, then block) loses in time sharing (section 1). Our adaptive
//! wait does the same, unless it knows that other tasks want the CPU.

use core::cmp::Ordering;

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::cluster::Knows;
use pronto_sched_sim::link::Link;
use pronto_sched_sim::paper::coscheduling::{self, App, Grid, Setting};
use pronto_sched_sim::program::Wait;
use pronto_sched_sim::workload::parallel::stencil::Grain;

use super::cosched_sim::scheme;
use crate::claim::{Claim, Verdict};
use crate::experiment::{Experiment, Run};
use crate::interval::{self, Interval};
use crate::params::{Axis, Params};
use crate::plot::{self, BarSeries, Figure, Panel, Spread};
use crate::report::{Fields, Report, decimals};
use crate::workers;

/// Simulated waits. Rows of one application, network and load share the seeds, and are compared seed by seed.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "wait-sim",
    question: "How should a parallel job wait for messages next to local tasks?",
    takes: [120, 15],
    paper: Some("coscheduling"),
    figure: Some("section 1"),
    about: "simulated: waiting by sleeping, polling, or polling first, with local tasks, under each policy",
    axes: &[
        Axis::new("policy", "Only these policies", &POLICIES),
        Axis::new("wait", "Only these waiting policies", &WAITS),
        Axis::new("local_tasks", "Only these numbers of local tasks per node", &LOADS),
        Axis::new("app", "Only these applications", &APPS),
        Axis::new("network", "Only these networks", &NETWORKS),
    ],
    draws: true,
    without_aa: Some(
        "simulated: the same seeds give the same numbers, and how seeds differ stands in the rows",
    ),
    claims: &IDS,
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let seeds = if params.quick { QUICK_SEEDS } else { SEEDS };
    let cells: Vec<Cell> = all(params.quick).into_iter().filter(|cell| cell.is_kept(params)).collect();
    let settings: Vec<Setting> =
        cells.iter().flat_map(|cell| (1..=seeds).map(|seed| cell.setting(seed))).collect();
    run.progress.begin(settings.len() as u64);
    let outcomes = workers::all(&settings, run.progress, coscheduling::run);
    let per_cell = usize::try_from(seeds)?;
    let rows: Vec<Row> = cells
        .iter()
        .zip(outcomes.chunks(per_cell))
        .map(|(cell, runs)| Row {
            cell: *cell,
            seconds: runs.iter().map(|run| run.jobs[0].unwrap_or(f64::NAN)).collect(),
        })
        .collect();
    let mut report = Report {
        params: Fields::default()
            .with("seeds", seeds)
            .with("nodes", coscheduling::NODES)
            .with("switch_us", 10)
            .with("wake_up_us", 50)
            .with("parameters", "documented in crates/sched-sim/src/paper/coscheduling.rs"),
        rows: rows.iter().map(|row| row.fields(&rows)).collect(),
        claims: claims(&rows),
        figures: figures(&rows),
        ..Report::default()
    };
    report.note("times are simulated. `to_block` is the median, over seeds, of the time as a fraction of that with wait block");
    report.note("a run that does not end within 4,000 s is abandoned, and its row has no times");
    report.note(
        "policy implicit is LINUX with adaptive waits that poll even if other tasks want the CPU; elsewhere they know \
         the load, and sleep immediately on a contended CPU; wait evidence is also adaptive, and knows only which of \
         its polls were preempted",
    );
    Ok(report)
}

/// A setting of the simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    policy: &'static str,
    wait: &'static str,
    locals: &'static str,
    app: &'static str,
    network: &'static str,
}

const POLICIES: [&str; 5] = ["linux", "dyn", "pred", "gang", "implicit"];
/// `evidence` is an adaptive wait that infers the load from its own polls.
const WAITS: [&str; 4] = ["block", "adaptive", "evidence", "spin"];
const LOADS: [&str; 4] = ["0", "1", "3", "5"];
const APPS: [&str; 3] = ["mg", "is", "grid"];
/// The paper's network, and one whose round trip is far shorter than a wake-up.
const NETWORKS: [&str; 2] = ["ethernet", "fast"];

/// 10 Gb/s and 2 us, as RDMA networks of the overlap paper's kind and later; headers as on Ethernet.
const FAST: Link =
    Link { latency: Nanos::from_micros(2), bandwidth: 10_000_000_000 / 8, ..Link::ETHERNET_100 };

/// Fine grain: 200 us of computing between exchanges of 512 bytes, 5,000 times: a second of computing. Chosen by us; no source.
const GRID: Grid =
    Grid { side: 2, grain: Grain { compute: Nanos::from_micros(200), bytes: 512 }, rounds: 5_000 };

/// Returns all cells.
fn all(quick: bool) -> Vec<Cell> {
    let loads: &[&str] = if quick { &["0", "1", "3"] } else { &LOADS };
    let apps: &[&str] = if quick { &["mg", "grid"] } else { &APPS };
    let mut cells = Vec::new();
    for app in apps {
        for network in NETWORKS {
            for locals in loads {
                for policy in POLICIES {
                    for wait in WAITS {
                        if policy != "implicit" || wait == "adaptive" {
                            cells.push(Cell { policy, wait, locals, app, network });
                        }
                    }
                }
            }
        }
    }
    cells
}

impl Cell {
    fn is_kept(&self, params: &Params) -> bool {
        let columns = [
            ("policy", self.policy),
            ("wait", self.wait),
            ("local_tasks", self.locals),
            ("app", self.app),
            ("network", self.network),
        ];
        columns.iter().all(|(column, value)| params.keeps(column, value))
    }

    fn setting(&self, seed: u64) -> Setting {
        let wait = match self.wait {
            "block" => Wait::Block,
            "spin" => Wait::Spin,
            _ => Wait::Adaptive,
        };
        let app = match self.app {
            "mg" => App::Mg,
            "is" => App::Is,
            _ => App::Stencil(GRID),
        };
        let link = if self.network == "fast" { FAST } else { Link::ETHERNET_100 };
        let knows = if self.wait == "evidence" { Knows::Polls } else { Knows::Load };
        Setting {
            scheme: scheme(self.policy),
            wait,
            knows,
            link,
            ..Setting::plain(app, self.locals.parse().unwrap_or_default(), seed)
        }
    }

    /// Returns the cell that it is compared with: the same with sleeping waits, and LINUX for implicit coscheduling.
    fn asleep(&self) -> Self {
        let policy = if self.policy == "implicit" { "linux" } else { self.policy };
        Self { policy, wait: "block", ..*self }
    }
}

/// A row: seconds, one per seed.
#[derive(Clone, Debug)]
struct Row {
    cell: Cell,
    seconds: Vec<f64>,
}

impl Row {
    fn fields(&self, rows: &[Self]) -> Fields {
        let Cell { policy, wait, locals, app, network } = self.cell;
        Fields::default()
            .with("policy", policy)
            .with("wait", wait)
            .with("local_tasks", locals.parse::<u32>().ok())
            .with("app", app)
            .with("network", network)
            .with_spread(self.spread(), 3)
            .with("to_block", decimals(self.to_block(rows).unwrap_or(f64::NAN), 3))
    }

    fn spread(&self) -> Option<Spread> {
        Spread::of_all(&self.seconds)
    }

    /// Returns the median time as a fraction of that with sleeping waits.
    fn to_block(&self, rows: &[Self]) -> Option<f64> {
        Spread::of_all(&self.ratios(rows)).map(|spread| spread.middle)
    }

    /// Returns the times as fractions of those with sleeping waits, seed by seed; none if those were not measured.
    fn ratios(&self, rows: &[Self]) -> Vec<f64> {
        let asleep = rows.iter().find(|row| row.cell == self.cell.asleep());
        let seconds = asleep.map_or(&[][..], |asleep| &asleep.seconds);
        self.seconds.iter().zip(seconds).map(|(own, other)| own / other).collect()
    }
}

const IDS: [&str; 6] = ["S3a", "S3b", "W1", "W2", "W3", "W4"];

/// Largest ratio that counts as no loss: one hundredth more. Chosen by us; no source.
const NO_LOSS: f64 = 1.01;
/// Largest ratio allowed for occasional trial polls, as on real machines (P7). Chosen by us; no source.
const TRIALS: f64 = 1.15;

fn claims(rows: &[Row]) -> Vec<Claim> {
    let judges = [spinning, spin_then_block, w1, w2, w3, w4];
    judges.into_iter().filter_map(|judge| judge(rows)).collect()
}

/// Returns whether tasks of other jobs want the CPUs, and the job's tasks are not scheduled at the same time by design.
fn is_shared(cell: &Cell) -> bool {
    cell.locals != "0" && cell.policy != "gang"
}

/// Returns the times of some cells as fractions of those with sleeping waits.
fn ratios(rows: &[Row], keep: impl Fn(&Cell) -> bool) -> Vec<f64> {
    rows.iter().filter(|row| keep(&row.cell)).filter_map(|row| row.to_block(rows)).collect()
}

/// Returns the least and the largest value.
fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    Some((least, values.iter().copied().max_by(f64::total_cmp)?))
}

/// A half of S3: the job loses in every cell with local tasks on the paper's network.
fn loses(id: &'static str, rows: &[Row], keep: impl Fn(&Cell) -> bool) -> Option<Claim> {
    let cells: Vec<&Row> = rows
        .iter()
        .filter(|row| is_shared(&row.cell) && row.cell.network == "ethernet" && keep(&row.cell))
        .filter(|row| row.to_block(rows).is_some())
        .collect();
    let (least, most) = range(&cells.iter().filter_map(|row| row.to_block(rows)).collect::<Vec<_>>())?;
    // The logarithms, because seeds may differ by large factors.
    let logarithms = |row: &&Row| row.ratios(rows).into_iter().map(f64::ln).collect::<Vec<_>>();
    let sides: Vec<_> = cells.iter().map(|row| Interval::of(&logarithms(row)).side_of(0.0)).collect();
    let count = |side| sides.iter().filter(|found| **found == side).count();
    let detail = format!(
        "least and largest fraction of the time of sleeping waits; of {} cells {} lose and {} gain by more than seeds differ",
        sides.len(),
        count(Some(Ordering::Greater)),
        count(Some(Ordering::Less)),
    );
    let verdict = interval::verdict(Ordering::Greater, &sides);
    Some(Claim::new(id, detail, format!("{least:.3} to {most:.3}"), verdict))
}

fn spinning(rows: &[Row]) -> Option<Claim> {
    loses("S3a", rows, |cell| cell.wait == "spin")
}

fn spin_then_block(rows: &[Row]) -> Option<Claim> {
    loses("S3b", rows, |cell| cell.policy == "implicit")
}

/// Compares the wait that knows the load with the best one that does not, under LINUX.
fn w1(rows: &[Row]) -> Option<Claim> {
    let ours: Vec<_> =
        rows.iter().filter(|row| (row.cell.policy, row.cell.wait) == ("linux", "adaptive")).collect();
    let regret = |row: &&Row| {
        let rivals = [("linux", "block"), ("linux", "spin"), ("implicit", "adaptive")];
        let rival = |(policy, wait)| {
            let cell = Cell { policy, wait, ..row.cell };
            rows.iter().find(|row| row.cell == cell)?.to_block(rows)
        };
        let best = rivals.into_iter().filter_map(rival).min_by(f64::total_cmp)?;
        Some(row.to_block(rows)? / best)
    };
    let (_, most) = range(&ours.iter().filter_map(regret).collect::<Vec<_>>())?;
    let (_, to_block) = range(&ours.iter().filter_map(|row| row.to_block(rows)).collect::<Vec<_>>())?;
    let detail = format!(
        "largest multiple of the best of sleeping, spinning and spin-then-block; of sleeping alone {to_block:.3}"
    );
    let verdict = Verdict::graded(most <= NO_LOSS, to_block <= NO_LOSS);
    Some(Claim::new("W1", detail, decimals(most, 3), verdict).bar(NO_LOSS))
}

fn w2(rows: &[Row]) -> Option<Claim> {
    let alone = |wait: &'static str| {
        let keep = |cell: &Cell| {
            (cell.locals, cell.network, cell.app, cell.policy, cell.wait)
                == ("0", "fast", "grid", "linux", wait)
        };
        ratios(rows, keep).first().copied()
    };
    let (adaptive, spin) = (alone("adaptive")?, alone("spin")?);
    let detail =
        format!("fractions of the time of sleeping waits: adaptive {adaptive:.3}, spinning {spin:.3}");
    let verdict = Verdict::graded(spin < 1.0 && adaptive <= spin * NO_LOSS, adaptive < 1.0);
    Some(Claim::new("W2", detail, decimals(adaptive / spin, 3), verdict).bar(NO_LOSS))
}

fn w3(rows: &[Row]) -> Option<Claim> {
    let keep = |cell: &Cell| {
        is_shared(cell) && cell.policy == "implicit" && (cell.network, cell.app) == ("fast", "grid")
    };
    let (best, worst) = range(&ratios(rows, keep))?;
    let detail = format!(
        "largest fraction of the time of sleeping waits, least {best:.3}: a task that sleeps yields its CPU, and the others of its job \
         wait for it"
    );
    let verdict = Verdict::graded(worst < 1.0, best < 1.0);
    Some(Claim::new("W3", detail, decimals(worst, 3), verdict).bar(1.0))
}

fn w4(rows: &[Row]) -> Option<Claim> {
    let (best, worst) = range(&ratios(rows, |cell| cell.wait == "evidence"))?;
    let detail = format!(
        "largest fraction of the time of sleeping waits, least {best:.3}; the bar is what trial polls may cost"
    );
    Some(Claim::at_most("W4", detail, TRIALS, worst, 3))
}

/// Returns one figure per application with a panel per network: selected policies and waits by load.
fn figures(rows: &[Row]) -> Vec<Figure> {
    let shown = [
        ("LINUX, block", "linux", "block"),
        ("LINUX, adaptive", "linux", "adaptive"),
        ("IMPLICIT: spin, then block", "implicit", "adaptive"),
        ("PRED, adaptive", "pred", "adaptive"),
        ("GANG, spin", "gang", "spin"),
    ];
    let panel = |app: &'static str, network: &'static str| {
        let mut loads: Vec<&str> =
            rows.iter().filter(|row| row.cell.app == app).map(|row| row.cell.locals).collect();
        loads.sort_unstable();
        loads.dedup();
        let series = shown.map(|(name, policy, wait)| {
            let bar = |locals: &&'static str| {
                let cell = Cell { policy, wait, locals, app, network };
                rows.iter().find(|row| row.cell == cell).and_then(Row::spread)
            };
            BarSeries::new(name, loads.iter().map(bar))
        });
        let title = if network == "fast" { "10 Gb/s, 2 us" } else { "100 Mb/s, 0.1 ms" };
        let groups = loads.iter().map(ToString::to_string).collect();
        Panel::bars(title, "local tasks per node", plot::Axis::linear("execution time", "s"), groups, series)
    };
    let figure = |(app, file, title): (&'static str, &'static str, &str)| {
        let title =
            format!("{title}: waiting policies (spinning with local tasks is off the scale, see the rows)");
        Figure::of(file, title, NETWORKS.map(|network| panel(app, network)))
    };
    [
        ("mg", "wait-mg", "MG, class A"),
        ("is", "wait-is", "IS, class A"),
        ("grid", "wait-grid", "A grid of fine grain"),
    ]
    .into_iter()
    .filter_map(figure)
    .collect()
}

/// Number of seeds of each cell.
const SEEDS: u64 = 20;
const QUICK_SEEDS: u64 = 3;

#[cfg(test)]
mod tests;
