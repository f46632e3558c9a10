//! `wait-sim`: waiting for a message while other tasks want the CPU: by sleeping, polling, or polling first.
//!
//! The coscheduling paper says of implicit coscheduling, spin and then block, that it loses in time sharing (section 1). Our
//! adaptive wait is just that, unless it knows that other tasks want the CPU.

use pronto_sched_policy::policy::coschedule::Policy;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;
use pronto_sched_sim::cluster::Knows;
use pronto_sched_sim::link::Link;
use pronto_sched_sim::paper::coscheduling::{self, App, Grid, Scheme, Setting, predicted};
use pronto_sched_sim::program::Wait;
use pronto_sched_sim::workload::parallel::stencil::Grain;
use serde_json::json;

use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::plot::{self, BarSeries, Bars, Figure, Panel, Spread};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::workers;

/// The experiment. All rows of an application, a network and a load meet the same seeds, and are compared seed by seed.
#[derive(Debug)]
pub(crate) struct WaitSim;

impl Experiment for WaitSim {
    fn name(&self) -> &'static str {
        "wait-sim"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("coscheduling")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("section 1")
    }

    fn about(&self) -> &'static str {
        "simulated: waiting by sleeping, polling, or polling first, with local tasks, under each policy"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "policy", help: "Only these policies", values: &POLICIES },
            Axis { column: "wait", help: "Only these waiting policies", values: &WAITS },
            Axis {
                column: "local_tasks",
                help: "Only these numbers of local tasks per node",
                values: &LOADS,
            },
            Axis { column: "app", help: "Only these applications", values: &APPS },
            Axis { column: "network", help: "Only these networks", values: &NETWORKS },
        ]
    }

    fn draws(&self) -> bool {
        true
    }

    fn without_aa(&self) -> Option<&'static str> {
        Some("simulated: the same seeds give the same numbers, and how seeds differ stands in the rows")
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let seeds = if params.quick { QUICK_SEEDS } else { SEEDS };
        let cells: Vec<Cell> = all(params.quick).into_iter().filter(|cell| cell.is_kept(params)).collect();
        let settings: Vec<Setting> =
            cells.iter().flat_map(|cell| (1..=seeds).map(|seed| cell.setting(seed))).collect();
        progress.begin(settings.len() as u64);
        let outcomes = workers::all(&settings, progress, coscheduling::run);
        let per_cell = usize::try_from(seeds)?;
        let rows: Vec<Row> = cells
            .iter()
            .zip(outcomes.chunks(per_cell))
            .map(|(cell, runs)| Row {
                cell: *cell,
                seconds: runs.iter().map(|run| run.jobs[0].unwrap_or(f64::NAN)).collect(),
            })
            .collect();
        let mut report = Report::default();
        report.params = Fields::default()
            .with("seeds", seeds)
            .with("nodes", coscheduling::NODES)
            .with("switch_us", 10)
            .with("wake_up_us", 50)
            .with("parameters", "documented in crates/sched-sim/src/paper/coscheduling.rs");
        report.rows = rows.iter().map(|row| row.fields(&rows)).collect();
        report.claims = claims(&rows);
        report.figures = figures(&rows);
        if params.chosen().next().is_none() {
            for id in IDS {
                anyhow::ensure!(
                    report.claims.iter().any(|claim| claim.id == id),
                    "the run has no claim {id}"
                );
            }
        }
        report.note("times are simulated. `to_block` is the median, over seeds, of the time as a fraction of that with wait block");
        report.note("a run that does not end within 4,000 s is abandoned, and its row has no times");
        report.note(
            "policy implicit is LINUX with adaptive waits that poll even if other tasks want the CPU; elsewhere they know \
             the load, and sleep immediately on a contended CPU; wait evidence is also adaptive, and knows only which of \
             its polls were preempted",
        );
        Ok(report)
    }
}

/// A row before it was run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    policy: &'static str,
    wait: &'static str,
    locals: &'static str,
    app: &'static str,
    network: &'static str,
}

