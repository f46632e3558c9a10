//! Counters and recent failures of a manager: lost wake-ups, panics of sources.

use core::any::Any;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::poller::panic_message;

/// Number of recent failures that are kept.
const KEPT: usize = 16;

/// A source or a tasklet that was removed after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the source, or of the kind of tasklet.
    pub name: &'static str,
    /// Reason, such as the message of the panic.
    pub why: String,
}

/// Counters of a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lost wake-ups: events that were found only after a sleep had reached its time limit, and whose publisher woke no thread.
    /// Any value but zero means a defect.
    pub lost_wake_ups: u64,
    /// Events that were found after a sleep had reached its time limit, and whose wake-up arrived shortly after.
    pub late: u64,
    /// Sleeps of the engine thread.
    pub sleeps: u64,
    /// Sleeps of the engine thread that reached their time limit. An event ended the others.
    pub timeouts: u64,
    /// Checks of the epoll of sources that cost a system call.
    pub group_looks: u64,
    /// Number of times a descriptor was left out of sleeps for a while, because it reported readiness and had no event.
    pub muted: u64,
    /// Number of times a source began to rest.
    pub rests: u64,
    /// Panics of sources and tasklets. Those that did not recover were removed.
    pub panics: u64,
    /// Tasklets run.
    pub tasklets: u64,
    /// Tasklets run by a thread that moved to another CPU for it.
    pub moved: u64,
    /// Calls within [`Manager::may_block`](crate::Manager::may_block) by tasklets of the role holder.
    pub blocking: u64,
    /// Number of times a spare thread was woken. Calls that do not block wake none.
    pub spares: u64,
    /// Number of times a spare thread took over from a blocked thread.
    pub relieved: u64,
}

impl Counters {
    /// Returns every counter with its name.
    #[must_use]
    pub const fn each(&self) -> [(&'static str, u64); 13] {
        let Self {
            lost_wake_ups,
            late,
            sleeps,
            timeouts,
            group_looks,
            muted,
            rests,
            panics,
            tasklets,
            moved,
            blocking,
            spares,
            relieved,
        } = *self;
        [
            ("lost_wake_ups", lost_wake_ups),
            ("late", late),
            ("sleeps", sleeps),
            ("timeouts", timeouts),
            ("group_looks", group_looks),
            ("muted", muted),
            ("rests", rests),
            ("panics", panics),
            ("tasklets", tasklets),
            ("moved", moved),
            ("blocking", blocking),
            ("spares", spares),
            ("relieved", relieved),
        ]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters and recent failures, written by any thread.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) lost_wake_ups: Count,
    pub(crate) late: Count,
    pub(crate) sleeps: Count,
    pub(crate) timeouts: Count,
    pub(crate) group_looks: Count,
    pub(crate) muted: Count,
    pub(crate) rests: Count,
    panics: Count,
    pub(crate) tasklets: Count,
    pub(crate) moved: Count,
    pub(crate) blocking: Count,
    pub(crate) spares: Count,
    pub(crate) relieved: Count,
    failures: Mutex<VecDeque<Failure>>,
}

impl Reports {
    pub(crate) fn panicked(&self, name: &'static str, panic: &(dyn Any + Send)) {
        self.panics.add(1);
        self.fail(name, panic_message(panic));
    }

    /// Counts and logs a panic of a source that recovered.
    pub(crate) fn recovered(&self, name: &'static str, why: &str) {
        self.panics.add(1);
        tracing::error!(source = name, why, "source panicked and recovered");
    }

    pub(crate) fn fail(&self, name: &'static str, why: String) {
        tracing::error!(source = name, why, "source or tasklet removed");
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() == KEPT {
            failures.pop_front();
        }
        failures.push_back(Failure { name, why });
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            lost_wake_ups: self.lost_wake_ups.value(),
            late: self.late.value(),
            sleeps: self.sleeps.value(),
            timeouts: self.timeouts.value(),
            group_looks: self.group_looks.value(),
            muted: self.muted.value(),
            rests: self.rests.value(),
            panics: self.panics.value(),
            tasklets: self.tasklets.value(),
            moved: self.moved.value(),
            blocking: self.blocking.value(),
            spares: self.spares.value(),
            relieved: self.relieved.value(),
        }
    }
}
