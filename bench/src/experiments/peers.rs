//! `peers`: a 32 B call and a pipelined load over Pronto, other projects' libraries and bare sockets, in turns.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::peers::line_up::{self, Built, Participant};
use crate::peers::round::Rounds;
use crate::peers::{PAYLOAD, WINDOW};
use crate::placement::Placement;
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Sample, approximate};

/// The experiment. Every round of a participant is a fresh pair of processes; rounds of all participants take turns.
#[derive(Debug)]
pub(crate) struct Peers;

impl Experiment for Peers {
    fn name(&self) -> &'static str {
        "peers"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "the same calls over Pronto, tarpc, tonic, iceoryx2, UCX, Open MPI, libfabric and bare sockets, in turns"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis {
                column: "peer",
                help: "Only these projects",
                values: &["raw", "pronto", "tarpc", "tonic", "iceoryx2", "ucx", "openmpi", "libfabric"],
            },
            Axis { column: "provider", help: "Only over these", values: &["shm", "tcp"] },
            Axis { column: "setting", help: "Only so set", values: &["default", "best", "tagged", "block"] },
        ]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let asked = line_up::ALL.iter().filter(|one| {
            params.keeps("peer", one.peer)
                && params.keeps("provider", one.provider)
                && params.keeps("setting", one.setting)
        });
        let mut asked: Vec<_> = asked.map(|one| (one, Rounds::default())).collect();
        let built = build(&asked, &mut report);
        asked.retain(|(one, _)| one.program().is_none_or(|program| built.contains_key(&program)));
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        // Before any thread is pinned: the result has to hold for two CPUs.
        let wake_up = pronto_node::wake_up_cost();
        progress.begin(u64::from(rounds) * asked.len() as u64);
        let mut failed = BTreeMap::new();
        for _ in 0..rounds {
            for (one, rounds) in &mut asked {
                progress.step(&format!("{} {} {}", one.peer, one.provider, one.setting));
                let name = (one.peer, one.provider, one.setting);
                if !failed.contains_key(&name)
                    && let Err(error) = one.round(&built, cpus, budget, rounds)
                {
                    // A failure of ours ends the run; a failure of others is only reported.
                    anyhow::ensure!(one.program().is_some(), "{}: {error:#}", one.peer);
                    failed.insert(name, format!("{error:#}"));
                }
            }
        }
        for ((peer, provider, setting), why) in &failed {
            report.note(format!("skipped: {peer} over {provider}, {setting}: a round failed: {why}"));
        }
        asked.retain(|(one, _)| !failed.contains_key(&(one.peer, one.provider, one.setting)));
        let rows: Vec<Row> = asked.iter().map(|(one, rounds)| Row::of(one, rounds)).collect();
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with(
                "processes",
                "a fresh caller and a fresh server for each round, each pinned; bare sockets: two threads",
            )
            .with("size", PAYLOAD)
            .with("window", WINDOW)
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0))
            .with("wake_up_ns", wake_up.0);
        report.claims = claims(&rows);
        report.rows = rows.iter().map(|row| row.fields(&rows)).collect();
        Ok(report)
    }
}

/// Builds the program of each selected participant once, and notes each participant that cannot be built.
fn build(asked: &[(&Participant, Rounds)], report: &mut Report) -> Built {
    let programs: BTreeSet<_> = asked.iter().filter_map(|(one, _)| one.program()).collect();
    let mut built = Built::new();
    for program in programs {
        match program.build() {
            Ok(path) => drop(built.insert(program, path)),
            Err(error) => {
                let peers: BTreeSet<_> = asked
                    .iter()
                    .filter(|(one, _)| one.program() == Some(program))
                    .map(|(one, _)| one.peer)
                    .collect();
                let peers: Vec<_> = peers.into_iter().collect();
                report.note(format!("skipped: {}: {error:#}", peers.join(", ")));
            }
        }
    }
    built
}

/// One row.
#[derive(Clone, Debug)]
struct Row {
    one: &'static str,
    provider: &'static str,
    setting: &'static str,
    how: &'static str,
    version: Option<String>,
    call: Sample,
    aa: f64,
    rpc_per_s: f64,
    rate_aa: f64,
    one_way_per_s: f64,
    /// CPU nanoseconds, context switches and wake-ups per message.
    each: [f64; 3],
}

