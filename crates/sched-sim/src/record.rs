//! What programs measured: one value each, in the order in which it was recorded.

use pronto_sched_policy::policy::time::Nanos;

use crate::id::TaskId;

/// One measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Nanos,
    /// By whom.
    pub task: TaskId,
    /// What of: programs number their own series.
    pub series: u32,
    /// Nanoseconds, or a count.
    pub value: u64,
}

/// All records of a run.
#[derive(Clone, Debug, Default)]
pub struct Records(Vec<Record>);

impl Records {
    /// Adds one.
    pub fn add(&mut self, record: Record) {
        self.0.push(record);
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Record] {
        &self.0
    }

    /// Forgets those made so far: the end of a warm-up.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The values of one series of one task.
    pub fn of(&self, task: TaskId, series: u32) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().filter(move |r| r.task == task && r.series == series).map(|r| r.value)
    }
}
