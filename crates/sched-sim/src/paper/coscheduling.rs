//! The coscheduling paper, section 4: NAS benchmarks and a master with slaves on four nodes, together with local tasks.
//!
//! # Assumptions where the paper is silent
//!
//! * Its kernel is a Linux with the counters and priorities of 2.2 (section 2). How a woken task preempts changed in its
//!   time: by counter in 2.2.1, by goodness in 2.3. Both are available ([`Setting::preemption`]).
//! * Local tasks belong to users: they begin at unrelated times, within two seconds, before the jobs do.
//! * A job's tasks begin within 50 ms of each other: PVM starts them one after the other.
//! * A context switch takes 10 us, in the order of what lmbench finds on such machines.
//! * Computation and messages of the benchmarks: [`crate::workload::parallel`].
//! * Master and slaves: messages of 4096 bytes, the paper's packet (smaller ones count nothing in its measure), computing
//!   of 1 ms, 2000 iterations.
//! * P "close to 0" and "close to 1" are 0.01 and 0.99 (the paper: "P=0 and P=1 represents values for P close to 0 and 1").

use pronto_sched_policy::policy::boost;
use pronto_sched_policy::policy::coschedule::{self, Prediction, Reading};
use pronto_sched_policy::policy::costs::Costs;
use pronto_sched_policy::policy::occupancy::Measure;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;

use crate::cluster::{Cluster, Knows, Options};
use crate::id::{NodeId, TaskId};
use crate::link::Link;
use crate::policy::Policy;
use crate::policy::boosted::{Boosted, Trigger};
use crate::policy::coscheduled::{Coscheduled, Past, Pressure};
use crate::policy::costed::Costed;
use crate::policy::observed::{Observed, Pattern};
use crate::policy::slotted::{Master, Row, Slotted, Switch};
use crate::policy::strobed::Strobed;
use crate::program::Wait;
use crate::random::Random;
use crate::scheduler::linux2::{self, Linux2, Preemption, Version};
use crate::task::{Faults, TaskOptions};
use crate::workload::compute::Compute;
use crate::workload::master_slave::{self, MasterSlave};
use crate::workload::parallel::{Rounds, Terms, is, mg, stencil};

/// Nodes of the paper.
pub const NODES: usize = 4;

/// Length of a slot of GANG and EXPLICIT: the time that 2.2 gives a task per epoch (section 2: 210 ms at most).
pub const SLOT: Nanos = Nanos::from_millis(200);

/// Period of the strobes of BCS: a tick, the shortest time in which this kernel acts by itself.
pub const STROBE: Nanos = Nanos::from_millis(10);

/// Time for which nodes trust a silent master, in longest slots.
const PATIENCE: u64 = 3;

/// Time at which jobs begin. Local tasks begin before [`LOCALS_BEGIN`]. Many nodes take long to simulate, so a grid
/// begins earlier.
const BEGIN: Nanos = Nanos::from_millis(3_000);
/// See [`BEGIN`].
const LOCALS_BEGIN: Nanos = Nanos::from_millis(2_000);
/// See [`BEGIN`].
const GRID_BEGIN: Nanos = Nanos::from_millis(1_000);
/// See [`BEGIN`].
const GRID_LOCALS_BEGIN: Nanos = Nanos::from_millis(900);
const SPAWN: Nanos = Nanos::from_millis(50);

/// CPU time of a context switch.
const SWITCH: Nanos = Nanos::from_micros(10);

/// Longest simulated time of a run.
const MOST: Nanos = Nanos::from_millis(4_000_000);

/// Interval of the check whether a run is over.
const LOOK: Nanos = Nanos::from_millis(500);

