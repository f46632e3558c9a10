//! PRED+: PRED with the latency of messages, page faults and the cost of a switch as further inputs.
//!
//! The rules are those of [`pronto_sched_policy::policy::costs`]. Kept here is each task's frequency.

use pronto_sched_policy::policy::coschedule::{self, Prediction};
use pronto_sched_policy::policy::costs::{self, Costs, Standing};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;

use super::{Policy, View};
use crate::id::TaskId;

/// The policy.
#[derive(Debug)]
pub struct Costed {
    prediction: Prediction,
    costs: Costs,
    frequencies: Vec<Frequency>,
}

impl Costed {
    /// Returns the policy with the given rules, on nodes with these costs.
    #[must_use]
    pub const fn new(prediction: Prediction, costs: Costs) -> Self {
        Self { prediction, costs, frequencies: Vec::new() }
    }
}

impl Policy for Costed {
    fn goodness(&mut self, view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        if self.frequencies.len() <= task.index() {
            self.frequencies.resize(task.index() + 1, Frequency::NEW);
        }
        let known = view.task(task);
        let standing = if known.is_running() {
            Standing::Running
        } else {
            Standing::Ready { pages: known.pages_read() }
        };
        let rules = (&self.prediction, &self.costs);
        let frequency = &mut self.frequencies[task.index()];
        let (next, weight) = costs::goodness(fields, *frequency, known.occupancy(), standing, rules);
        *frequency = next;
        weight
    }
}
