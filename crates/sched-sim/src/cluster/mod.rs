//! The cluster: nodes, tasks and connections, and the loop that lets time pass.
//!
//! # Invariants
//! 1. A task is on at most one processor, and then its state says so.
//! 2. A processor that runs a task has either an end of what the task does among the events, or the task polls.
//! 3. After each event every processor that was to look up has done so.

mod command;
mod dispatch;
mod transfer;

use core::any::Any;
use std::collections::VecDeque;

use pronto_sched_policy::policy::crowding::Crowding;
use pronto_sched_policy::policy::occupancy::Occupancy;
use pronto_sched_policy::policy::spin::Spin;
use pronto_sched_policy::policy::time::Nanos;

use crate::clock::Clock;
use crate::event::{Event, EventQueue};
use crate::id::{Core, CpuId, Endpoint, NodeId, PortId, ProcessId, Slot, TaskId};
use crate::link::{Line, Link};
use crate::message::{Fragment, InFlight};
use crate::policy::{Command, Context, Control, Plain, Policy, View};
use crate::program::Program;
use crate::random::Random;
use crate::record::Records;
use crate::scheduler::{Scene, Scheduler, Terms, When};
use crate::task::{Port, State, Task, TaskOptions, Usage, Work};
use crate::trace::Trace;
use crate::workload::compute::Compute;

/// What holds for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The run's seed: same options and seed, same run.
    pub seed: u64,
    /// Between any two nodes.
    pub link: Link,
    /// Processor time of taking a task onto a processor.
    pub switch: Nanos,
    /// Processor time of a send, and of a receive: system call and protocol.
    pub call: Nanos,
    /// What a sleeping task's wake-up is taken to cost by adaptive waits.
    pub wake_up: Nanos,
    /// What adaptive waits know of the load on their processors.
    pub knows: Knows,
    /// Clocks of nodes differ by so many millionths at most, either way.
    pub drift_ppm: u32,
}

impl Options {
    /// The Ethernet of both papers, work in the kernel taken as part of the link's latency, quartz clocks.
    ///
    /// 30 millionths are what quartz of computers keeps; nothing in the papers depends on more than that clocks drift.
    #[must_use]
    pub const fn standard(seed: u64) -> Self {
        Self {
            seed,
            link: Link::ETHERNET_100,
            switch: Nanos::ZERO,
            call: Nanos::ZERO,
            wake_up: Nanos::from_micros(50),
            knows: Knows::Load,
            drift_ppm: 30,
        }
    }
}

/// What adaptive waits know of how many tasks want to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knows {
    /// All of it: on a processor that others want they never poll. No real thread knows so much.
    #[default]
    Load,
    /// What polls have shown (`sched-policy`'s `crowding`), each task for itself, as threads of Pronto do.
    Polls,
    /// Nothing.
    Nothing,
}

/// A node.
#[derive(Debug)]
struct Node {
    first_cpu: CpuId,
    tasks: Vec<TaskId>,
    current: Vec<Option<Slot>>,
    clock: Clock,
    line: Line,
    /// Tasks that run or are ready, held ones too.
    ready: u32,
}

/// A processor.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    node: NodeId,
    core: Core,
    current: Option<TaskId>,
    /// Up to when its current task was charged.
    charged: Nanos,
    /// Since when it is current.
    since: Nanos,
    /// Generations of the end of what the current task does, and of the scheduler's timer.
    done: u32,
    slice: u32,
    slice_until: Option<Nanos>,
    ticks: bool,
    reschedule: Option<When>,
}

/// The simulated cluster. Build it with [`Self::add_node`], [`Self::spawn`], [`Self::connect`]; then [`Self::run_until`].
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    now: Nanos,
    begun: bool,
    queue: EventQueue,
    handled: u64,
    nodes: Vec<Node>,
    schedulers: Vec<Box<dyn Scheduler>>,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    programs: Vec<Box<dyn Program>>,
    policy: Box<dyn Policy>,
    commands: Vec<Command>,
    fragments: InFlight<Fragment>,
    letters: InFlight<Control>,
    arrivals: u64,
    processes: u32,
    /// Processors that are to look up once the event is handled.
    look_up: VecDeque<CpuId>,
    random: Random,
    records: Records,
    trace: Option<Trace>,
    alive: usize,
}

