//! `peers`: calls of several lengths and a pipelined load over Pronto, other projects' libraries and bare sockets, in turns.

use serde_json::Value;

use crate::claim::Claim;
use crate::experiment::{Cpus, Experiment, Rounds as Length, Run};
use crate::params::Axis;
use crate::peers::build;
use crate::peers::line_up::{self, Participant};
use crate::peers::round::{Calls, Rounds};
use crate::peers::{MORE_SIZES, PAYLOAD, WINDOW};
use crate::report::{Fields, Report, decimals};
use crate::sample::approximate;

/// Every round of a participant is a fresh pair of processes; rounds of all participants take turns.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "peers",
    question: "How does a call compare with the same call over other libraries?",
    takes: [430, 110],
    about: "the same calls over Pronto, tarpc, tonic, iceoryx2, UCX, Open MPI, libfabric and bare sockets, in turns",
    axes: &[
        Axis::new(
            "peer",
            "Only these projects",
            &["raw", "pronto", "tarpc", "tonic", "iceoryx2", "ucx", "openmpi", "libfabric"],
        ),
        Axis::new("provider", "Only over these", &["shm", "tcp"]),
        Axis::new("setting", "Only so set", &["default", "best", "into", "place", "tagged", "block"]),
    ],
    cpus: Cpus::Two,
    // 30 participants take seven minutes, or 100 s in a quick run.
    rounds: [Length::new(10, 500), Length::new(3, 150)],
    claims: &["V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "V9", "V10", "V11", "V12"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let params = run.params;
    let mut rows: Vec<_> = line_up::ALL
        .iter()
        .filter(|one| {
            params.keeps("peer", one.peer)
                && params.keeps("provider", one.provider)
                && params.keeps("setting", one.setting)
        })
        .map(|one| Row { one, rounds: Rounds::default(), failed: None })
        .collect();
    let programs = rows.iter().filter_map(|row| Some((row.one.program()?, row.one.peer))).collect();
    let built = build::all(&programs, &mut report);
    rows.retain(|row| row.one.program().is_none_or(|program| built.contains_key(&program)));
    // Measured before any thread is pinned, because the result has to hold for two CPUs.
    let wake_up = pronto_node::wake_up_cost();
    run.begin(rows.len());
    let cpus = run.cpus;
    run.in_turns(
        &mut rows,
        |row| row.one.title(),
        |row, budget| {
            if row.failed.is_none()
                && let Err(error) = row.one.round(&built, cpus, budget, &mut row.rounds)
            {
                // A failure of ours ends the run; a failure of others is only reported.
                anyhow::ensure!(row.one.program().is_some(), "{}: {error:#}", row.one.peer);
                row.failed = Some(format!("{error:#}"));
            }
            Ok(())
        },
    )?;
    for Row { one, failed, .. } in &rows {
        if let Some(why) = failed {
            report.note(format!(
                "skipped: {} over {}, {}: a round failed: {why}",
                one.peer, one.provider, one.setting
            ));
        }
    }
    rows.retain(|row| row.failed.is_none());
    report.params = run
        .fields()
        .with(
            "processes",
            "a fresh caller and a fresh server for each round, each pinned; bare sockets: two threads",
        )
        .with("window", WINDOW)
        .with("wake_up_ns", wake_up.0);
    report.claims = claims(&rows);
    report.rows = rows.iter().map(|row| row.fields(&rows)).collect();
    for size in MORE_SIZES {
        let measured = |row: &&Row| row.calls(size).is_some_and(|calls| calls.all.operations() > 0);
        report.rows.extend(rows.iter().filter(measured).map(|row| row.fields_of(size, &rows)));
    }
    Ok(report)
}

/// A selected participant.
struct Row {
    one: &'static Participant,
    rounds: Rounds,
    /// Reason for the end of its rounds, if one failed.
    failed: Option<String>,
}

impl Row {
    fn fields(&self, all: &[Self]) -> Fields {
        let pronto = all.iter().find(|row| row.is("pronto", self.one.provider, "best"));
        let to_pronto = |of: fn(&Self) -> f64| pronto.map(|pronto| decimals(of(self) / of(pronto), 2));
        let call = self.rounds.calls.all.sample();
        let [cpu_ns, switches, wakes] = self.rounds.each();
        Fields::default()
            .with("peer", self.one.peer)
            .with("provider", self.one.provider)
            .with("setting", self.one.setting)
            .with("size", PAYLOAD)
            .with("version", self.rounds.version.clone())
            .with("p50_ns", call.p50_ns)
            .with("aa", decimals(self.rounds.calls.a_to_a(), 2))
            .with("to_pronto", to_pronto(Self::p50))
            .with("p99_ns", call.p99_ns)
            .with("batch_ns", decimals(call.batch_ns, 1))
            .with("rpc_per_s", decimals(self.rate(), 0))
            .with("rate_aa", decimals(self.rounds.load.a_to_a(), 2))
            .with("rate_to_pronto", to_pronto(Self::rate))
            .with("one_way_per_s", decimals(self.one_way(), 0))
            .with("cpu_ns", decimals(cpu_ns, 0))
            .with("switches", decimals(switches, 4))
            .with("wakes", decimals(wakes, 4))
            .with("how", self.one.how)
    }

