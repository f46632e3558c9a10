//! `expedite-fig5`: a handler that computes after each message: which boosts it keeps, and what the background keeps.

use core::time::Duration;

use serde_json::json;

use super::pings::ENOUGH;
use super::trial::{Traffic, Trial, median};
use super::{IN_THE_LAB, described};
use crate::claim::{Claim, Verdict};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::params::{Axis, Params};
use crate::report::{Fields, Report, decimals};

/// Computation after each message in microseconds, by the value of the column. The paper has 1.6 ms.
const EXTRA: [(&str, u64); 5] = [("0", 0), ("400", 400), ("1600", 1_600), ("5000", 5_000), ("20000", 20_000)];
const PAPERS: u64 = 1_600;
const MOST_US: u64 = 20_000;

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

/// Late pings as a multiple of those without a boost that count as the same number.
const SAME: core::ops::Range<f64> = 0.9..1.1;
/// Share of boosts that must be lost for most to be lost, and that must be kept for the handler to keep them.
const MOST: f64 = 0.5;
const KEPT: f64 = 0.95;
/// Largest loss of the background that counts as no gain of the handler: noise between rounds.
const NO_GAIN: f64 = 0.05;
/// Share of the background under a boost that a real-time class must not leave for it to be unfair.
const UNFAIR: f64 = 0.8;

/// CPU time of the reservation, 1 ms in each 10 ms, for each message. A longer computation is not finished when the next message comes.
const RESERVED_US: u64 = 2_500;
/// Largest share of late pings within the reservation, and smallest beyond it.
const WITHIN: f64 = 0.05;
const BEYOND: f64 = 0.5;

/// A row: its setting, and its results.
#[derive(Debug)]
struct Row {
    name: &'static str,
    extra: u64,
    late: f64,
    granted: f64,
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
    claims: &["X29", "X29-intent", "X29-ours", "X14", "X17", "X18"],
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
    let granted = trial.granted();
    let background_share = median(trial.shares());
    let fields = Fields::default().with("extra_us", extra).with("setting", name);
    let fields = trial
        .counted(trial.columns(fields, |_| true))
        .with("granted", decimals(granted, 3))
        .with("boosted_share", decimals(trial.boosted_share(), 4))
        .with("elements_per_s", decimals(median(trial.rates()), 0))
        .with("background_share", decimals(background_share, 4));
    Row { name, extra, late: trial.late(|_| true), granted, background_share, fields }
}

/// The rows, looked up by their setting.
#[derive(Clone, Copy)]
struct Rows<'a>(&'a [Row]);

impl<'a> Rows<'a> {
    fn find(self, name: &str, extra: u64) -> Option<&'a Row> {
        self.0.iter().find(|row| row.name == name && row.extra == extra)
    }
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let rows = Rows(rows);
    let boosts = [as_frequent(rows), most_lost(rows), kept(rows)];
    let fairness = [no_gain(rows), real_time(rows), reservation(rows)];
    boosts.into_iter().chain(fairness).flatten().collect()
}

fn as_frequent(rows: Rows<'_>) -> Option<Claim> {
    let (paper, off) = (rows.find("paper", PAPERS)?.late, rows.find("off", PAPERS)?.late);
    let detail = format!("late pings as a multiple of those without, {off:.3}");
    Some(if off < ENOUGH {
        let why = "; too few are late with two sleepers, `pronto-bench expedite-sim` judges it";
        Claim::new("X29", detail + why, decimals(paper / off, 2), Verdict::NotResolvable)
    } else {
        Claim::new("X29", detail, decimals(paper / off, 2), SAME.contains(&(paper / off)))
    })
}

fn most_lost(rows: Rows<'_>) -> Option<Claim> {
    let granted = rows.find("paper", PAPERS)?.granted;
    Some(Claim::new("X29-intent", "share of boosts granted", decimals(granted, 3), granted < MOST).bar(MOST))
}

fn kept(rows: Rows<'_>) -> Option<Claim> {
    let granted = rows.find("module", PAPERS)?.granted;
    let detail = "share of boosts granted; only a slice of 200 us after each message counts";
    Some(Claim::at_least("X29-ours", detail, KEPT, granted, 3))
}

fn no_gain(rows: Rows<'_>) -> Option<Claim> {
    let [off, module] =
        [rows.find("off", MOST_US)?, rows.find("module", MOST_US)?].map(|row| row.background_share);
    let detail = format!(
        "share of its CPU time that the background loses to the boosts; it has {off:.3} of the CPU without"
    );
    Some(Claim::at_most("X14", detail, NO_GAIN, 1.0 - module / off, 3))
}

