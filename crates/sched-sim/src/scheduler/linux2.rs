//! Linux 2.2 and 2.4: every task has a counter of ticks, and the one with the most goodness runs.
//!
//! Sources: `kernel/sched.c` of 2.2.1 and of 2.4, `kernel/timer.c` of 2.4, `update_process_times` in 2.2's
//! `kernel/sched.c`. The clock ticks 100 times a second, and a whole tick is charged to the task that runs at that
//! moment. Kernel code is not preempted; here it takes no time.
//!
//! | | 2.2 | 2.4 |
//! | --- | --- | --- |
//! | ticks earned per epoch, nice 0 | 20, the priority | 6: a quarter of 20, and one |
//! | in the weight, next to the counter | priority, 20 - nice | 20 - nice |
//! | a task stops at a tick | below zero | at zero |
//! | woken tasks go to the queue's | front | tail |
//! | and preempt | with over 3 more ticks than the current task, or raised | with more goodness |
//! | all spent: recharge, and then | the first of the queue runs | the choice is repeated |
//! | weight of a yielding task | 0 | -1, below the spent |
//!
//! In both: half of the ticks left are carried over, sleepers too; one more for sharing memory with the last task; the
//! first in the queue wins a tie.
//!
//! # Invariants
//! 1. `queue` holds the ready and the running tasks, each once, and no others.
//! 2. A counter never exceeds twice the quantum.

use pronto_sched_policy::policy::coschedule;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::time::Nanos;

use super::{Class, Last, Reschedule, Scene, Scheduler, Terms, Then, Waker, When};
use crate::clock::Clock;
use crate::id::{Core, ProcessId, Slot};

/// `HZ` is 100 on the papers' machines ("1 tick = 10 ms").
pub const TICK: Nanos = Nanos::from_millis(10);

/// 2.2, `reschedule_idle`: a woken task preempts with more than three ticks more.
const PREEMPTS_WITH: u32 = 3;

/// `PROC_CHANGE_PENALTY` of i386 (`include/asm-i386/smp.h`), with more than one CPU only: a bonus for the CPU that a
/// task ran on last.
const SAME_CORE: Level = Level::packets(15);

/// The `rt_priority` of raised tasks.
const RAISED: u32 = 1;

/// A kernel version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// 2.2, of the coscheduling paper.
    V2_2,
    /// 2.4, of the Expedite paper.
    V2_4,
}

/// The rule by which a woken task preempts the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// With over three ticks more (2.2.1): a policy's addition to the weight counts only when a CPU is free.
    ByCounter,
    /// With more goodness (`preemption_goodness`; 2.4, and 2.3 before it, which still had the counters and priorities
    /// of 2.2): a policy's addition to the weight counts immediately.
    ByGoodness,
}

/// The scheduler of one node.
#[derive(Clone, Debug)]
pub struct Linux2 {
    version: Version,
    preemption: Preemption,
    tasks: Vec<Entry>,
    queue: Vec<Slot>,
    cores: Vec<Idle>,
}

/// State of a CPU that outlives its tasks.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    /// Time since which it is idle; meaningless while it is not.
    since: Nanos,
    /// Address space that is loaded. The idle task of 2.4 keeps that of the last task (lazy TLB), that of 2.2 does not.
    process: Option<ProcessId>,
}

/// The scheduler's data about a task.
#[derive(Clone, Copy, Debug)]
struct Entry {
    process: ProcessId,
    nice: i8,
    counter: u32,
    class: Class,
    /// CPU on which it ran last.
    core: Option<Core>,
}

/// Weights as they are compared: a task that yields under 2.4 comes last, below the spent ones.
type Weight = Option<Level>;

impl Version {
    /// Returns the ticks earned per epoch.
    fn quantum(self, nice: i8) -> u32 {
        match self {
            Self::V2_2 => priority(nice),
            Self::V2_4 => (priority(nice) >> 2) + 1,
        }
    }

    /// Returns the weight of a task that yields.
    const fn yielding(self) -> Weight {
        match self {
            Self::V2_2 => Some(Level::ZERO),
            Self::V2_4 => None,
        }
    }
}

/// Returns 20 - nice, from 1 to 40: the priority of 2.2, and the same addend in the weight of 2.4.
fn priority(nice: i8) -> u32 {
    u32::try_from(20 - i32::from(nice)).map_or(1, |priority| priority.clamp(1, 40))
}

