//! SEAM: local schedulers. One per node; it knows its node's tasks by [`Slot`] and processors by [`Core`].
//!
//! The cluster calls, in this order of a task's life: [`Scheduler::admit`] once; [`Scheduler::wake`] when it becomes
//! ready; [`Scheduler::pick`] when a processor needs a task, with what became of the last one; [`Scheduler::charge`] for
//! the time that the current task ran, always before any other call that concerns its processor;
//! [`Scheduler::tick`] at each timer interrupt of a processor that runs a task. A scheduler never looks at the time of
//! others than its node, and asks the policy for weights through [`Scene`].

use core::fmt::Debug;

use pronto_sched_policy::policy::coschedule;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::time::Nanos;

use crate::clock::Clock;
use crate::id::{Core, ProcessId, Slot, TaskId};
use crate::policy::{Policy, View};

pub mod eevdf;
pub mod linux2;

/// How a node schedules.
pub trait Scheduler: Debug + Send {
    /// Time between two timer interrupts.
    fn tick_period(&self) -> Nanos;

    /// When a sleep of `span` that begins at `now` ends.
    fn sleep_ends(&self, clock: &Clock, now: Nanos, span: Nanos) -> Nanos;

    /// A new task, asleep. Slots come in order.
    fn admit(&mut self, slot: Slot, terms: &Terms);

    /// A task became ready, through `waker`. Says whether a processor should be given to somebody else.
    fn wake(&mut self, slot: Slot, waker: Waker, scene: &mut Scene<'_>) -> Option<Reschedule>;

    /// A ready task that is not on a processor is to leave the queue: it is held.
    fn withdraw(&mut self, slot: Slot, scene: &mut Scene<'_>);

    /// The current task of a processor ran for so long since it was last charged.
    fn charge(&mut self, core: Core, slot: Slot, ran: Nanos);

    /// A timer interrupt found this task on a processor.
    fn tick(&mut self, core: Core, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule>;

    /// Who runs next on a processor; `None` for nobody. `last` was on it, and is in the queue unless `leaves` says that
    /// it is not to be.
    fn pick(&mut self, core: Core, last: Option<Last>, scene: &mut Scene<'_>) -> Option<Slot>;

    /// A task that could have gone on has lost its processor to the one that was picked; called after the switch.
    fn displaced(&mut self, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule> {
        let _ = (slot, scene);
        None
    }

    /// A timer of the scheduler's own for the task that now runs: [`Self::timer`] is called after so long, unless the
    /// processor was rescheduled before.
    fn timer_in(&self, core: Core, slot: Slot) -> Option<Nanos> {
        let _ = (core, slot);
        None
    }

    /// That timer.
    fn timer(&mut self, core: Core, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule> {
        let _ = (slot, scene);
        Some(Reschedule { core, when: When::Now })
    }

    /// The task's class changes; it may be asleep, ready or running.
    fn classify(&mut self, slot: Slot, class: Class, scene: &mut Scene<'_>) -> Option<Reschedule>;

    /// The task's nice value changes.
    fn renice(&mut self, slot: Slot, nice: i8, scene: &mut Scene<'_>);

    /// Ticks that the task has left, where the scheduler counts such.
    fn counter(&self, slot: Slot) -> Option<u32> {
        let _ = slot;
        None
    }
}

/// What a scheduler knows of a task from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its address space.
    pub process: ProcessId,
    /// -20 to 19.
    pub nice: i8,
    /// See [`crate::task::TaskOptions::slice`].
    pub slice: Option<Nanos>,
}

/// What a task competes as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// As the scheduler sees fit.
    #[default]
    Normal,
    /// Above all that are not raised: `SCHED_FIFO`, priority 1.
    Raised,
}

/// Who made a task ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waker {
    /// An interrupt that this processor took: a timer, or an arrival.
    Interrupt(Core),
    /// The task that runs on this processor.
    Task(Core),
}

impl Waker {
    /// The processor that did it.
    #[must_use]
    pub const fn core(self) -> Core {
        match self {
            Self::Interrupt(core) | Self::Task(core) => core,
        }
    }
}

/// A processor is to be given to whoever [`Scheduler::pick`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reschedule {
    /// Which.
    pub core: Core,
    /// How soon.
    pub when: When,
}

/// How soon a processor looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// At its next interrupt or when it gives up by itself: nobody tells it (lazy preemption).
    AtInterrupt,
    /// Now: it is told, or takes an interrupt at this moment.
    Now,
}

/// Who was on a processor, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Last {
    /// Who.
    pub slot: Slot,
    /// What becomes of it.
    pub then: Then,
}

/// What becomes of a task that loses its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// It could go on.
    Ready,
    /// It let others go first.
    Yields,
    /// It sleeps.
    Sleeps,
    /// It is gone.
    Exits,
}

/// The world as a scheduler may see it while it decides.
#[derive(Debug)]
pub struct Scene<'a> {
    pub(crate) now: Nanos,
    pub(crate) policy: &'a mut dyn Policy,
    pub(crate) view: View<'a>,
    /// The node's tasks, by slot.
    pub(crate) tasks: &'a [TaskId],
    /// Who is on each processor.
    pub(crate) current: &'a [Option<Slot>],
}

impl Scene<'_> {
    /// The time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Who is on a processor.
    #[must_use]
    pub fn current(&self, core: Core) -> Option<Slot> {
        self.current.get(core.index()).copied().flatten()
    }

    /// How many processors the node has.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.current.len()
    }

    /// The weight of a task of a scheduler that counts ticks, without bonuses of the scheduler's own.
    pub fn goodness(&mut self, slot: Slot, fields: coschedule::Task) -> Level {
        self.policy.goodness(&self.view, self.tasks[slot.index()], fields)
    }

    /// A counter in the next epoch.
    pub fn recharged(&mut self, counter: u32, quantum: u32) -> u32 {
        self.policy.recharged(counter, quantum)
    }
}
