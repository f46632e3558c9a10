//! `overlap-tables`: a ping-pong and a computation sharing each CPU, by waiting policy and priority.

use core::time::Duration;

use crate::echo::{Provider, Wait};
use crate::experiment::Experiment;
use crate::overlap::Run;
use crate::overlap::burn::{Burner, steps_for};
use crate::overlap::claims::{NOT_TRANSFERABLE, claims};
use crate::overlap::ping::{Buffers, Job, Pair};
use crate::overlap::row::{BURN_S, CASES, Case, MANY, Row};
use crate::params::{Axis, Params};
use crate::placement::{CpuPair, Placement, alone};
use crate::progress::Progress;
use crate::report::{Fields, Report, decimals};

use pronto::WaitPolicy;

/// The experiment. Four processes: on each of two CPUs one side of the ping-pong and one computation.
#[derive(Debug)]
pub(crate) struct OverlapTables;

impl Experiment for OverlapTables {
    fn name(&self) -> &'static str {
        "overlap-tables"
    }

    fn paper(&self) -> Option<&'static str> {
        Some(
            "Frachtenberg and Petrini: Overlapping of Computation and Communication in the Quadrics Network (2001)",
        )
    }

    fn figure(&self) -> Option<&'static str> {
        Some("tables 1 to 4")
    }

    fn about(&self) -> &'static str {
        "a ping-pong and a computation sharing each CPU, by waiting policy and priority: the loss of each"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis { column: "provider", help: "Only these transports", values: &["shm", "tcp"] },
            Axis {
                column: "wait",
                help: "Only these waiting policies (block is the report's event, spin its poll)",
                values: &["spin", "block", "adaptive"],
            },
            Axis {
                column: "nice",
                help: "Only with computations of these nice values",
                values: &["-20", "0", "19"],
            },
            Axis {
                column: "dping",
                help: "Only these cases (number and length of messages), named as in the report",
                values: &[CASES[0].name, CASES[1].name, CASES[2].name, CASES[3].name],
            },
            Axis {
                column: "buffers",
                help: "Only messages in this memory",
                values: &["prefaulted", "fresh"],
            },
        ]
    }

    fn examples(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("--quick", "the report's own rows over shared memory, some over TCP"),
            ("--provider shm --wait block,spin --nice 0", "tables 2 and 4"),
            ("--provider shm --wait block --nice -20,19 --json", "table 3, for a program"),
        ]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let scale = if params.quick { QUICK } else { FULL };
        let steps = alone(cpus.caller, || Ok(steps_for(scale.burn)))?;
        let mut burners = Burners::start(cpus, params, &mut report)?;
        let mut rows = chosen(params, scale, &burners);
        progress.begin(rows.len() as u64 * scale.runs);
        for provider in Provider::ALL {
            for wait in Wait::ALL {
                let of_pair = |row: &&mut Row| (row.provider, row.wait) == (provider, wait);
                let mut of_pair: Vec<&mut Row> = rows.iter_mut().filter(of_pair).collect();
                if of_pair.is_empty() {
                    continue;
                }
                let mut pair = Pair::start(provider, wait, cpus)?;
                let warm = Job { messages: 2, bytes: MANY.bytes, buffers: Buffers::Prefaulted };
                for (_, both) in &mut burners.0 {
                    Run::once(both, steps / WARM_UP, &mut pair, warm)?;
                }
                // In rounds, so that slow changes of the machine's speed affect every row.
                for _ in 0..scale.runs {
                    for row in &mut of_pair {
                        progress.step(&format!("{} {} {}", provider.name(), wait.name(), row.case.name));
                        let job = Job { messages: row.messages, bytes: row.case.bytes, buffers: row.buffers };
                        let burners = burners.at(row.nice)?;
                        row.runs.push(Run::once(burners, steps, &mut pair, job)?);
                    }
                }
            }
        }
        report.params = described(placement, scale, steps);
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        report.note(NOT_TRANSFERABLE);
        report.note(
            "next_door: kept, if the computation did at least 0.99 of its work in each second of its CPU time, and if all but 1 % \
             of its delay is CPU time of the ping-pong; not resolvable, if the computation alone differs by more \
             than 0.5 % between even and odd runs (aa). Messages go by reference into posted buffers.",
        );
        Ok(report)
    }
}

/// Scale of the run relative to the report's.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Divisor of the number of messages, where the report has many.
    messages: u64,
    /// Duration of the computation alone.
    burn: Duration,
    runs: u64,
    /// Whether only the report's own rows are measured, and some over TCP.
    only_the_reports: bool,
}

/// A quarter of an hour.
const FULL: Scale =
    Scale { messages: 20, burn: Duration::from_millis(500), runs: 5, only_the_reports: false };
/// 45 s.
const QUICK: Scale =
    Scale { messages: 50, burn: Duration::from_millis(100), runs: 5, only_the_reports: true };
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
    let mut rows = Vec::new();
    for provider in Provider::ALL.into_iter().filter(|it| params.keeps("provider", it.name())) {
        for wait in Wait::ALL.into_iter().filter(|it| params.keeps("wait", it.name())) {
            for (nice, _) in &burners.0 {
                for case in CASES.iter().filter(|case| params.keeps("dping", case.name)) {
                    for buffers in Buffers::ALL.into_iter().filter(|it| params.keeps("buffers", it.name())) {
                        if scale.has(provider, wait, *nice, case, buffers) {
                            let messages = scale.messages(case);
                            let (case, nice, runs) = (*case, *nice, Vec::new());
                            rows.push(Row { provider, wait, nice, case, messages, buffers, runs });
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
struct Burners(Vec<(i32, [Burner; 2])>);

impl Burners {
    fn start(cpus: CpuPair, params: &Params, report: &mut Report) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for nice in NICE.into_iter().filter(|nice| params.keeps("nice", &nice.to_string())) {
            match (Burner::start(cpus.caller, nice)?, Burner::start(cpus.server, nice)?) {
                (Ok(one), Ok(other)) => all.push((nice, [one, other])),
                (Err(why), _) | (_, Err(why)) => {
                    report.note(format!("skipped: nice {nice}: needs privileges ({why})"));
                }
            }
        }
        Ok(Self(all))
    }

    fn at(&mut self, nice: i32) -> anyhow::Result<&mut [Burner; 2]> {
        let found = self.0.iter_mut().find(|(of, _)| *of == nice);
        found.map(|(_, both)| both).ok_or_else(|| anyhow::anyhow!("no computation runs at nice {nice}"))
    }
}

/// The report's 20 is Linux' 19.
const NICE: [i32; 3] = [0, -20, 19];

fn described(placement: Placement, scale: Scale, steps: u64) -> Fields {
    Fields::default()
        .with("cpus", placement.numbers())
        .with(
            "nodes",
            "both share this machine: each has one CPU, with one side of the ping-pong and one computation; the report's \
             have two each",
        )
        .with("burn_steps", steps)
        .with("burn_scale", decimals(BURN_S / scale.burn.as_secs_f64(), 0))
        .with("message_scale", scale.messages)
        .with("runs", scale.runs)
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
    fn as_many_bytes_go_in_many_messages_as_in_few() {
        for scale in [FULL, QUICK] {
            let [_, _, many, few] = CASES.map(|case| scale.messages(&case) * case.bytes);
            assert_eq!(many, few);
        }
        assert_eq!(QUICK.messages(&CASES[0]), 1);
    }
}