impl Linux2 {
    /// Returns a scheduler without tasks.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        let preemption = match version {
            Version::V2_2 => Preemption::ByCounter,
            Version::V2_4 => Preemption::ByGoodness,
        };
        Self { version, preemption, tasks: Vec::new(), queue: Vec::new(), cores: Vec::new() }
    }

    /// Replaces the version's rule for preemption.
    #[must_use]
    pub fn preempting(self, preemption: Preemption) -> Self {
        Self { preemption, ..self }
    }

    /// Returns `goodness()`: the weight that competes on `core` against a task of the process `beside`.
    fn weight(&self, slot: Slot, core: Core, beside: Option<ProcessId>, scene: &mut Scene<'_>) -> Level {
        let entry = &self.tasks[slot.index()];
        if entry.class == Class::Raised {
            return scene.goodness(slot, coschedule::Task::RealTime { priority: RAISED });
        }
        let fields = coschedule::Task::Normal { counter: entry.counter, priority: priority(entry.nice) };
        let mut weight = scene.goodness(slot, fields);
        if entry.counter > 0 {
            if scene.cores() > 1 && entry.core == Some(core) {
                weight = weight.plus(SAME_CORE);
            }
            if beside == Some(entry.process) {
                weight = weight.plus(Level::PACKET);
            }
        }
        weight
    }

    /// Returns the best task of the queue for `core`, the first of equals.
    fn best(&self, core: Core, last: Option<Last>, scene: &mut Scene<'_>) -> Option<(Slot, Weight)> {
        let beside = match last {
            Some(last) => Some(self.tasks[last.slot.index()].process),
            None => self.cores.get(core.index()).and_then(|core| core.process),
        };
        let yields = last.filter(|last| last.then == Then::Yields).map(|last| last.slot);
        let mut best: Option<(Slot, Weight)> = None;
        for &slot in &self.queue {
            if elsewhere(slot, core, scene) {
                continue;
            }
            let weight = if yields == Some(slot) {
                self.version.yielding()
            } else {
                Some(self.weight(slot, core, beside, scene))
            };
            if best.is_none_or(|(_, most)| weight > most) {
                best = Some((slot, weight));
            }
        }
        best
    }

    fn recharge(&mut self, scene: &mut Scene<'_>) {
        for entry in &mut self.tasks {
            entry.counter = scene.recharged(entry.counter, self.version.quantum(entry.nice));
        }
    }

    fn enqueue(&mut self, slot: Slot) {
        match self.version {
            Version::V2_2 => self.queue.insert(0, slot),
            Version::V2_4 => self.queue.push(slot),
        }
    }

    fn dequeue(&mut self, slot: Slot) {
        self.queue.retain(|&queued| queued != slot);
    }

    /// Implements `reschedule_idle` of 2.2: first checks whether the task preempts the current one, then whether
    /// another CPU is idle.
    fn place_2_2(&self, slot: Slot, waker: Core, scene: &Scene<'_>) -> Option<Core> {
        let entry = &self.tasks[slot.index()];
        let preempts = scene.current(waker).is_none_or(|current| {
            let current = &self.tasks[current.index()];
            entry.class == Class::Raised || entry.counter > current.counter + PREEMPTS_WITH
        });
        if preempts {
            return Some(waker);
        }
        let idle = |core: &Core| scene.current(*core).is_none();
        entry.core.filter(idle).or_else(|| (0..scene.cores()).map(Core::at).find(idle))
    }

    /// Implements `reschedule_idle` of 2.4: the CPU it ran on if that is idle, else the one that has been idle for
    /// longest, else the one whose task it exceeds by most.
    fn place_2_4(&self, slot: Slot, scene: &mut Scene<'_>) -> Option<Core> {
        let idle = |core: &Core, scene: &Scene<'_>| scene.current(*core).is_none();
        if let Some(core) = self.tasks[slot.index()].core.filter(|core| idle(core, scene)) {
            return Some(core);
        }
        let since = |core: &Core| self.cores.get(core.index()).copied().unwrap_or_default().since;
        let cores = || (0..scene.cores()).map(Core::at);
        if let Some(core) = cores().filter(|core| idle(core, scene)).min_by_key(since) {
            return Some(core);
        }
        let (mut most, mut found) = (0, None);
        for core in (0..scene.cores()).map(Core::at) {
            let Some(current) = scene.current(core) else { continue };
            let beside = Some(self.tasks[current.index()].process);
            let woken = self.weight(slot, core, beside, scene).as_fixed();
            let running = self.weight(current, core, beside, scene).as_fixed();
            let by = woken.saturating_sub(running);
            if by > most {
                (most, found) = (by, Some(core));
            }
        }
        found
    }
}

impl Scheduler for Linux2 {
    fn tick_period(&self) -> Nanos {
        TICK
    }

