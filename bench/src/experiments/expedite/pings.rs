//! `expedite-fig1` and `expedite-fig2`: one pair with computing and mostly sleeping processes in the background, without Expedite
//! and with it.

use core::time::Duration;

use super::conditions::Conditions;
use super::trial::{Seen, Traffic, Trial, in_turns, seen_of};
use super::{IN_THE_LAB, PLACE, PREEMPT, SETTING, described, lab_with_scx};
use crate::claim::Claim;
use crate::claim::Verdict::{self, DoesNotHold, Holds, NotResolvable};
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::lab::Lab;
use crate::params::{Choice as _, Params};
use crate::report::{Fields, Report, decimals};

/// Figure 1: with the existing kernel.
pub(in crate::experiments) const PINGS_WITHOUT: Experiment = Experiment {
    name: "expedite-fig1",
    question: "Which background delays the pings of an unflagged handler?",
    takes: [3600, 120],
    figure: Some("Fig. 1"),
    about: "time that 500 B pings wait for a handler with compute-only and sleep-mostly competitors, on an unmodified kernel",
    axes: &[SETTING],
    claims: &["X23", "X24"],
    run: |run| measure(run, &[Setting::Off, Setting::Fifo], &[Conditions::USUAL]),
    ..IN_THE_LAB
};

/// Figure 2: with Expedite, and with the existing alternatives.
pub(in crate::experiments) const PINGS_BOOSTED: Experiment = Experiment {
    name: "expedite-fig2",
    question: "Does the flag remove these delays?",
    takes: [3600, 120],
    figure: Some("Fig. 2"),
    about: "time that 500 B pings wait for a handler with compute-only and sleep-mostly competitors, for every available boost, on one CPU and on any",
    axes: &[SETTING, PREEMPT, PLACE],
    claims: &["X23", "X24", "X25", "X7", "X9"],
    lab: with_usual_conditions,
    run: |run| measure(run, Setting::ALL, &Conditions::kept(run.params)),
    ..IN_THE_LAB
};

/// Numbers of processes that mostly sleep, in addition to one that computes. The paper has two; more are added until pings are late.
pub(super) const SLEEPERS: [usize; 5] = [0, 2, 4, 8, 16];
const PAPERS_SLEEPERS: usize = 2;

/// Share of late pings without Expedite that is enough to show its effect.
pub(super) const ENOUGH: f64 = 0.05;

/// Four of two hundred: differences between settings that may be chance.
const CHANCE: f64 = 0.02;

/// Largest allowed excess over always-FIFO. Chosen by us; no source.
pub(super) const RARE: f64 = 0.0003;

/// Longest delay that sleepers must cause, half of the paper's 5 ms.
const LONGEST_MS: f64 = 2.5;

/// Share of the pings that must be boosted.
const BOOSTED: f64 = 0.95;

/// Time that the scheduler takes to dispatch a thread, with room for the end of its system call; and the time after which a handler that
/// only replies to a message waits again. The module itself ends a boost after twice the latter.
const DISPATCH_US: f64 = 10.0;
const REPLY_US: f64 = 100.0;

/// Time between pings. It shortens the run in the lab; the paper's is ten times as long.
const INTERVAL: Duration = Duration::from_millis(5);

/// Results with a number of sleepers.
#[derive(Clone, Debug)]
struct Step {
    sleepers: usize,
    seen: Vec<Seen>,
}

/// The number of sleepers is found under the usual conditions, so these are never left out.
fn with_usual_conditions(params: &Params) -> anyhow::Result<Option<Lab>> {
    anyhow::ensure!(
        Conditions::kept(params).contains(&Conditions::USUAL),
        "select lazy preemption and one CPU, too: the number of sleepers is found there"
    );
    Ok(Some(lab_with_scx(params.quick)))
}

