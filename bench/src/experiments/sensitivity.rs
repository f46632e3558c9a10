//! `sensitivity`: how often [`compare`] finds a known slowdown of calls, and how often it reports one without any.
//!
//! The caller spends a share of the call's median on a loop before each call. Three runs with the slowdown are compared with three runs
//! without, as `compare` asks for; each run has a server of its own, as runs of two builds have.

use core::hint::black_box;

use anyhow::Context as _;
use pronto::WaitPolicy;
use serde_json::Value;

use crate::clock;
use crate::compare::{self, Verdict};
use crate::echo::{Provider, Server, Wait, call_32};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::floor;
use crate::params::Axis;
use crate::placement::alone;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, Sample};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "sensitivity",
    question: "Which slowdowns does `compare` find?",
    takes: [400, 45],
    about: "how often `compare` reports a planted slowdown of a call, by its size and by the column",
    axes: &[Axis::new("provider", "Only these transports", &["shm", "tcp"])],
    cpus: Cpus::Two,
    // Rounds of one run, as those of `latency`.
    rounds: [Rounds::new(10, 100), Rounds::new(4, 40)],
    without_aa: Some(
        "each row is the outcome of comparisons, which use the A/A of the runs that they compare",
    ),
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let providers = Provider::kept(run.params);
    let trials = TRIALS[usize::from(run.params.quick)];
    run.begin(providers.len() * trials as usize * RUNS * (SLOWDOWNS.len() + 1));
    let mut rows = Vec::new();
    for provider in providers {
        let mut found = [[0_u32; COLUMNS.len()]; SLOWDOWNS.len()];
        for _ in 0..trials {
            for (found, worse) in found.iter_mut().zip(trial(run, provider)?) {
                for (found, worse) in found.iter_mut().zip(worse) {
                    *found += u32::from(worse);
                }
            }
        }
        rows.extend(SLOWDOWNS.iter().zip(found).map(|(percent, found)| {
            let row = Fields::default()
                .with("provider", provider.name())
                .with("slowdown_percent", *percent)
                .with("comparisons", trials);
            COLUMNS.iter().zip(found).fold(row, |row, ((_, shown), found)| {
                row.with(shown, decimals(f64::from(found) / f64::from(trials), 2))
            })
        }));
    }
    let params = run
        .fields()
        .with("slowdown", "the caller computes before each call for this share of the median call")
        .with("runs", "three of each side, in turns; a new server for each")
        .with("columns", "share of the comparisons that report the column as worse");
    Ok(Report { params, rows, ..Report::default() })
}

/// Compares calls without a slowdown with calls with each slowdown. Returns for each slowdown which columns are reported as worse.
fn trial(run: &mut Run<'_>, provider: Provider) -> anyhow::Result<[[bool; COLUMNS.len()]; SLOWDOWNS.len()]> {
    let mut before = Vec::new();
    let mut after = SLOWDOWNS.map(|_| Vec::new());
    let mut median = None;
    for _ in 0..RUNS {
        let (row, sample) = measure(run, provider, 0.0)?;
        before.push(row);
        let median = *median.get_or_insert(sample.batch_ns);
        for (percent, runs) in SLOWDOWNS.iter().zip(&mut after) {
            runs.push(measure(run, provider, median * f64::from(*percent) / 100.0)?.0);
        }
    }
    Ok(after.map(|after| {
        let verdicts = compare::verdicts(&before, &after, &["provider"]);
        COLUMNS.map(|(column, _)| {
            verdicts.iter().any(|(name, verdict)| name == column && *verdict == Verdict::Worse)
        })
    }))
}

/// Measures calls that are slower by `extra` nanoseconds, in a process pair of their own. Returns a result as `latency` has it.
fn measure(run: &mut Run<'_>, provider: Provider, extra: f64) -> anyhow::Result<(Value, Sample)> {
    let (wait, cpus) = (Wait(WaitPolicy::Spin), run.cpus);
    let server = Server::spawn(provider, wait, cpus.server)?;
    let (sample, bare) = alone(cpus.caller, || {
        let (_client, peer) = server.meet(wait)?;
        let turns = turns_for(extra);
        let (mut calls, mut bare) = (Recorder::new(), Recorder::new());
        let label = |(): &()| format!("{} {extra:.0} ns slower", provider.name());
        run.in_turns(&mut [()], label, |(), budget| {
            let stopped = server.child.stop()?;
            floor::round(floor::of_calls(provider.name(), wait), cpus, HEADER + SIZE, budget / 2, &mut bare)?;
            drop(stopped);
            calls.round(budget, || {
                compute(turns);
                call_32(&peer).map(drop)
            })
        })?;
        Ok((calls.sample(), bare.sample()))
    })?;
    let row = Fields::default()
        .with("provider", provider.name())
        .with_sample(&sample)
        .with("floor_ns", bare.p50_ns);
    let rows = serde_json::to_value([row]).context("the row of a run")?;
    Ok((serde_json::json!({ "rows": rows }), sample))
}

/// Returns the number of turns of [`compute`] that take this long.
fn turns_for(nanos: f64) -> u32 {
    const TIMED: u32 = 100_000;
    let times = (0..5).map(|_| {
        let begun = clock::now();
        compute(TIMED);
        begun.elapsed()
    });
    // The least time is that without an interruption.
    let turn = times.min().map_or(1.0, |time| time.as_secs_f64() * 1e9 / f64::from(TIMED));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few thousand turns at most"
    )]
    let turns = (nanos / turn).round() as u32;
    turns
}

fn compute(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Planted slowdowns, percent. Zero shows false alarms.
const SLOWDOWNS: [u32; 4] = [0, 5, 10, 20];

/// Runs of each side, as `compare` asks for.
const RUNS: usize = 3;

/// Comparisons of a full and of a quick run.
const TRIALS: [u32; 2] = [10, 3];

/// The columns that `compare` judges, and the columns for them here.
const COLUMNS: [(&str, &str); 4] =
    [("p50_ns", "p50"), ("batch_ns", "batch"), ("p99_ns", "p99"), ("p999_ns", "p999")];

/// Payload and header of a call, bytes.
const SIZE: usize = 32;
const HEADER: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_take_time_and_none_take_none() {
        assert_eq!(turns_for(0.0), 0);
        assert!(turns_for(1_000.0) > turns_for(100.0));
    }
}