    /// Implements `nanosleep`: whole ticks, rounded up, and one more; timers run after the tick's accounting.
    fn sleep_ends(&self, clock: &Clock, now: Nanos, span: Nanos) -> Nanos {
        clock.after(now, span.0.div_ceil(TICK.0) + 1)
    }

    fn admit(&mut self, _slot: Slot, terms: &Terms) {
        let counter = self.version.quantum(terms.nice);
        let Terms { process, nice, .. } = *terms;
        self.tasks.push(Entry { process, nice, counter, class: Class::Normal, core: None });
    }

    fn wake(&mut self, slot: Slot, waker: Waker, scene: &mut Scene<'_>) -> Option<Reschedule> {
        self.enqueue(slot);
        let core = match self.preemption {
            Preemption::ByCounter => self.place_2_2(slot, waker.core(), scene),
            Preemption::ByGoodness => self.place_2_4(slot, scene),
        };
        core.map(|core| Reschedule { core, when: When::Now })
    }

    fn withdraw(&mut self, slot: Slot, _scene: &mut Scene<'_>) {
        self.dequeue(slot);
    }

    /// Does nothing, because only ticks count.
    fn charge(&mut self, _core: Core, _slot: Slot, _ran: Nanos) {}

    fn tick(&mut self, core: Core, slot: Slot, _scene: &mut Scene<'_>) -> Option<Reschedule> {
        let counter = &mut self.tasks[slot.index()].counter;
        let spent = match self.version {
            Version::V2_2 => *counter == 0,
            Version::V2_4 => *counter <= 1,
        };
        *counter = counter.saturating_sub(1);
        spent.then_some(Reschedule { core, when: When::Now })
    }

    fn pick(&mut self, core: Core, last: Option<Last>, scene: &mut Scene<'_>) -> Option<Slot> {
        match last {
            Some(Last { slot, then: Then::Sleeps | Then::Exits }) => self.dequeue(slot),
            // `sched_yield` moves to the tail, in both.
            Some(Last { slot, then: Then::Yields }) => {
                self.dequeue(slot);
                self.queue.push(slot);
            }
            Some(Last { then: Then::Ready, .. }) | None => {}
        }
        let mut best = self.best(core, last, scene);
        if matches!(best, Some((_, Some(Level::ZERO)))) {
            self.recharge(scene);
            if self.version == Version::V2_4 {
                best = self.best(core, last, scene);
            }
        }
        if let Some((slot, _)) = best {
            self.tasks[slot.index()].core = Some(core);
        } else {
            let process = last.map(|last| self.tasks[last.slot.index()].process);
            let process = process.filter(|_| self.version == Version::V2_4);
            let cores = self.cores.len().max(core.index() + 1);
            self.cores.resize(cores, Idle::default());
            let before = self.cores[core.index()].process;
            self.cores[core.index()] = Idle { since: scene.now(), process: process.or(before) };
        }
        best.map(|(slot, _)| slot)
    }

    /// Implements `__schedule_tail` of 2.4 with more than one CPU: a preempted task may take another task's CPU.
    fn displaced(&mut self, slot: Slot, scene: &mut Scene<'_>) -> Option<Reschedule> {
        if scene.cores() == 1 || self.version == Version::V2_2 {
            return None;
        }
        self.place_2_4(slot, scene).map(|core| Reschedule { core, when: When::Now })
    }

    /// Reschedules after any change, as `sched_setscheduler` does.
    fn classify(&mut self, slot: Slot, class: Class, scene: &mut Scene<'_>) -> Option<Reschedule> {
        let entry = &mut self.tasks[slot.index()];
        entry.class = class;
        let ran = entry.core;
        let core = (0..scene.cores()).map(Core::at).find(|&core| scene.current(core) == Some(slot));
        self.queue
            .contains(&slot)
            .then(|| Reschedule { core: core.or(ran).unwrap_or(Core(0)), when: When::Now })
    }

    fn renice(&mut self, slot: Slot, nice: i8, _scene: &mut Scene<'_>) {
        self.tasks[slot.index()].nice = nice;
    }

    fn counter(&self, slot: Slot) -> Option<u32> {
        self.tasks.get(slot.index()).map(|entry| entry.counter)
    }
}

/// Returns whether a task is on another CPU than `core`.
fn elsewhere(slot: Slot, core: Core, scene: &Scene<'_>) -> bool {
    scene.cores() > 1
        && (0..scene.cores()).map(Core::at).any(|other| other != core && scene.current(other) == Some(slot))
}

#[cfg(test)]
mod tests;
