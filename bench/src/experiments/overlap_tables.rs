//! `overlap-tables`: a ping-pong and a computation sharing each CPU, by waiting policy and priority.

use core::time::Duration;

use crate::clock;
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::overlap::burn::{Burner, steps_for};
use crate::overlap::claims::{IDS, claims};
use crate::overlap::ping::{Buffers, Job, Pair};
use crate::overlap::row::{BURN_S, CASES, Case, MANY, Row};
use crate::overlap::{Run as Measured, Unit};
use crate::params::{Axis, Choice as _, Params};
use crate::placement::{CpuPair, alone};
use crate::report::{Fields, Report, decimals};

use pronto::WaitPolicy;

/// Four processes: on each of two CPUs one side of the ping-pong and one computation.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "overlap-tables",
    question: "How much do a ping-pong and a computation on the same CPUs cost each other?",
    takes: [900, 60],
    paper: Some("overlap"),
    figure: Some("Tables 1 to 4"),
    about: "a ping-pong and a computation sharing each CPU, by waiting policy and priority: the loss of each",
    axes: &[
        Axis::PROVIDER,
        Axis::new(
            "wait",
            "Only these waiting policies (block is the report's event, spin its poll)",
            &["spin", "block", "adaptive"],
        ),
        Axis::new("nice", "Only with computations of these nice values", &["-20", "0", "19"]),
        Axis {
            column: "dping",
            help: "Only these cases (number and length of messages), named as in the report",
            values: &[CASES[0].name, CASES[1].name, CASES[2].name, CASES[3].name],
        },
        Axis::new("buffers", "Only messages in this memory", Buffers::NAMES),
    ],
    examples: &[
        ("--quick", "the report's own rows over shared memory, some over TCP"),
        ("--provider shm --wait block,spin --nice 0", "tables 2 and 4"),
        ("--provider shm --wait block --nice -20,19 --json", "table 3, for a program"),
    ],
    cpus: Cpus::Two,
    rounds: [Rounds::new(5, 0); 2],
    claims: &IDS,
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let scale = if run.params.quick { QUICK } else { FULL };
    let steps = alone(run.cpus.caller, || Ok(steps_for(scale.burn)))?;
    let mut burners = Burners::start(run.cpus, run.params, &mut report)?;
    let mut rows = chosen(run.params, scale, &burners);
    run.begin(rows.len());
    for provider in Provider::ALL {
        for wait in Wait::ALL {
            let of_pair = |row: &&mut Row| (row.provider, row.wait) == (provider, wait);
            let mut of_pair: Vec<&mut Row> = rows.iter_mut().filter(of_pair).collect();
            if of_pair.is_empty() {
                continue;
            }
            let mut pair = Pair::start(provider, wait, run.cpus)?;
            let warm = Job { messages: 2, bytes: MANY.bytes, buffers: Buffers::Prefaulted };
            for (_, both) in &mut burners.all {
                Measured::once(both, steps / WARM_UP, &mut pair, warm)?;
            }
            let label = |row: &&mut Row| format!("{} {} {}", provider.name(), wait.name(), row.case.name);
            run.in_turns(&mut of_pair, label, |row, _| {
                let job = Job { messages: row.messages, bytes: row.case.bytes, buffers: row.buffers };
                row.add(Measured::once(burners.at(row.nice)?, steps, &mut pair, job)?)
            })?;
            for row in of_pair.into_iter().filter(|row| row.is_judged()) {
                settle(row, burners.at(row.nice)?, &mut pair, steps, scale)?;
            }
        }
    }
    report.params = described(run, scale, steps);
    report.claims = claims(&rows, &burners.refused);
    report.rows = rows.iter().map(Row::fields).collect();
    report.note(
        "next_door: kept, if the computation did at least 0.99 of its work in each second of its CPU time, and if all but 1 % \
         of its delay is CPU time of the ping-pong. Such rows repeat short units until the 99 % intervals of both values \
         (work_error, unexplained_error) are clear of these bars, or the time is up: not resolvable. Messages go by reference \
         into posted buffers.",
    );
    Ok(report)
}

/// Repeats units of a row until its verdict is settled, or the time is up.
fn settle(
    row: &mut Row,
    burners: &mut [Burner; 2],
    pair: &mut Pair,
    steps: u64,
    scale: Scale,
) -> anyhow::Result<()> {
    let messages = (row.messages / PARTS).max(1);
    let job = Job { messages, bytes: row.case.bytes, buffers: row.buffers };
    let begun = clock::now();
    while !row.is_settled() && begun.elapsed() < scale.settling {
        let unit = Unit::once(burners, steps / PARTS, pair, job, row.units.len())?;
        row.units.push(unit);
    }
    Ok(())
}

/// Scale of the run relative to the report's.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Divisor of the report's number of messages, for cases with many messages.
    messages: u64,
    /// Duration of the computation alone.
    burn: Duration,
    /// Longest time in which a row repeats short units.
    settling: Duration,
    /// Whether only the report's own rows are measured, and some over TCP.
    only_the_reports: bool,
}