/// Coscheduling scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The paper's three policies, and how they count.
    Predicted(Prediction),
    /// PRED with a P that follows its waits.
    Auto(Measure),
    /// PRED with pressure carried in messages.
    Carried(Prediction),
    /// PRED+: PRED with latency, page faults and switches as further inputs.
    Costed(Prediction),
    /// All nodes switch at the same time.
    Gang,
    /// A master announces the switches; it may crash.
    Explicit {
        /// When it crashes, after the beginning of the jobs.
        crash: Option<Nanos>,
    },
    /// Communication held to global strobes.
    Bcs,
    /// DYN-PREEMPT: an arriving message raises its receiver above all other tasks immediately, within the budget of our boost, which
    /// keeps local tasks from starving.
    Preempting,
    /// LINUX with adaptive waits that always poll first: spin, then block.
    Implicit,
}

/// Application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum App {
    /// NAS IS, class A.
    Is,
    /// NAS MG, class A.
    Mg,
    /// NAS MG of another class.
    MgOf(mg::Class),
    /// IS of class A and MG of another class at the same time.
    Both(mg::Class),
    /// Master and slaves.
    MasterSlave,
    /// A grid, on any square number of nodes.
    Stencil(Grid),
}

/// A grid over a square of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Side of the square.
    pub side: usize,
    /// Work of a task in a round.
    pub grain: stencil::Grain,
    /// Rounds.
    pub rounds: u32,
}

impl Grid {
    /// Computing for 40 ms, a fifth of what a task gets in an epoch, and borders of a packet. Ours.
    #[must_use]
    pub const fn new(side: usize, rounds: u32) -> Self {
        Self { side, grain: stencil::Grain { compute: Nanos::from_millis(40), bytes: 4096 }, rounds }
    }
}

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// Duration of the jobs; local tasks go on for ever.
    Jobs,
    /// Duration of local tasks that need this CPU time; jobs restart for ever.
    Locals(Nanos),
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Coscheduling scheme.
    pub scheme: Scheme,
    /// How a woken task preempts.
    pub preemption: Preemption,
    /// How jobs wait.
    pub wait: Wait,
    /// Knowledge of adaptive waits about the load.
    pub knows: Knows,
    /// Application.
    pub app: App,
    /// Local tasks on each node.
    pub locals: usize,
    /// Measured quantity.
    pub measured: Measured,
    /// The network.
    pub link: Link,
    /// CPU time of a switch.
    pub switch: Nanos,
    /// Page faults of the tasks of jobs; `None` if all programs fit into memory, as in the paper.
    pub faults: Option<Faults>,
    /// Seed of clock phases, drift and begin times.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Seconds of each job, in the order of [`App::jobs`]; `None` if it did not end.
    pub jobs: Vec<Option<f64>>,
    /// Mean seconds of the local tasks, if they were measured and ended.
    pub locals: Option<f64>,
    /// Simulated time, seconds.
    pub simulated: f64,
    /// Events that were handled.
    pub events: u64,
    /// Share of the CPUs that local tasks had.
    pub local_share: f64,
    /// CPU time of the first job's tasks as a share of the time from their begin to their end.
    pub computing: f64,
}

impl Setting {
    /// The paper's kernel and machines under LINUX.
    #[must_use]
    pub fn plain(app: App, locals: usize, seed: u64) -> Self {
        Self {
            scheme: Scheme::Predicted(Prediction::default()),
            preemption: Preemption::ByGoodness,
            wait: Wait::Block,
            knows: Knows::Load,
            app,
            locals,
            measured: Measured::Jobs,
            link: Link::ETHERNET_100,
            switch: SWITCH,
            faults: None,
            seed,
        }
    }
}

/// Returns LINUX, DYN or PRED with the paper's packets, and the reading of its text instead of its printed algorithm.
#[must_use]
pub const fn predicted(policy: coschedule::Policy, past: Share) -> Prediction {
    Prediction { policy, measure: Measure::Packets, past, reading: Reading::Corrected }
}

