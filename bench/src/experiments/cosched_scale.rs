//! `cosched-scale`: the benefit of coscheduling as clusters grow, on up to 10,000 simulated nodes, and the cost of the simulation.

use pronto_sched_sim::paper::coscheduling::{self, App, Grid, Outcome, Setting};

use super::cosched_sim::scheme;
use crate::child;
use crate::claim::Claim;
use crate::clock;
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Params};
use crate::plot::{self, Figure, Marks, Panel, Point, Series, Spread};
use crate::report::{Fields, Report, decimals};
use crate::sample::{a_to_a, approximate};
use crate::workers;

/// A grid with a task on each node exchanges borders with its neighbours, with three local tasks per node. The part of a task is
/// always the same, so alone the job takes as long on any number of nodes.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "cosched-scale",
    question: "Does coscheduling still help on thousands of nodes?",
    takes: [300, 45],
    paper: Some("coscheduling"),
    about: "simulated: the benefit of coscheduling on 4 to 10,000 nodes",
    axes: &[
        Axis::new("policy", "Only these policies", &POLICIES),
        Axis::new("nodes", "Only these numbers of nodes", &NODES),
    ],
    draws: true,
    claims: &IDS,
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let length = if params.quick { QUICK } else { FULL };
    let runs: Vec<Cell> = all(params, &length);
    run.progress.begin(runs.len() as u64);
    let timed = workers::all(&runs, run.progress, |run| {
        let begun = cpu_seconds();
        let outcome = coscheduling::run(&run.setting(&length));
        Timed { outcome, took: cpu_seconds() - begun }
    });
    let rows = rows(&runs, &timed);
    let mut report = Report {
        params: Fields::default()
            .with("local_tasks", LOCALS)
            .with("rounds", length.rounds)
            .with("compute_ms", 40)
            .with("border_bytes", 4096)
            .with("link", "100 Mb/s, 0.1 ms")
            .with("parameters", "documented in crates/sched-sim/src/paper/coscheduling.rs"),
        claims: claims(&rows, peak_memory()),
        figures: figure(&rows).into_iter().collect(),
        rows: rows.iter().map(|row| row.fields(&rows)).collect(),
        ..Report::default()
    };
    report
        .note("times are simulated; `alone` is the same job without local tasks. A fair share is a quarter");
    Ok(report)
}

/// Local tasks per node, where the paper's effects begin. Chosen by us; no source.
const LOCALS: usize = 3;

/// Length of a run.
struct Length {
    rounds: u32,
    /// Seeds on up to 64, 1,024 and 10,000 nodes.
    seeds: [u64; 3],
    /// Policies on 10,000 nodes.
    largest: &'static [&'static str],
}

const FULL: Length = Length { rounds: 20, seeds: [20, 20, 20], largest: &POLICIES };
/// On 10,000 nodes only one seed, because each node has independent chances, and only the policies of the claims.
const QUICK: Length = Length { rounds: 20, seeds: [3, 3, 1], largest: &["alone", "linux", "pred"] };

const POLICIES: [&str; 7] = ["alone", "linux", "dyn", "pred", "pred-carried", "gang", "bcs"];
const NODES: [&str; 4] = ["4", "64", "1024", "10000"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    policy: &'static str,
    side: usize,
    seed: u64,
}

struct Timed {
    outcome: Outcome,
    took: f64,
}

fn all(params: &Params, length: &Length) -> Vec<Cell> {
    let mut runs = Vec::new();
    for nodes in NODES.iter().rev().filter(|nodes| params.keeps("nodes", nodes)) {
        let nodes: usize = nodes.parse().unwrap_or(4);
        let [small, large, largest] = length.seeds;
        let seeds = match nodes {
            0..=64 => small,
            65..=1_024 => large,
            _ => largest,
        };
        let policies = if nodes > 1_024 { length.largest } else { &POLICIES };
        for policy in policies.iter().filter(|policy| params.keeps("policy", policy)) {
            runs.extend((1..=seeds).map(|seed| Cell { policy, side: nodes.isqrt(), seed }));
        }
    }
    runs
}

