//! `load`: latency against offered load (open loop), incast, and a slow receiver.

use core::time::Duration;

use anyhow::Context as _;
use pronto::{Peer, WaitPolicy};

use crate::claim::Claim;
use crate::echo::{Provider, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, Choice as _, choices};
use crate::placement::apart;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};
use crate::traffic::drive::{Open, calls};
use crate::traffic::messages::{Call32, Slow};
use crate::traffic::open_loop::open_loop;
use crate::traffic::receiver::Receiver;
use crate::workers;

/// The load is a share of the rate that the same senders reach with 16 open calls each, measured in the same minute.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "load",
    question: "How does latency grow with the offered load?",
    takes: [65, 15],
    about: "latency against offered load without coordinated omission; incast; a slow receiver",
    axes: &[Axis::PROVIDER, Axis::new("scenario", "Only these", Scenario::NAMES)],
    cpus: Cpus::Two,
    // 48 rows take a minute, or 10 s in a quick run. Each round is long enough for an overload to show.
    rounds: [Rounds::new(2, 500), Rounds::new(2, 80)],
    claims: &["O1", "O2"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let scenarios = Scenario::kept(run.params, "scenario");
    let providers = Provider::kept(run.params);
    run.begin(providers.len() * scenarios.len() * LOADS.len());
    let mut rows = Vec::new();
    for provider in providers {
        for scenario in &scenarios {
            let case = Case { provider, scenario: *scenario, time: run.budget };
            rows.extend(apart(run.cpus.server, |_| case.run(run))?);
        }
    }
    Ok(Report {
        params: Fields::default()
            .with("cpus", run.placement.numbers())
            .with("receiver", "separate process, pinned; spins")
            .with("size", 32)
            .with("arrivals", "at fixed intervals; latency counts from when a call was due")
            .with("incast_senders", INCAST)
            .with("slow_handler_us", 20)
            .with("rounds", run.rounds)
            .with("time_ms", decimals(run.budget.as_secs_f64() * 1e3, 0)),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

choices! {
    /// Senders and receiver of a row.
    enum Scenario {
        One = "one",
        /// Several nodes at the same time.
        Incast = "incast",
        /// One sender, and a handler that takes 20 us.
        Slow = "slow",
    }
}

impl Scenario {
    const fn senders(self) -> u16 {
        if matches!(self, Self::Incast) { INCAST } else { 1 }
    }
}

struct Case {
    provider: Provider,
    scenario: Scenario,
    time: Duration,
}

/// One row.
#[derive(Debug)]
struct Row {
    provider: Provider,
    scenario: Scenario,
    share: f64,
    offered: f64,
    sent: u64,
    seen: Recorder,
}

impl Case {
    fn run(&self, run: &mut Run<'_>) -> anyhow::Result<Vec<Row>> {
        let wait = Wait(WaitPolicy::Spin);
        let receiver = Receiver::spawn(self.provider, wait, run.cpus.server)?;
        let nodes: Vec<_> = (0..self.scenario.senders())
            .map(|sender| receiver.meet_as(sender, wait))
            .collect::<anyhow::Result<_>>()?;
        let peers: Vec<&Peer> = nodes.iter().map(|(_, peer)| peer).collect();
        let answered = together(&peers, |peer| match self.scenario {
            Scenario::Slow => calls(peer, &Slow {}, Open(16), self.time),
            Scenario::One | Scenario::Incast => calls(peer, &CALL, Open(16), self.time),
        })?;
        let capacity = approximate(answered.iter().sum()) / self.time.as_secs_f64();
        let mut rows: Vec<Row> = LOADS.iter().map(|share| self.row(*share, share * capacity)).collect();
        let label = |row: &Row| format!("{} {} {}", self.provider.name(), self.scenario.name(), row.share);
        run.in_turns(&mut rows, label, |row, _| self.round(&peers, row))?;
        Ok(rows)
    }

    fn row(&self, share: f64, offered: f64) -> Row {
        let (provider, scenario, seen) = (self.provider, self.scenario, Recorder::new());
        Row { provider, scenario, share, offered, sent: 0, seen }
    }

    fn round(&self, peers: &[&Peer], row: &mut Row) -> anyhow::Result<()> {
        let interval = Duration::from_secs_f64(approximate(peers.len() as u64) / row.offered);
        let loops = together(peers, |peer| {
            let mut seen = Recorder::new();
            let sent = match self.scenario {
                Scenario::Slow => open_loop(peer, &Slow {}, interval, self.time, &mut seen)?,
                Scenario::One | Scenario::Incast => open_loop(peer, &CALL, interval, self.time, &mut seen)?,
            };
            Ok((sent, seen))
        })?;
        row.seen.as_round(|all| loops.iter().for_each(|(_, seen)| all.add(seen)));
        row.sent += loops.iter().map(|(sent, _)| sent).sum::<u64>();
        Ok(())
    }
}

/// Runs `work` for all peers concurrently.
fn together<T: Send>(
    peers: &[&Peer],
    work: impl Fn(&Peer) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    workers::each(peers, |peer| work(peer).context("a sender failed")).into_iter().collect()
}

impl Row {
    fn fields(&self) -> Fields {
        let seen = self.seen.sample();
        Fields::default()
            .with("provider", self.provider.name())
            .with("scenario", self.scenario.name())
            .with("senders", self.scenario.senders())
            .with("load", decimals(self.share, 2))
            .with("offered_per_s", decimals(self.offered, 0))
            .with("sent", self.sent)
            .with("p50_ns", seen.p50_ns)
            .with("p99_ns", seen.p99_ns)
            .with("p999_ns", seen.p999_ns)
            .with_aa(&seen)
    }
}

/// Returns the largest load up to which the median stays within ten times that of the smallest.
fn knee(rows: &[&Row]) -> Option<f64> {
    let first = rows.first()?;
    let p50_ns = |row: &Row| row.seen.sample().p50_ns;
    let within = rows.iter().take_while(|row| p50_ns(row) <= 10 * p50_ns(first));
    within.last().map(|row| row.share)
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let of = |provider: Provider| {
        let rows: Vec<&Row> =
            rows.iter().filter(|row| (row.provider, row.scenario) == (provider, Scenario::One)).collect();
        let id = if provider == Provider::Shm { "O1" } else { "O2" };
        let detail = "one sender; the last load whose median is within ten times that of the smallest";
        knee(&rows).map(|knee| Claim::at_least(id, detail, HALF, knee, 2))
    };
    Provider::ALL.into_iter().filter_map(of).collect()
}

const CALL: Call32 = Call32 { bytes: [7; 32] };

/// Shares of the closed-loop rate; the last exceeds the capacity.
const LOADS: [f64; 8] = [0.05, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.1];
const HALF: f64 = 0.5;

/// Number of nodes that send to one.
const INCAST: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(share: f64, p50_ns: u64) -> Row {
        let mut seen = Recorder::new();
        seen.record_single(Duration::from_nanos(p50_ns));
        Row { provider: Provider::Shm, scenario: Scenario::One, share, offered: 1e6, sent: 1, seen }
    }

    #[test]
    fn the_knee_is_before_the_first_load_that_is_ten_times_slower() {
        let rows = [row(0.05, 300), row(0.3, 400), row(0.5, 4_000), row(0.7, 500)];
        assert_eq!(knee(&rows.iter().collect::<Vec<_>>()), Some(0.3));
        assert_eq!(claims(&rows).iter().map(|claim| claim.holds()).collect::<Vec<_>>(), [false]);
        assert_eq!(knee(&[]), None);
        assert!(claims(&[]).is_empty());
    }
}