fn measure(run: &mut Run<'_>, settings: &[Setting], conditions: &[Conditions]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut machine = Machine::prepare()?;
    let kept = machine.settings(run.params, settings, &mut report)?;
    let works = kept.into_iter().map(|setting| Work::one(Transport::BareTcp, setting));
    let mut trials = Trial::start_all(works, &mut report)?;
    let traffic = Traffic { count: if run.params.quick { 40 } else { 400 }, interval: INTERVAL };
    run.begin(SLEEPERS.len() * trials.len());
    let mut loads = Load::start_all(Kind::Compute, 1, 0)?;
    let mut steps: Vec<Step> = Vec::new();
    for sleepers in SLEEPERS {
        loads.extend(Load::start_all(Kind::Sleep, sleepers + 1 - loads.len(), 0)?);
        trials.iter_mut().for_each(Trial::begin);
        let label = |trial: &Trial| format!("{} with {sleepers} sleepers", trial.work.setting.name());
        in_turns(run, &mut trials, label, &machine, &mut loads, traffic)?;
        report.rows.extend(trials.iter().map(|trial| row(trial, sleepers, Conditions::USUAL)));
        steps.push(Step { sleepers, seen: trials.iter().map(Trial::seen).collect() });
        let off = steps.last().and_then(|step| step.of(Setting::Off));
        if sleepers > 0 && off.is_some_and(|off| off.late >= ENOUGH) {
            break;
        }
    }
    report.claims = claims(&steps, settings);
    for conditions in conditions.iter().filter(|conditions| **conditions != Conditions::USUAL) {
        conditions.apply(&mut machine)?;
        let sleepers = loads.len() - 1;
        let label = |trial: &Trial| format!("{} {}", trial.work.setting.name(), conditions.label());
        let mut those: Vec<_> =
            trials.iter_mut().filter(|trial| conditions.compares(trial.work.setting)).collect();
        those.iter_mut().for_each(|trial| trial.begin());
        run.begin(those.len());
        in_turns(run, those.iter_mut().map(|trial| &mut **trial), label, &machine, &mut loads, traffic)?;
        report.rows.extend(those.iter().map(|trial| row(trial, sleepers, *conditions)));
    }
    report.params = described(run, traffic).with("paper_interval_ms", 50).with("transport", "tcp");
    Ok(report)
}

impl Step {
    fn of(&self, setting: Setting) -> Option<&Seen> {
        seen_of(&self.seen, setting)
    }

    /// Returns the share of late pings without a boost, beyond that of always-FIFO. No thread delays a real-time thread: its late pings
    /// are caused by the quantum of virtual time.
    fn beyond_fifo(&self) -> Option<f64> {
        Some((self.of(Setting::Off)?.late - self.of(Setting::Fifo)?.late).max(0.0))
    }
}

fn claims(steps: &[Step], settings: &[Setting]) -> Vec<Claim> {
    let mut claims = Vec::new();
    claims.extend(steps.first().and_then(compute_only));
    claims.extend(sleepers_delay(steps));
    if let Some(last) = steps.last().filter(|_| settings.contains(&Setting::Module)) {
        claims.extend(none_are_late(last));
        claims.extend(last.of(Setting::Module).into_iter().flat_map(boosts));
    }
    claims
}

fn row(trial: &Trial, sleepers: usize, conditions: Conditions) -> Fields {
    let row = Fields::default().with("sleepers", sleepers).with("setting", trial.work.setting.name());
    trial.counted(trial.columns(conditions.columns(row), |_| true))
}

fn compute_only(step: &Step) -> Option<Claim> {
    let beyond = step.beyond_fifo()?;
    let quantum = step.of(Setting::Fifo)?.late;
    let (verdict, why) = if quantum > CHANCE {
        (NotResolvable, "; the clock alone makes more late than that")
    } else if beyond > CHANCE {
        (
            DoesNotHold,
            "; EEVDF may let a compute-only process finish its slice, and lazy preemption waits for the tick",
        )
    } else {
        (Holds, "")
    };
    let detail =
        format!("beyond always-FIFO's share ({quantum:.3}), which the quantum of virtual time causes{why}");
    Some(Claim::new("X23", detail, decimals(beyond, 4), verdict).bar(CHANCE))
}

/// Judges the paper's two sleepers, or else the first number of sleepers with which pings are late.
fn sleepers_delay(steps: &[Step]) -> Option<Claim> {
    let with_sleepers = || steps.iter().filter(|step| step.sleepers > 0);
    let delays = |step: &&Step| step.beyond_fifo().is_some_and(|beyond| beyond >= CHANCE);
    let step = with_sleepers().find(delays).or_else(|| with_sleepers().next_back())?;
    let (beyond, longest_ms) = (step.beyond_fifo()?, step.of(Setting::Off)?.longest_ms);
    let whole = step.sleepers == PAPERS_SLEEPERS && longest_ms >= LONGEST_MS;
    let detail = format!(
        "with {} sleepers, of which the paper has two, {:.1} % are late beyond always-FIFO's share",
        step.sleepers,
        100.0 * beyond
    );
    let verdict = Verdict::graded(whole && delays(&step), delays(&step));
    Some(Claim::new("X24", detail, decimals(longest_ms, 1), verdict).bar(LONGEST_MS))
}

fn none_are_late(step: &Step) -> Option<Claim> {
    let [off, module, fifo] = [Setting::Off, Setting::Module, Setting::Fifo].map(|setting| step.of(setting));
    let (off, module, fifo) = (off?.late, module?.late, fifo?.late);
    let bar = fifo + RARE;
    let (verdict, why) = if off >= ENOUGH {
        (Verdict::from(module <= bar), "")
    } else {
        (NotResolvable, ", which is too few; `pronto-bench expedite-late` has more")
    };
    let detail = format!("always-FIFO has {fifo:.4}; {off:.3} are late without a boost{why}");
    Some(Claim::new("X25", detail, decimals(module, 4), verdict).bar(decimals(bar, 4)))
}

