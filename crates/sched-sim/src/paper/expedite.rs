//! Expedite, sections 4 and 5: ping-pong with background tasks, and scatter with `top` in the background.
//!
//! # Assumptions where the paper is silent
//!
//! * The background of the ping-pong runs on the ponger's machine. With it on both machines delays add up, and a ceiling
//!   of 5 ms (figure 1b) could not be seen.
//! * Messages are handled in 30 us of CPU time: system call, protocol and program on a Pentium III (ours).
//! * "Ping every 50 milliseconds" is a sleep of 50 ms between pings, which 2.4 makes 50 to 60 ms.
//! * A context switch takes no time: the paper's effects are a hundred times larger.
//! * Pairs begin at random times, within a cycle of `sleep-mostly`. The paper does not say when the copies of `sleep-mostly`
//!   begin, and timers of the old kernel keep them in step or out of step for ever. [`Phases::Apart`] gives the ceiling of 5 ms
//!   by itself: no two of them compute at the same time. [`Phases::Anywhere`] assumes nothing. Copies of `top` begin anywhere.
//! * Timers also keep pings in step with `sleep-mostly`, until the machines' clocks have drifted apart by a tick, which takes
//!   20 minutes or more. So a trial is many short runs ([`BOOT_PINGS`]), each with clocks of its own.
//! * A rank's part of the scatter is 1 KiB.

use pronto_sched_policy::policy::boost;
use pronto_sched_policy::policy::time::Nanos;

use crate::cluster::{Cluster, Options};
use crate::id::{NodeId, TaskId};
use crate::policy::boosted::{Boosted, Trigger};
use crate::policy::counter_rule::CounterRule;
use crate::policy::unblocked::BoostOnUnblock;
use crate::policy::{Plain, Policy};
use crate::program::Wait;
use crate::random::Random;
use crate::scheduler::Scheduler;
use crate::scheduler::eevdf::{Eevdf, Preemption};
use crate::scheduler::linux2::{Linux2, TICK, Version};
use crate::task::TaskOptions;
use crate::trace::Trace;
use crate::workload::compute::Compute;
use crate::workload::ping_pong::{self, Pair, ROUND_TRIP};
use crate::workload::scatter;
use crate::workload::sleeper::{self, Sleeper};

/// The boost for flagged waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Boost {
    /// None: the existing kernel.
    None,
    /// The paper's rule: ten ticks.
    Counter,
    /// Our budget: a thread pays only for boosted time, at most a tenth of a CPU.
    Budget,
    /// Our budget with the paper's intent: for tasks that use little of a CPU in total.
    Sleepers,
    /// Dynamic coscheduling that preempts: on arrival, flagged or not.
    DynPreempt,
    /// Boost for every task that unblocks.
    OnUnblock,
}

impl Boost {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Counter, Self::Budget, Self::Sleepers, Self::DynPreempt, Self::OnUnblock];

    fn policy(self) -> Box<dyn Policy> {
        let boosted = |trigger, terms| Box::new(Boosted::new(trigger, terms));
        match self {
            Self::None => Box::new(Plain),
            Self::Counter => Box::<CounterRule>::default(),
            Self::Budget => boosted(Trigger::FlaggedWait, boost::Terms::standard()),
            Self::Sleepers => boosted(Trigger::FlaggedWait, boost::Terms::for_sleepers()),
            Self::DynPreempt => boosted(Trigger::Arrival, boost::Terms::standard()),
            Self::OnUnblock => Box::<BoostOnUnblock>::default(),
        }
    }
}

/// The kernel of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Linux 2.4, the paper's (2.4.25).
    Linux24,
    /// Linux 7.2 with lazy preemption, as it is shipped.
    Eevdf,
    /// Linux 7.2 with lazy preemption, and pinging tasks that request the shortest slice, which needs no privilege.
    EevdfShort,
}

impl Kernel {
    fn scheduler(self) -> Box<dyn Scheduler> {
        match self {
            Self::Linux24 => Box::new(Linux2::new(Version::V2_4)),
            Self::Eevdf | Self::EevdfShort => Box::new(Eevdf::new(1, Preemption::Lazy)),
        }
    }

    /// Returns the slice that pinging tasks request.
    fn slice(self) -> Option<Nanos> {
        (self == Self::EevdfShort).then_some(SHORT_SLICE)
    }
}

/// When the copies of `sleep-mostly` begin, within a cycle of computing and sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phases {
    /// In different parts of the cycle, so that at most one of them computes at a time.
    Apart,
    /// At random times, independent of each other, drawn anew for each run.
    Anywhere,
    /// At the same tick.
    InStep,
}

