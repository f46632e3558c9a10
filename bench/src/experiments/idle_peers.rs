//! `idle-peers`: the latency of a call to a node that also polls 15 idle connections.

use core::hint::black_box;
use core::time::Duration;

use anyhow::Context as _;
use pronto::{Node, Peer, WaitPolicy};

use crate::echo::{Provider, Wait};
use crate::experiment::Experiment;
use crate::params::{Axis, Params};
use crate::placement::{Placement, alone};
use crate::progress::Progress;
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};
use crate::traffic::messages::Call32;
use crate::traffic::receiver::Receiver;

/// The experiment. Two receivers, one of them with 15 more peers, share a CPU and take turns; the other one is stopped meanwhile.
#[derive(Debug)]
pub(crate) struct IdlePeers;

impl Experiment for IdlePeers {
    fn name(&self) -> &'static str {
        "idle-peers"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "latency of a call to a node that also polls 15 idle connections"
    }

    fn axes(&self) -> &'static [Axis] {
        &[Axis { column: "provider", help: "Only these transports", values: &["shm", "tcp"] }]
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let providers: Vec<_> =
            Provider::ALL.into_iter().filter(|p| params.keeps("provider", p.name())).collect();
        progress.begin(u64::from(rounds) * providers.len() as u64);
        let mut rows = Vec::new();
        for provider in providers {
            let receivers = [1, CONNECTIONS].map(|connections| {
                let wait = Wait(WaitPolicy::Spin);
                Receiver::spawn(provider, wait, cpus.server).map(|receiver| (connections, receiver))
            });
            let [few, many] = receivers;
            let receivers = [few?, many?];
            let mut measured =
                [1, CONNECTIONS].map(|connections| Row { provider, connections, seen: Recorder::new() });
            alone(cpus.caller, || {
                let met = [meet(&receivers[0])?, meet(&receivers[1])?];
                for _ in 0..rounds {
                    progress.step(provider.name());
                    for (place, row) in measured.iter_mut().enumerate() {
                        let stopped = receivers[1 - place].1.child.stop()?;
                        row.round(&met[place].1, budget)?;
                        drop(stopped);
                    }
                }
                Ok(())
            })?;
            rows.extend(measured);
        }
        let seen: Vec<(Row, Sample)> = rows
            .into_iter()
            .map(|row| {
                let sample = row.seen.sample();
                (row, sample)
            })
            .collect();
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("size", 32)
            .with("wait", "spin")
            .with("idle_peers", "sleeping nodes of the calling process")
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0));
        report.claims = claims(&seen);
        report.rows = seen.iter().map(|(row, sample)| row.fields(sample, &seen)).collect();
        Ok(report)
    }
}

/// All connections of a receiver; calls go over the first one.
fn meet((connections, receiver): &(u16, Receiver)) -> anyhow::Result<(Vec<Node>, Peer)> {
    let (first, peer) = receiver.meet(Wait(WaitPolicy::Spin))?;
    let mut nodes = vec![first];
    for sender in 1..*connections {
        nodes.push(receiver.meet_as(sender, Wait(WaitPolicy::Block))?.0);
    }
    Ok((nodes, peer))
}

/// One row.
#[derive(Debug)]
struct Row {
    provider: Provider,
    connections: u16,
    seen: Recorder,
}

impl Row {
    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let call = Call32 { bytes: [7; 32] };
        let op = || {
            peer.call(black_box(&call)).map(|reply| {
                black_box(reply.bytes);
            })
        };
        self.seen.round(budget, op).context("a call failed")
    }

    fn fields(&self, sample: &Sample, all: &[(Self, Sample)]) -> Fields {
        Fields::default()
            .with("provider", self.provider.name())
            .with("connections", self.connections)
            .with_sample(sample)
            .with("to_one", decimals(to_one(self, sample, all), 3))
    }
}

/// Returns the median as a multiple of that with one connection.
fn to_one(row: &Row, sample: &Sample, all: &[(Row, Sample)]) -> f64 {
    let one = all.iter().find(|(other, _)| other.provider == row.provider && other.connections == 1);
    one.map_or(f64::NAN, |(_, one)| approximate(sample.p50_ns) / approximate(one.p50_ns))
}

fn claims(rows: &[(Row, Sample)]) -> Vec<Claim> {
    let crowded =
        rows.iter().find(|(row, _)| row.provider == Provider::Shm && row.connections == CONNECTIONS);
    let claim = crowded.map(|(row, sample)| {
        let times = to_one(row, sample, rows);
        Claim {
            id: "I1",
            text: "shm, 32 B, both polling: call time with 15 idle connections as a multiple of that without, at most".into(),
            published: decimals(MOST, 2),
            measured: decimals(times, 3),
            holds: times <= MOST,
        }
    });
    claim.into_iter().collect()
}

/// Connections of the crowded receiver: the one that carries the calls, and 15 others.
const CONNECTIONS: u16 = 16;

/// The bar.
const MOST: f64 = 1.1;

/// 4 rows take 4 s; a round is far below the limit after which a stopped receiver counts as down.
const ROUNDS: u32 = 12;
const BUDGET: Duration = Duration::from_millis(80);

/// 4 rows take 1 s.
const QUICK_ROUNDS: u32 = 5;
const QUICK_BUDGET: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_is_held_against_the_lone_connection_of_its_transport() {
        let row = |provider, connections, p50_ns| {
            let row = Row { provider, connections, seen: Recorder::new() };
            (row, Sample { p50_ns, ..Sample::default() })
        };
        let rows = [
            row(Provider::Shm, 1, 200),
            row(Provider::Shm, 16, 230),
            row(Provider::Tcp, 1, 9_000),
            row(Provider::Tcp, 16, 9_900),
        ];
        let found: Vec<_> =
            claims(&rows).iter().map(|claim| (claim.id, claim.measured.clone(), claim.holds)).collect();
        assert_eq!(found, [("I1", serde_json::json!(1.15), false)]);
        assert_eq!(rows[3].0.fields(&rows[3].1, &rows).value("to_one"), Some(&serde_json::json!(1.1)));
        assert!(claims(&rows[2..]).is_empty());
    }
}
