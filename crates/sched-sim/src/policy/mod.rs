//! SEAM: cluster policies. One for the whole cluster; it is told what happens, and answers with weights and commands.
//!
//! Commands are carried out right after the hook that gave them, in their order. Hooks are called at most once per event, in
//! the order of events; none is called from within another. Rules (frequencies, budgets, weights) are
//! [`pronto_sched_policy`]'s: a policy here holds their state and reports to them.

use core::any::Any;
use core::fmt::Debug;

use pronto_sched_policy::policy::coschedule::{self, Prediction, Reading};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::time::Nanos;

pub mod boosted;
pub mod coscheduled;
pub mod counter_rule;
pub mod slotted;
pub mod strobed;
pub mod unblocked;

use crate::id::{CpuId, NodeId, PortId, TaskId};
use crate::message::Message;
use crate::scheduler::Class;
use crate::task::Task;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The time.
    pub now: Nanos,
    pub(crate) tasks: &'a [Task],
    pub(crate) nodes: usize,
}

impl View<'_> {
    /// A task.
    #[must_use]
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// All tasks, in the order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.iter().enumerate().map(|(index, task)| (TaskId::at(index), task))
    }

    /// How many nodes there are.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }
}

/// What a policy may look at, and order.
#[derive(Debug)]
pub struct Context<'a> {
    /// What it may look at.
    pub view: View<'a>,
    pub(crate) commands: &'a mut Vec<Command>,
}

impl Context<'_> {
    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.view.now
    }

    /// Puts a task above all that are not raised, or back among them. Processors are given up at once for it.
    pub fn classify(&mut self, task: TaskId, class: Class) {
        self.commands.push(Command::Classify { task, class });
    }

    /// Keeps a task from running, as if stopped, until [`Self::release`].
    pub fn hold(&mut self, task: TaskId) {
        self.commands.push(Command::Hold { task });
    }

    /// Lets a task run that was held.
    pub fn release(&mut self, task: TaskId) {
        self.commands.push(Command::Release { task });
    }

    /// Gives a task another nice value.
    pub fn renice(&mut self, task: TaskId, nice: i8) {
        self.commands.push(Command::Renice { task, nice });
    }

    /// Lets a processor choose anew.
    pub fn reschedule(&mut self, cpu: CpuId) {
        self.commands.push(Command::Reschedule { cpu });
    }

    /// Calls [`Policy::timer`] with `key` at a time. Timers are not cancelled: count generations in the key.
    pub fn timer(&mut self, at: Nanos, key: u64) {
        self.commands.push(Command::Timer { at, key });
    }

    /// Sends a control message over the same links as all messages; it takes no processor time at either end.
    pub fn send_control(&mut self, from: NodeId, to: NodeId, word: u64) {
        self.commands.push(Command::Control { from, to, word });
    }

    /// Takes processor time from whoever runs there: the policy's own work.
    pub fn steal(&mut self, cpu: CpuId, time: Nanos) {
        self.commands.push(Command::Steal { cpu, time });
    }
}

/// An order of the policy.
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

/// When a message may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Departure {
    /// As soon as the line is free.
    #[default]
    Now,
    /// Not before this time: it is held in the sender's socket.
    At(Nanos),
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Sent by the policy on this node.
    pub from: NodeId,
    /// To the policy on this node.
    pub to: NodeId,
    /// What the policy wrote.
    pub word: u64,
}

/// A policy. Every hook does nothing unless it says otherwise.
pub trait Policy: Debug + Send + Any {
    /// The run begins: all nodes and tasks are there.
    fn start(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// A task hands a fragment of a message over; it may write the message's pressure.
    fn sending(&mut self, context: &mut Context<'_>, message: &mut Message) -> Departure {
        let _ = (context, message);
        Departure::Now
    }

    /// A fragment has arrived in its receiver's socket. Called before the receiver is woken for it.
    fn arrived(&mut self, context: &mut Context<'_>, message: &Message) {
        let _ = (context, message);
    }

    /// A running task is about to sleep until a message comes; `port` is `None` if any port will do, and `flagged` says
    /// whether one of those it waits on is flagged for the boost.
    fn waiting(&mut self, context: &mut Context<'_>, task: TaskId, port: Option<PortId>, flagged: bool) {
        let _ = (context, task, port, flagged);
    }

    /// A task was made ready. Its scheduler has not been asked yet.
    fn woken(&mut self, context: &mut Context<'_>, task: TaskId, cause: Cause) {
        let _ = (context, task, cause);
    }

    /// A processor passes from one task to another, either of which may be nobody.
    fn switched(
        &mut self,
        context: &mut Context<'_>,
        cpu: CpuId,
        before: Option<TaskId>,
        after: Option<TaskId>,
    ) {
        let _ = (context, cpu, before, after);
    }

    /// A timer interrupt found a task on a processor.
    fn ticked(&mut self, context: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let _ = (context, cpu, task);
    }

    /// A timer that was asked for.
    fn timer(&mut self, context: &mut Context<'_>, key: u64) {
        let _ = (context, key);
    }

    /// A control message has arrived.
    fn control(&mut self, context: &mut Context<'_>, control: Control) {
        let _ = (context, control);
    }

    /// A task has ended.
    fn exited(&mut self, context: &mut Context<'_>, task: TaskId) {
        let _ = (context, task);
    }

    /// The weight of a task for a scheduler that counts ticks: plainly, counter and priority, or nothing without counter.
    fn goodness(&mut self, view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        let _ = (view, task);
        coschedule::goodness(fields, Frequency::NEW, &[], &Prediction::default()).1
    }

    /// A counter in the next epoch: plainly, half of what is left and the quantum.
    fn recharged(&self, counter: u32, quantum: u32) -> u32 {
        coschedule::recharged(counter, quantum, Reading::Corrected)
    }
}

/// Why a task was made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It begins.
    Start,
    /// Its sleep is over.
    Timer,
    /// A message it waits for.
    Message,
    /// Room in its socket.
    Room,
    /// It was held, and is not any more.
    Release,
}

/// LINUX: no policy at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain;

impl Policy for Plain {}