    /// Returns the row of a length of which there are only single calls. It has the same columns.
    fn fields_of(&self, size: usize, all: &[Self]) -> Fields {
        let calls = self.calls(size).expect("one of the lengths");
        let pronto = all.iter().find(|row| row.is("pronto", self.one.provider, "best"));
        let to_pronto = pronto.map(|pronto| decimals(self.p50_of(size) / pronto.p50_of(size), 2));
        let call = calls.all.sample();
        Fields::default()
            .with("peer", self.one.peer)
            .with("provider", self.one.provider)
            .with("setting", self.one.setting)
            .with("size", size)
            .with("version", self.rounds.version.clone())
            .with("p50_ns", call.p50_ns)
            .with("aa", decimals(calls.a_to_a(), 2))
            .with("to_pronto", to_pronto)
            .with("p99_ns", call.p99_ns)
            .with("batch_ns", decimals(call.batch_ns, 1))
            .with("rpc_per_s", Value::Null)
            .with("rate_aa", Value::Null)
            .with("rate_to_pronto", Value::Null)
            .with("one_way_per_s", Value::Null)
            .with("cpu_ns", Value::Null)
            .with("switches", Value::Null)
            .with("wakes", Value::Null)
            .with("how", self.one.how)
    }

    /// Returns the calls of one of [`MORE_SIZES`].
    fn calls(&self, size: usize) -> Option<&Calls> {
        let index = MORE_SIZES.iter().position(|known| *known == size)?;
        Some(&self.rounds.more[index])
    }

    fn p50_of(&self, size: usize) -> f64 {
        self.calls(size).map_or(f64::NAN, |calls| approximate(calls.all.sample().p50_ns))
    }

    fn is(&self, peer: &str, provider: &str, setting: &str) -> bool {
        (self.one.peer, self.one.provider, self.one.setting) == (peer, provider, setting)
    }

    fn p50(&self) -> f64 {
        approximate(self.rounds.calls.all.sample().p50_ns)
    }

    fn rate(&self) -> f64 {
        self.rounds.load.per_second()
    }

    fn one_way(&self) -> f64 {
        self.rounds.stream.per_second()
    }
}

/// Evaluates the bars that compare with peers. Each peer counts with its better setting in each row.
fn claims(rows: &[Row]) -> Vec<Claim> {
    over_shm(rows).into_iter().chain(over_tcp(rows)).chain(pages(rows)).flatten().collect()
}

fn over_shm(rows: &[Row]) -> [Option<Claim>; 3] {
    let all = Rows(rows);
    let ours = all.one("pronto", "shm", "best");
    let one_way = all.most("ucx", "shm", Row::one_way);
    [
        at_most("V1", "both polling", 0.8, ours.map(Row::p50), all.quickest("ucx", "shm")),
        at_least("V2", "both polling", 0.75, ours.map(Row::rate), one_way),
        at_most("V3", "both polling", 1.0, ours.map(Row::p50), all.quickest("iceoryx2", "shm")),
    ]
}

fn over_tcp(rows: &[Row]) -> [Option<Claim>; 6] {
    let all = Rows(rows);
    let [adaptive, spinning, blocking] =
        ["default", "best", "block"].map(|setting| all.one("pronto", "tcp", setting));
    let raw = |setting| all.one("raw", "tcp", setting).map(Row::p50);
    let tarpc = || all.most("tarpc", "tcp", Row::rate);
    [
        at_most("V4", "", 1.1, blocking.map(Row::p50), raw("block")),
        at_most("V5", "", 1.15, spinning.map(Row::p50), raw("best")),
        at_most("V6", "", 1.0, spinning.map(Row::p50), all.quickest("ucx", "tcp")),
        at_least("V7", "", 8.0, adaptive.map(Row::rate), tarpc()),
        at_least("V8", "", 2.5, blocking.map(Row::rate), tarpc()),
        at_least("V9", "", 10.0, spinning.map(Row::rate), all.most("tonic", "tcp", Row::rate)),
    ]
}