impl Cell {
    fn setting(&self, length: &Length) -> Setting {
        let locals = if self.policy == "alone" { 0 } else { LOCALS };
        let app = App::Stencil(Grid::new(self.side, length.rounds));
        Setting { scheme: scheme(self.policy), ..Setting::plain(app, locals, self.seed) }
    }
}

/// A policy on a number of nodes, over all seeds.
#[derive(Clone, Debug)]
struct Row {
    policy: &'static str,
    nodes: usize,
    seconds: Vec<f64>,
    events: u64,
    took: f64,
    /// Events per second of CPU time, by seed.
    rates: Vec<f64>,
}

fn rows(runs: &[Cell], timed: &[Timed]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (run, timed) in runs.iter().zip(timed) {
        let nodes = run.side * run.side;
        if rows.last().is_none_or(|row| (row.policy, row.nodes) != (run.policy, nodes)) {
            let (policy, seconds, rates) = (run.policy, Vec::new(), Vec::new());
            rows.push(Row { policy, nodes, seconds, events: 0, took: 0.0, rates });
        }
        let row = rows.last_mut().expect("a row was just begun");
        row.seconds.push(timed.outcome.jobs[0].unwrap_or(f64::NAN));
        row.events += timed.outcome.events;
        row.took += timed.took;
        row.rates.push(approximate(timed.outcome.events) / timed.took);
    }
    rows.sort_by_key(|row| row.nodes);
    rows
}

impl Row {
    fn spread(&self) -> Option<Spread> {
        Spread::of_all(&self.seconds)
    }

    /// Returns the time as a multiple of that alone.
    fn slowdown(&self, rows: &[Self]) -> Option<Spread> {
        let alone =
            rows.iter().find(|row| (row.policy, row.nodes) == ("alone", self.nodes))?.spread()?.middle;
        let own = self.spread()?;
        Some(Spread { middle: own.middle / alone, least: own.least / alone, most: own.most / alone })
    }

    fn rate(&self) -> f64 {
        approximate(self.events) / self.took
    }

    fn fields(&self, rows: &[Self]) -> Fields {
        let slowdown = self.slowdown(rows).map_or(f64::NAN, |spread| spread.middle);
        Fields::default()
            .with("policy", self.policy)
            .with("nodes", self.nodes)
            .with_spread(self.spread(), 3)
            .with("slowdown", decimals(slowdown, 2))
            .with("seeds", self.seconds.len())
            .with("events", self.events)
            .with("events_per_second", decimals(self.rate(), 0))
            .with("aa", decimals(a_to_a(&self.rates), 2))
    }
}

const IDS: [&str; 5] = ["C1", "C2", "C3", "C4", "C5"];

/// Difference below which two results count as equal: two hundredths.
const SAME: f64 = 0.02;

/// A million events per second and CPU; 4 GiB. Chosen by us; no source.
const RATE: f64 = 1e6;
const MEMORY: u64 = 4 << 30;

