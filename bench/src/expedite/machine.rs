//! The lab's machine as these experiments need it: the module loaded, one CPU for handlers and background, a preemption model.
//!
//! The CPU is a separate partition (a root domain), so that threads with a deadline can be bound to it: the kernel admits them only if
//! they may use all CPUs of their domain (`kernel/sched/syscalls.c`).
//!
//! Huge pages are disabled, as in `prontod`: every ten seconds khugepaged collapses pages, at nice 19 and on the CPU of the background,
//! and a sender or handler that touched such pages waited for up to 600 ms.

use core::time::Duration;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use nix::sys::prctl;

use pronto_expedite::schedule::Class;
use pronto_expedite::{Device, scx};

use super::Setting;
use super::metronome::Metronome;
use super::scheduler::Scheduler;
use crate::lab;
use crate::params::{Choice as _, Params, choices};
use crate::report::Report;

/// Control group of handlers and background; a partition if there are two CPUs.
pub(crate) const PARTITION: &str = "/sys/fs/cgroup/pronto-handlers";
const GROUPS: &str = "/sys/fs/cgroup";
/// CPU of the partition.
const CPU: &str = "0";
const DEBUGFS: &str = "/sys/kernel/debug";
const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

choices! {
    /// Time at which the kernel preempts a thread that computes in user space. The names are those of the kernel's file.
    pub(crate) enum Preempt {
        /// Immediately for real-time threads, at the next tick for others: Debian's default.
        Lazy = "lazy",
        /// Immediately.
        Full = "full",
    }
}

choices! {
    /// CPUs on which handlers and background may run.
    pub(crate) enum Place {
        /// One; senders have the other.
        Pinned = "pinned",
        /// All; senders share them, and are real-time above every handler.
        Anywhere = "anywhere",
    }
}

/// The machine; when dropped, the module is unloaded.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The BPF scheduler, if handlers use it.
    scheduler: Option<Scheduler>,
    /// `None` where the CPUs take no turns: on one CPU, and without virtual time.
    _short_turns: Option<Metronome>,
    sender: Class,
}

/// Class of a sender that shares the CPU of the handlers: above all of them.
const SENDER: Class = Class::Fifo(2);

/// Counters of the module, or of the BPF scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    boosts: u64,
    denied: u64,
    boosted: Duration,
}

impl Counters {
    /// Returns the number of granted boosts.
    pub(crate) fn boosts(&self) -> u64 {
        self.boosts
    }

    /// Returns the number of denied boosts, for any reason.
    pub(crate) fn denied(&self) -> u64 {
        self.denied
    }

    /// Returns the boosted time in nanoseconds.
    pub(crate) fn boosted_ns(&self) -> u64 {
        u64::try_from(self.boosted.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the counts since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            boosts: self.boosts.saturating_sub(before.boosts),
            denied: self.denied.saturating_sub(before.denied),
            boosted: self.boosted.saturating_sub(before.boosted),
        }
    }

    /// Adds other counts.
    pub(crate) fn add(&mut self, other: &Self) {
        self.boosts += other.boosts;
        self.denied += other.denied;
        self.boosted += other.boosted;
    }
}

