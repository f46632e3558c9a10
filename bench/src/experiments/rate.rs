//! `rate`: pipelined calls and one-way messages per second, next to the floor.

use core::time::Duration;

use pronto::Peer;
use pronto_core::session::Doorbells;
use serde_json::Value;

use crate::claim::Claim;
use crate::clock;
use crate::echo::Wait;
use crate::experiment::{Cpus, Experiment, Rounds, Run};
use crate::floor;
use crate::params::{Axis, Params};
use crate::placement::apart;
use crate::rdma::nodes::Two;
use crate::rdma::over::{self, Over, PROVIDER_HELP, PROVIDERS};
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, approximate};
use crate::traffic::cost::Cost;
use crate::traffic::drive::{Open, SIZES, Size, pooled, together};
use crate::traffic::messages::Counted;
use crate::traffic::speed::Speed;

/// The receiver is a separate process; rounds of all rows of a transport and policy take turns.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "rate",
    question: "How many calls and messages per second go through one connection?",
    takes: [190, 20],
    about: "pipelined calls and one-way messages per second, by window, threads and size",
    axes: &[
        Axis::new("provider", PROVIDER_HELP, &PROVIDERS),
        Axis::new("wait", "Only these waiting policies", &Wait::NAMES),
        Axis::new(
            "kind",
            "Only this kind: calls, calls under Peer::together, calls started together, calls whose handler runs on a worker, or one-way messages",
            &[CALL, WINDOW, BATCH, POOLED, ONE_WAY],
        ),
        Axis::new(
            "coalesce",
            "Only with messages that share writes, or only without; off is measured with 32 B, one thread, spinning",
            &[ON, OFF],
        ),
        Axis::new(
            "window",
            "Only these numbers of open calls per thread; calls only",
            &["1", "2", "4", "8", "16", "32", "48"],
        ),
        Axis::new("threads", "Only these numbers of calling threads", &["1", "2", "4"]),
        Axis::new("size", "Only these payload lengths, bytes", &["32", "224", "4096"]),
    ],
    cpus: Cpus::Two,
    // 288 rows take 3 minutes; the 126 of a quick run take 15 s.
    rounds: [Rounds::new(8, 60), Rounds::new(4, 25)],
    lab: over::lab,
    claims: &["R1", "R2", "R3"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let nodes = over::nodes(run.params)?;
    let parts = parts(run.params, nodes.as_ref());
    run.begin(parts.iter().map(|part| part.loads.len()).sum());
    // Measured before any thread is pinned, because the result has to hold for two CPUs.
    let wake_up = pronto_node::wake_up_cost();
    let (mut rows, mut free) = (Vec::new(), 0);
    for part in parts {
        rows.extend(apart(run.cpus.server, |left| {
            free = left;
            // Threads that share a CPU are evidence of contention for a node, so they get a node of their own.
            let (few, many): (Vec<Load>, _) = part.loads.iter().partition(|load| load.threads <= left);
            let mut rows = Vec::new();
            for loads in [few, many].iter().filter(|loads| !loads.is_empty()) {
                rows.extend(part.run(run, loads)?);
            }
            rows.sort_by_key(|row| part.loads.iter().position(|load| load.is(&row.load)));
            Ok(rows)
        })?);
    }
    let mut report = Report {
        params: run
            .fields()
            .with("receiver", "separate process, pinned; stopped during rounds of the floor")
            .with("senders", "threads of one process and one connection, on any CPU but the receiver's")
            .with("handler", "inline, except for kind pooled")
            .with("sender_cpus", free)
            .with("wake_up_ns", wake_up.0),
        rows: rows.iter().map(Row::fields).collect(),
        ..Report::default()
    };
    judge(&mut report, &rows, free, run.params);
    Ok(report)
}

/// Returns the selected transports, policies and doorbells with their loads. Separate doorbells are measured with 32 B and one
/// spinning thread.
fn parts<'a>(params: &Params, nodes: Option<&'a Two>) -> Vec<Part<'a>> {
    let loads = loads(params);
    let single = || loads.iter().filter(|load| load.threads == 1 && load.size.bytes == 32);
    let mut parts = Vec::new();
    for over in over::all(params, nodes) {
        for wait in Wait::kept(params) {
            if params.keeps("coalesce", ON) {
                parts.push(Part { over, wait, doorbells: Doorbells::Shared, loads: loads.clone() });
            }
            if params.keeps("coalesce", OFF) && wait.name() == "spin" {
                let loads = single().copied().collect();
                parts.push(Part { over, wait, doorbells: Doorbells::PerMessage, loads });
            }
        }
    }
    parts
}