const POLICIES: [&str; 5] = ["linux", "dyn", "pred", "gang", "implicit"];
/// `evidence` is an adaptive wait that knows of the load what its own polls have shown.
const WAITS: [&str; 4] = ["block", "adaptive", "evidence", "spin"];
const LOADS: [&str; 4] = ["0", "1", "3", "5"];
const APPS: [&str; 3] = ["mg", "is", "grid"];
/// The paper's; and one whose round trip is far shorter than a wake-up.
const NETWORKS: [&str; 2] = ["ethernet", "fast"];

/// 10 Gb/s and 2 us: what RDMA networks of the overlap paper's kind and later have; headers as there are on Ethernet.
const FAST: Link =
    Link { latency: Nanos::from_micros(2), bandwidth: 10_000_000_000 / 8, ..Link::ETHERNET_100 };

/// Fine grain: 200 us of computing between exchanges of 512 bytes, 5,000 times: a second of computing. Ours.
const GRID: Grid =
    Grid { side: 2, grain: Grain { compute: Nanos::from_micros(200), bytes: 512 }, rounds: 5_000 };

/// All rows.
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
        let near_1 = Share::percent(99);
        let scheme = match self.policy {
            "dyn" => Scheme::Predicted(predicted(Policy::Dynamic, Share::percent(1))),
            "pred" => Scheme::Predicted(predicted(Policy::Predictive, near_1)),
            "gang" => Scheme::Gang,
            "implicit" => Scheme::Implicit,
            _ => Scheme::Predicted(predicted(Policy::Linux, near_1)),
        };
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
            scheme,
            wait,
            knows,
            link,
            ..Setting::plain(app, self.locals.parse().unwrap_or_default(), seed)
        }
    }

    /// What it is compared with: the same, asleep; of implicit coscheduling LINUX.
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
        let spread = self.spread();
        let part = |part: fn(Spread) -> f64| spread.map_or(f64::NAN, part);
        Fields::default()
            .with("policy", policy)
            .with("wait", wait)
            .with("local_tasks", locals.parse::<u32>().ok())
            .with("app", app)
            .with("network", network)
            .with("seconds", decimals(part(|s| s.middle), 3))
            .with("least", decimals(part(|s| s.least), 3))
            .with("most", decimals(part(|s| s.most), 3))
            .with("to_block", decimals(self.to_block(rows).unwrap_or(f64::NAN), 3))
    }

    fn spread(&self) -> Option<Spread> {
        if self.seconds.iter().any(|seconds| seconds.is_nan()) { None } else { Spread::of(&self.seconds) }
    }

    /// Time as a fraction of that with sleeping waits.
    fn to_block(&self, rows: &[Self]) -> Option<f64> {
        let asleep = rows.iter().find(|row| row.cell == self.cell.asleep())?;
        let ratios: Vec<f64> = self
            .seconds
            .iter()
            .zip(&asleep.seconds)
            .map(|(own, other)| own / other)
            .filter(|r| !r.is_nan())
            .collect();
        (ratios.len() == self.seconds.len())
            .then(|| Spread::of(&ratios).map(|spread| spread.middle))
            .flatten()
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
    let s3 = least(&spin).zip(most(&implicit)).zip(least(&implicit)).map(|((spin, worst), best)| Claim {
        id: "S3",
        text: "active waiting loses in time sharing, and so does implicit coscheduling (spin, then block). Time as a fraction of \
               that with sleeping waits, with local tasks on the paper's network: spinning at best;  spin-then-block at best and at worst. \
               It holds if spinning loses everywhere and spin-then-block gains nowhere"
            .into(),
        published: json!("above 1"),
        measured: json!(format!("spin {spin:.2}, implicit {best:.3} to {worst:.3}")),
        holds: spin > 1.0 && best > 1.0 / NO_LOSS,
    });
    let ours = of(&|cell| cell.wait == "adaptive" && cell.policy != "implicit");
    let w1 = most(&ours).map(|worst| Claim {
        id: "W1",
        text: "an adaptive wait that knows the load loses nothing against sleeping, under any policy, load and network: at \
               worst"
            .into(),
        published: decimals(NO_LOSS, 2),
        measured: decimals(worst, 3),
        holds: worst <= NO_LOSS,
    });
    let alone = |wait: &'static str| {
        of(&move |cell| {
            (cell.locals, cell.network, cell.app, cell.policy, cell.wait)
                == ("0", "fast", "grid", "linux", wait)
        })
        .first()
        .copied()
    };
    let w2 = alone("adaptive").zip(alone("spin")).map(|(adaptive, spin)| Claim {
        id: "W2",
        text: "alone on its CPU, with messages that arrive sooner than a wake-up takes, an adaptive wait gains as much as \
               spinning: time as a fraction of that with sleeping waits, adaptive and spinning"
            .into(),
        published: json!("the same"),
        measured: json!(format!("{adaptive:.3}, {spin:.3}")),
        holds: spin < 1.0 && adaptive <= spin * NO_LOSS,
    });
    let polls =
        of(&|cell| shared(cell) && cell.policy == "implicit" && (cell.network, cell.app) == ("fast", "grid"));
    let w3 = least(&polls).zip(most(&polls)).map(|(best, worst)| Claim {
        id: "W3",
        text: "where messages arrive sooner than a wake-up takes, polling first gains even with local tasks, as a task that \
               sleeps yields its CPU and the others of its job wait for it: time as a fraction of that with sleeping waits, at \
               best and at worst. An adaptive wait that never polls on a shared CPU misses this gain"
            .into(),
        published: serde_json::Value::Null,
        measured: json!(format!("{best:.3} to {worst:.3}")),
        holds: worst < 1.0,
    });
    let shown = of(&|cell| cell.wait == "evidence");
    let w4 = least(&shown).zip(most(&shown)).map(|(best, worst)| Claim {
        id: "W4",
        text: "an adaptive wait that infers the load from its own polls, as in the library, loses little against \
               sleeping,  under any policy, load and network: at best and at worst; it holds up to what the trials may cost"
            .into(),
        published: decimals(TRIALS, 2),
        measured: json!(format!("{best:.3} to {worst:.3}")),
        holds: worst <= TRIALS,
    });
    [s3, w1, w2, w3, w4].into_iter().flatten().collect()
}

