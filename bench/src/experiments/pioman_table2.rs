//! `pioman-table2`: the cost of an empty poll and an empty event, by engine, and the cost of an engine for a call.

use core::hint::black_box;
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use nix::sys::eventfd::EventFd;
use pronto::WaitPolicy;
use pronto::progress::{Engine, EngineDriver, Manager, Registration, Sleep, Source, Spec, Trigger};
use pronto_core::wait::Decision;
use pronto_core::{Clock, Nanos};
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::claim::Claim;
use crate::clock;
use crate::echo::{Provider, SIZES, Server, Wait};
use crate::experiment::{Experiment, Rounds, Run};
use crate::params::Axis;
use crate::placement::{CpuPair, ONE_CPU, alone};
use crate::rendezvous::receiver;
use crate::report::{Fields, Report, decimals};
use crate::sample::{Recorder, a_to_a, approximate, median};

/// An engine's own loop is measured, not a copy: its CPU time over a round is divided by the polls in it.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pioman-table2",
    question: "What does a poll, or an event, that finds nothing cost?",
    takes: [25, 10],
    paper: Some("pioman"),
    figure: Some("Table 2"),
    about: "cost of an empty poll and an empty event, by engine, and of a call while an engine runs",
    axes: &[
        Axis::new("what", "Only these rows", &["load", "poll", "event", "call"]),
        Axis::new("engine", "Only these engines", &["-", "none", "timer", "idle"]),
    ],
    // 15 rows take 20 s.
    rounds: [Rounds::new(21, 60), Rounds::new(5, 60)],
    claims: &["P34.poll", "P34.loop", "P34.load", "P34.more", "P34.event", "P31.shm", "P31.tcp"],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let (params, pair, caller) = (run.params, run.placement.pair(), run.cpus.caller);
    let mut report = Report::default();
    let mut kinds: Vec<Kind> = Kind::all();
    kinds.retain(|kind| params.keeps("what", kind.what()) && params.keeps("engine", kind.engine_name()));
    if pair.is_none() {
        kinds.retain(|kind| !matches!(kind, Kind::Call { .. }));
        report.note(ONE_CPU);
    }
    let mut rows: Vec<Row> = kinds.into_iter().map(|kind| Row { kind, ns: Vec::new() }).collect();
    run.begin(rows.len());
    let calls = Calls::meet(&rows, pair)?;
    run.in_turns(
        &mut rows,
        |row| row.kind.what().to_owned(),
        |row, budget| {
            row.ns.push(match row.kind {
                Kind::Call { .. } => calls.round(row.kind, budget)?,
                kind => alone(caller, || kind.round(budget))?,
            });
            Ok(())
        },
    )?;
    report.params = run
        .fields()
        .with("size", 32)
        .with(
            "load",
            "an acquire load of a cached word through a pointer that is opaque to the compiler, and a branch",
        )
        .with(
            "idle",
            "CPU time of the engine's thread, including its clock readings, divided by its polls or events",
        )
        .with("engine_off", "both nodes with engine none, the serving one in a loop of Node::progress")
        .with(
            "event",
            "an eventfd that stays readable: arm, recheck, sleep, its poll, disarm; no thread is woken",
        );
    report.claims = claims(&rows);
    report.rows = rows.iter().map(|row| row.fields(&rows)).collect();
    Ok(report)
}

/// Quantity that a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The floor: a load of a word that stays in the cache.
    Load,
    /// One poll of this many sources in memory, by the engine's loop or by a program's call.
    Poll(Engine, usize),
    /// One sleep that a descriptor ends immediately.
    Event,
    /// A call of 32 bytes while both nodes have an engine, or neither.
    Call(Provider, Engine),
}