/// One trial of the ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingPong {
    /// The machines' kernel.
    pub kernel: Kernel,
    /// Boost of flagged pairs.
    pub boost: Boost,
    /// Whether `compute-only` runs in the background.
    pub compute_only: bool,
    /// Number of `sleep-mostly` in the background.
    pub sleep_mostly: u32,
    /// When the copies of `sleep-mostly` begin.
    pub phases: Phases,
    /// Pairs of processes.
    pub pairs: u32,
    /// Number of flagged pairs, counted from the first.
    pub flagged: u32,
    /// CPU time of the ponger after each pong.
    pub extra: Nanos,
    /// Pings of each pair.
    pub pings: u32,
}

/// The shortest slice that EEVDF grants.
const SHORT_SLICE: Nanos = Nanos::from_micros(100);
/// "500-byte messages".
const BYTES: u32 = 500;
/// "Ping every 50 milliseconds".
const PAUSE: Nanos = Nanos::from_millis(50);
/// Assumption, see the module's documentation.
const HANDLING: Nanos = Nanos::from_micros(30);
/// A pair that takes longer than this for a ping has been starved; no trial does.
const LONGEST_PING: Nanos = Nanos::from_millis(500);

impl PingPong {
    /// Returns the setting of section 4.1: one pair without background tasks, on the paper's kernel.
    #[must_use]
    pub const fn alone(pings: u32) -> Self {
        Self {
            kernel: Kernel::Linux24,
            boost: Boost::None,
            compute_only: false,
            sleep_mostly: 0,
            phases: Phases::Apart,
            pairs: 1,
            flagged: 1,
            extra: Nanos::ZERO,
            pings,
        }
    }

    /// Runs it: several runs of at most [`BOOT_PINGS`] pings, one after another, merged.
    #[must_use]
    pub fn run(&self, seed: u64) -> PingPongOutcome {
        let mut merged = PingPongOutcome::default();
        let mut left = self.pings;
        for boot in 0.. {
            let pings = left.min(BOOT_PINGS);
            if pings == 0 {
                return merged;
            }
            let own_seed = Random::stream(seed, BOOT_STREAM + boot).draw();
            merged.append(Self { pings, ..*self }.boot(own_seed, None));
            left -= pings;
        }
        merged
    }

    /// Simulates one run from boot to end, with a trace if one is given.
    #[must_use]
    pub fn boot(&self, seed: u64, trace: Option<Trace>) -> PingPongOutcome {
        let mut cluster = Cluster::with_policy(Options::standard(seed), self.boost.policy());
        let nodes = [0, 1].map(|_| cluster.add_node(1, self.kernel.scheduler()));
        if let Some(trace) = trace {
            cluster.record_trace(trace);
        }
        let mut starts = Random::stream(seed, START_STREAM);
        let pairs: Vec<_> = (0..self.pairs).map(|_| self.pair(&mut cluster, nodes, &mut starts)).collect();
        for pair in pairs.iter().take(self.flagged as usize) {
            pair.flag(&mut cluster);
        }
        let compute = self
            .compute_only
            .then(|| cluster.spawn(nodes[1], TaskOptions::default(), Box::new(Compute::for_ever())));
        let sleepers = self.sleepers(&mut cluster, nodes[1], &mut starts);
        let most = WARM_UP.after(PAUSE.after(LONGEST_PING).times(u64::from(self.pings) + 1));
        let pinging =
            |cluster: &Cluster| pairs.iter().any(|pair| cluster.task(pair.pinger).usage().ended.is_none());
        cluster.run_until(WARM_UP);
        let warm_up = usage(&cluster, compute);
        while pinging(&cluster) && cluster.now() < most {
            cluster.run_until(cluster.now().after(PAUSE));
        }
        PingPongOutcome::of(&cluster, &pairs, (compute, warm_up), &sleepers)
    }

    fn sleepers(&self, cluster: &mut Cluster, node: NodeId, starts: &mut Random) -> Vec<TaskId> {
        let copies = u64::from(self.sleep_mostly);
        let part = Nanos(CYCLE.0 / copies.max(1));
        let mut spawn = |copy| {
            // Neighbours are a tick apart at least.
            let within = Nanos(part.since(TICK).0.max(1));
            let starts = match self.phases {
                Phases::Apart => WARM_UP.after(part.times(copy)).after(starts.time_below(within)),
                Phases::Anywhere => WARM_UP.after(starts.time_below(CYCLE)),
                Phases::InStep => WARM_UP,
            };
            let program = Sleeper::new(sleeper::Options::SLEEP_MOSTLY);
            cluster.spawn(node, TaskOptions { starts, ..TaskOptions::default() }, Box::new(program))
        };
        (0..copies).map(&mut spawn).collect()
    }

