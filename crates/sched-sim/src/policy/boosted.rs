//! Our boost: a thread is raised before it waits, metered in nanoseconds, and dropped after a slice. Also DYN-PREEMPT,
//! which raises on arrival.
//!
//! The decisions are those of [`pronto_sched_policy::policy::boost`]; accounts and timers are kept here.

use std::collections::BTreeMap;

use pronto_sched_policy::policy::boost::{self, Action, Event, Phase};
use pronto_sched_policy::policy::budget::Budget;
use pronto_sched_policy::policy::caps::Accounts;
use pronto_sched_policy::policy::time::Nanos;

use super::{Context, Policy};
use crate::id::{CpuId, PortId, TaskId, UserId};
use crate::message::Message;
use crate::scheduler::Class;

/// The event that raises a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A task waits on a flagged port; it is raised before it sleeps (Expedite).
    FlaggedWait,
    /// A message arrives for a task that is not running, flagged or not: dynamic coscheduling that preempts
    /// (coscheduling paper, section 1: "increasing the receiving task priority, even causing CPU preemption"). The
    /// budget is its "mechanism for avoiding local task starvation".
    Arrival,
}

/// Statistics of the boost of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of requests.
    pub asked: u64,
    /// Number of times the task was raised, or stayed raised.
    pub granted: u64,
    /// Number of slices that ran out.
    pub dropped: u64,
}

/// The policy.
#[derive(Debug)]
pub struct Boosted {
    trigger: Trigger,
    terms: boost::Terms,
    threads: Vec<Thread>,
    users: BTreeMap<(CpuId, UserId), Budget>,
    cpus: BTreeMap<CpuId, Budget>,
}

/// One thread's boost.
#[derive(Clone, Copy, Debug)]
struct Thread {
    phase: Phase,
    budget: Budget,
    cpu: CpuId,
    user: UserId,
    timers: u32,
    meters: bool,
    count: Count,
}

impl Boosted {
    /// Returns a boost under these terms.
    #[must_use]
    pub const fn new(trigger: Trigger, terms: boost::Terms) -> Self {
        Self { trigger, terms, threads: Vec::new(), users: BTreeMap::new(), cpus: BTreeMap::new() }
    }

    /// Returns the statistics of one task.
    #[must_use]
    pub fn count(&self, task: TaskId) -> Count {
        self.threads.get(task.index()).map(|thread| thread.count).unwrap_or_default()
    }

    /// Reports an event, and carries out the resulting action.
    fn report(&mut self, context: &mut Context<'_>, task: TaskId, event: Event) {
        let now = context.now();
        let Thread { phase, budget, cpu, user, .. } = self.threads[task.index()];
        let caps = &self.terms.caps;
        let users = self.users.entry((cpu, user)).or_insert_with(|| Budget::new(&caps.user, now));
        let cpu = self.cpus.entry(cpu).or_insert_with(|| Budget::new(&caps.cpu, now));
        let accounts = Accounts { thread: budget, user: *users, cpu: *cpu };
        let step = boost::step(phase, accounts, event, now, &self.terms);
        (*users, *cpu) = (step.accounts.user, step.accounts.cpu);
        let thread = &mut self.threads[task.index()];
        (thread.phase, thread.budget) = (step.phase, step.accounts.thread);
        let count = &mut thread.count;
        if event == Event::Wait {
            count.asked += 1;
            count.granted += u64::from(matches!(step.action, Action::Raise(_) | Action::Arm(_)));
        }
        match step.action {
            Action::Raise(until) => {
                context.classify(task, Class::Raised);
                self.arm(context, task, until);
            }
            Action::Arm(until) => self.arm(context, task, until),
            Action::Drop(reason) => {
                count.dropped += u64::from(reason == boost::Reason::Slice);
                context.classify(task, Class::Normal);
                self.report(context, task, Event::Dropped);
            }
            Action::Nothing | Action::Refuse(_) | Action::Forget => {}
        }
    }

    /// Sets the only timer of a task; earlier ones become stale.
    fn arm(&mut self, context: &mut Context<'_>, task: TaskId, until: Nanos) {
        let timers = &mut self.threads[task.index()].timers;
        *timers = timers.wrapping_add(1);
        context.timer(until, u64::from(task.0) << 32 | u64::from(*timers));
    }
}

impl Policy for Boosted {
    fn start(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let thread = |(_, task): (TaskId, &crate::task::Task)| Thread {
            phase: Phase::NEW,
            budget: Budget::new(&self.terms.caps.thread, now),
            cpu: CpuId(0),
            user: task.user(),
            timers: 0,
            meters: self.trigger == Trigger::Arrival || task.is_flagged(),
            count: Count::default(),
        };
        self.threads = context.view.tasks().map(thread).collect();
    }

    fn arrived(&mut self, context: &mut Context<'_>, message: &Message) {
        let task = message.to.task;
        let raised = self.threads[task.index()].phase.is_raised();
        if self.trigger == Trigger::Arrival && !raised && !context.view.task(task).is_running() {
            // Treated as if it had run to its wait just now and slept immediately: no time passes between the two.
            self.report(context, task, Event::Wait);
            if self.threads[task.index()].phase.is_raised() {
                self.report(context, task, Event::ScheduledOut);
            }
        }
    }

    fn waiting(&mut self, context: &mut Context<'_>, task: TaskId, _port: Option<PortId>, flagged: bool) {
        if self.trigger == Trigger::FlaggedWait && flagged {
            self.report(context, task, Event::Wait);
        }
    }

    fn switched(
        &mut self,
        context: &mut Context<'_>,
        cpu: CpuId,
        before: Option<TaskId>,
        after: Option<TaskId>,
    ) {
        if let Some(task) = before.filter(|task| self.threads[task.index()].meters) {
            self.report(context, task, Event::ScheduledOut);
        }
        if let Some(task) = after.filter(|task| self.threads[task.index()].meters) {
            self.threads[task.index()].cpu = cpu;
            self.report(context, task, Event::ScheduledIn);
        }
    }

    fn timer(&mut self, context: &mut Context<'_>, key: u64) {
        let task = TaskId(u32::try_from(key >> 32).expect("the key was made from a task's number"));
        if u64::from(self.threads[task.index()].timers) == key & u64::from(u32::MAX) {
            self.report(context, task, Event::Timer);
        }
    }

    fn exited(&mut self, context: &mut Context<'_>, task: TaskId) {
        if self.threads[task.index()].meters {
            self.report(context, task, Event::Gone);
        }
    }
}
