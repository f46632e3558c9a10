//! LINUX, DYN and PRED, as the coscheduling paper adds them to `goodness()`; and PRED with pressure carried in messages.
//!
//! The rules are those of [`pronto_sched_policy::policy::coschedule`]. Kept here are each task's frequency, which
//! advances once per evaluation of `goodness()`, and each task's P, which is fixed or follows its waits
//! ([`pronto_sched_policy::policy::auto`], future work of the paper's section 5).

use pronto_sched_policy::policy::auto::{Auto, Interval};
use pronto_sched_policy::policy::coschedule::{self, Prediction};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;

use super::{Cause, Context, Departure, Policy, View};
use crate::id::{PortId, TaskId};
use crate::message::Message;

/// The source of P.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// [`Prediction::past`], for all tasks at all times.
    #[default]
    Fixed,
    /// Automatic P from each task's own waits.
    Auto,
}

/// A task's knowledge of the pressure at the other ends of its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// None: the paper's algorithms, which examine only a node's own queues.
    #[default]
    Local,
    /// Messages carry their sender's frequency. The receiver's weight grows by the received values, averaged by the
    /// same formula, so correspondents learn of each other. No kernel queue has to be read for it. Chosen by us; no
    /// source.
    Carried,
}

/// The policy.
#[derive(Debug)]
pub struct Coscheduled {
    prediction: Prediction,
    past: Past,
    pressure: Pressure,
    tasks: Vec<Known>,
}

/// State of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    frequency: Frequency,
    reported: Frequency,
    auto: Auto,
    interval: Interval,
    waiting_since: Option<Nanos>,
}

impl Coscheduled {
    /// Returns the policy with the given rules.
    #[must_use]
    pub const fn new(prediction: Prediction, past: Past, pressure: Pressure) -> Self {
        Self { prediction, past, pressure, tasks: Vec::new() }
    }

    /// Returns the frequency of a task as of the last decision.
    #[must_use]
    pub fn frequency(&self, task: TaskId) -> Level {
        self.tasks.get(task.index()).map_or(Level::ZERO, |known| known.frequency.level())
    }

    /// Returns the current P of a task.
    #[must_use]
    pub fn past(&self, task: TaskId) -> Share {
        match (self.past, self.tasks.get(task.index())) {
            (Past::Auto, Some(known)) => known.auto.past(),
            _ => self.prediction.past,
        }
    }

    fn known(&mut self, task: TaskId) -> &mut Known {
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, Known::default());
        }
        &mut self.tasks[task.index()]
    }
}

impl Policy for Coscheduled {
    fn sending(&mut self, _context: &mut Context<'_>, message: &mut Message) -> Departure {
        if self.pressure == Pressure::Carried {
            message.pressure = self.frequency(message.from.task);
        }
        Departure::Now
    }

    fn arrived(&mut self, _context: &mut Context<'_>, message: &Message) {
        let task = message.to.task;
        if self.pressure == Pressure::Carried {
            let past = self.past(task);
            let known = self.known(task);
            known.reported = known.reported.advanced(message.pressure, past);
        }
        if self.past == Past::Auto {
            let interval = &mut self.known(task).interval;
            interval.messages += 1;
        }
    }

    fn waiting(&mut self, context: &mut Context<'_>, task: TaskId, _port: Option<PortId>, _flagged: bool) {
        if self.past == Past::Auto {
            let now = context.now();
            self.known(task).waiting_since = Some(now);
        }
    }

    fn switched(
        &mut self,
        context: &mut Context<'_>,
        _cpu: crate::id::CpuId,
        _before: Option<TaskId>,
        after: Option<TaskId>,
    ) {
        let (Past::Auto, Some(task)) = (self.past, after) else { return };
        let now = context.now();
        let known = self.known(task);
        if let Some(since) = known.waiting_since.take() {
            // The wait lasts until the task is on a CPU again.
            known.interval.waits += 1;
            known.interval.waited = known.interval.waited.after(now.since(since));
            let (auto, change) = known.auto.handle(&known.interval);
            known.auto = auto;
            if change != pronto_sched_policy::policy::auto::Change::TooFew {
                known.interval = Interval::default();
            }
        }
    }

    fn woken(&mut self, _context: &mut Context<'_>, task: TaskId, cause: Cause) {
        if cause != Cause::Message && self.past == Past::Auto {
            self.known(task).waiting_since = None;
        }
    }

