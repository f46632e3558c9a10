//! `expedite-fig1` and `expedite-fig2`: one pair with computing and mostly sleeping processes in the background, without Expedite
//! and with it.

use core::time::Duration;

use super::trial::{Traffic, Trial, of};
use super::{IN_THE_LAB, SETTING, described};
use crate::claim::Claim;
use crate::expedite::{Kind, Load, Machine, Setting, Transport, Work};
use crate::experiment::{Experiment, Run};
use crate::params::Choice as _;
use crate::report::{Fields, Report, decimals};
use crate::sample::approximate;

/// Figure 1: with the existing kernel.
pub(in crate::experiments) const PINGS_WITHOUT: Experiment = Experiment {
    name: "expedite-fig1",
    question: "Which background delays the pings of an unflagged handler?",
    takes: [3600, 120],
    figure: Some("Fig. 1"),
    about: "time that 500 B pings wait for a handler with compute-only and sleep-mostly competitors, on an unmodified kernel",
    axes: &[SETTING],
    claims: &["X22", "X23", "X24"],
    run: |run| measure(run, &[Setting::Off, Setting::Fifo]),
    ..IN_THE_LAB
};

/// Figure 2: with Expedite, and with the existing alternatives.
pub(in crate::experiments) const PINGS_BOOSTED: Experiment = Experiment {
    name: "expedite-fig2",
    question: "Does the flag remove these delays?",
    takes: [3600, 120],
    figure: Some("Fig. 2"),
    about: "time that 500 B pings wait for a handler with compute-only and sleep-mostly competitors, for every available boost",
    axes: &[SETTING],
    claims: &["X7", "X9", "X23", "X24", "X25"],
    run: |run| measure(run, Setting::ALL),
    ..IN_THE_LAB
};

/// Numbers of processes that mostly sleep, in addition to one that computes. The paper has two; more are added until pings are late.
pub(super) const SLEEPERS: [usize; 5] = [0, 2, 4, 8, 16];

/// Share of late pings without Expedite that is enough to show its effect.
pub(super) const ENOUGH: f64 = 0.05;

/// Four of two hundred: differences between settings that may be chance.
const CHANCE: f64 = 0.02;

/// Largest allowed excess over always-FIFO. Chosen by us; no source.
pub(super) const RARE: f64 = 0.0003;

/// Intervals of the paper (section 4.1), and ours, which shortens the run in the lab.
const PAPERS_INTERVAL: Duration = Duration::from_millis(50);
const INTERVAL: Duration = Duration::from_millis(5);

/// Slice of the module in microseconds: the longest mean boost.
const SLICE_US: f64 = 200.0;

fn measure(run: &mut Run<'_>, settings: &[Setting]) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let machine = Machine::prepare()?;
    let kept = run.params.kept("setting", settings, |setting| setting.name());
    let works = kept.into_iter().map(|setting| Work::one(Transport::BareTcp, *setting));
    let mut trials = Trial::start_all(works, &mut report)?;
    let traffic = Traffic { count: if run.params.quick { 40 } else { 400 }, interval: INTERVAL };
    run.begin(SLEEPERS.len() * trials.len());
    let mut loads = Load::start_all(Kind::Compute, 1, 0)?;
    let mut late = 0.0;
    for sleepers in SLEEPERS {
        loads.extend(Load::start_all(Kind::Sleep, sleepers + 1 - loads.len(), 0)?);
        trials.iter_mut().for_each(Trial::begin);
        let label = |trial: &Trial| format!("{} with {sleepers} sleepers", trial.work.setting.name());
        run.in_turns(&mut trials, label, |trial, _| trial.round(&machine, &mut loads, traffic))?;
        report.rows.extend(trials.iter().map(|trial| row(trial, sleepers)));
        late = of(&trials, Setting::Off).map_or(0.0, |off| off.late(|_| true));
        if sleepers == 0 {
            report.claims.extend(compute_only(&trials));
        } else if late >= ENOUGH {
            break;
        }
    }
    if late < ENOUGH {
        report.note(format!("with {} sleepers, too, fewer than 5 % of the pings were late", SLEEPERS[4]));
    }
    report.claims.extend(claims(&trials, settings));
    report.params = described(run, traffic).with("transport", "tcp");
    Ok(report)
}

