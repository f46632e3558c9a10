//! `latency`: the duration of a call over every transport, waiting policy and size, next to its floor.

use core::time::Duration;

use serde_json::Value;

use crate::echo::{Provider, SIZES, Server, Size, Wait};
use crate::experiment::Experiment;
use crate::floor;
use crate::lab::Lab;
use crate::params::{Axis, Params};
use crate::placement::{CpuPair, Placement, alone};
use crate::progress::Progress;
use crate::rdma;
use crate::rdma::over::{self, PROVIDERS};
use crate::report::{Claim, Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};

/// The experiment. The server is a separate process. Rounds of the floor and rounds of calls alternate; the server is
/// stopped during the former.
#[derive(Debug)]
pub(crate) struct Latency;

impl Experiment for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn paper(&self) -> Option<&'static str> {
        None
    }

    fn figure(&self) -> Option<&'static str> {
        None
    }

    fn about(&self) -> &'static str {
        "round-trip time of a call between two processes, next to its floor"
    }

    fn axes(&self) -> &'static [Axis] {
        &[
            Axis {
                column: "provider",
                help: "Only these transports; verbs is measured in the lab, next to the standard RDMA tools",
                values: &PROVIDERS,
            },
            Axis {
                column: "wait",
                help: "Only these waiting policies",
                values: &["spin", "block", "adaptive"],
            },
            Axis { column: "size", help: "Only these payload lengths, bytes", values: &SIZE_NAMES },
        ]
    }

    fn lab(&self, params: &Params) -> anyhow::Result<Option<Lab>> {
        let Some(lab) = over::lab(params)? else { return Ok(None) };
        anyhow::ensure!(
            params.chosen().all(|(column, _)| column != "size"),
            "verbs is measured with 64 bytes, like the tools next to it: omit --size"
        );
        anyhow::ensure!(
            ["spin", "block"].iter().any(|wait| params.keeps("wait", wait)),
            "verbs is measured with --wait spin and block, like the tools next to it"
        );
        Ok(Some(Lab { limit: LAB_LIMIT, ..lab }))
    }

    fn run(&self, params: &Params, progress: &mut Progress) -> anyhow::Result<Report> {
        if over::is_asked(params) {
            return rdma::latency::run(params, progress);
        }
        let mut report = Report::default();
        let placement = Placement::choose()?;
        let Some(cpus) = placement.pair() else {
            report.note("skipped: needs two CPUs, but this process may use only one");
            return Ok(report);
        };
        let (rounds, budget) = if params.quick { (QUICK_ROUNDS, QUICK_BUDGET) } else { (ROUNDS, BUDGET) };
        let sizes: Vec<&Size> = SIZES.iter().filter(|size| params.keeps("size", size.name)).collect();
        let pairs: Vec<(Provider, Wait)> = Provider::ALL
            .into_iter()
            .flat_map(|provider| Wait::ALL.map(|wait| (provider, wait)))
            .filter(|(provider, wait)| {
                params.keeps("provider", provider.name()) && params.keeps("wait", wait.name())
            })
            .collect();
        progress.begin(u64::from(rounds) * (pairs.len() * sizes.len()) as u64);
        // Before any thread is pinned: the result has to hold for two CPUs.
        let wake_up = pronto_node::wake_up_cost();
        let mut rows = Vec::new();
        for (provider, wait) in pairs {
            let server = Server::spawn(provider, wait, cpus.server)?;
            let bench = Bench { provider, wait, cpus, budget, server: &server };
            rows.extend(alone(cpus.caller, || bench.run(rounds, &sizes, progress))?);
        }
        report.params = Fields::default()
            .with("cpus", placement.numbers())
            .with("server", "separate process, pinned; stopped during rounds of the floor")
            .with("handler", "inline, returns the payload")
            .with("rounds", rounds)
            .with("round_ms", decimals(budget.as_secs_f64() * 1e3, 0))
            .with("wake_up_ns", wake_up.0);
        report.claims = claims(&rows);
        report.rows = rows.iter().map(Row::fields).collect();
        Ok(report)
    }
}

/// One transport and policy, with its server.
struct Bench<'a> {
    provider: Provider,
    wait: Wait,
    cpus: CpuPair,
    budget: Duration,
    server: &'a Server,
}

/// Calls and their floor, in one row.
#[derive(Clone, Debug)]
struct Row {
    provider: Provider,
    wait: Wait,
    size: &'static str,
    call: Sample,
    floor: Sample,
    floor_name: &'static str,
}

impl Bench<'_> {
    fn run(&self, rounds: u32, sizes: &[&'static Size], progress: &mut Progress) -> anyhow::Result<Vec<Row>> {
        let (_client, peer) = self.server.meet(self.wait)?;
        let mut recorders: Vec<_> =
            sizes.iter().map(|size| (*size, Recorder::new(), Recorder::new())).collect();
        for _ in 0..rounds {
            for (size, call, floor) in &mut recorders {
                progress.step(&format!("{} {} {}", self.provider.name(), self.wait.name(), size.name));
                let stopped = self.server.child.stop()?;
                self.floor(size, floor)?;
                drop(stopped);
                size.measure(&peer, self.budget, call)?;
            }
        }
        let row = |(size, call, floor): &(&'static Size, Recorder, Recorder)| Row {
            provider: self.provider,
            wait: self.wait,
            size: size.name,
            call: call.sample(),
            floor: floor.sample(),
            floor_name: floor_name(self.provider, self.wait),
        };
        Ok(recorders.iter().map(row).collect())
    }

    /// Runs one round of the bare hardware or kernel equivalent of such a call. Over TCP it carries header and payload.
    fn floor(&self, size: &Size, into: &mut Recorder) -> anyhow::Result<()> {
        let bytes = HEADER + size.bytes;
        let budget = self.budget / 2;
        match floor_name(self.provider, self.wait) {
            CACHE_LINE => floor::cache_line(self.cpus, budget, into),
            FUTEX => floor::futex(self.cpus, budget, into),
            TCP_BLOCKING => floor::tcp_blocking(self.cpus, bytes, budget, into),
            _ => floor::tcp_spinning(self.cpus, bytes, budget, into),
        }
    }
}