    fn goodness(&mut self, view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        let prediction = Prediction { past: self.past(task), ..self.prediction };
        let sockets = view.task(task).occupancy();
        let known = self.known(task);
        let (frequency, weight) = coschedule::goodness(fields, known.frequency, sockets, &prediction);
        known.frequency = frequency;
        // A spent counter keeps a task from running, whatever the pressure of its correspondents.
        if weight == Level::ZERO { weight } else { weight.plus(known.reported.level()) }
    }

    fn recharged(&self, counter: u32, quantum: u32) -> u32 {
        coschedule::recharged(counter, quantum, self.prediction.reading)
    }
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::coschedule::{Policy as Rule, Reading};
    use pronto_sched_policy::policy::occupancy::Measure;

    use super::*;
    use crate::cluster::{Cluster, Options};
    use crate::id::NodeId;
    use crate::program::Wait;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;
    use crate::workload::compute::Compute;
    use crate::workload::parallel::{Job, Rounds, Terms, is};

    fn prediction(policy: Rule, past: u32) -> Prediction {
        Prediction {
            policy,
            measure: Measure::Packets,
            past: Share::percent(past),
            reading: Reading::Corrected,
        }
    }

    /// Runs IS with three local tasks; returns the time it took, in milliseconds, and the cluster.
    fn run(policy: Coscheduled) -> (u64, Job, Cluster) {
        let mut cluster = Cluster::with_policy(Options::standard(5), Box::new(policy));
        let nodes: Vec<NodeId> =
            (0..4).map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2)))).collect();
        let terms = Terms { wait: Wait::Block, rounds: Rounds::Times(1), tasks: TaskOptions::default() };
        let job = is::spawn(&mut cluster, &nodes, is::Class::A, &terms);
        for node in nodes.iter().flat_map(|node| [node; 3]) {
            cluster.spawn(*node, TaskOptions::default(), Box::new(Compute::for_ever()));
        }
        while job.ended(&cluster).is_none() {
            let next = cluster.now().after(Nanos::from_millis(1_000));
            assert!(next < Nanos::from_millis(1_000_000), "the job ends");
            cluster.run_until(next);
        }
        (job.ended(&cluster).unwrap().0 / 1_000_000, job, cluster)
    }

    #[test]
    fn linux_knows_no_frequency_and_the_others_know_it_of_tasks_that_communicate_only() {
        for (rule, some) in [(Rule::Linux, false), (Rule::Dynamic, true), (Rule::Predictive, true)] {
            let (_, job, cluster) = run(Coscheduled::new(prediction(rule, 90), Past::Fixed, Pressure::Local));
            let policy: &Coscheduled = cluster.policy().unwrap();
            let seen = job.tasks.iter().any(|task| policy.frequency(*task) > Level::ZERO);
            assert!(!seen || some, "{rule:?}");
            let local = TaskId::at(job.tasks.len());
            assert_eq!(policy.frequency(local), Level::ZERO, "{rule:?}");
        }
    }

    #[test]
    fn plain_linux_equals_no_policy() {
        let linux = run(Coscheduled::new(prediction(Rule::Linux, 50), Past::Fixed, Pressure::Local)).0;
        let carried = run(Coscheduled::new(prediction(Rule::Linux, 50), Past::Fixed, Pressure::Carried)).0;
        assert_eq!(linux, carried, "LINUX carries no pressure");
    }

    #[test]
    fn p_moves_by_itself_where_it_is_allowed_to() {
        let (_, job, cluster) =
            run(Coscheduled::new(prediction(Rule::Predictive, 10), Past::Auto, Pressure::Local));
        let policy: &Coscheduled = cluster.policy().unwrap();
        assert!(job.tasks.iter().any(|task| policy.past(*task) != pronto_sched_policy::policy::auto::START));
        let (_, job, cluster) =
            run(Coscheduled::new(prediction(Rule::Predictive, 10), Past::Fixed, Pressure::Local));
        let policy: &Coscheduled = cluster.policy().unwrap();
        assert!(job.tasks.iter().all(|task| policy.past(*task) == Share::percent(10)));
    }

    #[test]
    fn carried_pressure_makes_a_difference() {
        let local = run(Coscheduled::new(prediction(Rule::Predictive, 90), Past::Fixed, Pressure::Local)).0;
        let carried =
            run(Coscheduled::new(prediction(Rule::Predictive, 90), Past::Fixed, Pressure::Carried)).0;
        assert_ne!(local, carried);
    }
}
