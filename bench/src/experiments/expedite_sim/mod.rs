//! `expedite-sim`: figures 1 to 5 and 7 of Expedite on simulated machines, and what our budget makes of them.

mod claims;
mod figures;
mod trials;

use anyhow::ensure;
use pronto_sched_sim::id::TaskId;
use pronto_sched_sim::paper::expedite::{BOOT_PINGS, PingPong, TOP};
use pronto_sched_sim::trace::Trace;

use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::progress::Progress;
use crate::report::{Fields, Report, TraceFile, decimals};
use crate::sample::approximate;
use crate::workers;
use claims::Results;
use trials::{Length, Measured, Run, Trial};

/// The experiment. It reads no clock but for its progress: the same seeds give the same numbers on any machine.
#[derive(Debug)]
pub(crate) struct ExpediteSim;

impl Experiment for ExpediteSim {
    fn name(&self) -> &'static str {
        "expedite-sim"
    }

    fn paper(&self) -> Option<&'static str> {
        Some("expedite")
    }

    fn figure(&self) -> Option<&'static str> {
        Some("Figs. 1-7")
    }

    fn about(&self) -> &'static str {
        "pings with sleepers and scatter with top, on simulated machines of the paper and with our budget"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "figure", help: "Only these figures", values: &FIGURES },
            Axis {
                column: "boost",
                help: "Only these boosts",
                values: &["none", "counter", "budget", "sleepers", "dyn-preempt", "on-unblock"],
            },
            Axis {
                column: "kernel",
                help: "Only these kernels",
                values: &["linux-2.4", "eevdf", "eevdf-short"],
            },
        ]
    }

    fn draws(&self) -> bool {
        true
    }

    fn traces(&self) -> bool {
        true
    }

    fn without_aa(&self) -> Option<&'static str> {
        Some("simulated: equal seeds give equal numbers; the rows show the spread over seeds")
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let length = if params.quick { QUICK } else { FULL };
        let keeps = |trial: &Trial| {
            params.keeps("figure", trial.figure)
                && params.keeps("boost", trials::boost_name(trial.boost()))
                && params.keeps("kernel", trials::kernel_name(trial.kernel()))
        };
        let trials: Vec<Trial> = trials::all(length).into_iter().filter(keeps).collect();
        let runs: Vec<(Trial, u64)> =
            trials.iter().flat_map(|trial| (0..length.seeds).map(|seed| (*trial, seed))).collect();
        progress.begin(runs.len() as u64);
        let mut done = workers::all(&runs, progress, |(trial, seed)| trial.once(*seed)).into_iter();
        let seeds = usize::try_from(length.seeds)?;
        let measured: Vec<Measured> =
            trials.into_iter().map(|trial| Measured::new(trial, done.by_ref().take(seeds))).collect();
        let results = Results(&measured);
        let mut report = Report::default();
        report.params = described(length, &measured);
        report.rows = measured.iter().flat_map(Measured::rows).collect();
        report.claims = claims::claims(results);
        report.figures = figures::figures(results);
        report.traces = traces(&measured)?;
        if params.chosen().next().is_none() {
            let missing: Vec<_> =
                claims::IDS.iter().filter(|id| report.claims.iter().all(|claim| claim.id != **id)).collect();
            ensure!(missing.is_empty(), "the run has no result for {missing:?}");
        }
        report.note(
            "late: share of pings that took 1 ms or more; kept: share of the requested boosts that were granted; compute and \
             sleepers: shares of the CPU. Means are over all seeds, least and most are of one seed.",
        );
        Ok(report)
    }
}

/// One short run of figures 1 (b) and 2 (b): the tasks on the ponger's CPU, and the times of the pings.
fn traces(measured: &[Measured]) -> anyhow::Result<Vec<TraceFile>> {
    let mut traces = Vec::new();
    for (figure, file) in [("1b", "expedite-fig1b"), ("2b", "expedite-fig2b")] {
        let Some(trial) = measured.iter().find(|trial| trial.trial.figure == figure) else { continue };
        let Run::PingPong(trial) = trial.trial.run else { continue };
        let boot = PingPong { pings: BOOT_PINGS, ..trial }.boot(TRACED_SEED, Some(Trace::new(TRACED_EVENTS)));
        let mut text = Vec::new();
        let names = ["pinger", "ponger", "compute-only", "sleep-mostly 1", "sleep-mostly 2"];
        let name = |task: TaskId| names.get(task.index()).copied().unwrap_or("task").to_owned();
        boot.trace.unwrap_or_else(|| Trace::new(0)).write(&mut text, name)?;
        traces.push(TraceFile { file, text: String::from_utf8(text)? });
    }
    Ok(traces)
}