/// Adds the claims, and notes on the rows.
fn judge(report: &mut Report, rows: &[Row], free: usize, params: &Params) {
    if rows.iter().any(|row| row.load.threads > free) {
        report.note(format!("rows with more than {free} threads share the CPUs that the receiver leaves"));
    }
    if params.chosen().any(|(column, _)| column == "window") {
        report.note(
            "not judged: R1 to R3, which are about the best or longest window, and only some were measured",
        );
    } else {
        report.claims = claims(rows);
    }
}

/// Traffic of a row.
#[derive(Clone, Copy, Debug)]
struct Load {
    kind: &'static str,
    /// Number of open calls per thread; `None` for one-way messages.
    window: Option<usize>,
    threads: usize,
    size: &'static Size,
}

impl Load {
    fn is(&self, other: &Self) -> bool {
        let key = |load: &Self| (load.kind, load.window, load.threads, load.size.bytes);
        key(self) == key(other)
    }
}

/// Returns every selected load for which the calls of all threads fit one connection at its default size.
fn loads(params: &Params) -> Vec<Load> {
    let windows: &[usize] = if params.quick { &[1, 8, 32] } else { &[1, 2, 4, 8, 16, 32, 48] };
    let calls = windows.iter().map(|window| (CALL, Some(*window)));
    let several = || windows.iter().filter(|window| **window > 1);
    let held = several().map(|window| (WINDOW, Some(*window)));
    let batches = several().map(|window| (BATCH, Some(*window)));
    let pooled = windows.iter().map(|window| (POOLED, Some(*window)));
    let kept = |load: &Load| {
        params.keeps("kind", load.kind)
            && ([CALL, ONE_WAY].contains(&load.kind) || load.threads == 1 && load.size.bytes == 32)
            && params.keeps("threads", &load.threads.to_string())
            && params.keeps("size", load.size.name)
            && load.window.is_none_or(|window| params.keeps("window", &window.to_string()))
            && load.window.is_none_or(|window| window * load.threads <= MOST_OPEN)
    };
    calls
        .chain(held)
        .chain(batches)
        .chain(pooled)
        .chain([(ONE_WAY, None)])
        .flat_map(|(kind, window)| [1, 2, 4].map(|threads| (kind, window, threads)))
        .flat_map(|(kind, window, threads)| {
            SIZES.iter().map(move |size| Load { kind, window, threads, size })
        })
        .filter(kept)
        .collect()
}

/// One transport, policy and use of doorbells.
struct Part<'a> {
    over: Over<'a>,
    wait: Wait,
    doorbells: Doorbells,
    loads: Vec<Load>,
}

/// Rounds of one row, their cost, and the floor.
#[derive(Clone, Debug)]
struct Row {
    provider: &'static str,
    wait: Wait,
    doorbells: Doorbells,
    load: Load,
    /// Messages and doorbells of the sender.
    rung: Rung,
    speed: Speed,
    messages: u64,
    cost: Cost,
    floor: String,
    floor_ns: u64,
}

impl Part<'_> {
    fn run(&self, run: &mut Run<'_>, loads: &[Load]) -> anyhow::Result<Vec<Row>> {
        let receiver = self.over.spawn(self.wait, run.cpus.server, self.doorbells)?;
        let (_node, peer) = receiver.meet(self.wait)?;
        let name = floor::of_calls(self.over.name(), self.wait);
        let mut rows: Vec<Row> = loads
            .iter()
            .map(|load| Row {
                provider: self.over.name(),
                wait: self.wait,
                doorbells: self.doorbells,
                load: *load,
                rung: Rung::default(),
                speed: Speed::default(),
                messages: 0,
                cost: Cost::default(),
                floor: if name.starts_with("tcp") {
                    format!("{name}-{FLOOR_BYTES}")
                } else {
                    name.to_owned()
                },
                floor_ns: 0,
            })
            .collect();
        let mut floor = Recorder::new();
        for _ in 0..run.rounds {
            let stopped = receiver.child.stop()?;
            floor::round(name, run.cpus, FLOOR_BYTES, run.budget, &mut floor)?;
            drop(stopped);
            for row in &mut rows {
                run.progress.step(&row.title());
                row.round(&peer, run.budget)?;
            }
        }
        let floor_ns = floor.sample().p50_ns;
        rows.iter_mut().for_each(|row| row.floor_ns = floor_ns);
        Ok(rows)
    }
}