impl Row {
    fn of(one: &Participant, rounds: &Rounds) -> Self {
        Self {
            one: one.peer,
            provider: one.provider,
            setting: one.setting,
            how: one.how,
            version: rounds.version.clone(),
            call: rounds.calls.sample(),
            aa: rounds.a_to_a(),
            rpc_per_s: rounds.load.per_second(),
            rate_aa: rounds.load.a_to_a(),
            one_way_per_s: rounds.stream.per_second(),
            each: rounds.each(),
        }
    }

    fn fields(&self, all: &[Self]) -> Fields {
        let ours = all.iter().find(|row| row.is("pronto", self.provider, "best"));
        let ratio = |mine: f64, ours: Option<f64>| ours.map_or(Value::Null, |ours| decimals(mine / ours, 2));
        Fields::default()
            .with("peer", self.one)
            .with("provider", self.provider)
            .with("setting", self.setting)
            .with("version", self.version.clone())
            .with("p50_ns", self.call.p50_ns)
            .with("aa", decimals(self.aa, 2))
            .with(
                "to_pronto",
                ratio(approximate(self.call.p50_ns), ours.map(|row| approximate(row.call.p50_ns))),
            )
            .with("p99_ns", self.call.p99_ns)
            .with("batch_ns", decimals(self.call.batch_ns, 1))
            .with("rpc_per_s", decimals(self.rpc_per_s, 0))
            .with("rate_aa", decimals(self.rate_aa, 2))
            .with("rate_to_pronto", ratio(self.rpc_per_s, ours.map(|row| row.rpc_per_s)))
            .with("one_way_per_s", decimals(self.one_way_per_s, 0))
            .with("cpu_ns", decimals(self.each[0], 0))
            .with("switches", decimals(self.each[1], 4))
            .with("wakes", decimals(self.each[2], 4))
            .with("how", self.how)
    }

    fn is(&self, peer: &str, provider: &str, setting: &str) -> bool {
        (self.one, self.provider, self.setting) == (peer, provider, setting)
    }

    fn p50(&self) -> f64 {
        approximate(self.call.p50_ns)
    }

    fn rate(&self) -> f64 {
        self.rpc_per_s
    }
}

/// Evaluates the bars that compare with peers. Each peer counts with its better setting in each row.
fn claims(rows: &[Row]) -> Vec<Claim> {
    over_shm(rows).into_iter().chain(over_tcp(rows)).flatten().collect()
}

fn over_shm(rows: &[Row]) -> [Option<Claim>; 3] {
    let all = Rows(rows);
    let ours = all.one("pronto", "shm", "best");
    let ucx = "shm, both polling, p50: as a multiple of a UCX active-message round trip, at most";
    let one_way = "shm, pipelined calls per second: as a multiple of UCX's one-way message rate, at least";
    let iceoryx = "shm, both polling, p50: as a multiple of an iceoryx2 call, at most";
    [
        at_most("V1", ucx, 0.8, ours.map(Row::p50), all.quickest("ucx", "shm")),
        at_least("V2", one_way, 0.75, ours.map(Row::rate), all.most("ucx", "shm", |row| row.one_way_per_s)),
        at_most("V3", iceoryx, 1.0, ours.map(Row::p50), all.quickest("iceoryx2", "shm")),
    ]
}