impl App {
    /// Returns the names of its jobs.
    #[must_use]
    pub const fn jobs(self) -> &'static [&'static str] {
        match self {
            Self::Is => &["is"],
            Self::Mg | Self::MgOf(_) => &["mg"],
            Self::Both(_) => &["is", "mg"],
            Self::MasterSlave => &["master-slave"],
            Self::Stencil(_) => &["stencil"],
        }
    }

    /// Returns when its tasks begin.
    const fn begin(self) -> Nanos {
        if matches!(self, Self::Stencil(_)) { GRID_BEGIN } else { BEGIN }
    }

    /// Returns the time before which local tasks begin.
    const fn locals_begin(self) -> Nanos {
        if matches!(self, Self::Stencil(_)) { GRID_LOCALS_BEGIN } else { LOCALS_BEGIN }
    }

    const fn nodes(self) -> usize {
        match self {
            Self::Stencil(grid) => grid.side * grid.side,
            _ => NODES,
        }
    }
}

/// Runs the setting.
#[must_use]
pub fn run(setting: &Setting) -> Outcome {
    let finished = simulate(setting, policy);
    outcome(&finished.cluster, setting, &finished.jobs, &finished.locals)
}

/// Runs the setting, and observes the message pattern of its first job. The predictions of PRED with each of `pasts` are
/// compared.
#[must_use]
pub fn observe(setting: &Setting, pasts: &[Share]) -> (Outcome, Pattern) {
    let finished = simulate(setting, |setting, plan| Box::new(Observed::new(policy(setting, plan), pasts)));
    let outcome = outcome(&finished.cluster, setting, &finished.jobs, &finished.locals);
    let observed: &Observed = finished.cluster.policy().expect("the run has this policy");
    let pattern = observed.pattern(&finished.jobs[0]);
    (outcome, pattern)
}

/// A run that is over.
struct Finished {
    cluster: Cluster,
    jobs: Vec<Vec<TaskId>>,
    locals: Vec<TaskId>,
}

fn simulate(setting: &Setting, policy: impl FnOnce(&Setting, &Plan) -> Box<dyn Policy>) -> Finished {
    let mut random = Random::stream(setting.seed, u64::MAX - 1);
    let options = Options {
        switch: setting.switch,
        link: setting.link,
        knows: if setting.scheme == Scheme::Implicit { Knows::Nothing } else { setting.knows },
        ..Options::standard(setting.seed)
    };
    let plan = Plan::of(setting);
    let mut cluster = Cluster::with_policy(options, policy(setting, &plan));
    let nodes: Vec<NodeId> = (0..setting.app.nodes())
        .map(|_| {
            let scheduler = Linux2::new(Version::V2_2).preempting(setting.preemption);
            cluster.add_node(1, Box::new(scheduler))
        })
        .collect();
    let jobs = spawn_jobs(&mut cluster, setting, &nodes, &mut random);
    let mut locals = Vec::new();
    for node in nodes.iter().flat_map(|node| core::iter::repeat_n(node, setting.locals)) {
        let program = match setting.measured {
            Measured::Jobs => Compute::for_ever(),
            Measured::Locals(work) => Compute::of(work),
        };
        let starts = match setting.measured {
            Measured::Jobs => random.time_below(setting.app.locals_begin()),
            Measured::Locals(_) => setting.app.begin(),
        };
        locals.push(cluster.spawn(
            *node,
            TaskOptions { starts, ..TaskOptions::default() },
            Box::new(program),
        ));
    }
    debug_assert_eq!((&jobs, &locals), (&plan.jobs, &plan.locals), "tasks are numbered as planned");
    let awaited: Vec<TaskId> = match setting.measured {
        Measured::Jobs => jobs.iter().flatten().copied().collect(),
        Measured::Locals(_) => locals.clone(),
    };
    while cluster.now() < MOST && !awaited.iter().all(|task| cluster.task(*task).usage().ended.is_some()) {
        cluster.run_until(cluster.now().after(LOOK));
    }
    Finished { cluster, jobs, locals }
}

/// The planned tasks, numbered in the order of spawning, jobs first.
struct Plan {
    jobs: Vec<Vec<TaskId>>,
    locals: Vec<TaskId>,
}

