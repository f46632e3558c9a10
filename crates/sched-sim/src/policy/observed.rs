//! The message pattern of each task. Another policy decides; this one only counts what that policy could have seen.
//!
//! The coscheduling paper leaves the relation between P and the message pattern as future work (section 5). P acts on
//! the contents of a task's queues at the decisions of the scheduler, so the pattern is observed at the same moments.

use pronto_sched_policy::policy::coschedule::{self, Policy as Rule};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::occupancy::Measure;
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;

use super::{Cause, Context, Control, Departure, Policy, View};
use crate::id::{CpuId, PortId, TaskId};
use crate::message::Message;

/// The policy.
#[derive(Debug)]
pub struct Observed {
    inner: Box<dyn Policy>,
    /// Values of P whose predictions are compared.
    pasts: Vec<Share>,
    tasks: Vec<Known>,
}

/// Queues at the decisions of the scheduler about a task, and answers to its messages.
///
/// A decision is an evaluation of `goodness()` of a task that has time left; only there does formula 1 advance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pattern {
    /// Number of decisions.
    pub decisions: u64,
    /// Decisions at which only received data waited, at least a packet.
    pub received_only: u64,
    /// Decisions at which only data to be sent waited, at least a packet.
    pub sent_only: u64,
    /// Decisions at which both waited.
    pub both: u64,
    /// Sum of the squared errors of PRED's prediction of the next decision's packets, for each compared P.
    pub errors: Vec<f64>,
    /// Sum of the packets in its queues at the decisions.
    pub packets: f64,
    /// Number of sends for which a message had arrived since the last send.
    pub answers: u64,
    /// Total time from the last arrival to these sends.
    pub until_answer: Nanos,
}

/// State of a task.
#[derive(Clone, Debug, Default)]
struct Known {
    pattern: Pattern,
    predictions: Vec<Frequency>,
    arrived: Option<Nanos>,
}

impl Observed {
    /// Observes tasks under `inner`, and compares the predictions of PRED with each of `pasts`.
    #[must_use]
    pub fn new(inner: Box<dyn Policy>, pasts: &[Share]) -> Self {
        Self { inner, pasts: pasts.to_vec(), tasks: Vec::new() }
    }

    /// Returns the pattern of several tasks together.
    #[must_use]
    pub fn pattern(&self, tasks: &[TaskId]) -> Pattern {
        let patterns =
            tasks.iter().filter_map(|task| self.tasks.get(task.index())).map(|known| &known.pattern);
        patterns.fold(Pattern::default(), |sum, pattern| sum.plus(pattern))
    }

    fn known(&mut self, task: TaskId) -> &mut Known {
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, Known::default());
        }
        &mut self.tasks[task.index()]
    }

    fn decided(&mut self, view: &View<'_>, task: TaskId) {
        let sockets = view.task(task).occupancy();
        let received = Rule::Dynamic.current(Measure::Packets, sockets);
        let current = Rule::Predictive.current(Measure::Packets, sockets);
        let pasts = core::mem::take(&mut self.pasts);
        self.known(task).decided(received, current, &pasts);
        self.pasts = pasts;
    }
}

impl Known {
    /// Counts a decision at which the queues hold `received` packets to read, and `current` in all.
    fn decided(&mut self, received: Level, current: Level, pasts: &[Share]) {
        let pattern = &mut self.pattern;
        self.predictions.resize(pasts.len(), Frequency::NEW);
        pattern.errors.resize(pasts.len(), 0.0);
        for ((prediction, error), past) in self.predictions.iter_mut().zip(&mut pattern.errors).zip(pasts) {
            if pattern.decisions > 0 {
                *error += (packets(prediction.level()) - packets(current)).powi(2);
            }
            *prediction = prediction.advanced(current, *past);
        }
        pattern.decisions += 1;
        pattern.packets += packets(current);
        match (received > Level::ZERO, current > received) {
            (true, true) => pattern.both += 1,
            (true, false) => pattern.received_only += 1,
            (false, true) => pattern.sent_only += 1,
            (false, false) => {}
        }
    }
}

impl Pattern {
    /// Returns the sum of two patterns.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.errors.resize(self.errors.len().max(other.errors.len()), 0.0);
        for (error, other) in self.errors.iter_mut().zip(&other.errors) {
            *error += other;
        }
        Self {
            decisions: self.decisions + other.decisions,
            received_only: self.received_only + other.received_only,
            sent_only: self.sent_only + other.sent_only,
            both: self.both + other.both,
            errors: self.errors,
            packets: self.packets + other.packets,
            answers: self.answers + other.answers,
            until_answer: self.until_answer.after(other.until_answer),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "queues hold far fewer than 2^21 packets")]
