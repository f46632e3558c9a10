//! `adaptive`: spin, block and adaptive waits at different call rates and numbers of competing processes, with and without a boost of the
//! woken thread.

mod claims;
mod tiers;

use core::time::Duration;

use anyhow::Context as _;
use pronto::admin::status_of;
use pronto::{Boost, Node, Peer, WaitPolicy};

use crate::child::Child;
use crate::clock;
use crate::echo::{Provider, Server, Wait, call_32};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::params::{Axis, Params};
use crate::placement::{CpuPair, alone};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, a_to_a, approximate, median};
use crate::side::{Arguments, Side};

/// Caller and service use the same waiting policy. The services take turns; those not in use are stopped.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "adaptive",
    question: "Do adaptive waits follow the better of polling and sleeping?",
    takes: [85, 45],
    paper: Some("pioman"),
    figure: Some("section 3.4"),
    about: "spin, block and adaptive waits, by call rate and number of competing processes",
    axes: &[
        Axis::new("boost", "Only these boost tiers of the service", &tiers::NAMES),
        Axis::new("wait", "Only these policies", &Wait::NAMES),
        Axis::new("competing", "Only these numbers of competing processes", &["0", "1", "4"]),
        Axis::new(
            "gap_us",
            "Only these intervals between calls, us",
            &["1", "10", "100", "1000", "10000", "100000"],
        ),
    ],
    cpus: Cpus::Two,
    // 54 rows take 80 s.
    rounds: [Rounds::new(7, 60), Rounds::new(3, 60)],
    claims: &["P3", "P4", "P24", "P7", "P5a", "P5b"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let mut report = Report::default();
    // Measured before any thread is pinned, because the result has to hold for two CPUs.
    let bound = pronto_node::wake_up_cost();
    let (tiers, missing) = tiers::granted(run.params);
    for why in missing {
        report.note(why);
    }
    let mut rows = rows(run.params, &tiers);
    let again = rows.iter().filter(|row| row.is_repeated()).count();
    run.begin(rows.len() + again);
    let bench = Bench { services: services(&rows, run.cpus)?, cpus: run.cpus };
    for _ in 0..run.rounds {
        for (competing, _) in COMPETING {
            let hogs =
                (0..competing).map(|_| Child::spawn(&SIDE, [""; 0])).collect::<anyhow::Result<Vec<_>>>()?;
            for of_gap in rows.chunk_by_mut(|one, other| one.place() == other.place()) {
                if of_gap[0].competing != competing {
                    continue;
                }
                for row in of_gap.iter_mut() {
                    run.progress.step(row.wait.name());
                    let round = bench.round(row)?;
                    row.rounds.push(round);
                }
                // The rows that others are compared with are measured before and after them.
                for row in of_gap.iter_mut().filter(|row| row.is_repeated()) {
                    run.progress.step(row.wait.name());
                    let round = bench.round(row)?;
                    row.again.push(round);
                }
            }
            drop(hogs);
        }
    }
    report.params = Fields::default()
        .with("cpus", run.placement.numbers())
        .with("provider", "shm")
        .with("size", 32)
        .with("rounds", run.rounds)
        .with("bound_ns", bound.0)
        .with("competing", "separate processes that compute and are not pinned")
        .with("cpu_ns", "CPU time of the service's process plus that of the calling thread within its calls");
    report.note(
        "`boost` applies to the service's serving thread, not to the calling thread. A service whose tier may make it \
         real-time (fifo, module) sleeps immediately, whatever policy was requested",
    );
    report.claims = claims::of(&rows, bound.0);
    if run.params.chosen().next().is_none() {
        report.claims.extend(claims::not_permitted(&report.claims));
    }
    report.note(
        "P7 uses only gaps with at least 400 calls per round, so that the p99 is not the slowest call; `again_p99_us` is the \
         p99 of the same policy in a second round after the others: it shows how much of a difference is chance",
    );
    report.rows = rows.iter().map(Row::fields).collect();
    Ok(report)
}

/// Returns the selected rows: all policies without a boost, and with one those that a boost can affect.
fn rows(params: &Params, tiers: &[Boost]) -> Vec<Row> {
    let mut rows = Vec::new();
    let gaps = params.kept("gap_us", GAPS, |gap| gap.1);
    for (competing, _) in params.kept("competing", COMPETING, |count| count.1) {
        for (gap_us, _) in &gaps {
            for tier in tiers {
                for wait in Wait::kept(params) {
                    let boosted = *tier != Boost::None;
                    if !boosted || tiers::is_shown(wait, *gap_us, competing) {
                        rows.push(Row { boost: *tier, ..Row::new(wait, *gap_us, competing) });
                    }
                }
            }
        }
    }
    rows
}