impl Machine {
    /// Loads the module, and isolates one of two CPUs.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        start()?;
        let _short_turns = Some(Metronome::start()?);
        isolate()?;
        Ok(Self { scheduler: None, _short_turns, sender: Class::Normal })
    }

    /// Loads the module, and isolates one of two CPUs, in a machine whose clock is the host's: its CPUs do not take turns.
    pub(crate) fn in_real_time() -> anyhow::Result<Self> {
        start()?;
        isolate()?;
        Ok(Self { scheduler: None, _short_turns: None, sender: Class::Normal })
    }

    /// Loads the module into a machine with one CPU, which handlers, background and senders share.
    pub(crate) fn with_one_cpu() -> anyhow::Result<Self> {
        start()?;
        Ok(Self { scheduler: None, _short_turns: None, sender: SENDER })
    }

    /// Returns the settings that the run selects, and prepares the machine for them. If it cannot load the BPF scheduler, the reason is
    /// noted.
    pub(crate) fn settings(
        &mut self,
        run: &Params,
        all: &[Setting],
        report: &mut Report,
    ) -> anyhow::Result<Vec<Setting>> {
        let mut settings = run.kept("setting", all.iter().copied(), |setting| setting.name());
        if settings.contains(&Setting::Scx) {
            match Scheduler::start(&lab::bpf("scx")?) {
                Ok(scheduler) => self.scheduler = Some(scheduler),
                Err(why) => {
                    report.note(format!("skipped: scx: {why:#}"));
                    settings.retain(|setting| *setting != Setting::Scx);
                }
            }
        }
        Ok(settings)
    }

    /// Runs `measure` while the BPF scheduler schedules all ordinary threads of the machine.
    pub(crate) fn under_scx(&self, measure: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let scheduler = self.scheduler.as_ref().context("the BPF scheduler was not prepared")?;
        scheduler.load()?;
        let measured = measure();
        scheduler.unload()?;
        measured
    }

    /// Lets handlers, background and senders run on all CPUs from now on. Senders become real-time, so that they are not late themselves.
    pub(crate) fn unpin(&mut self) -> anyhow::Result<()> {
        write(&format!("{PARTITION}/cpuset.cpus.partition"), "member")?;
        let all =
            fs::read_to_string(format!("{GROUPS}/cpuset.cpus.effective")).context("reading the CPUs")?;
        write(&format!("{PARTITION}/cpuset.cpus"), all.trim())?;
        self.sender = SENDER;
        Ok(())
    }

    /// Returns the class of sending threads.
    pub(crate) const fn sender(&self) -> Class {
        self.sender
    }

    /// Loads the module again, with other parameters. It must not be in use.
    pub(crate) fn reload(&self, parameters: &[&str]) -> anyhow::Result<()> {
        succeeds(Command::new("rmmod").arg("expedite"))?;
        load_module(parameters)
    }

    /// Sets the preemption model.
    pub(crate) fn preempt(&self, model: Preempt) -> anyhow::Result<()> {
        write(PREEMPT, model.name())
    }

    /// Reads the counters of the module or, for handlers that are flagged there, of the BPF scheduler.
    pub(crate) fn counters(&self, setting: Setting) -> anyhow::Result<Counters> {
        if setting == Setting::Scx {
            let counts = scx::Scheduler::connect()?.counters()?;
            let (boosts, denied) = (counts.boosts, counts.denied());
            return Ok(Counters { boosts, denied, boosted: counts.boosted_time() });
        }
        let counts = Device::open()?.totals()?.counts;
        Ok(Counters { boosts: counts.boosts(), denied: counts.denied(), boosted: counts.boosted_time })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The machine ends with the experiment, so a failure has no consequences.
        let _ = Command::new("rmmod").arg("expedite").status();
    }
}

/// Loads the module, and creates the group of handlers and background.
fn start() -> anyhow::Result<()> {
    anyhow::ensure!(lab::inside(), "this experiment changes the machine, and runs only in the lab");
    // For this process and its children; the documentation of this module gives the reason.
    prctl::set_thp_disable(true).context("keeping pages small")?;
    load_module(&[])?;
    if !Path::new(PREEMPT).exists() {
        succeeds(Command::new("mount").args(["-t", "debugfs", "debugfs", DEBUGFS]))?;
    }
    fs::create_dir_all(PARTITION).context("making a control group")
}

/// Makes a partition of the handlers' CPU.
fn isolate() -> anyhow::Result<()> {
    write(&format!("{GROUPS}/cgroup.subtree_control"), "+cpuset")?;
    write(&format!("{PARTITION}/cpuset.cpus"), CPU)?;
    let partition = format!("{PARTITION}/cpuset.cpus.partition");
    write(&partition, "root")?;
    let is = fs::read_to_string(&partition).context("reading back a partition")?;
    anyhow::ensure!(is.trim() == "root", "the kernel made no partition: {is}");
    Ok(())
}

/// Moves the calling process to the handlers' CPU.
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
    fn counters_are_subtracted_and_added() {
        let counters = |boosts, denied| Counters { boosts, denied, boosted: Duration::from_nanos(100) };
        let mut since = counters(11, 4).since(&counters(6, 1));
        assert_eq!((since.boosts(), since.denied(), since.boosted_ns()), (5, 3, 0));
        since.add(&counters(3, 1));
        assert_eq!((since.boosts(), since.denied(), since.boosted_ns()), (8, 4, 100));
    }
}