/// Takes a quarter of an hour.
const FULL: Scale = Scale {
    messages: 20,
    burn: Duration::from_millis(500),
    settling: Duration::from_secs(30),
    only_the_reports: false,
};
/// Takes 50 s.
const QUICK: Scale = Scale {
    messages: 50,
    burn: Duration::from_millis(100),
    settling: Duration::from_secs(2),
    only_the_reports: true,
};
/// Number of units in a run.
const PARTS: u64 = 5;
/// Divisor of the length of the computation in a warm-up.
const WARM_UP: u64 = 10;

impl Scale {
    const fn messages(self, case: &Case) -> u64 {
        if case.messages == 1 { 1 } else { case.messages / self.messages }
    }

    /// Returns whether this row is measured.
    fn has(self, provider: Provider, wait: Wait, nice: i32, case: &Case, buffers: Buffers) -> bool {
        if !self.only_the_reports {
            return true;
        }
        let (kept, long) = (buffers == Buffers::Prefaulted, case.messages > 1);
        match (provider, wait.0) {
            (Provider::Tcp, _) => nice == 0 && kept && case.name == MANY.name,
            (Provider::Shm, WaitPolicy::Block) if nice == 0 => true,
            (Provider::Shm, WaitPolicy::Block) => kept && case.name != CASES[0].name,
            (Provider::Shm, WaitPolicy::Spin) => nice == 0 && kept,
            (Provider::Shm, WaitPolicy::Adaptive) => nice == 0 && kept && long,
        }
    }
}

/// Returns every selected and possible row, without runs.
fn chosen(params: &Params, scale: Scale, burners: &Burners) -> Vec<Row> {
    let cases = params.kept("dping", CASES, |case| case.name);
    let memories = Buffers::kept(params, "buffers");
    let mut rows = Vec::new();
    for provider in Provider::kept(params) {
        for wait in Wait::kept(params) {
            for (nice, _) in &burners.all {
                for case in &cases {
                    for buffers in memories.iter().copied() {
                        if scale.has(provider, wait, *nice, case, buffers) {
                            let messages = scale.messages(case);
                            let (case, nice, runs, units) = (*case, *nice, Vec::new(), Vec::new());
                            rows.push(Row { provider, wait, nice, case, messages, buffers, runs, units });
                        }
                    }
                }
            }
        }
    }
    rows
}

/// A computation on each CPU, for each nice value.
#[derive(Debug)]
struct Burners {
    all: Vec<(i32, [Burner; 2])>,
    /// Nice values for which this process lacks the privilege.
    refused: Vec<i32>,
}

impl Burners {
    fn start(cpus: CpuPair, params: &Params, report: &mut Report) -> anyhow::Result<Self> {
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for nice in params.kept("nice", NICE, i32::to_string) {
            match (Burner::start(cpus.caller, nice)?, Burner::start(cpus.server, nice)?) {
                (Ok(one), Ok(other)) => all.push((nice, [one, other])),
                (Err(why), _) | (_, Err(why)) => {
                    report.note(format!("skipped: nice {nice}: needs privileges ({why})"));
                    refused.push(nice);
                }
            }
        }
        Ok(Self { all, refused })
    }

    fn at(&mut self, nice: i32) -> anyhow::Result<&mut [Burner; 2]> {
        let found = self.all.iter_mut().find(|(of, _)| *of == nice);
        found.map(|(_, both)| both).ok_or_else(|| anyhow::anyhow!("no computation runs at nice {nice}"))
    }
}

/// Nice values; the report's 20 is 19 in Linux.
const NICE: [i32; 3] = [0, -20, 19];

fn described(run: &Run<'_>, scale: Scale, steps: u64) -> Fields {
    Fields::default()
        .with("cpus", run.placement.numbers())
        .with(
            "nodes",
            "both share this machine: each has one CPU, with one side of the ping-pong and one computation; the report's \
             have two each",
        )
        .with("burn_steps", steps)
        .with("burn_scale", decimals(BURN_S / scale.burn.as_secs_f64(), 0))
        .with("message_scale", scale.messages)
        .with("runs", run.rounds)
        .with("spread", "maximum minus minimum of the runs")
        .with("spin", "the application polls, and the serving thread sleeps; otherwise both use the same policy")
        .with("fresh", "two regions of a message's length are allocated within each run, on both sides")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_runs_have_the_reports_rows() {
        let measured = |wait, nice| {
            let has = |case: &&Case| QUICK.has(Provider::Shm, Wait(wait), nice, case, Buffers::Prefaulted);
            CASES.iter().filter(has).count()
        };
        let wanted = [
            (WaitPolicy::Block, 0, CASES.len()),
            (WaitPolicy::Block, -20, CASES.len() - 1),
            (WaitPolicy::Block, 19, CASES.len() - 1),
            (WaitPolicy::Spin, 0, CASES.len()),
            (WaitPolicy::Spin, 19, 0),
        ];
        for (wait, nice, rows) in wanted {
            assert_eq!(measured(wait, nice), rows, "{wait:?} {nice}");
        }
        assert!(FULL.has(Provider::Tcp, Wait(WaitPolicy::Spin), 19, &MANY, Buffers::Fresh));
    }

    #[test]
    fn many_messages_have_as_many_bytes_as_few() {
        for scale in [FULL, QUICK] {
            let [_, _, many, few] = CASES.map(|case| scale.messages(&case) * case.bytes);
            assert_eq!(many, few);
        }
        assert_eq!(QUICK.messages(&CASES[0]), 1);
    }
}