impl Plan {
    fn of(setting: &Setting) -> Self {
        let nodes = setting.app.nodes();
        let sizes: &[usize] = match setting.app {
            App::Is | App::Mg | App::MgOf(_) | App::Stencil(_) => &[nodes],
            App::Both(_) => &[nodes, nodes],
            App::MasterSlave => &[1 + 2 * (NODES - 1)],
        };
        let mut next = 0;
        let mut take = |count: usize| -> Vec<TaskId> {
            next += count;
            (next - count..next).map(TaskId::at).collect()
        };
        let jobs = sizes.iter().map(|size| take(*size)).collect();
        Self { jobs, locals: take(nodes * setting.locals) }
    }
}

fn policy(setting: &Setting, plan: &Plan) -> Box<dyn Policy> {
    let coscheduled = |prediction, past, pressure| {
        Box::new(Coscheduled::new(prediction, past, pressure)) as Box<dyn Policy>
    };
    let slotted = |switch| {
        let mut rows: Vec<Row> =
            plan.jobs.iter().map(|tasks| Row { tasks: tasks.clone(), length: SLOT }).collect();
        if setting.locals > 0 {
            // A slot for each local task of a node, all in one row: no task gets more than without gangs.
            rows.push(Row { tasks: plan.locals.clone(), length: SLOT.times(setting.locals as u64) });
        }
        Box::new(Slotted::new(rows, switch)) as Box<dyn Policy>
    };
    match setting.scheme {
        Scheme::Predicted(prediction) => coscheduled(prediction, Past::Fixed, Pressure::Local),
        Scheme::Carried(prediction) => coscheduled(prediction, Past::Fixed, Pressure::Carried),
        Scheme::Costed(prediction) => {
            let round_trip = setting.link.latency.times(2);
            let costs = Costs { round_trip, switch: setting.switch, tick: linux2::TICK };
            Box::new(Costed::new(prediction, costs))
        }
        Scheme::Auto(measure) => {
            let pred = Prediction { measure, ..predicted(coschedule::Policy::Predictive, Share::HALF) };
            coscheduled(pred, Past::Auto, Pressure::Local)
        }
        Scheme::Implicit => coscheduled(Prediction::default(), Past::Fixed, Pressure::Local),
        Scheme::Gang => slotted(Switch::Clock),
        Scheme::Explicit { crash } => slotted(Switch::Master(Master {
            node: NodeId(0),
            crashes: crash.map(|after| setting.app.begin().after(after)),
            patience: Some(SLOT.times(PATIENCE * setting.locals.max(1) as u64)),
        })),
        Scheme::Bcs => Box::new(Strobed::new(STROBE)),
        Scheme::Preempting => Box::new(Boosted::new(Trigger::Arrival, boost::Terms::standard())),
    }
}

fn spawn_jobs(
    cluster: &mut Cluster,
    setting: &Setting,
    nodes: &[NodeId],
    random: &mut Random,
) -> Vec<Vec<TaskId>> {
    let mut terms = |rounds: u32| Terms {
        wait: setting.wait,
        rounds: if setting.measured == Measured::Jobs { Rounds::Times(rounds) } else { Rounds::Endless },
        tasks: TaskOptions {
            starts: setting.app.begin().after(random.time_below(SPAWN)),
            faults: setting.faults,
            ..TaskOptions::default()
        },
    };
    match setting.app {
        App::Is => vec![is::spawn(cluster, nodes, is::Class::A, &terms(1)).tasks],
        App::Mg => vec![mg::spawn(cluster, nodes, mg::Class::A, &terms(1)).tasks],
        App::MgOf(class) => vec![mg::spawn(cluster, nodes, class, &terms(1)).tasks],
        App::Both(class) => vec![
            is::spawn(cluster, nodes, is::Class::A, &terms(1)).tasks,
            mg::spawn(cluster, nodes, class, &terms(1)).tasks,
        ],
        App::Stencil(grid) => vec![stencil::spawn(cluster, nodes, grid.grain, &terms(grid.rounds)).tasks],
        App::MasterSlave => {
            let options = master_slave::Options {
                bytes: 4096,
                compute: Nanos::from_millis(1),
                iterations: if setting.measured == Measured::Jobs { 2_000 } else { u32::MAX },
                wait: setting.wait,
                tasks: terms(1).tasks,
            };
            let app = MasterSlave::spawn(cluster, nodes, options);
            let pairs = app.receivers.iter().zip(&app.repliers);
            vec![core::iter::once(app.master).chain(pairs.flat_map(|(a, b)| [*a, *b])).collect()]
        }
    }
}

