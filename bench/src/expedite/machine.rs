//! The lab's machine as these experiments want it: the module loaded, one processor for handlers and background, a preemption model.
//!
//! The processor is a partition of its own (a root domain), so that also threads with a deadline may be bound to it: the
//! kernel admits those only if they may use all processors of their domain (`kernel/sched/syscalls.c`).
//!
//! Pages stay small, as in `prontod`: every ten seconds khugepaged looks for some to gather, at nice 19 and on the processor of the
//! background, and a sender or handler that touches them meanwhile waited for up to 600 ms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use nix::sys::prctl;

use pronto_expedite::schedule::Class;

use super::metronome::Metronome;
use crate::lab;

/// The folder of the group of handlers and background; a partition if there are two processors.
const PARTITION: &str = "/sys/fs/cgroup/pronto-handlers";
const GROUPS: &str = "/sys/fs/cgroup";
/// The processor in it.
const CPU: &str = "0";
const DEBUGFS: &str = "/sys/kernel/debug";
const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";
const COUNTERS: &str = "/sys/kernel/debug/expedite/counters";

/// When the kernel takes the processor from a thread that computes in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preempt {
    /// At once for real-time threads, at the next tick for others: Debian's default.
    Lazy,
    /// At once.
    Full,
}

impl Preempt {
    pub(crate) const ALL: [Self; 2] = [Self::Lazy, Self::Full];

    /// The value of the column, and of the kernel's file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Full => "full",
        }
    }
}

/// The machine; when dropped, the module is unloaded.
#[derive(Debug)]
pub(crate) struct Machine {
    /// None on one processor, which has no turns.
    _short_turns: Option<Metronome>,
    sender: Class,
}

/// A sender that shares the processor of the handlers: above all of them.
const SENDER: Class = Class::Fifo(2);

/// What the module has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Boosts given.
    pub(crate) fn boosts(&self) -> u64 {
        self.sum(|name| ["direct", "worker"].contains(&name))
    }

    /// Boosts denied, for whatever cause.
    pub(crate) fn denied(&self) -> u64 {
        self.sum(|name| name.starts_with("denied"))
    }

    /// Boosted time, nanoseconds.
    pub(crate) fn boosted_ns(&self) -> u64 {
        self.sum(|name| name == "boosted_ns")
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let earlier = |name: &String| before.0.get(name).copied().unwrap_or(0);
        Self(self.0.iter().map(|(name, count)| (name.clone(), count.saturating_sub(earlier(name)))).collect())
    }

    /// The same and another one's, together.
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    fn sum(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|(name, _)| wanted(name)).map(|(_, count)| count).sum()
    }
}

impl Machine {
    /// Loads the module, and sets one of two processors apart.
    ///
    /// # Errors
    /// If this is not the lab's machine, or anything is missing in it.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        start()?;
        let machine = Self { _short_turns: Some(Metronome::start()?), sender: Class::Normal };
        write(&format!("{GROUPS}/cgroup.subtree_control"), "+cpuset")?;
        write(&format!("{PARTITION}/cpuset.cpus"), CPU)?;
        let partition = format!("{PARTITION}/cpuset.cpus.partition");
        write(&partition, "root")?;
        let is = fs::read_to_string(&partition).context("reading back a partition")?;
        anyhow::ensure!(is.trim() == "root", "no processor can be set apart: {is}");
        Ok(machine)
    }

    /// Loads the module into a machine with one processor, which handlers, background and senders share.
    ///
    /// # Errors
    /// If this is not the lab's machine, or anything is missing in it.
    pub(crate) fn with_one_processor() -> anyhow::Result<Self> {
        start()?;
        Ok(Self { _short_turns: None, sender: SENDER })
    }

    /// How a thread that sends is scheduled.
    pub(crate) const fn sender(&self) -> Class {
        self.sender
    }

    /// Loads the module once more, with other parameters. Nobody may be using it.
    ///
    /// # Errors
    /// If somebody is, or it has no such parameter.
    pub(crate) fn reload(&self, parameters: &[&str]) -> anyhow::Result<()> {
        succeeds(Command::new("rmmod").arg("expedite"))?;
        load_module(parameters)
    }

    /// Sets the preemption model.
    ///
    /// # Errors
    /// If the kernel has no such.
    pub(crate) fn preempt(&self, model: Preempt) -> anyhow::Result<()> {
        write(PREEMPT, model.name())
    }

    /// What the module has counted so far.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn counters(&self) -> anyhow::Result<Counters> {
        let text = fs::read_to_string(COUNTERS).context("reading the module's counters")?;
        let line = |line: &str| {
            let (name, count) = line.split_once(' ').context("a counter is a name and a number")?;
            Ok((name.to_owned(), count.trim().parse().context("a counter is a number")?))
        };
        Ok(Counters(text.lines().map(line).collect::<anyhow::Result<_>>()?))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The machine ends with the experiment; what is still in use then is nobody's loss.
        let _ = Command::new("rmmod").arg("expedite").status();
    }
}

/// Loads the module, and makes the group of handlers and background.
fn start() -> anyhow::Result<()> {
    anyhow::ensure!(lab::inside(), "this experiment changes the machine, and does so in the lab only");
    // For this process and all that it starts: see the documentation of this module.
    prctl::set_thp_disable(true).context("keeping pages small")?;
    load_module(&[])?;
    if !Path::new(PREEMPT).exists() {
        succeeds(Command::new("mount").args(["-t", "debugfs", "debugfs", DEBUGFS]))?;
    }
    fs::create_dir_all(PARTITION).context("making a control group")
}

/// The calling process shares the handlers' processor from now on.
///
/// # Errors
/// If there is no such.
pub(crate) fn join_partition() -> anyhow::Result<()> {
    write(&format!("{PARTITION}/cgroup.procs"), "0")
}

fn load_module(parameters: &[&str]) -> anyhow::Result<()> {
    succeeds(Command::new("insmod").arg(lab::module()?).args(parameters))
}

fn write(path: &str, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {text} to {path}"))
}

fn succeeds(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_by_what_they_mean() {
        let counters = |direct, denied| {
            let all = [("direct", direct), ("worker", 2), ("denied_user", denied), ("boosted_ns", 100)];
            Counters(all.map(|(name, count)| (name.to_owned(), count)).into())
        };
        let mut since = counters(9, 4).since(&counters(4, 1));
        assert_eq!((since.boosts(), since.denied(), since.boosted_ns()), (5, 3, 0));
        since.add(&counters(1, 1));
        assert_eq!((since.boosts(), since.denied(), since.boosted_ns()), (8, 4, 100));
    }
}