/// Evaluates the bars of pages over shared memory, both sides polling: received into memory of the program on both sides, like tagged
/// messages, and in place, like active messages.
fn pages(rows: &[Row]) -> [Option<Claim>; 3] {
    let all = Rows(rows);
    let p50 = |peer: &str, setting: &str, size| {
        let p50 = all.one(peer, "shm", setting)?.p50_of(size);
        (p50.is_finite() && p50 > 0.0).then_some(p50)
    };
    let claim = |id, detail: &str, bar, [ours, theirs]: [&str; 2], size| {
        at_most(id, detail, bar, p50("pronto", ours, size), p50("ucx", theirs, size))
    };
    [
        claim("V10", "received into memory of the caller", 0.8, ["into", "tagged"], 4096),
        claim("V11", "in place", 1.0, ["place", "place"], 4096),
        claim("V12", "received into memory of the caller", 0.9, ["into", "tagged"], 65_536),
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
        let rows = self.0.iter().filter(move |row| (row.one.peer, row.one.provider) == (peer, provider));
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
    detail: &str,
    bar: f64,
    ours: Option<f64>,
    theirs: Option<f64>,
) -> Option<Claim> {
    Some(Claim::at_most(id, detail, bar, ours? / theirs?, 2))
}

fn at_least(
    id: &'static str,
    detail: &str,
    bar: f64,
    ours: Option<f64>,
    theirs: Option<f64>,
) -> Option<Claim> {
    Some(Claim::at_least(id, detail, bar, ours? / theirs?, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: [&str; 3], p50_ns: u64, rpc_per_s: u64, one_way_per_s: u64) -> Row {
        let is = |one: &&Participant| [one.peer, one.provider, one.setting] == name;
        let one = line_up::ALL.iter().find(is).unwrap();
        let mut rounds = Rounds::default();
        let text = format!(
            "single {p50_ns} 1\nload {rpc_per_s} 1000000000\nstream {one_way_per_s} 1000000000\n\
             size 4096\nsingle {p50_ns} 1\nsize 65536\nsingle {p50_ns} 1\n"
        );
        rounds.take(&text).unwrap();
        Row { one, rounds, failed: None }
    }

    #[test]
    fn a_peer_counts_with_its_better_setting() {
        let rows = [
            row(["pronto", "shm", "best"], 200, 8_000_000, 9_000_000),
            row(["ucx", "shm", "default"], 240, 1_000_000, 14_000_000),
            row(["ucx", "shm", "best"], 300, 2_000_000, 5_000_000),
        ];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(verdicts, [("V1", false), ("V2", false)]);
        assert_eq!(rows[2].fields(&rows).value("to_pronto"), Some(&serde_json::json!(1.5)));
    }

    #[test]
    fn every_peer_can_be_the_better_one() {
        let ours = |slower: u64| {
            let row = |name, p50, rate, one_way| row(name, p50 * slower, rate / slower, one_way / slower);
            [
                row(["pronto", "shm", "best"], 150, 8_000_000, 9_000_000),
                row(["pronto", "shm", "into"], 150, 8_000_000, 9_000_000),
                row(["pronto", "shm", "place"], 150, 8_000_000, 9_000_000),
                row(["pronto", "tcp", "default"], 10_000, 900_000, 900_000),
                row(["pronto", "tcp", "best"], 8_000, 1_000_000, 1_000_000),
                row(["pronto", "tcp", "block"], 20_000, 300_000, 300_000),
            ]
        };
        let theirs = || {
            [
                row(["ucx", "shm", "best"], 300, 2_000_000, 9_000_000),
                row(["ucx", "shm", "tagged"], 300, 2_000_000, 9_000_000),
                row(["ucx", "shm", "place"], 300, 2_000_000, 9_000_000),
                row(["iceoryx2", "shm", "default"], 300, 1_000_000, 1_000_000),
                row(["raw", "tcp", "block"], 20_000, 50_000, 50_000),
                row(["raw", "tcp", "best"], 8_000, 100_000, 100_000),
                row(["ucx", "tcp", "best"], 9_000, 100_000, 100_000),
                row(["tarpc", "tcp", "default"], 30_000, 100_000, 100_000),
                row(["tonic", "tcp", "default"], 90_000, 50_000, 50_000),
            ]
        };
        let verdicts = |slower| {
            let rows: Vec<_> = ours(slower).into_iter().chain(theirs()).collect();
            claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect::<Vec<_>>()
        };
        let each = |holds| EXPERIMENT.claims.iter().map(|id| (*id, holds)).collect::<Vec<_>>();
        assert_eq!((verdicts(1), verdicts(4)), (each(true), each(false)));
    }

    #[test]
    fn there_are_no_claims_about_peers_that_were_not_measured() {
        assert!(claims(&[row(["ucx", "shm", "best"], 300, 2_000_000, 5_000_000)]).is_empty());
    }
}
