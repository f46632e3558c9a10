//! What a manager counts and remembers: wake-ups that failed, sources that panicked.

use core::any::Any;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::poller::panic_message;

/// Failures that are remembered.
const KEPT: usize = 16;

/// A source or a kind of tasklet that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub name: &'static str,
    /// Why.
    pub why: String,
}

/// Counters of a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that the net under a sleep found, though whoever published them saw the word armed and woke nobody. Zero, or
    /// something is broken.
    pub lost_wake_ups: u64,
    /// Events that the net found while their wake-up was on its way.
    pub late: u64,
    /// Sleeps of the engine's thread.
    pub sleeps: u64,
    /// How often the epoll of sources that cost a system call was asked while polling.
    pub group_looks: u64,
    /// How often a descriptor was left out for a while, as it said ready and had nothing.
    pub muted: u64,
    /// Panics of sources and tasklets. Those that did not recover were taken out.
    pub panics: u64,
    /// Tasklets run.
    pub tasklets: u64,
    /// Of these, by a thread that went to another processor for it.
    pub moved: u64,
    /// Calls of tasklets on duty that might have blocked.
    pub blocking: u64,
    /// How often a spare thread was woken: never for a call that did not block.
    pub spares: u64,
    /// How often it took the duty over.
    pub relieved: u64,
}

impl Counters {
    /// Every counter, by name.
    #[must_use]
    pub const fn each(&self) -> [(&'static str, u64); 11] {
        let Self {
            lost_wake_ups,
            late,
            sleeps,
            group_looks,
            muted,
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
            ("group_looks", group_looks),
            ("muted", muted),
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) lost_wake_ups: Count,
    pub(crate) late: Count,
    pub(crate) sleeps: Count,
    pub(crate) group_looks: Count,
    pub(crate) muted: Count,
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

    /// A source panicked and goes on.
    pub(crate) fn recovered(&self, name: &'static str, why: &str) {
        self.panics.add(1);
        tracing::error!(source = name, why, "panicked, and goes on");
    }

    pub(crate) fn fail(&self, name: &'static str, why: String) {
        tracing::error!(source = name, why, "taken out");
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
            group_looks: self.group_looks.value(),
            muted: self.muted.value(),
            panics: self.panics.value(),
            tasklets: self.tasklets.value(),
            moved: self.moved.value(),
            blocking: self.blocking.value(),
            spares: self.spares.value(),
            relieved: self.relieved.value(),
        }
    }
}
