//! Expedite as printed: a task that waits on a flagged socket and has ten ticks precedes all others until it is
//! dispatched.
//!
//! Expedite, section 3.3: `select` and `read` on a flagged socket set a flag in the process; `if (p->expedite &&
//! p->counter >= 10) goodness += 100`; "the process is given the priority boost until it is successfully dispatched".
//! Only schedulers that count ticks ask for goodness, so this policy has no effect with others.

use pronto_sched_policy::policy::coschedule::{self, Prediction};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;

use super::{Context, Policy, View};
use crate::id::{CpuId, PortId, TaskId};

/// "We give the boost to processes that have 10 or 11 ticks."
const ENOUGH: u32 = 10;

/// "`goodness += 100`": more than the 31 and 1 that ticks, nice value and shared memory can add up to.
const BONUS: Level = Level::packets(100);

/// Statistics of the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of dispatches after a flagged wait.
    pub waits: u64,
    /// Number of these dispatches with ten ticks.
    pub boosted: u64,
}

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct CounterRule {
    /// `p->expedite`, by task.
    flags: Vec<bool>,
    /// Whether the task had enough ticks at its last weighing.
    enough: Vec<bool>,
    counts: Vec<Count>,
}

impl CounterRule {
    /// Returns the statistics of one task.
    #[must_use]
    pub fn count(&self, task: TaskId) -> Count {
        self.counts.get(task.index()).copied().unwrap_or_default()
    }
}

impl Policy for CounterRule {
    fn start(&mut self, context: &mut Context<'_>) {
        let tasks = context.view.tasks().count();
        self.flags.resize(tasks, false);
        self.enough.resize(tasks, false);
        self.counts.resize(tasks, Count::default());
    }

    fn waiting(&mut self, _context: &mut Context<'_>, task: TaskId, _port: Option<PortId>, flagged: bool) {
        self.flags[task.index()] |= flagged;
    }

    fn switched(
        &mut self,
        _context: &mut Context<'_>,
        _cpu: CpuId,
        _before: Option<TaskId>,
        after: Option<TaskId>,
    ) {
        let Some(task) = after.map(TaskId::index) else { return };
        if core::mem::take(&mut self.flags[task]) {
            self.counts[task].waits += 1;
            self.counts[task].boosted += u64::from(self.enough[task]);
        }
    }

    fn goodness(&mut self, _view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        let weight = coschedule::goodness(fields, Frequency::NEW, &[], &Prediction::default()).1;
        let coschedule::Task::Normal { counter, .. } = fields else { return weight };
        if !self.flags[task.index()] {
            return weight;
        }
        let enough = counter >= ENOUGH;
        self.enough[task.index()] = enough;
        if enough { weight.plus(BONUS) } else { weight }
    }
}
