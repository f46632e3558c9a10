//! `latency`: the duration of a call over every transport, waiting policy and size, next to its floor.

use serde_json::Value;

use crate::claim::{Claim, Verdict};
use crate::echo::{Provider, SIZES, Server, Size, Wait};
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::floor;
use crate::lab::Lab;
use crate::params::{Axis, Params, names};
use crate::placement::alone;
use crate::rdma;
use crate::rdma::over::{self, PROVIDERS};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, Sample, approximate};

/// The server is a separate process. Rounds of the floor and rounds of calls alternate; the server is stopped during the former.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    question: "How long does one call take, next to the bare mechanism below it?",
    takes: [50, 10],
    about: "round-trip time of a call between two processes, next to its floor",
    axes: &[
        Axis::new(
            "provider",
            "Only these transports; verbs is measured in the lab, next to the standard RDMA tools",
            &PROVIDERS,
        ),
        Axis::new("wait", "Only these waiting policies", &Wait::NAMES),
        Axis::new("size", "Only these payload lengths, bytes", &SIZE_NAMES),
    ],
    cpus: Cpus::Two,
    // 30 rows take 45 s, or 8 s in a quick run. A round of the floor is half as long: far below the limit after which a stopped server
    // counts as down.
    rounds: [Rounds::new(10, 100), Rounds::new(4, 40)],
    lab,
    claims: &["L1", "L2", "K2", "RV1", "RV2", "K3"],
    run,
    ..Experiment::DEFAULT
};

fn lab(params: &Params) -> anyhow::Result<Option<Lab>> {
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

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    if over::is_asked(run.params) {
        return rdma::latency::run(run);
    }
    let params = run.params;
    let sizes = params.kept("size", SIZES, |size| size.name);
    let waits = Wait::kept(params);
    let pairs = || Provider::kept(params).into_iter().flat_map(|p| waits.iter().map(move |wait| (p, *wait)));
    run.begin(pairs().count() * sizes.len());
    // Measured before any thread is pinned, because the result has to hold for two CPUs.
    let wake_up = pronto_node::wake_up_cost();
    let mut rows = Vec::new();
    for (provider, wait) in pairs() {
        let server = Server::spawn(provider, wait, run.cpus.server)?;
        let bench = Bench { provider, wait, server: &server };
        rows.extend(alone(run.cpus.caller, || bench.run(run, &sizes))?);
    }
    Ok(Report {
        params: run
            .fields()
            .with("server", "separate process, pinned; stopped during rounds of the floor")
            .with("handler", "inline, returns the payload")
            .with("wake_up_ns", wake_up.0),
        claims: claims(&rows),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    })
}

/// One transport and policy, with its server.
struct Bench<'a> {
    provider: Provider,
    wait: Wait,
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
    fn run(&self, run: &mut Run<'_>, sizes: &[&'static Size]) -> anyhow::Result<Vec<Row>> {
        let (provider, wait, cpus) = (self.provider, self.wait, run.cpus);
        let (_client, peer) = self.server.meet(wait)?;
        let mut rows: Vec<_> = sizes.iter().map(|size| (*size, Recorder::new(), Recorder::new())).collect();
        let label = |(size, ..): &(&Size, _, _)| format!("{} {} {}", provider.name(), wait.name(), size.name);
        run.in_turns(&mut rows, label, |(size, call, floor), budget| {
            let stopped = self.server.child.stop()?;
            // The bare equivalent over TCP carries header and payload.
            floor::round(floor_name(provider, wait), cpus, HEADER + size.bytes, budget / 2, floor)?;
            drop(stopped);
            size.measure(&peer, budget, call)
        })?;
        let row = |(size, call, floor): &(&'static Size, Recorder, Recorder)| Row {
            provider,
            wait,
            size: size.name,
            call: call.sample(),
            floor: floor.sample(),
            floor_name: floor_name(provider, wait),
        };
        Ok(rows.iter().map(row).collect())
    }
}

