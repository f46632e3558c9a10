//! Measurements of programs: single values, in the order in which they were recorded.

use pronto_sched_policy::policy::time::Nanos;

use crate::id::TaskId;

/// One measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the measurement.
    pub at: Nanos,
    /// Task that measured.
    pub task: TaskId,
    /// Series of the value; programs number their own series.
    pub series: u32,
    /// Nanoseconds, or a count.
    pub value: u64,
}

/// All records of a run.
#[derive(Clone, Debug, Default)]
pub struct Records(Vec<Record>);

impl Records {
    /// Adds a record.
    pub fn add(&mut self, record: Record) {
        self.0.push(record);
    }

    /// Returns all records.
    #[must_use]
    pub fn all(&self) -> &[Record] {
        &self.0
    }

    /// Removes all records so far, at the end of a warm-up.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the values of one series of one task.
    pub fn of(&self, task: TaskId, series: u32) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().filter(move |r| r.task == task && r.series == series).map(|r| r.value)
    }
}