/// A seed whose pings are late without Expedite.
const TRACED_SEED: u64 = 4;

/// Many more than there are in 50 pings.
const TRACED_EVENTS: usize = 10_000;

/// How it was run, with the source of each parameter.
fn described(length: Length, measured: &[Measured]) -> Fields {
    let events: u64 = measured.iter().map(Measured::events).sum();
    Fields::default()
        .with("seeds", length.seeds)
        .with("pings_per_seed", length.pings)
        .with("pings_per_boot", format!("{BOOT_PINGS}; clocks and phases are drawn anew for each"))
        .with("rounds_per_seed", length.rounds)
        .with("events_millions", decimals(approximate(events) / 1e6, 1))
        .with("ping", "500 bytes every 50 ms (section 4.1); 30 us of CPU time at each end (ours)")
        .with("sleep_mostly", "5 ms of computing, 45 ms of sleep (section 4.1), which 2.4 rounds up to 55")
        .with("link", "100 Mb/s (section 4); 100 us one way, work of both kernels included (coscheduling paper, section 4)")
        .with("background_on", "the ponger's machine (not stated; only this placement reproduces a ceiling of 5 ms)")
        .with("scatter", "120 ms of computing, 8 ranks, barrier (section 5.1); 1 KiB per rank (ours)")
        .with("top_ms", format!("{} (not stated; from the first result of section 5.1)", TOP.0 / 1_000_000))
        .with("clocks", "phases at random, drift up to 30 ppm (ours)")
}

/// As in the column `figure`.
const FIGURES: [&str; 15] = [
    "alone",
    "1a",
    "1b",
    "2a",
    "2b",
    "3a",
    "3b",
    "5",
    "5-curve",
    "7-unloaded",
    "7a",
    "7b",
    "7c",
    "own",
    "today",
];

/// 35,000 rounds of scatter in all, as in the paper (section 5.1).
const FULL: Length = Length { seeds: 20, pings: 10_000, rounds: 1_750 };

/// 3 seeds; enough pings that claims do not hang on the few phases that were drawn.
const QUICK: Length = Length { seeds: 3, pings: 10_000, rounds: 600 };

#[cfg(test)]
mod tests {
    use super::*;

    /// Trials so short that numbers mean nothing, but every claim and figure is there.
    #[test]
    fn every_claim_and_figure_comes_from_a_whole_run() {
        let length = Length { seeds: 1, pings: 200, rounds: 20 };
        let run = |trial: Trial| Measured::new(trial, [trial.once(0)]);
        let measured: Vec<_> = trials::all(length).into_iter().map(run).collect();
        let results = Results(&measured);
        let mut found: Vec<_> = claims::claims(results).iter().map(|claim| claim.id).collect();
        let mut ids = claims::IDS;
        found.sort_unstable();
        ids.sort_unstable();
        assert_eq!(found, ids);
        let files: Vec<_> = figures::figures(results).iter().map(|figure| figure.file).collect();
        let expected = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig5-curve", "fig7"];
        assert_eq!(files, expected.map(|name| format!("expedite-{name}")));
        let traces = traces(&measured).unwrap();
        assert_eq!(traces.len(), 2);
        for trace in traces {
            let events: serde_json::Value = serde_json::from_str(&trace.text).expect("a trace is JSON");
            let events = events["traceEvents"].as_array().unwrap();
            // A ping that is late beside a sleeper is what the first one is for.
            assert!(events.iter().any(|event| event["name"] == "sleep-mostly 1"), "{}", trace.file);
            assert!(events.iter().any(|event| event["name"] == "message for ponger"), "{}", trace.file);
        }
        for trial in &measured {
            assert!(FIGURES.contains(&trial.trial.figure));
            assert!(!trial.rows().is_empty());
        }
    }

    #[test]
    fn a_choice_of_rows_answers_what_it_can() {
        let length = Length { seeds: 1, pings: 100, rounds: 5 };
        let trial = trials::all(length).into_iter().find(|trial| trial.figure == "1a").unwrap();
        let measured = [Measured::new(trial, [trial.once(0)])];
        let ids: Vec<_> = claims::claims(Results(&measured)).iter().map(|claim| claim.id).collect();
        assert_eq!(ids, ["X23", "X31"]);
    }
}