impl Kind {
    fn all() -> Vec<Self> {
        let polls = ENGINES.into_iter().flat_map(|engine| SOURCES.map(|sources| Self::Poll(engine, sources)));
        let calls =
            Provider::ALL.into_iter().flat_map(|p| [Engine::None, Engine::Idle].map(|e| Self::Call(p, e)));
        [Self::Load].into_iter().chain(polls).chain([Self::Event]).chain(calls).collect()
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Poll(..) => "poll",
            Self::Event => "event",
            Self::Call(..) => "call",
        }
    }

    const fn engine_name(self) -> &'static str {
        match self {
            Self::Load => "-",
            Self::Event => "idle",
            Self::Poll(engine, _) | Self::Call(_, engine) => receiver::name(engine),
        }
    }

    /// Returns the time of one operation in nanoseconds.
    fn round(self, budget: Duration) -> anyhow::Result<f64> {
        match self {
            Self::Load => load(budget),
            Self::Poll(Engine::Idle, sources) => own_loop(sources, budget),
            Self::Poll(engine, sources) => by_call(engine, sources, budget),
            Self::Event => event(budget),
            Self::Call(..) => anyhow::bail!("a call row is measured between nodes, not here"),
        }
    }
}

/// An in-memory source that is always empty; it counts its polls.
struct Empty {
    word: Arc<AtomicU64>,
    polls: u64,
    counted: Arc<AtomicU64>,
}

impl Source for Empty {
    #[inline]
    fn poll(&mut self) -> usize {
        self.polls += 1;
        usize::from(self.word.load(Ordering::Acquire) != 0)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        self.counted.fetch_add(self.polls, Ordering::Relaxed);
    }
}

/// A source with an event at each poll; it counts its polls.
struct Endless {
    polls: u64,
    counted: Arc<AtomicU64>,
}

impl Source for Endless {
    fn poll(&mut self) -> usize {
        self.polls += 1;
        1
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.counted.fetch_add(self.polls, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy)]
struct Real;

impl Clock for Real {
    fn now(&self) -> Nanos {
        Nanos(clock::shared_ns())
    }
}

/// An engine's thread that stops when its time is over, by its clock.
struct Timed {
    spin: Nanos,
    until: Nanos,
    over: AtomicBool,
}

impl EngineDriver for Timed {
    fn is_stopping(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn decide(&self) -> Decision {
        Decision::without_history(self.spin)
    }

    fn tick(&mut self, _: Nanos) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn next_tick(&self) -> Nanos {
        self.until
    }
}

fn load(budget: Duration) -> anyhow::Result<f64> {
    let word = AtomicU64::new(0);
    in_a_row(budget, || {
        for _ in 0..INNER {
            if black_box(&word).load(Ordering::Acquire) != 0 {
                break;
            }
        }
    })
}

/// Returns the time of one of `INNER` operations. If another process has the CPU, a round may end before its first batch; then it is
/// repeated.
fn in_a_row(budget: Duration, mut operations: impl FnMut()) -> anyhow::Result<f64> {
    let mut seen = Recorder::new();
    for _ in 0..ATTEMPTS {
        seen.repeat(budget, &mut operations);
        let ns = seen.sample().batch_ns;
        if ns > 0.0 {
            return Ok(ns / f64::from(INNER));
        }
    }
    anyhow::bail!("no round reached its first batch: other threads use the CPU")
}

fn empties(manager: &Manager, sources: usize) -> anyhow::Result<(Vec<Registration>, Arc<AtomicU64>)> {
    let counted: Arc<AtomicU64> = Arc::default();
    let register = |_| {
        let empty = Empty { word: Arc::default(), polls: 0, counted: Arc::clone(&counted) };
        manager
            .register(Spec::memory("empty", Sleep::Notified), empty)
            .context("no source could be registered")
    };
    Ok(((0..sources).map(register).collect::<anyhow::Result<_>>()?, counted))
}

/// Returns the time of a poll of all sources by the engine's own loop.
fn own_loop(sources: usize, budget: Duration) -> anyhow::Result<f64> {
    let manager = Manager::new(Engine::Idle, Real).context("no manager could be started")?;
    let (registered, counted) = empties(&manager, sources)?;
    let took = run_for(&manager, Nanos::NEVER, budget);
    drop(registered);
    drop(manager);
    let polls = counted.load(Ordering::Relaxed) / sources as u64;
    Ok(took / approximate(polls.max(1)))
}

/// Runs the engine in this thread. Returns its CPU time, which excludes other threads on this CPU.
fn run_for(manager: &Manager, spin: Nanos, budget: Duration) -> f64 {
    let until = Real.now() + Nanos(clock::nanos(budget));
    let started = clock::thread_ns();
    manager.run(Timed { spin, until, over: AtomicBool::new(false) });
    approximate(clock::thread_ns() - started)
}

/// Returns the time of a poll by a thread of the program: on yielding, or as a timer would.
fn by_call(engine: Engine, sources: usize, budget: Duration) -> anyhow::Result<f64> {
    let manager = Manager::new(engine, Real).context("no manager could be started")?;
    let (_registered, _) = empties(&manager, sources)?;
    let trigger = if engine == Engine::None { Trigger::Yield } else { Trigger::Timer };
    in_a_row(budget, || {
        for _ in 0..INNER {
            black_box(manager.poll(black_box(trigger)));
        }
    })
}

fn event(budget: Duration) -> anyhow::Result<f64> {
    let manager = Manager::new(Engine::Idle, Real).context("no manager could be started")?;
    let counted: Arc<AtomicU64> = Arc::default();
    let ready = OwnedFd::from(EventFd::from_value(1).context("no eventfd could be created")?);
    let endless = Endless { polls: 0, counted: Arc::clone(&counted) };
    let registered = manager
        .register(Spec::readable("endless", ready), endless)
        .context("no source could be registered")?;
    let (_empty, _) = empties(&manager, 1)?;
    let took = run_for(&manager, Nanos::ZERO, budget);
    drop(registered);
    let events = counted.load(Ordering::Relaxed);
    Ok(took / approximate(events.max(1)))
}

/// The echo services of the rows that call.
struct Calls {
    servers: Vec<(Provider, Engine, Server)>,
    cpus: Option<CpuPair>,
}

impl Calls {
    fn meet(rows: &[Row], cpus: Option<CpuPair>) -> anyhow::Result<Self> {
        let mut servers = Vec::new();
        for row in rows {
            if let (Kind::Call(provider, engine), Some(cpus)) = (row.kind, cpus) {
                let server = Server::spawn_with(provider, Wait(WaitPolicy::Spin), engine, cpus.server)?;
                servers.push((provider, engine, server));
            }
        }
        Ok(Self { servers, cpus })
    }

