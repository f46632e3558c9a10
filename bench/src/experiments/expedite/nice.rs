//! `expedite-nice`: a flagged handler of low priority against computing processes of high priority.

use core::time::Duration;

use super::trial::{Traffic, Trial, loss, median, of};
use super::{IN_THE_LAB, described};
use crate::claim::Claim;
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Choice as _};
use crate::report::{Fields, Report, decimals};

/// Nice values of the handler, and of the background.
const LOW: i32 = 10;
const HIGH: i32 = -10;
/// Number of computing processes.
const HOGS: usize = 2;
const INTERVAL: Duration = Duration::from_millis(5);

const SETTINGS: [Setting; 3] = [Setting::Off, Setting::Module, Setting::Fifo];

/// Largest share of a CPU that the module grants a thread while boosted.
const CAP: f64 = 0.1;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-nice",
    question: "Does a flagged handler of low priority pass those of high priority, briefly?",
    takes: [3600, 120],
    figure: Some("Section 3.4"),
    about: "a flagged handler at nice +10 against processes at nice -10: whether it passes them, and their loss",
    axes: &[Axis::new("setting", "Only handlers with this boost", &["off", "module", "fifo"])],
    claims: &["X13"],
    run,
    ..IN_THE_LAB
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let machine = Machine::prepare()?;
    let settings = run.params.kept("setting", SETTINGS, |setting| setting.name());
    let works = settings.into_iter().map(|of| Work { nice: LOW, ..Work::one(Transport::BareTcp, of) });
    let mut trials = Trial::start_all(works, &mut report)?;
    let mut loads = Load::start_all(Kind::Compute, HOGS, HIGH)?;
    let traffic = Traffic { count: if run.params.quick { 40 } else { 400 }, interval: INTERVAL };
    run.begin(trials.len());
    run.in_turns(&mut trials, Trial::label, |trial, _| trial.round(&machine, &mut loads, traffic))?;
    report.rows = trials.iter().map(row).collect();
    report.claims.extend(passes(&trials));
    report.params = described(run, traffic)
        .with("hogs", HOGS)
        .with("handler_nice", LOW)
        .with("background_nice", HIGH)
        .with("transport", "tcp");
    Ok(report)
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
    let text = format!(
        "a low-priority thread passes high-priority threads, but only briefly: share of the CPU that it used while boosted; p90 {:.0} us, {:.0} without; the others lose {:.1} % of their work to it and to the messages, of which fewer came without",
        module.p90(),
        off.p90(),
        100.0 * loss(&module.rates(), &off.rates())
    );
    let holds = module.p90() * 2.0 < off.p90() && share <= CAP;
    Some(Claim::new("X13", text, decimals(share, 4), holds))
}
