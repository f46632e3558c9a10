//! `soak`: a million calls over each transport, and whether memory stays flat.

use anyhow::Context as _;
use pronto::WaitPolicy;
use serde_json::Value;

use crate::clock;
use crate::echo::{Provider, SIZES, Server, Wait, call_32};
use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::placement::{Placement, alone};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::traffic::cost::Cost;
use crate::traffic::speed::Speed;

/// The experiment: one caller, one server in a process of its own, waits adaptive. Of each thousand calls three are longer.
#[derive(Debug)]
pub(crate) struct Soak;

impl Experiment for Soak {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "a million calls over each transport: whether the memory of both sides stays flat"
    }

    fn axes(&self) -> &'static [Axis] {
        &[Axis { column: "provider", help: "Only these transports", values: &["shm", "tcp"] }]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("left out, as two CPUs are needed and one is allowed: every row");
            return Ok(report);
        };
        let calls = if params.quick { QUICK_CALLS } else { CALLS };
        let providers: Vec<_> =
            Provider::ALL.into_iter().filter(|p| params.keeps("provider", p.name())).collect();
        progress.begin(providers.len() as u64 * u64::from(PARTS));
        let mut rows = Vec::new();
        for provider in providers {
            let server = Server::spawn(provider, Wait(WaitPolicy::Adaptive), cpus.server)?;
            rows.push(alone(cpus.caller, || measure(provider, &server, calls, progress))?);
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("calls", calls)
            .with("sizes", "32 B; 224 B, 4 KiB and 64 KiB once in each thousand")
            .with(
                "memory",
                "resident, of both processes; warm after a walk through the send memory and the first fifth",
            );
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        Ok(report)
    }
}

/// One transport: resident memory of caller and server, bytes, after the first fifth, at its most from then on, and at the end.
#[derive(Clone, Debug)]
struct Row {
    provider: Provider,
    calls: u32,
    warm: [u64; 2],
    most: [u64; 2],
    end: [u64; 2],
    seconds: f64,
    speed: Speed,
    cost: Cost,
}

fn measure(provider: Provider, server: &Server, calls: u32, progress: &mut Progress) -> anyhow::Result<Row> {
    let (_node, peer) = server.meet(Wait(WaitPolicy::Adaptive))?;
    let resident = || -> anyhow::Result<[u64; 2]> {
        Ok([crate::child::resident(std::process::id())?, server.child.resident()?])
    };
    let others: Vec<_> = SIZES.iter().filter(|size| size.bytes > 32).collect();
    let (mut warm, mut most, mut end) = ([0; 2], [0; 2], [0; 2]);
    for _ in 0..WALK {
        for size in &others {
            size.once(&peer).context("a longer call")?;
        }
    }
    let (started, before) = (clock::now(), Cost::of_this_process()?);
    let mut speed = Speed::default();
    for part in 0..PARTS {
        progress.step(&format!("{}, {} calls of {calls}", provider.name(), calls / PARTS * part));
        let part_started = clock::now();
        for _ in 0..calls / PARTS / THOUSAND {
            for _ in 0..THOUSAND - 3 {
                call_32(&peer)?;
            }
            for size in &others {
                size.once(&peer).context("a longer call")?;
            }
        }
        speed.round(u64::from(calls / PARTS), part_started.elapsed());
        end = resident()?;
        if part == PARTS / 5 - 1 {
            (warm, most) = (end, end);
        }
        most = [0, 1].map(|side| most[side].max(end[side]));
    }
    let cost = Cost::of_this_process()?.since(before);
    Ok(Row { provider, calls, warm, most, end, seconds: started.elapsed().as_secs_f64(), speed, cost })
}

impl Row {
    /// What the two together grew by, bytes.
    fn growth(&self) -> u64 {
        [0, 1].map(|side: usize| self.end[side].saturating_sub(self.warm[side])).iter().sum()
    }

    fn fields(&self) -> Fields {
        let kib = |bytes: u64| Value::from(bytes / 1024);
        let (cpu_ns, switches) = self.cost.each(self.calls.into());
        Fields::default()
            .with("provider", self.provider.name())
            .with("calls", self.calls)
            .with("seconds", decimals(self.seconds, 1))
            .with("calls_per_s", decimals(self.speed.per_second(), 0))
            .with("aa", decimals(self.speed.a_to_a(), 2))
            .with("caller_warm_kib", kib(self.warm[0]))
            .with("caller_most_kib", kib(self.most[0]))
            .with("caller_end_kib", kib(self.end[0]))
            .with("server_warm_kib", kib(self.warm[1]))
            .with("server_most_kib", kib(self.most[1]))
            .with("server_end_kib", kib(self.end[1]))
            .with("growth_kib", kib(self.growth()))
            .with("cpu_ns", decimals(cpu_ns, 1))
            .with("switches", decimals(switches, 5))
    }
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let claim = |row: &Row| Claim {
        id: if row.provider == Provider::Shm { "F1" } else { "F2" },
        text: format!(
            "{}: from the first fifth of the calls to the last, caller and server grow by at most so many KiB together",
            row.provider.name()
        ),
        published: Value::from(FLAT / 1024),
        measured: Value::from(row.growth() / 1024),
        holds: row.growth() <= FLAT,
    };
    rows.iter().map(claim).collect()
}

/// Looks at the memory.
const PARTS: u32 = 20;
/// Calls, three of which are longer.
const THOUSAND: u32 = 1000;
/// Longer calls of each size before the first look: those of 64 KiB go twice through a chunk of send memory, of which they touch other
/// lines each time.
const WALK: u32 = 128;
/// What counts as flat, bytes: a leak of one byte in a call is more. Pages that are touched for the first time are less.
const FLAT: u64 = 512 << 10;
/// Over each transport.
const CALLS: u32 = 1_000_000;
const QUICK_CALLS: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_sides_grew_by_is_held_against_the_bar() {
        let row = |end| Row {
            provider: Provider::Shm,
            calls: 1000,
            warm: [1 << 20, 1 << 20],
            most: [2 << 20, 2 << 20],
            end,
            seconds: 1.0,
            speed: Speed::default(),
            cost: Cost::default(),
        };
        assert_eq!(row([0; 2]).fields().value("aa"), Some(&Value::Null), "no round, no A/A");
        let holds = |end| claims(&[row(end)])[0].holds;
        assert!(holds([1 << 20, 900 << 10]));
        assert!(!holds([1 << 20, (1 << 20) + FLAT + 4096]));
    }
}
