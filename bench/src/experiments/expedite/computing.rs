//! `expedite-fig5`: a handler that computes after each message: which boosts it keeps, and what the background keeps.

use core::time::Duration;

use serde_json::json;

use super::trial::{Traffic, Trial, median};
use super::{ROUNDS, lab};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};

/// The experiment.
#[derive(Debug)]
pub(in crate::experiments) struct Computing;

/// After each message, microseconds, by the value of the column. The paper has 1.6 ms.
const EXTRA: [(&str, u64); 5] = [("0", 0), ("400", 400), ("1600", 1_600), ("5000", 5_000), ("20000", 20_000)];
const PAPERS: u64 = 1_600;
const MOST: u64 = 20_000;

/// Time between two messages: half of the paper's, and room for the longest of these.
const INTERVAL: Duration = Duration::from_millis(25);

/// Processes that mostly sleep, beside one that computes, as in the paper.
const SLEEPERS: usize = 2;

/// The settings of the rows. `paper` is the module with the paper's rule: only threads that use little of a CPU are boosted.
const ROWS: [(&str, Setting, Rule); 5] = [
    ("off", Setting::Off, Rule::Boosted),
    ("module", Setting::Module, Rule::Boosted),
    ("paper", Setting::Module, Rule::All),
    ("fifo", Setting::Fifo, Rule::Boosted),
    ("deadline", Setting::Deadline, Rule::Boosted),
];

/// Which of a thread's time its budget pays for, in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Boosted,
    All,
}

/// The cap of a thread.
const CAP: f64 = 0.1;

/// A row: what it was asked for, and what came.
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

impl Experiment for Computing {
    fn name(&self) -> &'static str {
        "expedite-fig5"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("expedite")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Fig. 5")
    }

    fn about(&self) -> &'static str {
        "a handler that computes after each message: share of boosts granted, late pings, share of the background"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis {
                column: "setting",
                help: "Only handlers with this boost; `paper` is the module with the paper's rule",
                values: &["off", "module", "paper", "fifo", "deadline"],
            },
            Axis {
                column: "extra_us",
                help: "Only with this computation after each message",
                values: &["0", "400", "1600", "5000", "20000"],
            },
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        Ok(Some(lab(params.quick)))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let machine = Machine::prepare()?;
        let traffic = Traffic { count: if params.quick { 8 } else { 200 }, interval: INTERVAL };
        progress.begin(u64::from(ROUNDS) * (EXTRA.len() * ROWS.len()) as u64);
        let mut rows = Vec::new();
        for rule in [Rule::Boosted, Rule::All] {
            if rule == Rule::All {
                machine.reload(&["sleepers_only=1"])?;
            }
            let mut trials = trials(params, rule, &mut report)?;
            // After the handlers, which start alone; they end with the trials, before the module is loaded again.
            let mut loads = vec![Load::start(Kind::Compute, 0)?];
            for _ in 0..SLEEPERS {
                loads.push(Load::start(Kind::Sleep, 0)?);
            }
            for _ in 0..ROUNDS {
                for (name, trial) in &mut trials {
                    progress.step(&format!("{name}, {} us more", trial.work.extra.as_micros()));
                    trial.round(&machine, &mut loads, traffic)?;
                }
            }
            rows.extend(trials.iter().map(|(name, trial)| row(name, trial)));
        }
        rows.sort_by_key(|row| (row.extra, ROWS.iter().position(|(name, ..)| *name == row.name)));
        report.claims = claims(&rows);
        report.rows = rows.into_iter().map(|row| row.fields).collect();
        report.params = Fields::default()
            .with("bytes", crate::expedite::BYTES)
            .with("interval_ms", 25)
            .with("messages", traffic.count * ROUNDS)
            .with("rounds", ROUNDS)
            .with("sleepers", SLEEPERS)
            .with("deadline", "1 ms in each 10 ms")
            .with("transport", "tcp");
        Ok(report)
    }
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
    claims.extend(both("paper", "off", PAPERS).map(|(paper, off)| Claim {
        id: "X29",
        text: format!(
            "by the paper's rule, a thread that computes 1.6 ms after each message loses the boost: share of boosts granted; late pings {:.3}, {:.3} without a boost",
            paper.late, off.late
        ),
        published: json!(0),
        measured: decimals(paper.granted, 3),
        holds: paper.granted < 0.5,
    }));
    claims.extend(find("module", PAPERS).map(|module| Claim {
        id: "X29-ours",
        text: "by our rule the thread keeps the boost: only its CPU time while boosted counts, a slice of 200 us".into(),
        published: json!(1),
        measured: decimals(module.granted, 3),
        holds: module.granted >= 0.95,
    }));
    let most =
        rows.iter().filter(|row| row.name == "module").map(|row| row.boosted_share).fold(0.0, f64::max);
    if find("module", MOST).is_some() {
        claims.push(Claim {
            id: "X14",
            text: "blocking and unblocking often gains nothing: largest share of a CPU used while boosted"
                .into(),
            published: json!(CAP),
            measured: decimals(most, 4),
            holds: most <= CAP,
        });
    }
    claims.extend(both("fifo", "module", MOST).map(|(fifo, module)| Claim {
        id: "X17",
        text: format!(
            "a real-time class guarantees the dispatch but is unfair: share of the CPU left to the background by a handler that computes 20 ms after each message; {:.3} under the module",
            module.background_share
        ),
        published: json!("unfair"),
        measured: decimals(fifo.background_share, 3),
        holds: fifo.late == 0.0 && fifo.background_share < module.background_share,
    }));
    claims.extend(find("deadline", 0).zip(find("deadline", MOST)).map(|(none, most)| Claim {
        id: "X18",
        text: format!(
            "proportion and period must be estimated in advance: with 1 ms in each 10 ms, {:.3} of the pings are late without further computation; the value is the share with 20 ms of computation",
            none.late
        ),
        published: json!("an estimate"),
        measured: decimals(most.late, 3),
        holds: most.late > none.late,
    }));
    claims
}