/// Starts and connects a service for each policy and tier of these rows. Each is connected once: a handshake takes CPU time from polling
/// threads, which then count the CPUs as contended for a second.
fn services(rows: &[Row], cpus: CpuPair) -> anyhow::Result<Vec<Service>> {
    let mut services: Vec<Service> = Vec::new();
    for row in rows {
        if services.iter().any(|service| row.is_of(service)) {
            continue;
        }
        let (wait, boost) = (row.wait, row.boost);
        let server = Server::spawn_boosted(Provider::Shm, wait, boost, cpus.server)?;
        let (node, peer) = alone(cpus.caller, || server.meet(wait))?;
        let got = status_of(&peer).context("the service does not report its boost")?.boost;
        anyhow::ensure!(
            got == tiers::name(boost),
            "requested boost {}, but the service got {got}",
            tiers::name(boost)
        );
        services.push(Service { wait, boost, server, _node: node, peer });
    }
    Ok(services)
}

/// A service, and the node that calls it.
#[derive(Debug)]
struct Service {
    wait: Wait,
    boost: Boost,
    server: Server,
    _node: Node,
    peer: Peer,
}

/// One policy, gap and number of computing processes.
#[derive(Debug)]
struct Row {
    boost: Boost,
    wait: Wait,
    gap_us: u64,
    competing: usize,
    rounds: Vec<Round>,
    /// A second measurement of rows that others are compared with, made where chance is large.
    again: Vec<Round>,
    all: Recorder,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    p50_ns: f64,
    p99_ns: f64,
    cpu_ns: f64,
}

impl Row {
    fn new(wait: Wait, gap_us: u64, competing: usize) -> Self {
        Self {
            boost: Boost::None,
            wait,
            gap_us,
            competing,
            rounds: Vec::new(),
            again: Vec::new(),
            all: Recorder::new(),
        }
    }

    const fn place(&self) -> (usize, u64) {
        (self.competing, self.gap_us)
    }

    fn is_repeated(&self) -> bool {
        self.competing == CROWD && self.wait.0 == WaitPolicy::Block && self.boost == Boost::None
    }

    /// Returns whether this row calls `service`.
    fn is_of(&self, service: &Service) -> bool {
        (service.wait, service.boost) == (self.wait, self.boost)
    }

    /// Returns whether a round has enough calls that its p99 is not its slowest call.
    fn is_resolved(&self) -> bool {
        Duration::from_micros(self.gap_us) <= CROWDED_GAP
    }

    /// Returns the median of `of` over all rounds, including those of the second measurement of rows that have one.
    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().chain(&self.again).map(of).collect())
    }

    fn again_p99_us(&self) -> serde_json::Value {
        decimals(median(self.again.iter().map(|round| round.p99_ns).collect()) / 1e3, 2)
    }

    fn fields(&self) -> Fields {
        Fields::default()
            .with("boost", tiers::name(self.boost))
            .with("wait", self.wait.name())
            .with("competing", self.competing)
            .with("gap_us", self.gap_us)
            .with("calls", self.all.sample().count)
            .with("p50_us", decimals(self.median(|round| round.p50_ns) / 1e3, 2))
            .with(
                "aa",
                decimals(a_to_a(&self.rounds.iter().map(|round| round.p50_ns).collect::<Vec<_>>()), 2),
            )
            .with("p99_us", decimals(self.median(|round| round.p99_ns) / 1e3, 2))
            .with("cpu_us", decimals(self.median(|round| round.cpu_ns) / 1e3, 2))
            .with("again_p99_us", (!self.again.is_empty()).then(|| self.again_p99_us()))
    }
}

/// Services of all rows, and the CPUs of both sides.
struct Bench {
    services: Vec<Service>,
    cpus: CpuPair,
}

