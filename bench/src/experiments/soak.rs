//! `soak`: a million calls over each transport, with a check that memory stays flat.
//!
//! Resident memory also changes without a leak. The node releases a chunk of send memory that was unused at two idle checks,
//! and long messages touch its pages again. It depends on the speed of the machine whether they keep the chunk in use. A pool
//! grows once, when more of its objects are in use than ever before. Two rules exclude both effects:
//! 1. A reading that counts follows a walk through the send memory: calls in a row that touch all of it.
//! 2. Growth counts if it happens twice: from the first reading to the second, and again from the second to the third. A leak grows
//!    with each call, and the intervals are long enough that a table which doubles when it is full does so in both.

use anyhow::Context as _;
use pronto::WaitPolicy;
use serde_json::Value;

use crate::claim::Claim;
use crate::clock;
use crate::echo::{Provider, SIZES, Server, Wait, call_32};
use crate::experiment::{Cpus, Experiment, Run};
use crate::params::Axis;
use crate::placement::alone;
use crate::progress::Progress;
use crate::report::{Fields, Report, decimals};
use crate::traffic::cost::Cost;
use crate::traffic::speed::Speed;

/// One caller and one server in a separate process, with adaptive waits. Three of every thousand calls are longer.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "soak",
    question: "Does memory stay flat over a million calls?",
    takes: [90, 30],
    about: "a million calls over each transport; checks that the memory of both sides stays flat",
    axes: &[Axis::PROVIDER],
    cpus: Cpus::Two,
    claims: &["F1", "F2"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let calls = if run.params.quick { QUICK_CALLS } else { CALLS };
    let providers = Provider::kept(run.params);
    run.progress.begin(providers.len() as u64 * u64::from(PARTS));
    let mut rows = Vec::new();
    for provider in providers {
        let server = Server::spawn(provider, Wait(WaitPolicy::Adaptive), run.cpus.server)?;
        rows.push(alone(run.cpus.caller, || measure(provider, &server, calls, run.progress))?);
    }
    Ok(Report {
        params: Fields::default()
            .with("cpus", run.placement.numbers())
            .with("calls", calls)
            .with("sizes", "32 B; 224 B, 4 KiB and 64 KiB once in each thousand")
            .with(
                "memory",
                "resident, of both processes; after the first fifth (warm), half and all (end) of the calls, each time after a walk through the send memory",
            ),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

/// One transport. Resident memory of caller and server in bytes: after the first fifth of the calls, after half of them, at the end, and
/// the largest reading from the first fifth on.
#[derive(Clone, Debug)]
struct Row {
    provider: Provider,
    calls: u32,
    warm: [u64; 2],
    half: [u64; 2],
    end: [u64; 2],
    most: [u64; 2],
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
    let longer = || others.iter().try_for_each(|size| size.once(&peer)).context("a longer call");
    let walk = || (0..WALK).try_for_each(|_| longer());
    walk()?;
    let mut row = Row::new(provider, calls);
    for part in 1..=PARTS {
        progress.step(&format!("{}, {} calls of {calls}", provider.name(), calls / PARTS * (part - 1)));
        let (started, before) = (clock::now(), Cost::of_this_process()?);
        for _ in 0..calls / PARTS / THOUSAND {
            for _ in 0..THOUSAND - 3 {
                call_32(&peer)?;
            }
            longer()?;
        }
        let took = started.elapsed();
        row.speed.round(u64::from(calls / PARTS), took);
        row.seconds += took.as_secs_f64();
        row.cost = row.cost.and(Cost::of_this_process()?.since(before));
        let reading = match part {
            WARM => &mut row.warm,
            HALF => &mut row.half,
            _ => &mut row.end,
        };
        if [WARM, HALF, PARTS].contains(&part) {
            walk()?;
        }
        *reading = resident()?;
        let now = *reading;
        if part >= WARM {
            row.most = [0, 1].map(|side| row.most[side].max(now[side]));
        }
    }
    Ok(row)
}

impl Row {
    fn new(provider: Provider, calls: u32) -> Self {
        let none = [0; 2];
        let (speed, cost) = (Speed::default(), Cost::default());
        Self { provider, calls, warm: none, half: none, end: none, most: none, seconds: 0.0, speed, cost }
    }

    /// Returns how much memory the two processes together gained in each of the two intervals, bytes. Growth in only one interval
    /// does not count.
    fn growth(&self) -> u64 {
        let gained = |from: [u64; 2], to: [u64; 2], side: usize| to[side].saturating_sub(from[side]);
        [0, 1]
            .map(|side| gained(self.warm, self.half, side).min(gained(self.half, self.end, side)))
            .iter()
            .sum()
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
            .with("caller_half_kib", kib(self.half[0]))
            .with("caller_end_kib", kib(self.end[0]))
            .with("caller_most_kib", kib(self.most[0]))
            .with("server_warm_kib", kib(self.warm[1]))
            .with("server_half_kib", kib(self.half[1]))
            .with("server_end_kib", kib(self.end[1]))
            .with("server_most_kib", kib(self.most[1]))
            .with("growth_kib", kib(self.growth()))
            .with("cpu_ns", decimals(cpu_ns, 1))
            .with("switches", decimals(switches, 5))
    }
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let claim = |row: &Row| {
        let id = if row.provider == Provider::Shm { "F1" } else { "F2" };
        let detail = format!(
            "{} calls; from the first fifth of them to half, and again from there to the last: the smaller growth counts",
            row.calls
        );
        Claim::new(id, detail, row.growth() / 1024, row.growth() <= FLAT).bar(FLAT / 1024)
    };
    rows.iter().map(claim).collect()
}

/// Number of readings of the memory, at equal numbers of calls.
const PARTS: u32 = 20;
/// Part of the calls after which everything is warmed up.
const WARM: u32 = PARTS / 5;
/// Part of the calls after which the first interval ends. Both intervals at least double the number of calls.
const HALF: u32 = PARTS / 2;
const _: () = assert!(2 * WARM <= HALF && 2 * HALF <= PARTS);
/// Number of calls of which three are longer.
const THOUSAND: u32 = 1000;
/// Number of longer calls of each size in a walk: those of 64 KiB go twice through a chunk of send memory, and touch other lines each
/// time.
const WALK: u32 = 128;
/// Largest growth in an interval that counts as flat, in bytes. A leak of one byte per call exceeds it, or of nine in a quick run.
const FLAT: u64 = 256 << 10;
const _: () = assert!(
    (CALLS / PARTS * (HALF - WARM)) as u64 > FLAT && (QUICK_CALLS / PARTS * (HALF - WARM)) as u64 * 9 > FLAT
);
/// Number of calls over each transport.
const CALLS: u32 = 1_000_000;
const QUICK_CALLS: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn row([warm, half, end]: [[u64; 2]; 3]) -> Row {
        Row { warm, half, end, ..Row::new(Provider::Shm, 1000) }
    }

    #[test]
    fn memory_that_grows_twice_fails_the_bar() {
        const MIB: u64 = 1 << 20;
        let holds = |readings| claims(&[row(readings)])[0].holds();
        assert_eq!(row([[0; 2]; 3]).fields().value("aa"), Some(&Value::Null), "no round, no A/A");
        assert!(holds([[MIB, MIB], [MIB, MIB], [MIB, MIB / 2]]));
        let leak = |bytes: u64| [2, 5, 10].map(|tenths| [MIB, MIB + bytes * tenths]);
        assert!(holds(leak(FLAT / 3)) && !holds(leak(FLAT / 3 + 1)));
        // Half of the growth on each side.
        assert!(!holds([[MIB, MIB], [MIB + FLAT / 2, MIB + FLAT], [MIB + FLAT, MIB + 2 * FLAT]]));
        // A pool that reaches its highest use late, on either side.
        assert!(holds([[MIB, MIB], [MIB, 5 * MIB], [5 * MIB, 5 * MIB]]));
        // Memory that was returned in between.
        assert!(holds([[5 * MIB, MIB], [MIB, MIB], [5 * MIB, MIB]]));
    }
}