fn over_tcp(rows: &[Row]) -> [Option<Claim>; 6] {
    let all = Rows(rows);
    let [adaptive, spinning, blocking] =
        ["default", "best", "block"].map(|setting| all.one("pronto", "tcp", setting));
    let raw = |setting| all.one("raw", "tcp", setting).map(Row::p50);
    let tarpc = || all.most("tarpc", "tcp", Row::rate);
    let asleep = "tcp, both blocking, p50: as a multiple of a bare round trip, at most";
    let awake = "tcp, both spinning, p50: as a multiple of a bare round trip, at most";
    let ucx = "tcp, both spinning, p50: as a multiple of a UCX active-message round trip, at most";
    let many = "tcp, window 32, adaptive, calls per second: as a multiple of tarpc's, at least";
    let many_asleep = "tcp, window 32, both blocking, calls per second: as a multiple of tarpc's, at least";
    let tonic = "tcp, window 32, both spinning, calls per second: as a multiple of tonic's, at least";
    [
        at_most("V4", asleep, 1.1, blocking.map(Row::p50), raw("block")),
        at_most("V5", awake, 1.15, spinning.map(Row::p50), raw("best")),
        at_most("V6", ucx, 1.0, spinning.map(Row::p50), all.quickest("ucx", "tcp")),
        at_least("V7", many, 8.0, adaptive.map(Row::rate), tarpc()),
        at_least("V8", many_asleep, 2.5, blocking.map(Row::rate), tarpc()),
        at_least("V9", tonic, 10.0, spinning.map(Row::rate), all.most("tonic", "tcp", Row::rate)),
    ]
}

/// All rows, looked up by peer.
#[derive(Clone, Copy)]
struct Rows<'a>(&'a [Row]);

impl<'a> Rows<'a> {
    fn one(self, peer: &str, provider: &str, setting: &str) -> Option<&'a Row> {
        self.0.iter().find(|row| row.is(peer, provider, setting))
    }

    fn of(self, peer: &str, provider: &str, value: impl Fn(&Row) -> f64) -> impl Iterator<Item = f64> {
        let rows = self.0.iter().filter(move |row| (row.one, row.provider) == (peer, provider));
        rows.map(value).filter(|value| value.is_finite())
    }

    fn quickest(self, peer: &str, provider: &str) -> Option<f64> {
        self.of(peer, provider, Row::p50).min_by(f64::total_cmp)
    }

    fn most(self, peer: &str, provider: &str, value: impl Fn(&Row) -> f64) -> Option<f64> {
        self.of(peer, provider, value).max_by(f64::total_cmp)
    }
}

fn at_most(
    id: &'static str,
    text: &str,
    bound: f64,
    ours: Option<f64>,
    theirs: Option<f64>,
) -> Option<Claim> {
    let measured = ours? / theirs?;
    Some(claim(id, text, bound, measured, measured <= bound))
}

fn at_least(
    id: &'static str,
    text: &str,
    bound: f64,
    ours: Option<f64>,
    theirs: Option<f64>,
) -> Option<Claim> {
    let measured = ours? / theirs?;
    Some(claim(id, text, bound, measured, measured >= bound))
}

fn claim(id: &'static str, text: &str, bound: f64, measured: f64, holds: bool) -> Claim {
    Claim { id, text: text.into(), published: decimals(bound, 2), measured: decimals(measured, 2), holds }
}

/// 27 participants take four minutes.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(500);

/// 27 participants take 45 s.
const QUICK_ROUNDS: u32 = 3;
const QUICK_BUDGET: Duration = Duration::from_millis(150);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: [&'static str; 3], p50_ns: u64, rpc_per_s: f64, one_way_per_s: f64) -> Row {
        let [one, provider, setting] = name;
        let call = Sample { p50_ns, ..Sample::default() };
        let (how, version, aa, rate_aa) = ("", None, 1.0, 1.0);
        Row {
            one,
            provider,
            setting,
            how,
            version,
            call,
            aa,
            rpc_per_s,
            rate_aa,
            one_way_per_s,
            each: [0.0; 3],
        }
    }

    #[test]
    fn a_peer_counts_with_its_better_setting() {
        let rows = [
            row(["pronto", "shm", "best"], 200, 8e6, 9e6),
            row(["ucx", "shm", "default"], 240, 1e6, 14e6),
            row(["ucx", "shm", "best"], 300, 2e6, 5e6),
        ];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds)).collect();
        assert_eq!(verdicts, [("V1", false), ("V2", false)]);
        assert_eq!(rows[2].fields(&rows).value("to_pronto"), Some(&serde_json::json!(1.5)));
    }

    #[test]
    fn nothing_is_claimed_of_who_was_not_measured() {
        assert!(claims(&[row(["ucx", "shm", "best"], 300, 2e6, 5e6)]).is_empty());
    }
}