fn claims(rows: &[Row], memory: Option<u64>) -> Vec<Claim> {
    let slowdown = |policy: &str, nodes: usize| {
        let row = rows.iter().find(|row| (row.policy, row.nodes) == (policy, nodes))?;
        Some(row.slowdown(rows)?.middle)
    };
    let most = rows.iter().map(|row| row.nodes).max().unwrap_or_default();
    let c1 = slowdown("linux", 4).zip(slowdown("linux", most)).filter(|_| most > 4).map(|(few, many)| {
        let detail = format!("slowdown {many:.2} on {most} nodes as a multiple of {few:.2} on 4");
        Claim::new("C1", detail, decimals(many / few, 3), many > few).bar(1.0)
    });
    let c2 = slowdown("linux", most).zip(slowdown("pred", most)).map(|(linux, pred)| {
        let detail = format!("on {most} nodes, slowdown {pred:.2} as a multiple of {linux:.2}");
        Claim::new("C2", detail, decimals(pred / linux, 3), pred < linux).bar(1.0)
    });
    let of_gang = rows.iter().filter(|row| row.policy == "gang").map(|row| row.nodes).max();
    let c3 = of_gang.and_then(|nodes| Some((nodes, slowdown("gang", 4)?, slowdown("gang", nodes)?)));
    let c3 = c3.map(|(nodes, few, many)| {
        let detail =
            format!("difference of the slowdown {many:.2} on {nodes} nodes from {few:.2} on 4, as a share");
        Claim::at_most("C3", detail, SAME, (many / few - 1.0).abs(), 3)
    });
    let (events, took) =
        rows.iter().fold((0, 0.0), |(events, took), row| (events + row.events, took + row.took));
    let c4 =
        (took > 0.0).then(|| Claim::at_least("C4", "over all rows", RATE, approximate(events) / took, 0));
    let c5 = memory.filter(|_| most > 0).map(|bytes| {
        let detail = format!("{most} nodes, as many concurrent runs as there are CPUs");
        Claim::new("C5", detail, bytes, bytes <= MEMORY).bar(MEMORY)
    });
    [c1, c2, c3, c4, c5].into_iter().flatten().collect()
}

/// Returns the CPU time of this thread so far, in seconds: the cost of a run, independent of other threads on the CPU.
fn cpu_seconds() -> f64 {
    approximate(clock::thread_ns()) / 1e9
}

/// Returns the peak memory of this process in bytes.
fn peak_memory() -> Option<u64> {
    child::status_kib("self", "VmHWM").ok().map(|kib| kib * 1024)
}

fn figure(rows: &[Row]) -> Option<Figure> {
    let series = POLICIES[1..].iter().map(|policy| {
        let of_policy = rows.iter().filter(|row| row.policy == *policy);
        let point = |row: &Row| Some(Point { x: approximate(row.nodes as u64), y: row.slowdown(rows)? });
        Series::new(policy.to_uppercase(), of_policy.map(point))
    });
    let (x, y) = (plot::Axis::logarithmic("nodes", ""), plot::Axis::linear("slowdown", ""));
    let panel = Panel::lines("time, as a multiple of the time alone", x, y, Marks::Joined, series);
    let title = format!("A job with {LOCALS} local tasks per node, by size of the cluster");
    Figure::of("cosched-scale", title, [panel])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &'static str, nodes: usize, seconds: f64) -> Row {
        Row { policy, nodes, seconds: vec![seconds], events: 10_000_000, took: 1.0, rates: Vec::new() }
    }

    #[test]
    fn claims_follow_the_rows() {
        let mut rows = vec![
            row("alone", 4, 1.0),
            row("linux", 4, 5.0),
            row("alone", 10_000, 1.0),
            row("linux", 10_000, 9.0),
            row("pred", 10_000, 8.0),
            row("gang", 4, 4.1),
            row("gang", 10_000, 4.1),
        ];
        let verdicts = |rows: &[Row], memory| {
            let claims = claims(rows, Some(memory));
            claims.iter().map(|claim| (claim.id, claim.holds())).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&rows, MEMORY), IDS.map(|id| (id, true)));
        rows[0].rates = vec![3e6, 4e6];
        assert_eq!(rows[0].fields(&rows).value("aa"), Some(&serde_json::json!(0.75)));
        rows[4].seconds[0] = 9.5;
        rows[1].took = 1e6;
        rows[6].seconds[0] = 4.3;
        rows[1].seconds[0] = 20.0;
        assert_eq!(verdicts(&rows, MEMORY + 1), IDS.map(|id| (id, false)));
    }

    #[test]
    fn all_numbers_of_nodes_are_squares() {
        let runs = all(&Params::new(), &QUICK);
        let sides: Vec<_> = runs.iter().map(|run| run.side).collect();
        assert!([2, 8, 32, 100].iter().all(|side| sides.contains(side)));
        assert!(runs[0].side == 100, "the longest first, so that no thread ends with it alone");
    }
}