fn outcome(cluster: &Cluster, setting: &Setting, jobs: &[Vec<TaskId>], locals: &[TaskId]) -> Outcome {
    #[expect(clippy::cast_precision_loss, reason = "a run is far shorter than 2^53 ns")]
    let seconds = |time: Nanos| time.0 as f64 / 1e9;
    let ended = |task: &TaskId| cluster.task(*task).usage().ended;
    let last = |tasks: &[TaskId]| {
        tasks.iter().map(ended).try_fold(Nanos::ZERO, |last, at| at.map(|at| last.max(at)))
    };
    let took = |tasks: &Vec<TaskId>| {
        // The master reports the time of its application; later work of slaves is not counted.
        let tasks = if setting.app == App::MasterSlave { &tasks[..1] } else { &tasks[..] };
        last(tasks).map(|at| seconds(at.since(setting.app.begin())))
    };
    let of_locals: Option<Vec<f64>> =
        locals.iter().map(|task| ended(task).map(|at| seconds(at.since(setting.app.begin())))).collect();
    #[expect(clippy::cast_precision_loss, reason = "there are few tasks")]
    let mean = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
    let simulated = seconds(cluster.now());
    let ran: f64 = locals.iter().map(|task| seconds(cluster.task(*task).usage().ran)).sum();
    #[expect(clippy::cast_precision_loss, reason = "there are few nodes")]
    let all = simulated * setting.app.nodes() as f64;
    let first = jobs.first().map_or(&[][..], Vec::as_slice);
    let begun = setting.app.begin();
    let present = |task: &TaskId| seconds(ended(task).unwrap_or_else(|| cluster.now()).since(begun));
    let computed: f64 = first.iter().map(|task| seconds(cluster.task(*task).usage().ran)).sum();
    Outcome {
        jobs: jobs.iter().map(took).collect(),
        computing: computed / first.iter().map(present).sum::<f64>(),
        locals: of_locals.filter(|all| !all.is_empty()).map(mean),
        simulated,
        events: cluster.events(),
        local_share: ran / all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: [u64; 3] = [1, 2, 3];

    /// Returns the seconds of the first job, one per seed.
    fn seconds(setting: &Setting) -> Vec<f64> {
        let run = |seed: u64| run(&Setting { seed, ..*setting }).jobs[0].expect("it ends");
        SEEDS.map(run).to_vec()
    }

    fn with(setting: &Setting, policy: coschedule::Policy, hundredths: u32) -> Setting {
        Setting { scheme: Scheme::Predicted(predicted(policy, Share::percent(hundredths))), ..*setting }
    }

    fn mean(all: &[f64]) -> f64 {
        all.iter().sum::<f64>() / f64::from(u32::try_from(all.len()).unwrap())
    }

    #[test]
    fn alone_all_schemes_take_the_same() {
        let plain = Setting::plain(App::Mg, 0, 1);
        let alone = seconds(&plain);
        for scheme in [
            Scheme::Predicted(predicted(coschedule::Policy::Predictive, Share::percent(99))),
            Scheme::Auto(Measure::BytesAndMessages),
            Scheme::Gang,
            Scheme::Explicit { crash: None },
        ] {
            // A master's messages take some of the line.
            let same = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 1e-4;
            let took = seconds(&Setting { scheme, ..plain });
            assert!(took.iter().zip(&alone).all(same), "{scheme:?}: {took:?} {alone:?}");
        }
    }

    #[test]
    fn with_five_local_tasks_pred_beats_dyn_and_dyn_beats_linux() {
        let plain = Setting::plain(App::Mg, 5, 1);
        let [linux, dynamic, predictive] = [
            (coschedule::Policy::Linux, 1),
            (coschedule::Policy::Dynamic, 1),
            (coschedule::Policy::Predictive, 99),
        ]
        .map(|(policy, past)| mean(&seconds(&with(&plain, policy, past))));
        assert!(predictive < dynamic && dynamic < linux, "{predictive} {dynamic} {linux}");
    }

    #[test]
    fn where_counters_alone_preempt_frequencies_hardly_matter() {
        let plain = Setting { preemption: Preemption::ByCounter, ..Setting::plain(App::Mg, 5, 1) };
        let linux = mean(&seconds(&with(&plain, coschedule::Policy::Linux, 1)));
        let predictive = mean(&seconds(&with(&plain, coschedule::Policy::Predictive, 99)));
        assert!((predictive / linux - 1.0).abs() < 0.01, "{predictive} {linux}");
    }

    #[test]
    fn local_tasks_keep_their_share_unless_the_algorithm_is_run_as_printed() {
        let share = |reading| {
            let prediction = predicted(coschedule::Policy::Predictive, Share::percent(99));
            let scheme = Scheme::Predicted(Prediction { reading, ..prediction });
            run(&Setting { scheme, ..Setting::plain(App::Is, 3, 1) }).local_share
        };
        assert!(share(Reading::Corrected) > 0.7, "three of four tasks are local");
        assert!(share(Reading::Printed) < share(Reading::Corrected) - 0.1);
    }

    #[test]
    fn arriving_messages_preempt_and_local_tasks_keep_their_share() {
        let plain = Setting::plain(App::Mg, 3, 1);
        let outcome = run(&Setting { scheme: Scheme::Preempting, ..plain });
        let took = outcome.jobs[0].expect("it ends");
        assert!(took < run(&plain).jobs[0].expect("it ends"), "{took}");
        assert!(outcome.local_share > 0.7, "three of four tasks are local: {}", outcome.local_share);
    }

    #[test]
    fn page_faults_lengthen_a_job_and_pred_plus_recovers_some_of_it() {
        let faults = Faults { every: Nanos::from_millis(50), takes: Nanos::from_millis(10), pages: 16 };
        let plain = Setting::plain(App::Is, 0, 1);
        let [without, with] = [None, Some(faults)].map(|faults| mean(&seconds(&Setting { faults, ..plain })));
        // Each task computes for 6 s: 120 faults of 10 ms.
        assert!((1.1..1.4).contains(&(with - without)), "{with} {without}");
        let busy = Setting { faults: Some(faults), ..Setting::plain(App::Is, 5, 1) };
        let pred = predicted(coschedule::Policy::Predictive, Share::percent(99));
        let [pred, plus] = [Scheme::Predicted(pred), Scheme::Costed(pred)]
            .map(|scheme| mean(&seconds(&Setting { scheme, ..busy })));
        assert!(plus < pred, "{plus} {pred}");
    }

    #[test]
    fn the_cpu_time_of_local_tasks_is_measured() {
        let measured = Measured::Locals(Nanos::from_millis(5_000));
        let outcome = run(&Setting { measured, ..Setting::plain(App::Is, 2, 1) });
        let took = outcome.locals.expect("they end");
        assert!(
            (10.0..15.5).contains(&took),
            "5 s each, next to another one and a job that sometimes waits: {took}"
        );
    }

    #[test]
    fn spinning_with_local_tasks_loses_and_a_crashed_master_stops_nothing() {
        let plain = Setting::plain(App::Is, 1, 1);
        let [block, spin] = [Wait::Block, Wait::Spin].map(|wait| mean(&seconds(&Setting { wait, ..plain })));
        assert!(spin > 2.0 * block, "{spin} {block}");
        let crash = Some(Nanos::from_millis(2_000));
        assert_eq!(seconds(&Setting { scheme: Scheme::Explicit { crash }, ..plain }).len(), 3);
    }
}
