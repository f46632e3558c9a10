//! `strangers`: the latency of calls while connections of strangers arrive, at the node or at a bare listener.

use core::time::Duration;

use anyhow::Context as _;
use pronto::{Node, Peer, WaitPolicy};

use crate::claim::Claim;
use crate::clock;
use crate::echo::{CLIENT, SERVER, Server, Wait, call_32};
use crate::experiment::{Experiment, Rounds, Run};
use crate::params::Axis;
use crate::placement::{CpuPair, alone};
use crate::report::{Fields, Report, decimals};
use crate::sample::Recorder;
use crate::strangers::Strangers;
use crate::tls::certificates::Certificates;

/// The callee, the strangers and their bare listener are other processes. Rounds of all rows alternate.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "strangers",
    question: "How much do connections of strangers delay the calls of a peer?",
    takes: [380, 15],
    about: "32 B calls over TCP while hostile connections arrive, at the node or at a listener that closes them",
    axes: &[Axis::new("tls", "Only links with TLS, or without", &["with", "without"])],
    // Six rows take 6 min, or 12 s in a quick run.
    rounds: [Rounds::new(10, 6_000), Rounds::new(2, 1_000)],
    claims: &["E5", "E6"],
    run,
    ..Experiment::DEFAULT
};

/// Connections per second: 10,000 in a minute.
const PER_S: u32 = 167;
/// Most that the 99th percentile may be, as a multiple of that next to a bare listener.
const MOST: f64 = 2.0;

/// The target of the strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Nobody,
    Bare,
    Node,
}

struct Row {
    tls: bool,
    target: Target,
    calls: Recorder,
    connections: u64,
}

/// A server, its peer, and the strangers.
struct Rig {
    server: Server,
    peer: Peer,
    _caller: Node,
    strangers: Strangers,
}

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let certificates = Certificates::create(&[SERVER, CLIENT])?;
    let kept = run.params.kept("tls", [false, true], |tls| if *tls { "with" } else { "without" });
    let new = |tls: bool| {
        [Target::Nobody, Target::Bare, Target::Node].map(|target| {
            let calls = Recorder::new();
            Row { tls, target, calls, connections: 0 }
        })
    };
    let (mut rows, cpus): (Vec<_>, _) = (kept.into_iter().flat_map(new).collect(), run.cpus);
    run.begin(rows.len());
    alone(cpus.caller, || {
        let mut rigs = [Rig::start(None, cpus)?, Rig::start(Some(&certificates), cpus)?];
        run.in_turns(
            &mut rows,
            |row| format!("{} TLS, {}", if row.tls { "with" } else { "without" }, row.target.name()),
            |row, budget| rigs[usize::from(row.tls)].round(row, budget),
        )
    })?;
    Ok(Report {
        params: run
            .fields()
            .with("callee", "separate process, pinned")
            .with("connections_per_s", PER_S)
            .with("wait", "adaptive"),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

impl Rig {
    fn start(certificates: Option<&Certificates>, cpus: CpuPair) -> anyhow::Result<Self> {
        let wait = Wait(WaitPolicy::Adaptive);
        let server = Server::spawn_trusting(certificates.map(Certificates::folder), wait, cpus.server)?;
        let (caller, peer) = server.meet(wait)?;
        Ok(Self { server, peer, _caller: caller, strangers: Strangers::spawn(cpus.server)? })
    }

    fn round(&mut self, row: &mut Row, budget: Duration) -> anyhow::Result<()> {
        let count = u32::try_from(budget.as_millis())? * PER_S / 1_000;
        let Self { server, peer, strangers, .. } = self;
        let target = match row.target {
            Target::Nobody => None,
            Target::Bare => Some(strangers.bare),
            Target::Node => Some(server.socket_address()?),
        };
        let calls = &mut row.calls;
        let mut work = || calls_for(calls, budget, peer);
        let Some(target) = target else { return work() };
        strangers.with_connections(target, count, budget, work)?;
        row.connections += u64::from(count);
        Ok(())
    }
}

/// Makes calls one after another, and times each. A failed call ends the experiment.
fn calls_for(into: &mut Recorder, budget: Duration, peer: &Peer) -> anyhow::Result<()> {
    let since = clock::now();
    into.as_round(|into| {
        while since.elapsed() < budget {
            let before = clock::now();
            call_32(peer).context("a call of a peer while strangers connect")?;
            into.record_single(before.elapsed());
        }
        Ok(())
    })
}

impl Target {
    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Bare => "bare listener",
            Self::Node => "node",
        }
    }
}

impl Row {
    fn fields(&self) -> Fields {
        let sample = self.calls.sample();
        Fields::default()
            .with("tls", if self.tls { "with" } else { "without" })
            .with("strangers_at", self.target.name())
            .with("connections", self.connections)
            .with("calls", sample.count)
            .with("p50_ns", sample.p50_ns)
            .with("p99_ns", sample.p99_ns)
            .with("p999_ns", sample.p999_ns)
            .with_aa(&sample)
    }
}

/// Judges the links without TLS and those with it, if their rows were measured.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let p99 = |tls: bool, target: Target| {
        let row = rows.iter().find(|row| (row.tls, row.target) == (tls, target))?;
        Some(row.calls.sample().p99_ns as f64)
    };
    let judge = |(id, tls)| {
        let [alone, bare, node] = [Target::Nobody, Target::Bare, Target::Node].map(|target| p99(tls, target));
        let (alone, bare, node) = (alone?, bare?, node?);
        let detail = format!(
            "{} us next to a node, {} us next to a bare listener, {} us without strangers",
            decimals(node / 1e3, 0),
            decimals(bare / 1e3, 0),
            decimals(alone / 1e3, 0)
        );
        Some(Claim::at_most(id, detail, MOST, node / bare, 2))
    };
    [("E5", false), ("E6", true)].into_iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_compares_the_tails_of_both_listeners() {
        let row = |target, us| {
            let mut calls = Recorder::new();
            calls.record_single(Duration::from_micros(us));
            Row { tls: true, target, calls, connections: 1 }
        };
        let mut rows = vec![row(Target::Nobody, 20), row(Target::Bare, 50), row(Target::Node, 99)];
        let judged =
            |rows: &[Row]| claims(rows).iter().map(|claim| (claim.id, claim.holds())).collect::<Vec<_>>();
        assert_eq!(judged(&rows), [("E6", true)]);
        rows[2] = row(Target::Node, 110);
        assert_eq!(judged(&rows), [("E6", false)]);
        rows.pop();
        assert!(judged(&rows).is_empty(), "nothing was measured");
    }
}