/// Evaluates the claims about the last rows: those with enough sleepers.
fn claims(trials: &[Trial], settings: &[Setting]) -> Vec<Claim> {
    let mut claims = Vec::new();
    if let Some(off) = of(trials, Setting::Off) {
        claims.push(sleepers_delay(off));
    }
    if settings.contains(&Setting::Module) {
        claims.extend(none_are_late(trials));
        claims.extend(readers_are_boosted(trials));
        claims.extend(until_dispatched(trials));
    } else {
        let text = "500 B every 50 ms, a process that computes Fibonacci's series, and some that compute for 5 ms and sleep for 45; here the pings come ten times as often, to shorten the run in the lab";
        let ours = INTERVAL.as_millis().to_string();
        claims.push(Claim::new("X22", text, ours, INTERVAL == PAPERS_INTERVAL));
    }
    claims
}

fn row(trial: &Trial, sleepers: usize) -> Fields {
    let row = Fields::default().with("sleepers", sleepers).with("setting", trial.work.setting.name());
    trial.counted(trial.columns(row, |_| true))
}

fn compute_only(trials: &[Trial]) -> Option<Claim> {
    let late = of(trials, Setting::Off)?.late(|_| true);
    // No thread delays a real-time thread: late pings there are caused by the clock.
    let quantum = of(trials, Setting::Fifo)?.late(|_| true);
    let late = (late - quantum).max(0.0);
    let why = if late > CHANCE {
        "; under EEVDF a compute-only process may finish its slice, and lazy preemption waits for the tick"
    } else {
        ""
    };
    let text = format!(
        "a compute-only process delays no ping by a millisecond{why}: share of late pings beyond that of always-FIFO ({quantum:.3}), which the quantum of virtual time causes"
    );
    Some(Claim::new("X23", text, decimals(late, 4), late <= CHANCE).bar(CHANCE))
}

fn sleepers_delay(off: &Trial) -> Claim {
    let late = off.late(|_| true);
    let longest_ms = approximate(off.pings(|_| true).max_ns()) / 1e6;
    let measured = format!("{:.1} %, up to {longest_ms:.1} ms", 100.0 * late);
    let text = "processes that mostly sleep delay some pings by milliseconds";
    Claim::new("X24", text, measured, late > 0.0)
}

fn none_are_late(trials: &[Trial]) -> Option<Claim> {
    let late = of(trials, Setting::Module)?.late(|_| true);
    let fifo = of(trials, Setting::Fifo)?.late(|_| true);
    let text =
        format!("with Expedite none are late: at most always-FIFO's share ({fifo:.4}) plus 3 in 10,000");
    Some(Claim::new("X25", text, decimals(late, 4), late <= fifo + RARE))
}

fn readers_are_boosted(trials: &[Trial]) -> Option<Claim> {
    let granted = of(trials, Setting::Module)?.granted();
    let text = "a thread that reads from a flagged socket is boosted, even if another thread flagged it: share of the pings with a boost";
    Some(Claim::new("X7", text, decimals(granted, 3), granted >= 0.95).bar(0.95))
}

fn until_dispatched(trials: &[Trial]) -> Option<Claim> {
    let module = of(trials, Setting::Module)?;
    let boosts = approximate(module.counters.boosts().max(1));
    let mean = approximate(module.counters.boosted_ns()) / boosts / 1e3;
    let text =
        "a boost lasts until the thread is dispatched, ours for 200 us more: boosted run time per boost, us";
    Some(Claim::new("X9", text, decimals(mean, 1), mean <= SLICE_US))
}