    /// Returns the median time of a call, with the other servers stopped.
    fn round(&self, kind: Kind, budget: Duration) -> anyhow::Result<f64> {
        let (Kind::Call(provider, engine), Some(cpus)) = (kind, self.cpus) else {
            anyhow::bail!("this row is not a call, or has only one CPU")
        };
        let is_it = |server: &&(Provider, Engine, Server)| (server.0, server.1) == (provider, engine);
        let mut stopped = Vec::new();
        for other in self.servers.iter().filter(|server| !is_it(server)) {
            stopped.push(other.2.child.stop()?);
        }
        let (_, _, server) = self.servers.iter().find(is_it).context("no server was started for this row")?;
        let size =
            SIZES.iter().find(|size| size.bytes == 32).context("32 bytes is not among the measured sizes")?;
        let mut seen = Recorder::new();
        alone(cpus.caller, || {
            let (_client, peer) = server.meet_with(Wait(WaitPolicy::Spin), engine)?;
            size.measure(&peer, budget, &mut seen)
        })?;
        drop(stopped);
        Ok(seen.sample().batch_ns)
    }
}

/// One row: a measurement per round.
#[derive(Debug)]
struct Row {
    kind: Kind,
    ns: Vec<f64>,
}

impl Row {
    fn ns(&self) -> f64 {
        median(self.ns.clone())
    }

