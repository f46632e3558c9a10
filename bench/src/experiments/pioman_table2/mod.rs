//! `pioman-table2`: the cost of an empty poll, by engine, of calls that may block, and of an engine for a call.

mod blocking;
mod calls;
mod claims;
mod polls;

use core::time::Duration;

use pronto::progress::Engine;

use crate::echo::Provider;
use crate::experiment::{Experiment, Rounds, Run};
use crate::params::Axis;
use crate::placement::{ONE_CPU, alone};
use crate::rendezvous::receiver::{ENGINES, name};
use crate::report::{Fields, Report, decimals};
use crate::sample::{a_to_a, median};
use blocking::Call;
use calls::Calls;

/// An engine's own loop is measured, not a copy: its CPU time over a round is divided by the polls in it.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pioman-table2",
    question: "What does it cost to look for a message and find none, and to leave a call that may block to a spare?",
    takes: [40, 15],
    paper: Some("pioman"),
    figure: Some("Table 2"),
    about: "cost of empty polls and events, of blocking with and without a spare, and of a call while an engine runs",
    axes: &[
        Axis::new("what", "Only these rows", &WHATS),
        Axis::new("engine", "Only these engines", &["-", "none", "timer", "idle"]),
    ],
    // 21 rows take 30 s.
    rounds: [Rounds::new(21, 60), Rounds::new(5, 60)],
    claims: &[
        "P34.poll",
        "P34.loop",
        "P34.load",
        "P34.more",
        "P34.blocking",
        "P34.spare",
        "P35",
        "P31.shm",
        "P31.tcp",
    ],
    run,
    ..Experiment::DEFAULT
};

fn run(run: &mut Run<'_>) -> anyhow::Result<Report> {
    let (params, pair, caller) = (run.params, run.placement.pair(), run.cpus.caller);
    let mut report = Report::default();
    // Measured before any thread is pinned, because the result has to hold for two CPUs.
    pronto_node::wake_up_cost();
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
        .with(
            "engine_off",
            "call: without an engine or with the timer, the serving side also loops over Node::progress",
        )
        .with(
            "event",
            "an eventfd that stays readable: arm, recheck, sleep, its poll, disarm; no thread is woken",
        )
        .with("blocking", "an empty call within Manager::may_block")
        .with(
            "spare",
            "from an event until a spare serves it, as the serving thread blocks in a call; all on one CPU",
        )
        .with("without", "the same without a spare, in a call of 50 ms, the computation of Fig. 3")
        .with("timer", "a thread that sets the timer of a spare and waits for it");
    report.claims = claims::of(&rows);
    if pair.is_none() && params.chosen().next().is_none() {
        report.claims.extend(claims::on_one_cpu());
    }
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
    /// A call that may block, and does nothing.
    Blocking,
    /// The floor of a spare: the timer that wakes it.
    Timer,
    /// The delay of an event while a call blocks.
    Blocked(Call),
    /// A call of 32 bytes while both nodes have this engine.
    Call(Provider, Engine),
}

impl Kind {
    fn all() -> Vec<Self> {
        let polls = ENGINES.into_iter().flat_map(|engine| SOURCES.map(|sources| Self::Poll(engine, sources)));
        let blocking = [Call::Announced, Call::Bare].map(Self::Blocked);
        let calls = Provider::ALL.into_iter().flat_map(|p| ENGINES.map(|e| Self::Call(p, e)));
        [Self::Load]
            .into_iter()
            .chain(polls)
            .chain([Self::Event, Self::Blocking, Self::Timer])
            .chain(blocking)
            .chain(calls)
            .collect()
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Poll(..) => "poll",
            Self::Event => "event",
            Self::Blocking => "blocking",
            Self::Timer => "timer",
            Self::Blocked(Call::Announced) => "spare",
            Self::Blocked(Call::Bare) => "without",
            Self::Call(..) => "call",
        }
    }

    const fn engine_name(self) -> &'static str {
        match self {
            Self::Load | Self::Timer => "-",
            Self::Event | Self::Blocking | Self::Blocked(_) => "idle",
            Self::Poll(engine, _) | Self::Call(_, engine) => name(engine),
        }
    }

    /// Returns the time of one operation in nanoseconds.
    fn round(self, budget: Duration) -> anyhow::Result<f64> {
        match self {
            Self::Load => polls::load(budget),
            Self::Poll(Engine::Idle, sources) => polls::own_loop(sources, budget),
            Self::Poll(engine, sources) => polls::by_call(engine, sources, budget),
            Self::Event => polls::event(budget),
            Self::Blocking => blocking::empty(budget),
            Self::Timer => blocking::timer(budget),
            Self::Blocked(call) => blocking::delay(call, budget),
            Self::Call(..) => anyhow::bail!("a call row is measured between nodes, not here"),
        }
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

/// Returns the paper's result for an empty poll or an empty blocking call, on a 1.8 GHz Opteron.
fn paper_us(kind: Kind) -> Option<f64> {
    match kind {
        Kind::Poll(engine, 1) => Some(match engine {
            Engine::None => 0.038,
            Engine::Timer(_) => 0.085,
            Engine::Idle => 0.142,
        }),
        Kind::Blocking => Some(1.68),
        _ => None,
    }
}

fn ns_of(rows: &[Row], kind: Kind) -> Option<f64> {
    rows.iter().find(|row| row.kind == kind && !row.ns.is_empty()).map(Row::ns)
}

/// Values of the column.
const WHATS: [&str; 8] = ["load", "poll", "event", "blocking", "timer", "spare", "without", "call"];
/// Number of sources of a row that shows the cost of each.
const MANY: usize = 17;
const SOURCES: [usize; 3] = [1, 2, MANY];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_selected() {
        let kinds = Kind::all();
        assert!(WHATS.iter().all(|what| kinds.iter().any(|kind| kind.what() == *what)));
        assert!(kinds.iter().all(|kind| WHATS.contains(&kind.what())));
    }

    #[test]
    fn every_kind_of_poll_takes_some_time_and_ends() {
        for kind in Kind::all().into_iter().filter(|kind| !matches!(kind, Kind::Call(..))) {
            let ns = kind.round(Duration::from_millis(10)).unwrap();
            assert!(ns > 0.0 && ns.is_finite(), "{kind:?}: {ns}");
        }
    }
}