    fn pair(&self, cluster: &mut Cluster, nodes: [NodeId; 2], starts: &mut Random) -> Pair {
        let options = ping_pong::Options {
            bytes: BYTES,
            pause: PAUSE,
            handling: HANDLING,
            extra: self.extra,
            wait: Wait::Block,
            pings: self.pings,
        };
        let starts = WARM_UP.after(starts.time_below(CYCLE));
        let tasks = TaskOptions { starts, slice: self.kernel.slice(), ..TaskOptions::default() };
        Pair::spawn(cluster, nodes, options, tasks)
    }
}

/// Delay of sleeping tasks after computing ones, in which all counters reach their fixpoint.
const WARM_UP: Nanos = Nanos::from_millis(1_000);
/// Pings of one run; 3 s.
pub const BOOT_PINGS: u32 = 50;
/// A cycle of `sleep-mostly`: 5 ms and a sleep of 45, which 2.4 makes 55.
const CYCLE: Nanos = Nanos::from_millis(60);

/// Random streams that no task uses, for begin times and for the seeds of runs.
const START_STREAM: u64 = 1 << 40;
const BOOT_STREAM: u64 = 1 << 41;

/// Results of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PingPongOutcome {
    /// Round trips of each pair, in order: time and length, in nanoseconds.
    pub round_trips: Vec<Vec<(Nanos, u64)>>,
    /// CPU time of `compute-only`, as a share of all.
    pub compute_share: f64,
    /// CPU time of all `sleep-mostly`, as a share of all.
    pub sleepers_share: f64,
    /// Number of boosts that the first pair's ponger requested.
    pub asked: u64,
    /// Number of boosts that the first pair's ponger was granted.
    pub granted: u64,
    /// Time from the end of the warm-up to the end, of all runs.
    pub length: Nanos,
    /// Events that were handled.
    pub events: u64,
    /// The trace, if one was kept.
    pub trace: Option<Trace>,
}

impl PingPongOutcome {
    /// Appends another run.
    fn append(&mut self, next: Self) {
        let before = self.length;
        self.length = before.after(next.length);
        let weight = ratio(before.0, self.length.0);
        self.compute_share = self.compute_share * weight + next.compute_share * (1.0 - weight);
        self.sleepers_share = self.sleepers_share * weight + next.sleepers_share * (1.0 - weight);
        self.round_trips.resize(next.round_trips.len(), Vec::new());
        for (all, more) in self.round_trips.iter_mut().zip(next.round_trips) {
            all.extend(more.into_iter().map(|(at, took)| (before.after(at), took)));
        }
        self.asked += next.asked;
        self.granted += next.granted;
        self.events += next.events;
    }

    /// `compute` with what it had used in the warm-up, in which sleepers do nothing yet.
    fn of(cluster: &Cluster, pairs: &[Pair], compute: (Option<TaskId>, Nanos), sleepers: &[TaskId]) -> Self {
        let trips = |pair: &Pair| {
            let records = cluster.records().all().iter();
            let own = records.filter(|record| record.task == pair.pinger && record.series == ROUND_TRIP);
            own.map(|record| (record.at, record.value)).collect()
        };
        let length = cluster.now().since(WARM_UP);
        let share = |ran: Nanos| ratio(ran.0, length.0);
        let (compute, warm_up) = compute;
        let first = pairs.first().map(|pair| pair.ponger);
        let counted = first.and_then(|ponger| {
            let counter = cluster.policy::<CounterRule>().map(|policy| policy.count(ponger));
            let boosted = cluster.policy::<Boosted>().map(|policy| policy.count(ponger));
            let counter = counter.map(|count| (count.waits, count.boosted));
            counter.or_else(|| boosted.map(|count| (count.asked, count.granted)))
        });
        let (asked, granted) = counted.unwrap_or_default();
        Self {
            round_trips: pairs.iter().map(trips).collect(),
            compute_share: share(usage(cluster, compute).since(warm_up)),
            sleepers_share: sleepers.iter().fold(0.0, |sum, task| sum + share(usage(cluster, Some(*task)))),
            asked,
            granted,
            length,
            events: cluster.events(),
            trace: cluster.trace().cloned(),
        }
    }

    /// Returns the share of a pair's round trips that took at least `late`.
    #[must_use]
    pub fn late(&self, pair: usize, late: Nanos) -> f64 {
        let trips = &self.round_trips[pair];
        let count = trips.iter().filter(|(_, took)| *took >= late.0).count();
        ratio(count as u64, trips.len() as u64)
    }

