//! `wait-sim`: waiting for a message while other tasks want the CPU: by sleeping, polling, or polling first.
//!
//! According to the coscheduling paper, implicit coscheduling (spin, then block) loses in time sharing (section 1). Our adaptive
//! wait does the same, unless it knows that other tasks want the CPU.

use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::cluster::Knows;
use pronto_sched_sim::link::Link;
use pronto_sched_sim::paper::coscheduling::{self, App, Grid, Setting};
use pronto_sched_sim::program::Wait;
use pronto_sched_sim::workload::parallel::stencil::Grain;

use super::cosched_sim::scheme;
use crate::claim::Claim;
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Params};
use crate::plot::{self, BarSeries, Figure, Panel, Spread};
use crate::report::{Fields, Report, decimals};
use crate::workers;

/// Simulated waits. Rows of one application, network and load share the seeds, and are compared seed by seed.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "wait-sim",
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
        let asleep = rows.iter().find(|row| row.cell == self.cell.asleep())?;
        let ratios = self.seconds.iter().zip(&asleep.seconds).map(|(own, other)| own / other);
        Spread::of_all(&ratios.collect::<Vec<_>>()).map(|spread| spread.middle)
    }
}

const IDS: [&str; 5] = ["S3", "W1", "W2", "W3", "W4"];

/// Largest ratio that counts as no loss: one hundredth more.
const NO_LOSS: f64 = 1.01;
/// Largest ratio allowed for occasional trial polls, as on real machines (P7).
const TRIALS: f64 = 1.15;

fn claims(rows: &[Row]) -> Vec<Claim> {
    let of = |keep: &dyn Fn(&Cell) -> bool| -> Vec<f64> {
        rows.iter().filter(|row| keep(&row.cell)).filter_map(|row| row.to_block(rows)).collect()
    };
    let most = |all: &[f64]| all.iter().copied().max_by(f64::total_cmp);
    let least = |all: &[f64]| all.iter().copied().min_by(f64::total_cmp);
    let shared = |cell: &Cell| cell.locals != "0" && cell.policy != "gang";
    let spin = of(&|cell| shared(cell) && cell.wait == "spin" && cell.network == "ethernet");
    let implicit = of(&|cell| shared(cell) && cell.policy == "implicit" && cell.network == "ethernet");
    let s3 = least(&spin).zip(most(&implicit)).zip(least(&implicit)).map(|((spin, worst), best)| {
        let text = "active waiting loses in time sharing, and so does implicit coscheduling (spin, then block). Time as a fraction of \
                    that with sleeping waits, with local tasks on the paper's network: spinning at best;  spin-then-block at best and at worst. \
                    It holds if spinning loses everywhere and spin-then-block gains nowhere";
        let measured = format!("spin {spin:.2}, implicit {best:.3} to {worst:.3}");
        Claim::new("S3", text, measured, spin > 1.0 && best > 1.0 / NO_LOSS)
    });
    let ours = of(&|cell| cell.wait == "adaptive" && cell.policy != "implicit");
    let text = "an adaptive wait that knows the load loses nothing against sleeping, under any policy, load and network: at worst";
    let w1 = most(&ours).map(|worst| Claim::at_most("W1", text, NO_LOSS, worst, 3));
    let alone = |wait: &'static str| {
        of(&move |cell| {
            (cell.locals, cell.network, cell.app, cell.policy, cell.wait)
                == ("0", "fast", "grid", "linux", wait)
        })
        .first()
        .copied()
    };
    let w2 = alone("adaptive").zip(alone("spin")).map(|(adaptive, spin)| {
        let text = "alone on its CPU, with messages that arrive sooner than a wake-up takes, an adaptive wait gains as much as \
                    spinning: time as a fraction of that with sleeping waits, adaptive and spinning";
        let holds = spin < 1.0 && adaptive <= spin * NO_LOSS;
        Claim::new("W2", text, format!("{adaptive:.3}, {spin:.3}"), holds)
    });
    let range = |values: &[f64]| least(values).zip(most(values));
    let polls =
        of(&|cell| shared(cell) && cell.policy == "implicit" && (cell.network, cell.app) == ("fast", "grid"));
    let w3 = range(&polls).map(|(best, worst)| {
        let text = "where messages arrive sooner than a wake-up takes, polling first gains even with local tasks, as a task that \
                    sleeps yields its CPU and the others of its job wait for it: time as a fraction of that with sleeping waits, at \
                    best and at worst. An adaptive wait that never polls on a shared CPU misses this gain";
        Claim::new("W3", text, format!("{best:.3} to {worst:.3}"), worst < 1.0)
    });
    let w4 = range(&of(&|cell| cell.wait == "evidence")).map(|(best, worst)| {
        let text = "an adaptive wait that infers the load from its own polls, as in the library, loses little against \
                    sleeping,  under any policy, load and network: at best and at worst; it holds up to what the trials may cost";
        Claim::new("W4", text, format!("{best:.3} to {worst:.3}"), worst <= TRIALS).bar(TRIALS)
    });
    [s3, w1, w2, w3, w4].into_iter().flatten().collect()
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
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_compared_with_sleeping_waits() {
        for quick in [true, false] {
            let cells = all(quick);
            assert!(cells.iter().all(|cell| cells.contains(&cell.asleep())));
        }
    }

    #[test]
    fn claims_follow_the_rows() {
        let rows = |spin: f64, implicit: f64, adaptive: f64| -> Vec<Row> {
            let seconds = |cell: &Cell| match (cell.policy, cell.wait) {
                (_, "block") => 1.0,
                ("implicit", _) => implicit,
                (_, "spin") => spin,
                _ => adaptive,
            };
            all(true).into_iter().map(|cell| Row { cell, seconds: vec![seconds(&cell)] }).collect()
        };
        let verdicts =
            |rows: &[Row]| claims(rows).iter().map(|claim| (claim.id, claim.holds())).collect::<Vec<_>>();
        let [good, bad] = [rows(2.0, 1.1, 1.0), rows(0.9, 0.8, 1.2)];
        assert_eq!(verdicts(&good), [("S3", true), ("W1", true), ("W2", false), ("W3", false), ("W4", true)]);
        assert_eq!(
            verdicts(&bad),
            [("S3", false), ("W1", false), ("W2", false), ("W3", true), ("W4", false)]
        );
        assert!(verdicts(&rows(0.9, 1.0, 0.9)).contains(&("W2", true)));
        assert!(claims(&[]).is_empty());
    }
}