fn real_time(rows: Rows<'_>) -> Option<Claim> {
    let (fifo, module) = (rows.find("fifo", MOST_US)?, rows.find("module", MOST_US)?);
    let left = fifo.background_share / module.background_share;
    let detail = format!(
        "CPU time left to the background by a handler that computes 20 of 25 ms, as a multiple of that under the module, \
         {:.3} of the CPU; share of late pings {:.3}",
        module.background_share, fifo.late
    );
    let verdict = Verdict::graded(fifo.late == 0.0 && left <= UNFAIR, fifo.late == 0.0 || left <= UNFAIR);
    Some(Claim::new("X17", detail, decimals(left, 3), verdict).bar(UNFAIR))
}

/// Judges a reservation on both sides of what was estimated.
fn reservation(rows: Rows<'_>) -> Option<Claim> {
    let late = EXTRA.map(|(_, extra)| rows.find("deadline", extra).map(|row| (extra, row.late)));
    let late = late.into_iter().collect::<Option<Vec<_>>>()?;
    let (within, beyond): (Vec<_>, Vec<_>) = late.into_iter().partition(|(extra, _)| *extra <= RESERVED_US);
    let within = within.iter().fold(0.0, |most, (_, late)| f64::max(most, *late));
    let beyond = beyond.iter().fold(1.0, |least, (_, late)| f64::min(least, *late));
    let detail = "largest share of late pings with up to 1.6 ms of computation, and smallest from 5 ms on; 2.5 ms of 25 are reserved";
    let measured = json!([decimals(within, 3), decimals(beyond, 3)]);
    let holds = within <= WITHIN && beyond >= BEYOND;
    Some(Claim::new("X18", detail, measured, holds).bar(json!([WITHIN, BEYOND])))
}

#[cfg(test)]
mod tests {
    use Verdict::{DoesNotHold, Holds, InPart, NotResolvable};

    use super::*;

    /// Returns a row with these shares of late pings, granted boosts and CPU of the background.
    fn row(name: &'static str, extra: u64, [late, granted, background_share]: [f64; 3]) -> Row {
        Row { name, extra, late, granted, background_share, fields: Fields::default() }
    }

    fn verdicts(rows: &[Row]) -> Vec<(&'static str, Verdict)> {
        claims(rows).iter().map(|claim| (claim.id, claim.verdict)).collect()
    }

    #[test]
    fn delays_and_boosts_are_judged_apart() {
        let judged = |off, late, granted| {
            verdicts(&[row("off", PAPERS, [off, 0.0, 0.6]), row("paper", PAPERS, [late, granted, 0.6])])
        };
        assert_eq!(judged(0.1, 0.1, 0.3), [("X29", Holds), ("X29-intent", Holds)]);
        assert_eq!(judged(0.1, 0.03, 0.9), [("X29", DoesNotHold), ("X29-intent", DoesNotHold)]);
        assert_eq!(judged(0.0, 0.0, 0.3), [("X29", NotResolvable), ("X29-intent", Holds)]);
        let ours = |granted| verdicts(&[row("module", PAPERS, [0.0, granted, 0.6])]);
        assert_eq!((ours(1.0), ours(0.5)), (vec![("X29-ours", Holds)], vec![("X29-ours", DoesNotHold)]));
    }

    #[test]
    fn a_handler_that_computes_most_may_gain() {
        let judged = |module| {
            verdicts(&[row("off", MOST_US, [0.0, 0.0, 0.6]), row("module", MOST_US, [0.0, 1.0, module])])
        };
        assert_eq!(judged(0.59), [("X14", Holds)]);
        assert_eq!(judged(0.5), [("X14", DoesNotHold)]);
    }

    #[test]
    fn a_real_time_class_must_be_prompt_and_unfair() {
        let judged = |late, left| {
            verdicts(&[row("module", MOST_US, [0.0, 1.0, 0.6]), row("fifo", MOST_US, [late, 0.0, left])])
        };
        assert_eq!(judged(0.0, 0.2), [("X17", Holds)]);
        assert_eq!(judged(0.1, 0.2), [("X17", InPart)]);
        assert_eq!(judged(0.0, 0.6), [("X17", InPart)]);
        assert_eq!(judged(0.1, 0.6), [("X17", DoesNotHold)]);
    }

    #[test]
    fn a_reservation_must_suffice_as_far_as_it_goes_and_no_farther() {
        let judged = |late: [f64; 5]| {
            let rows = EXTRA.into_iter().zip(late);
            verdicts(
                &rows.map(|((_, extra), late)| row("deadline", extra, [late, 0.0, 0.6])).collect::<Vec<_>>(),
            )
        };
        assert_eq!(judged([0.0, 0.0, 0.0, 1.0, 1.0]), [("X18", Holds)]);
        assert_eq!(judged([0.0, 0.0, 0.0, 0.0, 1.0]), [("X18", DoesNotHold)], "it helps beyond");
        assert_eq!(judged([0.0, 0.0, 1.0, 1.0, 1.0]), [("X18", DoesNotHold)], "it does not help within");
        assert!(verdicts(&[row("deadline", 0, [0.0; 3])]).is_empty(), "some rows were not measured");
    }
}