/// Returns the floor that a call is divided by. An adaptive wait is compared with the better choice, which is spinning.
fn floor_name(provider: Provider, wait: Wait) -> &'static str {
    floor::of_calls(provider.name(), wait)
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
    let bound =
        |id, most: f64, row: Option<&Row>| row.map(|row| Claim::at_most(id, "", most, row.ratio(), 2));
    let stack = |wait| {
        let times = |(tcp, shm): (&Row, &Row)| approximate(tcp.call.p50_ns) / approximate(shm.call.p50_ns);
        row("tcp", wait, "32").zip(row("shm", wait, "32")).map(times)
    };
    [
        bound("L1", 2.5, row("shm", "spin", "32")),
        bound("L2", 1.15, row("tcp", "block", "32")),
        stack("spin").zip(stack("block")).map(|(polling, sleeping)| deep_stack(polling, sleeping)),
        (!rows.is_empty()).then(needs_hardware),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Evaluates the claim about TCP/IP from the calls over TCP as multiples of those over shared memory, with both sides polling and
/// sleeping. The bar says that the stack is at least half of a call.
fn deep_stack(polling: f64, sleeping: f64) -> Claim {
    let detail = format!(
        "both sides polling; {} times with both sides sleeping, where waking them is a part of both calls. Loopback, not a network",
        decimals(sleeping, 1)
    );
    let verdict = Verdict::graded(polling.min(sleeping) >= DEEP_STACK, polling.max(sleeping) >= DEEP_STACK);
    Claim::new("K2", detail, decimals(polling, 1), verdict).bar(DEEP_STACK)
}

/// Returns the claim about IP over InfiniBand, which this host cannot judge.
fn needs_hardware() -> Claim {
    let detail = "needs two RDMA ports: there, run `pronto-bench latency --provider verbs` with PRONTO_LAB=1 and a command \
                  `lab-nodes` that names them as lab/lab-nodes does. In the lab itself the device is emulated";
    Claim::new("K3", detail, Value::Null, Verdict::NotResolvable)
}

/// Names of all sizes: the values of the column.
const SIZE_NAMES: [&str; SIZES.len()] = names!(SIZES);

/// Length of the header in front of every payload, bytes.
const HEADER: usize = 24;

/// Least multiple of a call over shared memory for which the TCP/IP stack is at least half of a call. Chosen by us; no source.
const DEEP_STACK: f64 = 2.0;

/// In the lab, 30 rounds of all contenders take some minutes.
const LAB_LIMIT: u32 = 1800;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(provider: Provider, wait: Wait, call: u64, floor: u64) -> Row {
        let sample = |p50_ns| Sample { p50_ns, ..Sample::default() };
        let (call, floor) = (sample(call), sample(floor));
        Row { provider, wait, size: "32", call, floor, floor_name: floor_name(provider, wait) }
    }

    #[test]
    fn claims_need_measured_rows() {
        let [spin, block, _] = Wait::ALL;
        assert!(claims(&[]).is_empty());
        let rows = [row(Provider::Shm, spin, 260, 100), row(Provider::Tcp, block, 110, 100)];
        let verdicts =
            |rows: &[Row]| claims(rows).iter().map(|claim| (claim.id, claim.verdict)).collect::<Vec<_>>();
        let (holds, fails, unknown) = (Verdict::Holds, Verdict::DoesNotHold, Verdict::NotResolvable);
        assert_eq!(verdicts(&rows), [("L1", fails), ("L2", holds), ("K3", unknown)]);
        let rows = [row(Provider::Shm, spin, 250, 100), row(Provider::Tcp, block, 116, 100)];
        assert_eq!(verdicts(&rows), [("L1", holds), ("L2", fails), ("K3", unknown)]);
    }

    #[test]
    fn the_stack_is_judged_by_the_same_call_over_both_transports() {
        let [spin, block, _] = Wait::ALL;
        let judged = |[shm_spin, tcp_spin, shm_block, tcp_block]: [u64; 4]| {
            let rows = [
                row(Provider::Shm, spin, shm_spin, 1),
                row(Provider::Tcp, spin, tcp_spin, 1),
                row(Provider::Shm, block, shm_block, 1),
                row(Provider::Tcp, block, tcp_block, 1),
            ];
            let claim = claims(&rows).into_iter().find(|claim| claim.id == "K2").unwrap();
            (claim.measured, claim.verdict)
        };
        assert_eq!(judged([200, 6_000, 5_000, 12_000]), (30.0.into(), Verdict::Holds));
        assert_eq!(judged([200, 6_000, 20_000, 30_000]), (30.0.into(), Verdict::InPart));
        assert_eq!(judged([200, 300, 20_000, 30_000]), (1.5.into(), Verdict::DoesNotHold));
    }

    #[test]
    fn a_floor_waits_as_its_call_does() {
        let [spin, block, adaptive] = Wait::ALL;
        let names =
            [spin, block, adaptive].map(|wait| [Provider::Shm, Provider::Tcp].map(|p| floor_name(p, wait)));
        let [spinning, blocking] = [["cache-line", "tcp-spinning"], ["futex", "tcp-blocking"]];
        assert_eq!(names, [spinning, blocking, spinning]);
    }
}