impl Cluster {
    /// An empty cluster without a policy.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::with_policy(options, Box::new(Plain))
    }

    /// An empty cluster under a policy.
    #[must_use]
    pub fn with_policy(options: Options, policy: Box<dyn Policy>) -> Self {
        Self {
            options,
            now: Nanos::ZERO,
            begun: false,
            queue: EventQueue::default(),
            handled: 0,
            nodes: Vec::new(),
            schedulers: Vec::new(),
            cpus: Vec::new(),
            tasks: Vec::new(),
            programs: Vec::new(),
            policy,
            commands: Vec::new(),
            fragments: InFlight::default(),
            letters: InFlight::default(),
            arrivals: 0,
            processes: 0,
            look_up: VecDeque::new(),
            random: Random::stream(options.seed, u64::MAX),
            records: Records::default(),
            trace: None,
            alive: 0,
        }
    }

    /// A node with so many processors (at least one). Its timer interrupts begin at a random time.
    pub fn add_node(&mut self, cores: u32, scheduler: Box<dyn Scheduler>) -> NodeId {
        let node = NodeId::at(self.nodes.len());
        let first_cpu = CpuId::at(self.cpus.len());
        let period = scheduler.tick_period();
        let phase = self.random.time_below(period);
        let most = u64::from(self.options.drift_ppm);
        let drift = self.random.below(2 * most + 1).cast_signed() - most.cast_signed();
        for core in 0..cores.max(1) {
            self.cpus.push(Cpu {
                node,
                core: Core(core),
                current: None,
                charged: Nanos::ZERO,
                since: Nanos::ZERO,
                done: 0,
                slice: 0,
                slice_until: None,
                ticks: false,
                reschedule: None,
            });
        }
        self.nodes.push(Node {
            first_cpu,
            tasks: Vec::new(),
            current: vec![None; cores.max(1) as usize],
            clock: Clock::new(phase, period, drift),
            line: Line::default(),
            ready: 0,
        });
        self.schedulers.push(scheduler);
        node
    }

    /// A new address space.
    pub fn new_process(&mut self) -> ProcessId {
        self.processes += 1;
        ProcessId(self.processes)
    }

    /// A task on a node, with its program.
    pub fn spawn(&mut self, node: NodeId, options: TaskOptions, program: Box<dyn Program>) -> TaskId {
        let task = self.add_task(node, options);
        self.install(task, program);
        task
    }

    /// Gives a task its program: for those that must be connected before their program knows its ports.
    pub fn install(&mut self, task: TaskId, program: Box<dyn Program>) {
        self.programs[task.index()] = program;
    }

    /// A task on a node, without a program as yet: it would exit at once.
    ///
    /// # Panics
    /// Once the run has begun: policies know all tasks from the start. Let a task begin later by
    /// [`TaskOptions::starts`].
    pub fn add_task(&mut self, node: NodeId, options: TaskOptions) -> TaskId {
        assert!(!self.begun, "tasks are added before the run begins");
        let id = TaskId::at(self.tasks.len());
        let process = options.process.unwrap_or_else(|| self.new_process());
        let on_node = &mut self.nodes[node.index()].tasks;
        let slot = Slot::at(on_node.len());
        on_node.push(id);
        let terms = Terms { process, nice: options.nice, slice: options.slice };
        self.schedulers[node.index()].admit(slot, &terms);
        self.tasks.push(Task {
            node,
            slot,
            process,
            user: options.user,
            state: State::Asleep,
            held: false,
            ports: Vec::new(),
            occupancy: Vec::new(),
            work: Work::default(),
            spin: Spin::NEW,
            crowding: Crowding::NEW,
            random: Random::stream(self.options.seed, id.0.into()),
            generation: 0,
            usage: Usage::default(),
            ready_since: Nanos::ZERO,
        });
        self.programs.push(Box::new(Compute::of(Nanos::ZERO)));
        self.alive += 1;
        self.queue.enter(options.starts.max(self.now), Event::Wake { task: id, generation: 0 });
        id
    }

    /// A connection between two tasks, and its two ends. On one node it takes no time; between nodes it is a [`Link`].
    pub fn connect(&mut self, a: TaskId, b: TaskId) -> (PortId, PortId) {
        let port = |cluster: &Self, task: TaskId| PortId::at(cluster.tasks[task.index()].ports.len());
        let at_a = Endpoint { task: a, port: port(self, a) };
        self.open(at_a);
        let at_b = Endpoint { task: b, port: port(self, b) };
        self.open(at_b);
        self.port_mut(at_a).peer = at_b;
        self.port_mut(at_b).peer = at_a;
        (at_a.port, at_b.port)
    }

    fn open(&mut self, end: Endpoint) {
        let task = &mut self.tasks[end.task.index()];
        let (received, refused) = (VecDeque::new(), VecDeque::new());
        task.ports.push(Port { peer: end, flagged: false, received, refused });
        task.occupancy.push(Occupancy::default());
    }

    /// Flags a port for the boost: `fcntl(fd, F_SETFL, O_EXPEDITE)` (Expedite, section 3.3).
    pub fn flag(&mut self, task: TaskId, port: PortId) {
        self.port_mut(Endpoint { task, port }).flagged = true;
    }

    /// Begins to record a trace.
    pub fn record_trace(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    /// The trace so far, if one was asked for.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Lets time pass up to `until`; call it repeatedly for long runs, to show progress. False once all tasks ended.
    pub fn run_until(&mut self, until: Nanos) -> bool {
        self.begin();
        while self.alive > 0 {
            let Some((at, event)) = self.queue.due(until) else {
                self.now = self.now.max(until);
                return true;
            };
            self.now = at;
            self.handled += 1;
            self.handle(event);
            self.look_up();
        }
        false
    }

    /// Runs until all tasks have ended, or for so long at most. Gives the time at which the last one ended.
    pub fn run_to_end(&mut self, most: Nanos) -> Option<Nanos> {
        (!self.run_until(most)).then_some(self.now)
    }

    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.tell(|policy, context| policy.start(context));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick { cpu } => self.tick(cpu),
            Event::Slice { cpu, generation } => self.slice_over(cpu, generation),
            Event::Done { cpu, generation } => self.done(cpu, generation),
            Event::Wake { task, generation } => self.sleep_over(task, generation),
            Event::Arrive { fragment } => self.arrive(fragment),
            Event::Acknowledged { fragment } => self.acknowledged(fragment),
            Event::Policy { key } => {
                self.tell(|policy, context| policy.timer(context, key));
            }
            Event::Control { letter } => {
                let control = self.letters.take(letter);
                self.tell(|policy, context| policy.control(context, control));
            }
        }
    }

    /// Calls a hook of the policy, and carries out what it orders.
    fn tell<R>(&mut self, hook: impl FnOnce(&mut dyn Policy, &mut Context<'_>) -> R) -> R {
        let view = View { now: self.now, tasks: &self.tasks, nodes: self.nodes.len() };
        let mut context = Context { view, commands: &mut self.commands };
        let result = hook(self.policy.as_mut(), &mut context);
        if !self.commands.is_empty() {
            self.carry_out();
        }
        result
    }

    /// A node's scheduler, and the scene it decides in.
    fn scheduling(&mut self, node: NodeId) -> (&mut dyn Scheduler, Scene<'_>) {
        let at = &self.nodes[node.index()];
        let scene = Scene {
            now: self.now,
            policy: self.policy.as_mut(),
            view: View { now: self.now, tasks: &self.tasks, nodes: self.nodes.len() },
            tasks: &at.tasks,
            current: &at.current,
        };
        (self.schedulers[node.index()].as_mut(), scene)
    }

    fn port_mut(&mut self, end: Endpoint) -> &mut Port {
        &mut self.tasks[end.task.index()].ports[end.port.index()]
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Events handled so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.handled
    }

    /// What programs recorded.
    #[must_use]
    pub const fn records(&self) -> &Records {
        &self.records
    }

    /// Forgets what programs recorded so far: the end of a warm-up.
    pub fn clear_records(&mut self) {
        self.records.clear();
    }

    /// A task; its usage is that up to the last switch.
    #[must_use]
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// The policy, to ask what it counted; `None` if it is of another type.
    #[must_use]
    pub fn policy<P: Policy>(&self) -> Option<&P> {
        (self.policy.as_ref() as &dyn Any).downcast_ref()
    }

    /// Ticks that a task has left, where its scheduler counts such.
    #[must_use]
    pub fn counter(&self, task: TaskId) -> Option<u32> {
        let task = &self.tasks[task.index()];
        self.schedulers[task.node.index()].counter(task.slot)
    }
}