    /// Returns a pair's longest round trip, in nanoseconds.
    #[must_use]
    pub fn longest(&self, pair: usize) -> u64 {
        self.round_trips[pair].iter().map(|(_, took)| *took).max().unwrap_or(0)
    }

    /// Returns a pair's mean round trip, in nanoseconds.
    #[must_use]
    pub fn mean(&self, pair: usize) -> f64 {
        let trips = &self.round_trips[pair];
        ratio(trips.iter().map(|(_, took)| took).sum(), trips.len() as u64)
    }
}

/// Returns the CPU time that a task, if there is one, has used.
fn usage(cluster: &Cluster, task: Option<TaskId>) -> Nanos {
    task.map_or(Nanos::ZERO, |task| cluster.task(task).usage().ran)
}

#[expect(clippy::cast_precision_loss, reason = "statistics need 3 digits, this keeps 15")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One trial of the scatter (section 5): eight nodes, `top` on the fifth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// The machines' kernel.
    pub kernel: Kernel,
    /// Thread that forwards; flagged handlers get the boost.
    pub forwarding: scatter::Forwarding,
    /// Boost of flagged handlers.
    pub boost: Boost,
    /// Copies of `top` on rank 4: "4 copies of `top` updating with a one-second delay".
    pub tops: u32,
    /// CPU time of one update of `top`; see [`TOP`].
    pub top: Nanos,
    /// Whether all copies of `top` wake at the same tick.
    pub in_step: bool,
    /// Rounds; 35,000 in the paper.
    pub rounds: u32,
}

/// "An eight-node `MPI_Scatter()`".
pub const RANKS: usize = 8;
/// "On rank 4, we run 4 copies of `top`".
pub const DISTURBED: usize = 4;
/// CPU time of one update of `top -d 1`. The paper does not state it; it follows from the paper's first result. Four
/// copies take `4 * 0.12 s * b` a second from 120 ms of computing: "over six milliseconds" of waiting, in addition to
/// the half millisecond of the scatter itself. This gives 12 ms. The other results follow from it.
pub const TOP: Nanos = Nanos::from_millis(12);
/// "120 milliseconds without background computation".
const COMPUTE: Nanos = Nanos::from_millis(120);
/// Assumption, see the module's documentation.
const RANK_BYTES: u32 = 1024;
/// A round that takes longer than this never ends.
const LONGEST_ROUND: Nanos = Nanos::from_millis(2_000);

impl Scatter {
    /// Runs the trial; returns the time that each rank spent on each scatter, in nanoseconds.
    #[must_use]
    pub fn run(&self, seed: u64) -> ScatterOutcome {
        let mut cluster = Cluster::with_policy(Options::standard(seed), self.boost.policy());
        let nodes: Vec<_> = (0..RANKS).map(|_| cluster.add_node(1, self.kernel.scheduler())).collect();
        let options = scatter::Options {
            compute: COMPUTE,
            bytes: RANK_BYTES,
            handling: HANDLING,
            forwarding: self.forwarding,
            rounds: self.rounds,
        };
        let ranks = scatter::spawn(&mut cluster, &nodes, options);
        let mut starts = Random::stream(seed, START_STREAM);
        for _ in 0..self.tops {
            let program = Sleeper::new(sleeper::Options::top(self.top));
            let second = sleeper::Options::top(self.top).sleep;
            let starts = if self.in_step { TICK } else { starts.time_below(second) };
            let tasks = TaskOptions { starts, ..TaskOptions::default() };
            cluster.spawn(nodes[DISTURBED], tasks, Box::new(program));
        }
        let most = LONGEST_ROUND.times(u64::from(self.rounds) + 1);
        let going = |cluster: &Cluster| cluster.task(ranks[0]).usage().ended.is_none();
        while going(&cluster) && cluster.now() < most {
            cluster.run_until(cluster.now().after(LONGEST_ROUND));
        }
        let spent = |rank: &TaskId| cluster.records().of(*rank, scatter::SPENT).collect();
        ScatterOutcome { spent: ranks.iter().map(spent).collect(), events: cluster.events() }
    }
}

/// Results of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScatterOutcome {
    /// Time spent, by rank and round.
    pub spent: Vec<Vec<u64>>,
    /// Events that were handled.
    pub events: u64,
}

impl ScatterOutcome {
    /// Returns the mean time that a rank spent, in nanoseconds.
    #[must_use]
    pub fn mean(&self, rank: usize) -> f64 {
        let spent = &self.spent[rank];
        ratio(spent.iter().sum(), spent.len() as u64)
    }
}

#[cfg(test)]
mod tests;