fn packets(level: Level) -> f64 {
    level.as_fixed() as f64 / Level::PACKET.as_fixed() as f64
}

impl Policy for Observed {
    fn start(&mut self, context: &mut Context<'_>) {
        self.inner.start(context);
    }

    fn sending(&mut self, context: &mut Context<'_>, message: &mut Message) -> Departure {
        let now = context.now();
        let known = self.known(message.from.task);
        if let Some(arrived) = known.arrived.take() {
            known.pattern.answers += 1;
            known.pattern.until_answer = known.pattern.until_answer.after(now.since(arrived));
        }
        self.inner.sending(context, message)
    }

    fn arrived(&mut self, context: &mut Context<'_>, message: &Message) {
        self.known(message.to.task).arrived = Some(context.now());
        self.inner.arrived(context, message);
    }

    fn waiting(&mut self, context: &mut Context<'_>, task: TaskId, port: Option<PortId>, flagged: bool) {
        self.inner.waiting(context, task, port, flagged);
    }

    fn woken(&mut self, context: &mut Context<'_>, task: TaskId, cause: Cause) {
        self.inner.woken(context, task, cause);
    }

    fn switched(
        &mut self,
        context: &mut Context<'_>,
        cpu: CpuId,
        before: Option<TaskId>,
        after: Option<TaskId>,
    ) {
        self.inner.switched(context, cpu, before, after);
    }

    fn ticked(&mut self, context: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.inner.ticked(context, cpu, task);
    }

    fn timer(&mut self, context: &mut Context<'_>, key: u64) {
        self.inner.timer(context, key);
    }

    fn control(&mut self, context: &mut Context<'_>, control: Control) {
        self.inner.control(context, control);
    }

    fn exited(&mut self, context: &mut Context<'_>, task: TaskId) {
        self.inner.exited(context, task);
    }

    fn goodness(&mut self, view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        if matches!(fields, coschedule::Task::Normal { counter: 1.., .. }) {
            self.decided(view, task);
        }
        self.inner.goodness(view, task, fields)
    }

    fn recharged(&self, counter: u32, quantum: u32) -> u32 {
        self.inner.recharged(counter, quantum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::coscheduling::{App, Setting, observe, run};

    const PASTS: [Share; 2] = [Share::percent(1), Share::percent(99)];

    #[test]
    fn queues_and_answers_are_counted_and_nothing_changes() {
        let plain = Setting::plain(App::MasterSlave, 3, 1);
        let (outcome, pattern) = observe(&plain, &PASTS);
        assert_eq!(outcome, run(&plain));
        // The master and three slaves answer in each of 2000 iterations, but for the first.
        assert!((4 * 2_000 - 10..=4 * 2_000).contains(&pattern.answers), "{pattern:?}");
        assert!(pattern.until_answer.0 / pattern.answers > 250_000, "slaves compute for a millisecond");
        assert!(pattern.received_only > pattern.decisions / 2 && pattern.sent_only == 0, "{pattern:?}");
        #[expect(clippy::cast_precision_loss, reason = "there are few decisions")]
        let mean = pattern.packets / pattern.decisions as f64;
        assert!((0.5..3.0).contains(&mean), "each message is a packet: {mean}");
    }

    #[test]
    fn a_steady_queue_is_predicted_by_every_p_and_a_change_by_a_short_memory() {
        let (two, five) = (Level::packets(2), Level::packets(5));
        let mut steady = Known::default();
        (0..50).for_each(|_| steady.decided(two, two, &PASTS));
        assert_eq!(steady.pattern.received_only, 50);
        assert!(steady.pattern.errors.iter().all(|error| *error < 1e-9), "{steady:?}");
        (0..50).for_each(|_| steady.decided(two, five, &PASTS));
        assert_eq!((steady.pattern.both, steady.pattern.sent_only), (50, 0));
        let [short, long] = steady.pattern.errors[..] else { panic!("{steady:?}") };
        assert!((9.0..10.0).contains(&short) && long > 200.0, "{short} {long}");
        steady.decided(Level::ZERO, two, &PASTS);
        assert_eq!(steady.pattern.sent_only, 1);
    }

    #[test]
    fn patterns_add_up() {
        let one = Pattern { decisions: 3, both: 1, errors: vec![0.5], ..Pattern::default() };
        let sum = one.clone().plus(&one);
        assert_eq!((sum.decisions, sum.both, &sum.errors[..]), (6, 2, &[1.0][..]));
        assert_eq!(Pattern::default().plus(&one), one);
    }
}
