//! SEAM: local schedulers, one per node. A scheduler knows its node's tasks by [`Slot`] and its CPUs by [`Core`].
//!
//! The calls in the life of a task: [`Scheduler::admit`] once; [`Scheduler::wake`] when it becomes ready;
//! [`Scheduler::pick`] when a CPU needs a task, with the fate of the last one; [`Scheduler::charge`] for the time that
//! the current task ran, always before any other call that concerns its CPU; [`Scheduler::tick`] at each timer
//! interrupt of a CPU that runs a task. A scheduler uses only the time of its own node, and gets weights from the
//! policy through [`Scene`].

use core::fmt::Debug;

use pronto_sched_policy::policy::coschedule;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::time::Nanos;

use crate::clock::Clock;
use crate::id::{Core, ProcessId, Slot, TaskId};
use crate::policy::{Policy, View};

pub mod eevdf;
pub mod linux2;

/// The scheduler of a node.
pub trait Scheduler: Debug + Send {
    /// Returns the time between two timer interrupts.
    fn tick_period(&self) -> Nanos;

    /// Returns the end of a sleep of `span` that begins at `now`.
    fn sleep_ends(&self, clock: &Clock, now: Nanos, span: Nanos) -> Nanos;

    /// Adds a new task, asleep. Slots come in order.
    fn admit(&mut self, slot: Slot, terms: &Terms);

    /// Handles a task that became ready, through `waker`. Returns the CPU to reschedule, if any.
    fn wake(&mut self, slot: Slot, waker: Waker, scene: &mut Scene<'_>) -> Option<Reschedule>;

    /// Removes a ready task that is not on a CPU from the queue, because it is held.
    fn withdraw(&mut self, slot: Slot, scene: &mut Scene<'_>);

    /// Charges the current task of a CPU for the time that it ran since the last charge.
    fn charge(&mut self, core: Core, slot: Slot, ran: Nanos);

    /// Handles a timer interrupt of a CPU with a current task.
    fn tick(&mut self, core: Core, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule>;

    /// Picks the next task of a CPU; `None` leaves it idle. `last` was on it, and is in the queue unless `then` removes
    /// it.
    fn pick(&mut self, core: Core, last: Option<Last>, scene: &mut Scene<'_>) -> Option<Slot>;

    /// Handles a ready task that was preempted by the picked one; called after the switch.
    fn displaced(&mut self, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule> {
        let _ = (slot, scene);
        None
    }

    /// Returns the time after which [`Self::timer`] is called for the task that now runs, unless the CPU is rescheduled
    /// before.
    fn timer_in(&self, core: Core, slot: Slot) -> Option<Nanos> {
        let _ = (core, slot);
        None
    }

    /// Handles the timer of [`Self::timer_in`].
    fn timer(&mut self, core: Core, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule> {
        let _ = (slot, scene);
        Some(Reschedule { core, when: When::Now })
    }

    /// Changes the class of a task, which may be asleep, ready or running.
    fn classify(&mut self, slot: Slot, class: Class, scene: &mut Scene<'_>) -> Option<Reschedule>;

    /// Changes the nice value of a task.
    fn renice(&mut self, slot: Slot, nice: i8, scene: &mut Scene<'_>);

    /// Returns the ticks that the task has left, if the scheduler counts ticks.
    fn counter(&self, slot: Slot) -> Option<u32> {
        let _ = slot;
        None
    }
}

/// A scheduler's initial data about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Address space of the task.
    pub process: ProcessId,
    /// Nice value, -20 to 19.
    pub nice: i8,
    /// Requested slice, see [`crate::task::TaskOptions::slice`].
    pub slice: Option<Nanos>,
}

/// The class in which a task competes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Normal: ordered by the scheduler's rules.
    #[default]
    Normal,
    /// Above all that are not raised: `SCHED_FIFO`, priority 1.
    Raised,
}

/// The cause of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waker {
    /// An interrupt that this CPU handled: a timer, or an arrival.
    Interrupt(Core),
    /// The task that runs on this CPU.
    Task(Core),
}

impl Waker {
    /// Returns the CPU that caused it.
    #[must_use]
    pub const fn core(self) -> Core {
        match self {
            Self::Interrupt(core) | Self::Task(core) => core,
        }
    }
}

/// A request to reschedule a CPU with [`Scheduler::pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reschedule {
    /// CPU to reschedule.
    pub core: Core,
    /// Urgency of the request.
    pub when: When,
}

/// The urgency of a request to reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// At the CPU's next interrupt or when its task gives it up (lazy preemption).
    AtInterrupt,
    /// Now, by an interrupt if necessary.
    Now,
}

/// The last task of a CPU and its fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Last {
    /// Last task.
    pub slot: Slot,
    /// Fate of the task.
    pub then: Then,
}

/// The fate of a task that leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// It is still ready.
    Ready,
    /// It yields.
    Yields,
    /// It sleeps.
    Sleeps,
    /// It has ended.
    Exits,
}

/// The data that a scheduler may read while it decides.
#[derive(Debug)]
pub struct Scene<'a> {
    pub(crate) now: Nanos,
    pub(crate) policy: &'a mut dyn Policy,
    pub(crate) view: View<'a>,
    /// Tasks of the node, by slot.
    pub(crate) tasks: &'a [TaskId],
    /// Current task of each CPU.
    pub(crate) current: &'a [Option<Slot>],
}

impl Scene<'_> {
    /// Returns the current time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the current task of a CPU.
    #[must_use]
    pub fn current(&self, core: Core) -> Option<Slot> {
        self.current.get(core.index()).copied().flatten()
    }

    /// Returns the number of CPUs of the node.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.current.len()
    }

    /// Returns the weight of a task for a scheduler that counts ticks, without bonuses of the scheduler's own.
    pub fn goodness(&mut self, slot: Slot, fields: coschedule::Task) -> Level {
        self.policy.goodness(&self.view, self.tasks[slot.index()], fields)
    }

    /// Returns a counter in the next epoch.
    pub fn recharged(&mut self, counter: u32, quantum: u32) -> u32 {
        self.policy.recharged(counter, quantum)
    }
}
