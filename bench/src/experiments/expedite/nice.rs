//! `expedite-nice`: a flagged handler of low priority against computing processes of high priority.

use core::time::Duration;

use serde_json::json;

use super::trial::{Traffic, Trial, loss, median, of};
use super::{ROUNDS, lab};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};

/// The experiment.
#[derive(Debug)]
pub(in crate::experiments) struct Nice;

/// Of the handler, and of the background.
const LOW: i32 = 10;
const HIGH: i32 = -10;
/// Processes that compute.
const HOGS: usize = 2;
const INTERVAL: Duration = Duration::from_millis(5);

const SETTINGS: [Setting; 3] = [Setting::Off, Setting::Module, Setting::Fifo];

/// What the module grants a thread.
const CAP: f64 = 0.1;

impl Experiment for Nice {
    fn name(&self) -> &'static str {
        "expedite-nice"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("expedite")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Section 3.4")
    }

    fn about(&self) -> &'static str {
        "a flagged handler at nice +10 against processes at nice -10: whether it passes them, and their loss"
    }

    fn axes(&self) -> &'static [Axis] {
        &[Axis {
            column: "setting",
            help: "Only handlers with this boost",
            values: &["off", "module", "fifo"],
        }]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        Ok(Some(lab(params.quick)))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let machine = Machine::prepare()?;
        let settings = SETTINGS.into_iter().filter(|setting| params.keeps("setting", setting.name()));
        let works = settings.map(|setting| Work { nice: LOW, ..Work::one(Transport::BareTcp, setting) });
        let mut trials = Trial::start_all(works, &mut report)?;
        let mut loads = Vec::new();
        for _ in 0..HOGS {
            loads.push(Load::start(Kind::Compute, HIGH)?);
        }
        let traffic = Traffic { count: if params.quick { 40 } else { 400 }, interval: INTERVAL };
        progress.begin(u64::from(ROUNDS) * trials.len() as u64);
        for _ in 0..ROUNDS {
            for trial in &mut trials {
                progress.step(trial.work.setting.name());
                trial.round(&machine, &mut loads, traffic)?;
            }
        }
        report.rows = trials.iter().map(row).collect();
        report.claims.extend(passes(&trials));
        report.params = Fields::default()
            .with("bytes", crate::expedite::BYTES)
            .with("interval_ms", 5)
            .with("messages", traffic.count * ROUNDS)
            .with("rounds", ROUNDS)
            .with("hogs", HOGS)
            .with("handler_nice", LOW)
            .with("background_nice", HIGH)
            .with("transport", "tcp");
        Ok(report)
    }
}

fn row(trial: &Trial) -> Fields {
    let row = Fields::default().with("setting", trial.work.setting.name());
    trial
        .counted(trial.columns(row, |_| true))
        .with("granted", decimals(trial.granted(), 3))
        .with("elements_per_s", decimals(median(trial.rates()), 0))
        .with("background_share", decimals(median(trial.shares()), 4))
}

fn passes(trials: &[Trial]) -> Option<Claim> {
    let (off, module) = (of(trials, Setting::Off)?, of(trials, Setting::Module)?);
    let share = module.boosted_share();
    Some(Claim {
        id: "X13",
        text: format!(
            "a low-priority thread passes high-priority threads, but only briefly: share of the CPU that it used while boosted; p90 {:.0} us, {:.0} without; the others lose {:.1} % of their work to it and to the messages, of which fewer came without",
            module.p90(),
            off.p90(),
            100.0 * loss(&module.rates(), &off.rates())
        ),
        published: json!("shortly"),
        measured: decimals(share, 4),
        holds: module.p90() * 2.0 < off.p90() && share <= CAP,
    })
}