fn boosts(module: &Seen) -> [Claim; 2] {
    let took = module.boost_us;
    let verdict = Verdict::graded(took <= DISPATCH_US, took <= REPLY_US);
    let why = if took > DISPATCH_US {
        "; ours lasts until the handler waits again, at most a slice of 200 us"
    } else {
        ""
    };
    let detail = format!("boosted run time per boost, us{why}");
    [
        Claim::at_least("X7", "", BOOSTED, module.granted, 3),
        Claim::new("X9", detail, decimals(took, 1), verdict).bar(DISPATCH_US),
    ]
}

#[cfg(test)]
mod tests {
    use Verdict::InPart;

    use super::*;

    const ALL: [Setting; 3] = [Setting::Off, Setting::Module, Setting::Fifo];

    /// Returns results with these shares of late pings without a boost, with it, and always real-time.
    fn step(sleepers: usize, late: [f64; 3], longest_ms: f64) -> Step {
        let seen = |(setting, late)| Seen { late, longest_ms, ..Seen::nothing(setting) };
        Step { sleepers, seen: ALL.into_iter().zip(late).map(seen).collect() }
    }

    fn verdict(claim: Option<Claim>) -> Option<Verdict> {
        claim.map(|claim| claim.verdict)
    }

    #[test]
    fn a_computing_background_is_compared_with_the_clock() {
        let judged = |off, fifo| verdict(compute_only(&step(0, [off, 0.0, fifo], 1.0)));
        assert_eq!(judged(0.015, 0.01), Some(Holds));
        assert_eq!(judged(0.04, 0.01), Some(DoesNotHold));
        assert_eq!(judged(0.9, 0.03), Some(NotResolvable));
        assert_eq!(verdict(compute_only(&Step { sleepers: 0, seen: Vec::new() })), None);
    }

    #[test]
    fn two_sleepers_must_delay_by_milliseconds_beyond_the_clock() {
        let judged = |steps: &[Step]| verdict(sleepers_delay(steps));
        let none = step(0, [0.5, 0.0, 0.0], 9.0);
        assert_eq!(judged(&[none.clone(), step(2, [0.1, 0.0, 0.01], 4.0)]), Some(Holds));
        assert_eq!(judged(&[none.clone(), step(2, [0.1, 0.0, 0.01], 1.5)]), Some(InPart));
        let quiet = step(2, [0.01, 0.0, 0.0], 4.0);
        assert_eq!(judged(&[none.clone(), quiet.clone(), step(4, [0.1, 0.0, 0.0], 4.0)]), Some(InPart));
        assert_eq!(judged(&[none.clone(), quiet]), Some(DoesNotHold));
        assert_eq!(
            judged(&[none.clone(), step(16, [0.1, 0.0, 0.1], 4.0)]),
            Some(DoesNotHold),
            "the clock alone"
        );
        assert_eq!(judged(&[none]), None);
    }

    #[test]
    fn a_boost_must_remove_late_pings_that_there_are() {
        let judged = |late| verdict(none_are_late(&step(8, late, 2.0)));
        assert_eq!(judged([0.1, 0.0101, 0.01]), Some(Holds));
        assert_eq!(judged([0.1, 0.02, 0.01]), Some(DoesNotHold));
        assert_eq!(judged([0.01, 0.0, 0.0]), Some(NotResolvable));
    }

    #[test]
    fn boosts_must_be_given_and_must_end() {
        let judged = |granted, boost_us| {
            boosts(&Seen { granted, boost_us, ..Seen::nothing(Setting::Module) }).map(|claim| claim.verdict)
        };
        assert_eq!(judged(1.0, 5.0), [Holds, Holds]);
        assert_eq!(judged(0.9, 40.0), [DoesNotHold, InPart]);
        assert_eq!(judged(1.0, 190.0), [Holds, DoesNotHold], "the slice of the module ends it");
    }

    #[test]
    fn a_run_without_boosts_has_no_claims_about_them() {
        let steps = [step(0, [0.0; 3], 0.1), step(2, [0.1, 0.0, 0.0], 4.0)];
        let ids =
            |settings: &[Setting]| claims(&steps, settings).iter().map(|claim| claim.id).collect::<Vec<_>>();
        assert_eq!(ids(&[Setting::Off, Setting::Fifo]), PINGS_WITHOUT.claims);
        assert_eq!(ids(&ALL), ["X23", "X24", "X25", "X7", "X9"]);
    }
}