impl Row {
    /// Runs one round of a row. All threads begin together, and the round ends when the last message was received.
    fn round(&mut self, peer: &Peer, budget: Duration) -> anyhow::Result<()> {
        let Load { kind, window, threads, size } = self.load;
        let send = || match window {
            Some(window) if kind == POOLED => pooled(peer, Open(window), budget),
            Some(window) if kind == BATCH => size.batches(peer, Open(window), budget),
            Some(window) if kind == WINDOW => {
                let _together = peer.together();
                size.calls(peer, Open(window), budget)
            }
            Some(window) => size.calls(peer, Open(window), budget),
            None => size.notes(peer, budget),
        };
        let before = cost(&size.counted(peer)?)?;
        let rung = Rung::of(peer);
        let started = clock::now();
        let sent = together(threads, send)?;
        self.rung = self.rung.and(Rung::of(peer).since(rung));
        let counted = size.counted(peer)?;
        self.speed.round(sent, started.elapsed());
        let arrived = if window.is_some() { sent } else { counted.notes };
        anyhow::ensure!(arrived == sent, "{sent} one-way messages were sent and {arrived} arrived");
        self.messages += sent;
        self.cost = self.cost.and(cost(&counted)?.since(before));
        Ok(())
    }
}

/// Returns the resources that this process and the receiver have used so far.
fn cost(counted: &Counted) -> anyhow::Result<Cost> {
    let receiver = Cost { cpu_ns: counted.cpu_ns, switches: counted.switches };
    Ok(Cost::of_this_process()?.and(receiver))
}

impl Row {
    fn title(&self) -> String {
        let Load { kind, window, threads, size } = self.load;
        let window = window.map_or_else(|| kind.to_owned(), |window| format!("{kind} {window}"));
        format!("{} {} {window} x{threads} {} B", self.provider, self.wait.name(), size.name)
    }

    fn fields(&self) -> Fields {
        let Load { kind, window, threads, size } = self.load;
        let per_second = self.speed.per_second();
        let (cpu_ns, switches) = self.cost.each(self.messages);
        Fields::default()
            .with("provider", self.provider)
            .with("wait", self.wait.name())
            .with("coalesce", coalesce(self.doorbells))
            .with("kind", kind)
            .with("window", window.map_or(Value::Null, Value::from))
            .with("threads", threads)
            .with("size", size.bytes)
            .with("rpc_per_s", decimals(per_second, 0))
            .with("aa", decimals(self.speed.a_to_a(), 2))
            .with("per_doorbell", decimals(self.rung.messages_each(), 2))
            .with("cpu_ns", decimals(cpu_ns, 1))
            .with("switches", decimals(switches, 4))
            .with("floor", self.floor.clone())
            .with("floor_ns", self.floor_ns)
            .with("per_floor", decimals(per_second * approximate(self.floor_ns) / 1e9, 2))
    }
}

/// Evaluates the claims about the best or longest window, from rows of every window.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let of = |provider: &'static str, wait: &'static str, calls: bool| {
        rows.iter()
            .filter(move |row| {
                row.provider == provider
                    && row.wait.name() == wait
                    && row.load.threads == 1
                    && row.load.size.bytes == 32
                    && row.doorbells == Doorbells::Shared
                    && row.load.kind == if calls { CALL } else { ONE_WAY }
            })
            .map(|row| row.speed.per_second())
            .max_by(f64::total_cmp)
    };
    let best = of("shm", "spin", true);
    let calls = best.map(|calls| Claim::at_least("R1", "best window, spinning", PIPELINED, calls, 0));
    let one_way = best
        .zip(of("shm", "spin", false))
        .map(|(calls, notes)| Claim::at_least("R2", "best window, spinning", 1.0, notes / calls, 2));
    let batch = |doorbells| {
        let batches = rows.iter().filter(|row| row.provider == "tcp" && row.wait.name() == "spin");
        batches
            .filter(|row| row.load.kind == BATCH && row.doorbells == doorbells)
            .max_by_key(|row| row.load.window)
            .map(|row| row.speed.per_second())
    };
    let shared = batch(Doorbells::Shared).zip(batch(Doorbells::PerMessage)).map(|(shared, alone)| {
        let factor = shared / alone;
        Claim::new("R3", "32 B, longest window, spinning", decimals(factor, 2), factor > 1.0).bar(1)
    });
    [calls, one_way, shared].into_iter().flatten().collect()
}

/// Returns the value of the column.
const fn coalesce(doorbells: Doorbells) -> &'static str {
    match doorbells {
        Doorbells::Shared => ON,
        Doorbells::PerMessage => OFF,
    }
}

