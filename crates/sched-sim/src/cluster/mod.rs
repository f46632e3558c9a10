//! The cluster: nodes, tasks and connections, and the loop that advances time.
//!
//! # Invariants
//! 1. A task is on at most one CPU, and then its state names that CPU.
//! 2. For a CPU that runs a task, the end of the task's activity is among the events, or the task polls.
//! 3. After each event, every CPU that had to reschedule has done so.

mod command;
mod dispatch;
mod transfer;

use core::any::Any;
use std::collections::VecDeque;

use pronto_sched_policy::policy::contention::Contention;
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
use crate::task::{Disk, Paging, Port, State, Task, TaskOptions, Usage, Work};
use crate::trace::Trace;
use crate::workload::compute::Compute;

/// Options of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of the run: the same options and seed give the same run.
    pub seed: u64,
    /// Link between any two nodes.
    pub link: Link,
    /// CPU time of switching to a task.
    pub switch: Nanos,
    /// CPU time of a send, and of a receive: system call and protocol.
    pub call: Nanos,
    /// Cost of a wake-up that adaptive waits assume.
    pub wake_up: Nanos,
    /// Knowledge of adaptive waits about the load on their CPUs.
    pub knows: Knows,
    /// Largest drift of a node's clock, in millionths, either way.
    pub drift_ppm: u32,
}

impl Options {
    /// Returns the Ethernet of both papers, with kernel work as part of the link's latency, and quartz clocks.
    ///
    /// A drift of 30 millionths is typical of computer quartz; nothing in the papers depends on more than that clocks
    /// drift.
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

/// The knowledge of adaptive waits about the number of tasks that want to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knows {
    /// Everything: they never poll on a contended CPU. No real thread knows that much.
    #[default]
    Load,
    /// Evidence from polls (`sched-policy`'s `contention`), for each task by itself, as threads of Pronto do.
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
    /// Time until which its disk reads pages.
    disk_until: Nanos,
    /// Number of tasks that run or are ready, including held ones.
    ready: u32,
}

/// A CPU.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    node: NodeId,
    core: Core,
    current: Option<TaskId>,
    /// Time up to which its current task was charged.
    charged: Nanos,
    /// Time since which it is current.
    since: Nanos,
    /// Generations of the end of the current task's activity, and of the scheduler's timer.
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
    /// CPUs that must reschedule after the event.
    look_up: VecDeque<CpuId>,
    random: Random,
    records: Records,
    trace: Option<Trace>,
    alive: usize,
}

impl Cluster {
    /// Returns an empty cluster without a policy.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::with_policy(options, Box::new(Plain))
    }

    /// Returns an empty cluster under a policy.
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

    /// Adds a node with `cores` CPUs (at least one). Its timer interrupts begin at a random time.
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
            disk_until: Nanos::ZERO,
            ready: 0,
        });
        self.schedulers.push(scheduler);
        node
    }

    /// Returns a new address space.
    pub fn new_process(&mut self) -> ProcessId {
        self.processes += 1;
        ProcessId(self.processes)
    }

    /// Adds a task with its program to a node.
    pub fn spawn(&mut self, node: NodeId, options: TaskOptions, program: Box<dyn Program>) -> TaskId {
        let task = self.add_task(node, options);
        self.install(task, program);
        task
    }

    /// Sets a task's program, for tasks that must be connected before their program knows its ports.
    pub fn install(&mut self, task: TaskId, program: Box<dyn Program>) {
        self.programs[task.index()] = program;
    }

    /// Adds a task without a program to a node; it would exit immediately.
    ///
    /// # Panics
    /// Panics once the run has begun, because policies know all tasks from the start. [`TaskOptions::starts`] lets a
    /// task begin later.
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
            contention: Contention::NEW,
            random: Random::stream(self.options.seed, id.0.into()),
            generation: 0,
            usage: Usage::default(),
            paging: options.faults.map(|faults| Paging { faults, left: faults.every, disk: Disk::Idle }),
            ready_since: Nanos::ZERO,
        });
        self.programs.push(Box::new(Compute::of(Nanos::ZERO)));
        self.alive += 1;
        self.queue.enter(options.starts.max(self.now), Event::Wake { task: id, generation: 0 });
        id
    }

    /// Connects two tasks and returns the two ends. On one node the connection takes no time; between nodes it is a
    /// [`Link`].
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

    /// Returns the trace so far, if one was requested.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Advances time up to `until`; for long runs, call it repeatedly to show progress. Returns false once all tasks
    /// have ended.
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

    /// Runs until all tasks have ended, or for `most` at most. Returns the time at which the last one ended.
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

    /// Calls a hook of the policy, and carries out its commands.
    fn tell<R>(&mut self, hook: impl FnOnce(&mut dyn Policy, &mut Context<'_>) -> R) -> R {
        let view = View { now: self.now, tasks: &self.tasks, nodes: self.nodes.len() };
        let mut context = Context { view, commands: &mut self.commands };
        let result = hook(self.policy.as_mut(), &mut context);
        if !self.commands.is_empty() {
            self.carry_out();
        }
        result
    }

    /// Returns a node's scheduler, and the scene for its decision.
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

    /// Returns the current time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the number of events handled so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.handled
    }

    /// Returns the records of the programs.
    #[must_use]
    pub const fn records(&self) -> &Records {
        &self.records
    }

    /// Returns a task; its usage is that up to the last switch.
    #[must_use]
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// Returns the policy, for its statistics; `None` if it is of another type.
    #[must_use]
    pub fn policy<P: Policy>(&self) -> Option<&P> {
        (self.policy.as_ref() as &dyn Any).downcast_ref()
    }

    /// Returns the ticks that a task has left, if its scheduler counts ticks.
    #[must_use]
    pub fn counter(&self, task: TaskId) -> Option<u32> {
        let task = &self.tasks[task.index()];
        self.schedulers[task.node.index()].counter(task.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::Faults;

    #[test]
    fn a_task_with_page_faults_sleeps_while_the_only_disk_of_its_node_reads() {
        let ms = Nanos::from_millis;
        let ended = |tasks: usize| {
            let mut cluster = Cluster::new(Options::standard(1));
            let node = cluster.add_node(1, Box::new(Linux2::new(Version::V2_2)));
            let faults = Some(Faults { every: ms(10), takes: ms(30), pages: 16 });
            let options = TaskOptions { faults, ..TaskOptions::default() };
            let all: Vec<_> =
                (0..tasks).map(|_| cluster.spawn(node, options, Box::new(Compute::of(ms(95))))).collect();
            let end = cluster.run_to_end(ms(10_000)).expect("all end");
            assert!(all.iter().all(|task| cluster.task(*task).usage().faults == 9));
            end
        };
        assert_eq!(ended(1), ms(95 + 9 * 30));
        let two = ended(2);
        assert!(two >= ms(2 * 9 * 30) && two < ms(2 * 9 * 30 + 100), "reads follow each other: {two:?}");
    }
}
