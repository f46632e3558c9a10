//! `mix`: the message types of a distributed OS, in the proportions of the comm-layer paper, between four nodes at full speed.

use core::time::Duration;
use std::thread;

use minidos::account::TypeTraffic;
use minidos::messages::Kind;

use crate::claim::Claim;
use crate::echo::Provider;
use crate::experiment::{Experiment, Run};
use crate::mix::{NODES, Nodes, Seen};
use crate::params::Axis;
use crate::progress::Progress;
use crate::report::{Fields, Report, decimals};
use crate::sample::approximate;

/// Every message carries its sender and its position in its stream. A lost, duplicated, reordered or corrupt message fails the run.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mix",
    question: "Does the message mix of a distributed OS arrive whole, in order, and how fast?",
    takes: [40, 10],
    paper: Some("comm-layer"),
    figure: Some("Fig. 2"),
    about: "all message types of a distributed OS, in the paper's proportions, between four nodes at full speed",
    axes: &[Axis::PROVIDER],
    seconds: Some([SECONDS, QUICK_SECONDS]),
    claims: &["M1"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let seconds = EXPERIMENT.seconds(run.params);
    let providers = Provider::kept(run.params);
    run.progress.begin(u64::from(seconds) * providers.len() as u64);
    let mut report = Report::default();
    let mut all = Seen::default();
    for provider in providers {
        let seen = measure(provider, seconds, run.progress)?;
        report.rows.extend(rows(provider, &seen));
        all.add(&seen);
    }
    report.claims = claims(&all);
    report.params = Fields::default()
        .with("nodes", NODES)
        .with("seconds", seconds)
        .with("placement", "separate processes, not pinned; adaptive waiting; handlers on the pool")
        .with("lost", all.lost())
        .with("duplicated", all.faults.duplicated)
        .with("out_of_order", all.faults.out_of_order)
        .with("corrupt", all.faults.corrupt)
        .with("waits_for_room", all.waits_for_room);
    Ok(report)
}

fn measure(provider: Provider, seconds: u32, progress: &mut Progress) -> anyhow::Result<Seen> {
    let mut nodes = Nodes::start(provider, Duration::from_secs(seconds.into()))?;
    nodes.go()?;
    for _ in 0..seconds {
        progress.step(provider.name());
        thread::park_timeout(Duration::from_secs(1));
    }
    let seen = nodes.seen()?;
    let faults = seen.faults;
    anyhow::ensure!(
        seen.wrong() == 0,
        "over {}: {} lost, {} duplicated, {} out of order, {} corrupt",
        provider.name(),
        seen.lost(),
        faults.duplicated,
        faults.out_of_order,
        faults.corrupt
    );
    Ok(seen)
}

/// Returns one row for each type, and one for all.
fn rows(provider: Provider, seen: &Seen) -> Vec<Fields> {
    let types = Kind::ALL.iter().map(|kind| (kind.name(), seen.traffic.of(*kind)));
    types
        .chain([(ALL, sum(seen))])
        .map(|(name, traffic)| {
            Fields::default()
                .with("provider", provider.name())
                .with("type", name)
                .with("count", traffic.sent)
                .with("bytes", traffic.bytes)
                .with("p50_ns", traffic.quantile(0.5))
                .with("p99_ns", traffic.quantile(0.99))
                .with("messages_per_s", per_second(traffic.sent, seen.elapsed_ns))
                .with("bytes_per_s", per_second(traffic.bytes, seen.elapsed_ns))
                .with("aa", decimals(approximate(seen.decks[0]) / approximate(seen.decks[1]), 2))
                .with("under_100", decimals(traffic.lengths.small_messages(), 3))
                .with("over_1_kib", decimals(traffic.lengths.large_bytes(), 3))
        })
        .collect()
}

fn sum(seen: &Seen) -> TypeTraffic {
    let mut sum = TypeTraffic::default();
    for of_type in &seen.traffic.0 {
        sum.sent += of_type.sent;
        sum.received += of_type.received;
        sum.bytes += of_type.bytes;
        sum.lengths.add(&of_type.lengths);
        sum.latencies.extend_from_slice(&of_type.latencies);
    }
    sum
}

fn per_second(count: u64, elapsed_ns: u64) -> u64 {
    let per_second = u128::from(count) * 1_000_000_000 / u128::from(elapsed_ns.max(1));
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Evaluates that all messages arrived as they were sent.
fn claims(seen: &Seen) -> Vec<Claim> {
    vec![Claim::new("M1", "", seen.wrong(), seen.wrong() == 0).bar(0)]
}

/// Measuring time of each transport.
const SECONDS: u32 = 15;
const QUICK_SECONDS: u32 = 3;

/// Name of the row with the sum of the others.
const ALL: &str = "all";

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten small messages and one large one in half a second.
    fn seen() -> Seen {
        let of = |length, messages| [(length, messages)].into_iter().collect();
        let mut seen = Seen { elapsed_ns: 500_000_000, decks: [6, 5], ..Seen::default() };
        seen.traffic.0[Kind::Signal.index()] =
            TypeTraffic { sent: 10, received: 10, bytes: 200, lengths: of(20, 10), ..TypeTraffic::default() };
        seen.traffic.0[Kind::RemotePageFlush.index()] =
            TypeTraffic { sent: 1, received: 1, bytes: 4000, lengths: of(4000, 1), ..TypeTraffic::default() };
        seen
    }

    #[test]
    fn the_last_row_sums_up_one_for_each_type() {
        let rows = rows(Provider::Shm, &seen());
        assert_eq!(rows.len(), Kind::ALL.len() + 1);
        let all = rows.last().unwrap();
        let of = |column| all.value(column).unwrap().clone();
        assert_eq!(
            [of("type"), of("count"), of("bytes")],
            ["all".into(), 11.into(), serde_json::Value::from(4200)]
        );
        assert_eq!([of("messages_per_s"), of("bytes_per_s")], [22, 8400].map(serde_json::Value::from));
        assert_eq!([of("under_100"), of("over_1_kib")], [0.909, 0.952].map(serde_json::Value::from));
        assert_eq!(of("aa"), 1.2);
    }

    #[test]
    fn a_message_that_does_not_arrive_or_arrives_wrong_shows() {
        let verdict = |seen: &Seen| claims(seen).last().map(|claim| (claim.measured.clone(), claim.holds()));
        assert_eq!(verdict(&seen()), Some((0.into(), true)));
        let mut lost = seen();
        lost.traffic.0[Kind::Signal.index()].received = 9;
        assert_eq!(verdict(&lost), Some((1.into(), false)));
        let mut wrong = seen();
        (wrong.faults.duplicated, wrong.faults.out_of_order, wrong.faults.corrupt) = (1, 2, 3);
        assert_eq!(verdict(&wrong), Some((6.into(), false)));
    }
}