/// Number of messages that a session posted, and of the doorbells for them.
#[derive(Clone, Copy, Debug, Default)]
struct Rung {
    messages: u64,
    doorbells: u64,
}

impl Rung {
    fn of(peer: &Peer) -> Self {
        let stats = peer.session().stats();
        Self { messages: stats.messages_sent.count(), doorbells: stats.doorbells.count() }
    }

    const fn since(self, earlier: Self) -> Self {
        Self { messages: self.messages - earlier.messages, doorbells: self.doorbells - earlier.doorbells }
    }

    const fn and(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, doorbells: self.doorbells + other.doorbells }
    }

    fn messages_each(self) -> f64 {
        approximate(self.messages) / approximate(self.doorbells.max(1))
    }
}

const CALL: &str = "call";
const WINDOW: &str = "window";
const BATCH: &str = "batch";
const POOLED: &str = "pooled";
const ON: &str = "on";
const OFF: &str = "off";
const ONE_WAY: &str = "one-way";

/// Length of a header and a payload of 32 bytes.
const FLOOR_BYTES: usize = 56;

/// Maximum number of open calls of all threads: the default of a session, less some for queries of what arrived.
const MOST_OPEN: usize = 48;

/// The bar for pipelined calls over shared memory, a second.
const PIPELINED: f64 = 10e6;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(window: Option<usize>, rate: u64) -> Row {
        let mut speed = Speed::default();
        speed.round(rate, Duration::from_secs(1));
        Row {
            provider: "shm",
            wait: Wait(pronto::WaitPolicy::Spin),
            doorbells: Doorbells::Shared,
            rung: Rung { messages: 2 * rate, doorbells: rate },
            load: Load {
                kind: if window.is_some() { CALL } else { ONE_WAY },
                window,
                threads: 1,
                size: &SIZES[0],
            },
            speed,
            messages: rate,
            cost: Cost { cpu_ns: 2 * rate, switches: 0 },
            floor: "cache-line".into(),
            floor_ns: 100,
        }
    }

    #[test]
    fn the_best_window_is_compared_with_the_bar() {
        assert!(claims(&[]).is_empty());
        let rows = [row(Some(8), 9_000_000), row(Some(32), 11_000_000), row(None, 5_500_000)];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(verdicts, [("R1", true), ("R2", false)]);
        assert!(!claims(&rows[..1])[0].holds());
        assert!(claims(&[row(Some(8), 5_000_000), row(None, 5_500_000)])[1].holds());
    }

    #[test]
    fn shared_writes_must_pay() {
        let batch = |doorbells, rate| {
            let row = row(Some(32), rate);
            Row { provider: "tcp", doorbells, load: Load { kind: BATCH, ..row.load }, ..row }
        };
        let holds = |shared| {
            let rows = [batch(Doorbells::Shared, shared), batch(Doorbells::PerMessage, 100_000)];
            claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect::<Vec<_>>()
        };
        assert_eq!((holds(150_000), holds(100_000)), (vec![("R3", true)], vec![("R3", false)]));
    }

    #[test]
    fn a_run_of_some_windows_has_no_claim_either_way() {
        let judged = |windows: &[&str], rate| {
            let (mut params, mut report) = (Params::new(), Report::default());
            if !windows.is_empty() {
                params.choose("window", windows.iter().map(|window| (*window).to_owned()).collect());
            }
            judge(&mut report, &[row(Some(8), rate)], 1, &params);
            report.claims.len()
        };
        assert_eq!((judged(&["8"], 20_000_000), judged(&["8"], 1), judged(&[], 1)), (0, 0, 1));
    }

    #[test]
    fn a_row_has_the_calls_per_round_trip_of_the_floor() {
        let fields = row(Some(32), 20_000_000).fields();
        assert_eq!(fields.value("per_floor"), Some(&serde_json::json!(2.0)));
        assert_eq!(fields.value("cpu_ns"), Some(&serde_json::json!(2.0)));
        assert_eq!(fields.value("per_doorbell"), Some(&serde_json::json!(2.0)));
        assert_eq!(row(None, 1).fields().value("window"), Some(&Value::Null));
    }

    #[test]
    fn rows_that_do_not_fit_one_connection_are_skipped() {
        let mut params = Params::new();
        params.choose("size", vec!["32".into()]);
        let all = loads(&params);
        assert!(all.iter().all(|load| load.window.unwrap_or(0) * load.threads <= MOST_OPEN));
        assert!(all.iter().any(|load| (load.window, load.threads) == (Some(8), 4)));
        params.choose("kind", vec![ONE_WAY.into()]);
        assert_eq!(loads(&params).len(), 3);
    }
}
