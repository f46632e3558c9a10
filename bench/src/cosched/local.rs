//! A local task: the paper's `calcula`, which computes for ever (section 4).

use core::hint::black_box;

use std::sync::Arc;

use anyhow::Context as _;
use pronto_parallel_jobs::calcula;
use pronto_sync::atomic::{AtomicU64, Ordering};

use crate::child::{self, Child};
use crate::placement::{Cpu, pin};
use crate::side::{Arguments, Side};

/// The computing child.
pub(crate) const SIDE: Side = Side { name: "cosched-local", arguments: &["cpu"], more: None, run: serve };

/// A local task.
#[derive(Debug)]
pub(crate) struct LocalTask(Child);

/// Work of a task since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Units of computing.
    pub(crate) units: u64,
    /// CPU time, nanoseconds.
    pub(crate) cpu_ns: u64,
}

impl LocalTask {
    /// Starts a task on a CPU.
    pub(crate) fn start(cpu: Cpu) -> anyhow::Result<Self> {
        let mut child = Child::spawn(&SIDE, [cpu.0.to_string()])?;
        child.expect("computes")?;
        Ok(Self(child))
    }

    /// Returns its work since its start.
    pub(crate) fn work(&mut self) -> anyhow::Result<Work> {
        self.0.tell("work")?;
        let units = self.0.hear()?.parse().context("the work of a local task")?;
        Ok(Work { units, cpu_ns: self.0.cpu_ns()? })
    }
}

impl Work {
    /// Returns the work after `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self { units: self.units - earlier.units, cpu_ns: self.cpu_ns - earlier.cpu_ns }
    }

    /// Returns the sum.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self { units: self.units + other.units, cpu_ns: self.cpu_ns + other.cpu_ns }
    }

    /// Returns the units per second of CPU time.
    pub(crate) fn rate(self) -> f64 {
        crate::sample::approximate(self.units) * 1e9 / crate::sample::approximate(self.cpu_ns.max(1))
    }
}

fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    pin(arguments.cpu("cpu")?)?;
    let units = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&units);
    std::thread::spawn(move || {
        let mut value = 0.0;
        loop {
            value = black_box(calcula::unit(value));
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    child::say("computes")?;
    while child::listen()?.is_some() {
        child::say(&units.load(Ordering::Relaxed).to_string())?;
    }
    Ok(())
}
