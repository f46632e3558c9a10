//! `expedite-sim`: figures 1 to 5 and 7 of Expedite on simulated machines, with the paper's rules and with our budget.

mod claims;
mod figures;
mod trials;

use pronto_sched_sim::id::TaskId;
use pronto_sched_sim::paper::expedite::{BOOT_PINGS, PingPong, TOP};
use pronto_sched_sim::trace::Trace;

use crate::experiment::{Experiment, Run};
use crate::params::Axis;
use crate::report::{Fields, Report, TraceFile, decimals};
use crate::sample::approximate;
use crate::workers;
use claims::Results;
use trials::{Length, Measured, Trial, Workload};

/// Simulated pings and scatters. Equal seeds give equal numbers on any machine.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "expedite-sim",
    question: "Does a boost at a message's arrival remove the delays of a busy machine, by the paper's rules?",
    takes: [60, 10],
    paper: Some("expedite"),
    figure: Some("Figs. 1-7"),
    about: "pings with sleepers and scatter with top, on simulated machines of the paper and with our budget",
    axes: &[
        Axis::new("figure", "Only these figures", &FIGURES),
        Axis::new(
            "boost",
            "Only these boosts",
            &["none", "counter", "budget", "sleepers", "dyn-preempt", "on-unblock"],
        ),
        Axis::new("kernel", "Only these kernels", &["linux-2.4", "eevdf", "eevdf-short"]),
    ],
    draws: true,
    traces: true,
    without_aa: Some("simulated: equal seeds give equal numbers; the rows show the spread over seeds"),
    claims: &claims::IDS,
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let params = run.params;
    let length = if params.quick { QUICK } else { FULL };
    let keeps = |trial: &Trial| {
        params.keeps("figure", trial.figure)
            && params.keeps("boost", trials::boost_name(trial.boost()))
            && params.keeps("kernel", trials::kernel_name(trial.kernel()))
    };
    let trials: Vec<Trial> = trials::all(length).into_iter().filter(keeps).collect();
    let runs: Vec<(Trial, u64)> =
        trials.iter().flat_map(|trial| (0..length.seeds).map(|seed| (*trial, seed))).collect();
    run.progress.begin(runs.len() as u64);
    let mut done = workers::all(&runs, run.progress, |(trial, seed)| trial.once(*seed)).into_iter();
    let seeds = usize::try_from(length.seeds)?;
    let measured: Vec<Measured> =
        trials.into_iter().map(|trial| Measured::new(trial, done.by_ref().take(seeds))).collect();
    let results = Results(&measured);
    let mut report = Report {
        params: described(length, &measured),
        rows: measured.iter().flat_map(Measured::rows).collect(),
        claims: claims::claims(results),
        figures: figures::figures(results),
        traces: traces(&measured)?,
        ..Report::default()
    };
    report.note(
        "late: share of pings that took 1 ms or more; kept: share of the requested boosts that were granted; compute and \
         sleepers: shares of the CPU. Means are over all seeds, least and most are of one seed.",
    );
    Ok(report)
}

/// Returns a short run of figures 1 (b) and 2 (b): the tasks on the ponger's CPU, and the times of the pings.
fn traces(measured: &[Measured]) -> anyhow::Result<Vec<TraceFile>> {
    let mut traces = Vec::new();
    for (figure, file) in [("1b", "expedite-fig1b"), ("2b", "expedite-fig2b")] {
        let Some(trial) = measured.iter().find(|trial| trial.trial.figure == figure) else { continue };
        let Workload::PingPong(trial) = trial.trial.run else { continue };
        let boot = PingPong { pings: BOOT_PINGS, ..trial }.boot(TRACED_SEED, Some(Trace::new(TRACED_EVENTS)));
        let mut text = Vec::new();
        let names = ["pinger", "ponger", "compute-only", "sleep-mostly 1", "sleep-mostly 2"];
        let name = |task: TaskId| names.get(task.index()).copied().unwrap_or("task").to_owned();
        boot.trace.unwrap_or_else(|| Trace::new(0)).write(&mut text, name)?;
        traces.push(TraceFile { file, text: String::from_utf8(text)? });
    }
    Ok(traces)
}

/// A seed with late pings without Expedite.
const TRACED_SEED: u64 = 4;

/// Many more events than 50 pings have.
const TRACED_EVENTS: usize = 10_000;

/// Returns the parameters, with the source of each.
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
        .with("phases", "no two sleepers compute at the same time (ours); `1b-anywhere`: at random")
        .with("link", "100 Mb/s (section 4); 100 us one way, work of both kernels included (coscheduling paper, section 4)")
        .with("background_on", "the ponger's machine (not stated; only this placement reproduces a ceiling of 5 ms)")
        .with("scatter", "120 ms of computing, 8 ranks, barrier (section 5.1); 1 KiB per rank (ours)")
        .with("top_ms", format!("{} (not stated; from the first result of section 5.1)", TOP.0 / 1_000_000))
        .with("clocks", "phases at random, drift up to 30 ppm (ours)")
}

/// Values of the column `figure`.
const FIGURES: [&str; 16] = [
    "alone",
    "1a",
    "1b",
    "1b-anywhere",
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

/// 3 seeds, with enough pings that claims do not depend on a few drawn phases.
const QUICK: Length = Length { seeds: 3, pings: 10_000, rounds: 600 };

#[cfg(test)]
mod tests {
    use super::*;

    /// The trials are too short for meaningful numbers, but every claim and figure exists.
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
            // The first trace has to show a ping that a sleeper delays.
            assert!(events.iter().any(|event| event["name"] == "sleep-mostly 1"), "{}", trace.file);
            assert!(events.iter().any(|event| event["name"] == "message for ponger"), "{}", trace.file);
        }
        for trial in &measured {
            assert!(FIGURES.contains(&trial.trial.figure));
            assert!(!trial.rows().is_empty());
        }
    }

    #[test]
    fn selected_rows_have_only_their_claims() {
        let length = Length { seeds: 1, pings: 100, rounds: 5 };
        let trial = trials::all(length).into_iter().find(|trial| trial.figure == "1a").unwrap();
        let measured = [Measured::new(trial, [trial.once(0)])];
        let ids: Vec<_> = claims::claims(Results(&measured)).iter().map(|claim| claim.id).collect();
        assert_eq!(ids, ["X23"]);
    }
}
