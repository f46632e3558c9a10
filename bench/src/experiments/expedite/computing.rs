//! `expedite-fig5`: a handler that computes after each message: which boosts it keeps, and what the background keeps.

use core::time::Duration;

use super::trial::{Traffic, Trial, median};
use super::{IN_THE_LAB, described};
use crate::claim::Claim;
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Params};
use crate::report::{Fields, Report, decimals};

/// Computation after each message in microseconds, by the value of the column. The paper has 1.6 ms.
const EXTRA: [(&str, u64); 5] = [("0", 0), ("400", 400), ("1600", 1_600), ("5000", 5_000), ("20000", 20_000)];
const PAPERS: u64 = 1_600;
const MOST: u64 = 20_000;

/// Time between two messages: half of the paper's, with room for the longest computation.
const INTERVAL: Duration = Duration::from_millis(25);

/// Number of processes that mostly sleep, in addition to one that computes, as in the paper.
const SLEEPERS: usize = 2;

/// The settings of the rows. `paper` is the module with the paper's rule: only threads that use little of a CPU are boosted.
const ROWS: [(&str, Setting, Rule); 5] = [
    ("off", Setting::Off, Rule::Boosted),
    ("module", Setting::Module, Rule::Boosted),
    ("paper", Setting::Module, Rule::All),
    ("fifo", Setting::Fifo, Rule::Boosted),
    ("deadline", Setting::Deadline, Rule::Boosted),
];

/// CPU time of a thread that the module charges to its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Boosted,
    All,
}

/// Largest share of a CPU that the module grants a thread while boosted.
const CAP: f64 = 0.1;

/// A row: its setting, and its results.
#[derive(Debug)]
struct Row {
    name: &'static str,
    extra: u64,
    late: f64,
    granted: f64,
    boosted_share: f64,
    background_share: f64,
    fields: Fields,
}

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-fig5",
    question: "Does a handler that computes for long keep its boost?",
    takes: [7200, 180],
    figure: Some("Fig. 5"),
    about: "a handler that computes after each message: share of boosts granted, late pings, share of the background",
    axes: &[
        Axis::new(
            "setting",
            "Only handlers with this boost; `paper` is the module with the paper's rule",
            &["off", "module", "paper", "fifo", "deadline"],
        ),
        Axis::new(
            "extra_us",
            "Only with this computation after each message",
            &["0", "400", "1600", "5000", "20000"],
        ),
    ],
    claims: &["X29", "X29-ours", "X14", "X17", "X18"],
    run,
    ..IN_THE_LAB
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let machine = Machine::prepare()?;
    let traffic = Traffic { count: if run.params.quick { 8 } else { 200 }, interval: INTERVAL };
    run.begin(EXTRA.len() * ROWS.len());
    let mut rows = Vec::new();
    for rule in [Rule::Boosted, Rule::All] {
        if rule == Rule::All {
            machine.reload(&["sleepers_only=1"])?;
        }
        let mut trials = trials(run.params, rule, &mut report)?;
        // Started after the handlers, which start alone. They end with the trials, before the module is loaded again.
        let mut loads = Load::start_all(Kind::Compute, 1, 0)?;
        loads.extend(Load::start_all(Kind::Sleep, SLEEPERS, 0)?);
        let label =
            |(name, trial): &(&str, Trial)| format!("{name}, {} us more", trial.work.extra.as_micros());
        run.in_turns(&mut trials, label, |(_, trial), _| trial.round(&machine, &mut loads, traffic))?;
        rows.extend(trials.iter().map(|(name, trial)| row(name, trial)));
    }
    rows.sort_by_key(|row| (row.extra, ROWS.iter().position(|(name, ..)| *name == row.name)));
    report.claims = claims(&rows);
    report.rows = rows.into_iter().map(|row| row.fields).collect();
    report.params = described(run, traffic)
        .with("sleepers", SLEEPERS)
        .with("deadline", "1 ms in each 10 ms")
        .with("transport", "tcp");
    Ok(report)
}

fn trials(params: &Params, rule: Rule, report: &mut Report) -> anyhow::Result<Vec<(&'static str, Trial)>> {
    let mut trials = Vec::new();
    for (name, setting, of_rule) in ROWS {
        for (column, extra) in EXTRA {
            if of_rule == rule && params.keeps("setting", name) && params.keeps("extra_us", column) {
                let work =
                    Work { extra: Duration::from_micros(extra), ..Work::one(Transport::BareTcp, setting) };
                let started = Trial::start_all([work], report)?;
                trials.extend(started.into_iter().map(|trial| (name, trial)));
            }
        }
    }
    Ok(trials)
}

fn row(name: &'static str, trial: &Trial) -> Row {
    let extra = u64::try_from(trial.work.extra.as_micros()).unwrap_or(u64::MAX);
    let (granted, boosted_share) = (trial.granted(), trial.boosted_share());
    let background_share = median(trial.shares());
    let fields = Fields::default().with("extra_us", extra).with("setting", name);
    let fields = trial
        .counted(trial.columns(fields, |_| true))
        .with("granted", decimals(granted, 3))
        .with("boosted_share", decimals(boosted_share, 4))
        .with("elements_per_s", decimals(median(trial.rates()), 0))
        .with("background_share", decimals(background_share, 4));
    Row { name, extra, late: trial.late(|_| true), granted, boosted_share, background_share, fields }
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let find = |name, extra| rows.iter().find(|row| row.name == name && row.extra == extra);
    let both = |one, other, extra| find(one, extra).zip(find(other, extra));
    let mut claims = Vec::new();
    claims.extend(both("paper", "off", PAPERS).map(|(paper, off)| {
        let text = format!(
            "by the paper's rule, a thread that computes 1.6 ms after each message loses the boost: share of boosts granted; late pings {:.3}, {:.3} without a boost",
            paper.late, off.late
        );
        Claim::new("X29", text, decimals(paper.granted, 3), paper.granted < 0.5).bar(0.5)
    }));
    claims.extend(find("module", PAPERS).map(|module| {
        let text = "by our rule the thread keeps the boost: only its CPU time while boosted counts, a slice of 200 us";
        Claim::new("X29-ours", text, decimals(module.granted, 3), module.granted >= 0.95).bar(0.95)
    }));
    let most =
        rows.iter().filter(|row| row.name == "module").map(|row| row.boosted_share).fold(0.0, f64::max);
    if find("module", MOST).is_some() {
        let text = "blocking and unblocking often gains nothing: largest share of a CPU used while boosted";
        claims.push(Claim::at_most("X14", text, CAP, most, 4));
    }
    claims.extend(both("fifo", "module", MOST).map(|(fifo, module)| {
        let text = format!(
            "a real-time class guarantees the dispatch but is unfair: share of the CPU left to the background by a handler that computes 20 ms after each message; {:.3} under the module",
            module.background_share
        );
        let holds = fifo.late == 0.0 && fifo.background_share < module.background_share;
        Claim::new("X17", text, decimals(fifo.background_share, 3), holds)
    }));
    claims.extend(find("deadline", 0).zip(find("deadline", MOST)).map(|(none, most)| {
        let text = format!(
            "proportion and period must be estimated in advance: with 1 ms in each 10 ms, {:.3} of the pings are late without further computation; the value is the share with 20 ms of computation",
            none.late
        );
        Claim::new("X18", text, decimals(most.late, 3), most.late > none.late)
    }));
    claims
}
