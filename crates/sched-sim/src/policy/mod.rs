//! SEAM: cluster policies. One policy for the whole cluster receives events, and responds with weights and commands.
//!
//! Commands are carried out in order, right after the hook that gave them. Hooks are called at most once per event, in
//! the order of events, and never from within another hook. Rules (frequencies, budgets, weights) are in
//! [`pronto_sched_policy`]; a policy here holds their state and reports events to them.

use core::any::Any;
use core::fmt::Debug;

use pronto_sched_policy::policy::coschedule::{self, Prediction, Reading};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::time::Nanos;

pub mod boosted;
pub mod coscheduled;
pub mod costed;
pub mod counter_rule;
pub mod observed;
pub mod slotted;
pub mod strobed;
pub mod unblocked;

use crate::id::{CpuId, NodeId, PortId, TaskId};
use crate::message::Message;
use crate::scheduler::Class;
use crate::task::Task;

/// Read access of a policy to the cluster.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Current time.
    pub now: Nanos,
    pub(crate) tasks: &'a [Task],
    pub(crate) nodes: usize,
}

impl View<'_> {
    /// Returns a task.
    #[must_use]
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// Returns all tasks, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.iter().enumerate().map(|(index, task)| (TaskId::at(index), task))
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }
}

/// Access of a policy to the cluster, for reading and for commands.
#[derive(Debug)]
pub struct Context<'a> {
    /// Read access.
    pub view: View<'a>,
    pub(crate) commands: &'a mut Vec<Command>,
}

impl Context<'_> {
    /// Returns the current time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.view.now
    }

    /// Raises a task above all that are not raised, or lowers it. CPUs are rescheduled for it immediately.
    pub fn classify(&mut self, task: TaskId, class: Class) {
        self.commands.push(Command::Classify { task, class });
    }

    /// Keeps a task from running, as if stopped, until [`Self::release`].
    pub fn hold(&mut self, task: TaskId) {
        self.commands.push(Command::Hold { task });
    }

    /// Lets a held task run again.
    pub fn release(&mut self, task: TaskId) {
        self.commands.push(Command::Release { task });
    }

    /// Sets a task's nice value.
    pub fn renice(&mut self, task: TaskId, nice: i8) {
        self.commands.push(Command::Renice { task, nice });
    }

    /// Makes a CPU reschedule.
    pub fn reschedule(&mut self, cpu: CpuId) {
        self.commands.push(Command::Reschedule { cpu });
    }

    /// Calls [`Policy::timer`] with `key` at time `at`. Timers cannot be cancelled: put a generation into the key.
    pub fn timer(&mut self, at: Nanos, key: u64) {
        self.commands.push(Command::Timer { at, key });
    }

    /// Sends a control message over the same links as all messages; it takes no CPU time at either end.
    pub fn send_control(&mut self, from: NodeId, to: NodeId, word: u64) {
        self.commands.push(Command::Control { from, to, word });
    }

    /// Takes CPU time from the task that runs there, for the policy's own work.
    pub fn steal(&mut self, cpu: CpuId, time: Nanos) {
        self.commands.push(Command::Steal { cpu, time });
    }
}

/// A command of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Classify { task: TaskId, class: Class },
    Hold { task: TaskId },
    Release { task: TaskId },
    Renice { task: TaskId, nice: i8 },
    Reschedule { cpu: CpuId },
    Timer { at: Nanos, key: u64 },
    Control { from: NodeId, to: NodeId, word: u64 },
    Steal { cpu: CpuId, time: Nanos },
}

/// The time at which a message may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departure {
    /// Leaves as soon as the line is free.
    #[default]
    Now,
    /// Leaves at this time or later; until then it is held in the sender's socket.
    At(Nanos),
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Sending node.
    pub from: NodeId,
    /// Receiving node.
    pub to: NodeId,
    /// Content, chosen by the policy.
    pub word: u64,
}

/// A policy. By default every hook does nothing.
pub trait Policy: Debug + Send + Any {
    /// Handles the begin of the run; all nodes and tasks exist.
    fn start(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Handles a fragment that a task hands over; may write the message's pressure.
    fn sending(&mut self, context: &mut Context<'_>, message: &mut Message) -> Departure {
        let _ = (context, message);
        Departure::Now
    }

    /// Handles a fragment that has arrived in its receiver's socket. Called before the receiver is woken for it.
    fn arrived(&mut self, context: &mut Context<'_>, message: &Message) {
        let _ = (context, message);
    }

    /// Handles a running task that is about to sleep until a message comes. `port` is `None` if any port will do;
    /// `flagged` tells whether one of those it waits on is flagged for the boost.
    fn waiting(&mut self, context: &mut Context<'_>, task: TaskId, port: Option<PortId>, flagged: bool) {
        let _ = (context, task, port, flagged);
    }

    /// Handles a task that was made ready, before its scheduler is called.
    fn woken(&mut self, context: &mut Context<'_>, task: TaskId, cause: Cause) {
        let _ = (context, task, cause);
    }

    /// Handles a switch of a CPU from one task to another; `None` is an idle CPU.
    fn switched(
        &mut self,
        context: &mut Context<'_>,
        cpu: CpuId,
        before: Option<TaskId>,
        after: Option<TaskId>,
    ) {
        let _ = (context, cpu, before, after);
    }

    /// Handles a timer interrupt during which a task runs on the CPU.
    fn ticked(&mut self, context: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let _ = (context, cpu, task);
    }

    /// Handles a timer that the policy requested.
    fn timer(&mut self, context: &mut Context<'_>, key: u64) {
        let _ = (context, key);
    }

    /// Handles a control message that has arrived.
    fn control(&mut self, context: &mut Context<'_>, control: Control) {
        let _ = (context, control);
    }

    /// Handles the end of a task.
    fn exited(&mut self, context: &mut Context<'_>, task: TaskId) {
        let _ = (context, task);
    }

    /// Returns the weight of a task for a scheduler that counts ticks. By default it is counter plus priority, or zero
    /// without counter.
    fn goodness(&mut self, view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        let _ = (view, task);
        coschedule::goodness(fields, Frequency::NEW, &[], &Prediction::default()).1
    }

    /// Returns a counter in the next epoch. By default it is half of the rest plus the quantum.
    fn recharged(&self, counter: u32, quantum: u32) -> u32 {
        coschedule::recharged(counter, quantum, Reading::Corrected)
    }
}

/// The reason why a task was made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The task begins.
    Start,
    /// The task's sleep is over.
    Timer,
    /// A message that it waits for has arrived.
    Message,
    /// Its socket has room.
    Room,
    /// Its pages were read.
    Pages,
    /// A policy released it.
    Release,
}

/// LINUX: no policy at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain;

impl Policy for Plain {}