impl Bench {
    /// Measures one round of a row, with the services of other rows stopped.
    fn round(&self, row: &mut Row) -> anyhow::Result<Round> {
        let mut stopped = Vec::new();
        for other in self.services.iter().filter(|service| !row.is_of(service)) {
            stopped.push(other.server.child.stop()?);
        }
        let service = self.services.iter().find(|service| row.is_of(service));
        let service = service.context("no service was started for this row")?;
        let gap = Duration::from_micros(row.gap_us);
        let mut seen = Recorder::new();
        let cpu_ns = alone(self.cpus.caller, || {
            let peer = &service.peer;
            // Let the threads forget the history of other rounds, and of the time when the service was stopped.
            paced(peer, gap, WARM_UP_CALLS, &mut Recorder::new())?;
            let calls = calls_of(gap, row.competing);
            let before = service.server.child.cpu_ns()?;
            let own = paced(peer, gap, calls, &mut seen)?;
            let after = service.server.child.cpu_ns()?;
            Ok(approximate(after.saturating_sub(before) + own) / approximate(calls))
        })?;
        drop(stopped);
        let sample = seen.sample();
        row.all.add(&seen);
        Ok(Round { p50_ns: approximate(sample.p50_ns), p99_ns: approximate(sample.p99_ns), cpu_ns })
    }
}

fn calls_of(gap: Duration, competing: usize) -> u64 {
    let fit = ROUND.as_nanos() / gap.as_nanos().max(1);
    let (least, most) = match competing {
        CROWD if gap <= CROWDED_GAP => (CROWDED_CALLS, MOST_CROWDED_CALLS),
        _ => (LEAST_CALLS, MOST_CALLS),
    };
    u64::try_from(fit).unwrap_or(most).clamp(least, most)
}

/// Makes a call every `gap`, one at a time. Returns the CPU time of the calling thread within calls.
fn paced(peer: &Peer, gap: Duration, calls: u64, into: &mut Recorder) -> anyhow::Result<u64> {
    let mut own = 0;
    let mut due = clock::now();
    for _ in 0..calls {
        loop {
            let left = due.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            if left > SLEEPS {
                std::thread::park_timeout(left - SLEEPS / 2);
            }
        }
        let (begun, ran) = (clock::now(), clock::thread_ns());
        call_32(peer)?;
        own += clock::thread_ns() - ran;
        into.record_single(begun.elapsed());
        // A late call is not caught up.
        due = (due + gap).max(clock::now());
    }
    Ok(own)
}

/// A competing process.
pub(crate) const SIDE: Side = Side { name: "compute", arguments: &[], more: None, run: compute };

/// Computes until the parent ends this process.
fn compute(_: &Arguments<'_>) -> anyhow::Result<()> {
    let mut x = 1_u64;
    loop {
        x = core::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

const COMPETING: [(usize, &str); 3] = [(0, "0"), (1, "1"), (CROWD, "4")];
/// Number of competing processes with which CPUs are contended.
const CROWD: usize = 4;
/// Longest gap for which a round with [`CROWD`] competing processes has enough calls for a p99.
const CROWDED_GAP: Duration = Duration::from_millis(1);
const CROWDED_CALLS: u64 = 400;
/// There a call takes a multiple of what it takes alone.
const MOST_CROWDED_CALLS: u64 = 2_000;
/// Microseconds.
const GAPS: [(u64, &str); 6] =
    [(1, "1"), (10, "10"), (100, "100"), (1_000, "1000"), (10_000, "10000"), (100_000, "100000")];
/// A round of one row.
const ROUND: Duration = Duration::from_millis(60);
const LEAST_CALLS: u64 = 6;
const MOST_CALLS: u64 = 5_000;
/// Number of calls after which a waiting thread has forgotten the history of earlier rounds.
const WARM_UP_CALLS: u64 = 4;
/// Time left until the next call above which the caller sleeps; below, it polls the clock.
const SLEEPS: Duration = Duration::from_micros(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seldom_calls_are_few_and_frequent_ones_many() {
        assert_eq!(calls_of(Duration::from_millis(100), 0), LEAST_CALLS);
        assert_eq!(calls_of(Duration::from_micros(1), 0), MOST_CALLS);
        assert_eq!(calls_of(Duration::from_millis(1), 0), 60);
        assert_eq!(calls_of(Duration::from_millis(1), CROWD), CROWDED_CALLS);
        assert_eq!(calls_of(Duration::from_micros(1), CROWD), MOST_CROWDED_CALLS);
        assert_eq!(calls_of(Duration::from_millis(10), CROWD), 6);
    }
}