/// Returns the floor that a call is divided by. An adaptive wait is compared with the better choice, which is spinning.
fn floor_name(provider: Provider, wait: Wait) -> &'static str {
    match (provider.name(), wait.name()) {
        ("shm", "block") => FUTEX,
        ("shm", _) => CACHE_LINE,
        (_, "block") => TCP_BLOCKING,
        _ => TCP_SPINNING,
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        approximate(self.call.p50_ns) / approximate(self.floor.p50_ns)
    }

    fn fields(&self) -> Fields {
        let size: Value = self.size.parse::<u64>().map_or(Value::Null, Value::from);
        Fields::default()
            .with("provider", self.provider.name())
            .with("wait", self.wait.name())
            .with("size", size)
            .with_sample(&self.call)
            .with("floor", self.floor_name)
            .with("floor_ns", self.floor.p50_ns)
            .with("ratio", decimals(self.ratio(), 2))
    }

    fn is(&self, provider: &str, wait: &str, size: &str) -> bool {
        (self.provider.name(), self.wait.name(), self.size) == (provider, wait, size)
    }
}

/// Evaluates the claims for which rows were measured.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let row = |provider, wait, size| rows.iter().find(|row| row.is(provider, wait, size));
    let bound = |id, text: &str, most: f64, row: Option<&Row>| {
        row.map(|row| Claim {
            id,
            text: text.into(),
            published: decimals(most, 2),
            measured: decimals(row.ratio(), 2),
            holds: row.ratio() <= most,
        })
    };
    let stack = row("shm", "spin", "32").zip(row("tcp", "spin", "32")).map(|(shm, tcp)| {
        let times = approximate(tcp.floor.p50_ns) / approximate(shm.call.p50_ns);
        Claim {
            id: "K2",
            text: "the TCP/IP stack is too deep for control messages: round-trip time of bare sockets, both sides polling, as \
                   a multiple of a whole call over shared memory (32 B)"
                .into(),
            published: Value::Null,
            measured: decimals(times, 1),
            holds: times > 1.0,
        }
    });
    [
        bound(
            "L1",
            "shm, both sides polling, 32 B: call time as a multiple of a cache-line round trip, at most",
            2.5,
            row("shm", "spin", "32"),
        ),
        bound(
            "L2",
            "tcp, both sides blocking, 32 B: call time as a multiple of a raw TCP ping-pong, at most",
            1.15,
            row("tcp", "block", "32"),
        ),
        stack,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Names of all sizes: the values of the column.
const SIZE_NAMES: [&str; SIZES.len()] = {
    let mut names = [""; SIZES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = SIZES[index].name;
        index += 1;
    }
    names
};

const CACHE_LINE: &str = "cache-line";
const FUTEX: &str = "futex";
const TCP_BLOCKING: &str = "tcp-blocking";
const TCP_SPINNING: &str = "tcp-spinning";

/// Length of the header in front of every payload, bytes.
const HEADER: usize = 24;

/// In the lab, 30 rounds of all contenders take some minutes.
const LAB_LIMIT: u32 = 1800;

/// 30 rows take 45 s. A round of the floor is half as long: far below the limit after which a stopped server counts as down.
const ROUNDS: u32 = 10;
const BUDGET: Duration = Duration::from_millis(100);

/// 30 rows take 8 s.
const QUICK_ROUNDS: u32 = 4;
const QUICK_BUDGET: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(provider: Provider, wait: Wait, call: u64, floor: u64) -> Row {
        let sample = |p50_ns| Sample { p50_ns, ..Sample::default() };
        let (call, floor) = (sample(call), sample(floor));
        Row { provider, wait, size: "32", call, floor, floor_name: floor_name(provider, wait) }
    }

    #[test]
    fn claims_are_made_of_measured_rows_only() {
        let [spin, block, _] = Wait::ALL;
        assert!(claims(&[]).is_empty());
        let rows = [
            row(Provider::Shm, spin, 260, 100),
            row(Provider::Tcp, block, 110, 100),
            row(Provider::Tcp, spin, 9, 520),
        ];
        let found = claims(&rows);
        let verdicts: Vec<_> = found.iter().map(|claim| (claim.id, claim.holds)).collect();
        assert_eq!(verdicts, [("L1", false), ("L2", true), ("K2", true)]);
        assert_eq!(found[2].measured, serde_json::json!(2.0));
    }

    #[test]
    fn a_floor_waits_as_its_call_does() {
        let [spin, block, adaptive] = Wait::ALL;
        let names =
            [spin, block, adaptive].map(|wait| [Provider::Shm, Provider::Tcp].map(|p| floor_name(p, wait)));
        assert_eq!(names, [[CACHE_LINE, TCP_SPINNING], [FUTEX, TCP_BLOCKING], [CACHE_LINE, TCP_SPINNING]]);
    }
}