    fn fields(&self, all: &[Self]) -> Fields {
        let provider = if let Kind::Call(provider, _) = self.kind { provider.name() } else { "-" };
        let sources = if let Kind::Poll(_, sources) = self.kind { sources } else { 1 };
        Fields::default()
            .with("what", self.kind.what())
            .with("engine", self.kind.engine_name())
            .with("provider", provider)
            .with("sources", sources)
            .with("ns", decimals(self.ns(), 2))
            .with("aa", decimals(a_to_a(&self.ns), 3))
            .with("per_load", decimals(self.ns() / ns_of(all, Kind::Load).unwrap_or(f64::NAN), 2))
            .with("paper_us", paper_us(self.kind).map(|us| decimals(us, 3)))
    }
}

/// Returns the paper's result for an empty poll or event, on a 1.8 GHz Opteron.
fn paper_us(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Poll(engine, 1) => Some(match engine {
            Engine::None => 0.038,
            Engine::Timer(_) => 0.085,
            Engine::Idle => 0.142,
        }),
        Kind::Event => Some(1.68),
        _ => None,
    }
}

fn ns_of(rows: &[Row], kind: Kind) -> Option<f64> {
    rows.iter().find(|row| row.kind == kind && !row.ns.is_empty()).map(Row::ns)
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let ns = |kind| ns_of(rows, kind);
    let mut claims = Vec::new();
    let mut claim = |id, text: &str, most: f64, measured: Option<f64>| {
        if let Some(measured) = measured.filter(|measured| measured.is_finite()) {
            claims.push(Claim::at_most(id, text, most, measured, 3));
        }
    };
    let (first, most) = (Kind::Poll(Engine::Idle, 1), Kind::Poll(Engine::Idle, MANY));
    let by = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    claim("P34.poll", "an empty poll, no-thread engine, ns: at most", 38.0, ns(Kind::Poll(Engine::None, 1)));
    claim("P34.loop", "an empty poll of the engine's own loop, ns: at most", 38.0, ns(first));
    claim(
        "P34.load",
        "an empty poll of the engine's own loop, in loads of a cached word: at most",
        4.0,
        by(ns(first), ns(Kind::Load)),
    );
    let more = |kind: Kind| Some((ns(kind)? - ns(first)?) / (approximate(MANY as u64) - 1.0));
    claim("P34.more", "each further source in memory adds, ns: at most", 10.0, more(most));
    claim("P34.event", "an empty event, us: at most", 1.68, ns(Kind::Event).map(|ns| ns / 1e3));
    for (id, provider) in [("P31.shm", Provider::Shm), ("P31.tcp", Provider::Tcp)] {
        let times = by(ns(Kind::Call(provider, Engine::Idle)), ns(Kind::Call(provider, Engine::None)));
        let text = format!(
            "{}, 32 B: a call with the engine, as a multiple of one without, at most",
            provider.name()
        );
        claim(id, &text, 1.05, times);
    }
    claims
}

const ENGINES: [Engine; 3] = [Engine::None, Engine::Timer(pronto_node::config::TIMER), Engine::Idle];
/// Number of sources of a row that shows the cost of each.
const MANY: usize = 17;
const SOURCES: [usize; 3] = [1, 2, MANY];
/// Operations within one that is timed: a load is shorter than the closure around it.
const INNER: u32 = 64;
const ATTEMPTS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, ns: f64) -> Row {
        Row { kind, ns: vec![ns] }
    }

    #[test]
    fn claims_follow_the_rows() {
        let idle = |sources| Kind::Poll(Engine::Idle, sources);
        let call = |engine| Kind::Call(Provider::Shm, engine);
        let rows = [
            row(Kind::Load, 1.0),
            row(Kind::Poll(Engine::None, 1), 39.0),
            row(idle(1), 3.9),
            row(idle(MANY), 3.9 + 16.0 * 11.0),
            row(Kind::Event, 1_600.0),
            row(call(Engine::None), 200.0),
            row(call(Engine::Idle), 212.0),
        ];
        let verdicts: Vec<_> = claims(&rows).iter().map(|claim| (claim.id, claim.holds())).collect();
        assert_eq!(
            verdicts,
            [
                ("P34.poll", false),
                ("P34.loop", true),
                ("P34.load", true),
                ("P34.more", false),
                ("P34.event", true),
                ("P31.shm", false),
            ]
        );
        assert!(claims(&[]).is_empty());
    }

    #[test]
    fn every_kind_of_poll_takes_some_time_and_ends() {
        for kind in Kind::all().into_iter().filter(|kind| !matches!(kind, Kind::Call(..))) {
            // On a busy machine, a short round may end before its first batch, or no round may reach one; then there is no result.
            let mut rounds =
                (0..10).map(|doubled| kind.round(Duration::from_millis(3 << doubled)).unwrap_or(0.0));
            let ns = rounds.find(|ns| *ns > 0.0);
            assert!(ns.is_some_and(|ns| ns < 1e7), "{kind:?}: {ns:?}");
        }
    }
}