/// One figure per application, a panel per network: LINUX and implicit coscheduling, over the load.
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
        let bar = |policy, wait, locals| {
            let cell = Cell { policy, wait, locals, app, network };
            rows.iter().find(|row| row.cell == cell).and_then(Row::spread)
        };
        let series: Vec<BarSeries> = shown
            .iter()
            .map(|(name, policy, wait)| BarSeries {
                name: (*name).to_owned(),
                bars: loads.iter().map(|load| bar(policy, wait, load)).collect(),
            })
            .filter(|series| series.bars.iter().any(Option::is_some))
            .collect();
        (!series.is_empty()).then(|| {
            Panel::Bars(Bars {
                title: if network == "fast" { "10 Gb/s, 2 us" } else { "100 Mb/s, 0.1 ms" }.to_owned(),
                x: "local tasks per node".to_owned(),
                y: plot::Axis::linear("execution time", "s"),
                groups: loads.iter().map(ToString::to_string).collect(),
                series,
            })
        })
    };
    let figure = |(app, file, title): (&'static str, &'static str, &str)| Figure {
        file,
        title: format!(
            "{title}: waiting policies (spinning with local tasks is off the scale, see the rows)"
        ),
        panels: NETWORKS.iter().filter_map(|network| panel(app, network)).collect(),
    };
    [
        ("mg", "wait-mg", "MG, class A"),
        ("is", "wait-is", "IS, class A"),
        ("grid", "wait-grid", "A grid of fine grain"),
    ]
    .map(figure)
    .into_iter()
    .filter(|figure| !figure.panels.is_empty())
    .collect()
}

/// Of each cell.
const SEEDS: u64 = 20;
/// See [`SEEDS`].
const QUICK_SEEDS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_compared_with_who_sleeps() {
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
            |rows: &[Row]| claims(rows).iter().map(|claim| (claim.id, claim.holds)).collect::<Vec<_>>();
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
