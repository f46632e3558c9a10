//! Actuators: how the kernel is given the weights of processes.

mod control_group;
mod scheduler;
mod threads;

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use pronto_expedite::scx::{Prediction, PredictionTerms, Refused};
use pronto_sched_policy::policy::weight::{Steps, Weight};

use crate::journal::{self, Entry, Journal, JournalError};
use crate::process::Identity;
use control_group::ControlGroups;
use scheduler::SchedulerWeights;
use threads::{Means, Threads};

/// The means by which a process gets its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActuatorKind {
    /// Nice values of its threads: its share of the CPU grows, and it is chosen earlier. Lower values need a privilege.
    Nice,
    /// Shorter time slices of its threads (EEVDF, Linux 6.12 and later): it is chosen earlier after it has slept, and its share stays.
    /// Needs no privilege.
    Slice,
    /// Both.
    NiceAndSlice,
    /// The weight of its control group: `cpu.weight` (version 2) or `cpu.shares` (version 1). All processes of the group get the largest
    /// weight of any of them.
    ControlGroup,
    /// The weight of the process in the BPF scheduler of `kernel/scx`, whose loader runs. Only for root, and not for `Auto`.
    Scheduler,
}

/// The requested means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best one that this machine permits: nice values, else slices.
    #[default]
    Auto,
    /// This one.
    Only(ActuatorKind),
}

/// Reason why the kernel is not given a weight.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActuateError {
    /// This user may not set lower nice values.
    #[error(
        "not permitted to lower nice values: run as root, with CAP_SYS_NICE or RLIMIT_NICE, or choose the actuator slice"
    )]
    NicePermission,
    /// The kernel has no time slices of single threads.
    #[error(
        "this kernel has no time slices of single threads (Linux 6.12 and later): choose the actuator nice"
    )]
    NoSlices,
    /// A group is not a control group with a weight.
    #[error("{}: cannot write the weight of this control group (cpu.weight or cpu.shares): {}", .0.display(), .1)]
    ControlGroup(PathBuf, std::io::Error),
    /// The actuator needs control groups.
    #[error(
        "the actuator cgroup needs prontod, and groups that are given by their control group (cgroup = \"/sys/fs/cgroup/...\")"
    )]
    NeedsControlGroup,
    /// The loader of the BPF scheduler does not accept weights.
    #[error("the actuator scx cannot be used: {0}")]
    Scheduler(Refused),
    /// The actuator sets no weights that follow the queues of a process.
    #[error("the sensor scx sets weights in the BPF scheduler: choose the actuator scx, too")]
    NotInKernel,
    /// The kernel refused a change of a thread.
    #[error("the kernel refused to change thread {0}: {1}")]
    Thread(u32, Errno),
    /// The journal cannot be written, so that nothing is changed.
    #[error("nothing is changed, because it could not be restored after a crash: {0}")]
    Journal(#[from] JournalError),
}

// Not `#[from]`: the message contains the reason, which would be printed twice.
impl From<Refused> for ActuateError {
    fn from(refused: Refused) -> Self {
        Self::Scheduler(refused)
    }
}

/// Gives the kernel the weights of processes, and restores the values before.
#[derive(Debug)]
pub struct Actuator {
    kind: ActuatorKind,
    means: State,
}

#[derive(Debug)]
enum State {
    Threads(Threads),
    ControlGroups(ControlGroups),
    Scheduler(SchedulerWeights),
}

/// Results of restoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Threads and control groups that have their values of before.
    pub restored: usize,
    /// Threads that have ended, and control groups that are gone.
    pub gone: usize,
    /// Threads and control groups whose values somebody else has changed meanwhile, or which the kernel refused to change.
    pub left: usize,
}

impl ActuatorKind {
    /// Returns the weights that it can give.
    pub(crate) const fn steps(self) -> Steps {
        match self {
            Self::Nice | Self::Slice | Self::NiceAndSlice => Steps::Nice,
            Self::ControlGroup | Self::Scheduler => Steps::Fine,
        }
    }
}

impl Actuator {
    /// Returns an actuator of the requested kind.
    ///
    /// # Errors
    /// This machine or this user may not use it. For `Auto`: not even slices.
    pub fn new(choice: Choice) -> Result<Self, ActuateError> {
        let kind = match choice {
            Choice::Only(kind) => kind,
            Choice::Auto if threads::may_lower_nice() => ActuatorKind::Nice,
            Choice::Auto => ActuatorKind::Slice,
        };
        let threads = |means: Means| {
            means.check()?;
            Ok::<_, ActuateError>(State::Threads(Threads::new(means)))
        };
        let means = match kind {
            ActuatorKind::Nice => threads(Means { nice: true, slice: false })?,
            ActuatorKind::Slice => threads(Means { nice: false, slice: true })?,
            ActuatorKind::NiceAndSlice => threads(Means { nice: true, slice: true })?,
            ActuatorKind::ControlGroup => State::ControlGroups(ControlGroups::default()),
            ActuatorKind::Scheduler => State::Scheduler(SchedulerWeights::connect()?),
        };
        Ok(Self { kind, means })
    }

    /// Returns its kind.
    #[must_use]
    pub const fn kind(&self) -> ActuatorKind {
        self.kind
    }

    /// Gives a process its weight. `control_group` is the folder of its group, if it has one. Returns whether anything was changed.
    ///
    /// # Errors
    /// [`ActuateError`]. A thread that ends meanwhile is no error.
    pub fn set(
        &mut self,
        process: Identity,
        weight: Weight,
        control_group: Option<&Path>,
        journal: &mut Journal,
    ) -> Result<bool, ActuateError> {
        match &mut self.means {
            State::Threads(threads) => threads.set(process, weight, journal),
            State::ControlGroups(groups) => {
                let folder = control_group.ok_or(ActuateError::NeedsControlGroup)?;
                groups.set(process, weight, folder, journal)
            }
            State::Scheduler(scheduler) => scheduler.set(process, weight),
        }
    }

    /// Lets the weight of a process follow its queues: the kernel reads them, and sets the weight.
    ///
    /// # Errors
    /// As [`Self::set`]; [`ActuateError::NotInKernel`] if this is another actuator than [`ActuatorKind::Scheduler`].
    pub fn predict(&mut self, process: Identity, terms: PredictionTerms) -> Result<(), ActuateError> {
        match &mut self.means {
            State::Scheduler(scheduler) => scheduler.predict(process, terms),
            State::Threads(_) | State::ControlGroups(_) => Err(ActuateError::NotInKernel),
        }
    }

    /// Returns what the kernel has predicted for a process; `None` if it does not, or the process or the scheduler has ended.
    #[must_use]
    pub fn prediction(&self, process: Identity) -> Option<Prediction> {
        match &self.means {
            State::Scheduler(scheduler) => scheduler.prediction(process),
            State::Threads(_) | State::ControlGroups(_) => None,
        }
    }

    /// Returns whether weights wait for a loader of the BPF scheduler, because the last one has ended.
    #[must_use]
    pub fn is_without_loader(&self) -> bool {
        match &self.means {
            State::Scheduler(scheduler) => scheduler.is_without_loader(),
            State::Threads(_) | State::ControlGroups(_) => false,
        }
    }

    /// Learns which processes and threads exist: each process with its parent, of which it may have inherited changed values. Gives new
    /// threads of known processes their weight, and forgets the others.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn adopt(
        &mut self,
        processes: &BTreeMap<Identity, u32>,
        journal: &mut Journal,
    ) -> Result<(), ActuateError> {
        match &mut self.means {
            State::Threads(threads) => threads.adopt(processes, journal),
            State::ControlGroups(groups) => groups.retain(processes, journal),
            State::Scheduler(scheduler) => scheduler.adopt(processes),
        }
    }

    /// Returns the weight that a process has from this actuator: a new one may have inherited that of its parent. `None` if processes have
    /// no weights of their own.
    #[must_use]
    pub fn weight(&self, process: Identity) -> Option<Weight> {
        match &self.means {
            State::Threads(threads) => Some(threads.weight(process)),
            State::ControlGroups(_) => None,
            State::Scheduler(scheduler) => Some(scheduler.weight(process)),
        }
    }

    /// Restores everything and empties the journal. Threads that the last [`Self::adopt`] has not seen keep what they inherited, so it
    /// should be called before.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn restore(&mut self, journal: &mut Journal) -> Result<Restored, ActuateError> {
        let entries = match &mut self.means {
            State::Threads(threads) => threads.take(),
            State::ControlGroups(groups) => groups.take(),
            State::Scheduler(scheduler) => return Ok(scheduler.restore()),
        };
        restore(entries, journal)
    }
}

/// Restores the entries of a journal, for example of a process that was killed, and empties the journal.
///
/// # Errors
/// The journal cannot be written.
pub fn restore(entries: Vec<Entry>, journal: &mut Journal) -> Result<Restored, ActuateError> {
    let mut result = Restored::default();
    // The first entry of a thread has its original values.
    let mut threads = BTreeMap::new();
    let mut groups = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Thread(before) => drop(threads.entry(before.thread).or_insert(before)),
            Entry::ControlGroup(before) => drop(groups.entry(before.file.clone()).or_insert(before)),
        }
    }
    threads.values().for_each(|before| result.add(threads::restore(before)));
    groups.values().for_each(|before| result.add(control_group::restore(before)));
    journal.clear()?;
    Ok(result)
}

/// Checks that this process may use an actuator. Control groups are checked when they are used.
///
/// # Errors
/// [`ActuateError`].
pub fn check(kind: ActuatorKind) -> Result<(), ActuateError> {
    Actuator::new(Choice::Only(kind)).map(drop)
}

/// Restores what coschedulers have changed that ended without doing so, and removes their journals. Those of running ones are left.
///
/// # Errors
/// A journal cannot be written.
pub fn restore_abandoned(state: &Path) -> Result<Restored, ActuateError> {
    let mut result = Restored::default();
    for path in journal::others(state) {
        match Journal::open(&path) {
            Ok((mut journal, entries)) => {
                result = result.plus(restore(entries, &mut journal)?);
                journal.remove()?;
            }
            Err(JournalError::InUse(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(result)
}

/// The result of restoring one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum One {
    Restored,
    Gone,
    Left,
}

impl Restored {
    /// Returns the sums.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            restored: self.restored + other.restored,
            gone: self.gone + other.gone,
            left: self.left + other.left,
        }
    }

    const fn add(&mut self, one: One) {
        match one {
            One::Restored => self.restored += 1,
            One::Gone => self.gone += 1,
            One::Left => self.left += 1,
        }
    }
}

impl ActuatorKind {
    /// Every kind, with its name in a configuration.
    pub const ALL: [(&'static str, Self); 5] = [
        ("nice", Self::Nice),
        ("slice", Self::Slice),
        ("nice+slice", Self::NiceAndSlice),
        ("cgroup", Self::ControlGroup),
        ("scx", Self::Scheduler),
    ];
}

impl fmt::Display for ActuatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, kind)| kind == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// Reason why a text is not the name of an actuator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown actuator {0:?}: it is auto, nice, slice, nice+slice, cgroup or scx")]
pub struct UnknownActuator(String);

impl FromStr for Choice {
    type Err = UnknownActuator;

    fn from_str(text: &str) -> Result<Self, UnknownActuator> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let named = ActuatorKind::ALL.iter().find(|(name, _)| *name == text);
        named.map(|(_, kind)| Self::Only(*kind)).ok_or_else(|| UnknownActuator(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        for (name, kind) in ActuatorKind::ALL {
            assert_eq!(name.parse(), Ok(Choice::Only(kind)));
            assert_eq!(kind.to_string(), name);
        }
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        assert!("fast".parse::<Choice>().unwrap_err().to_string().contains("nice+slice"));
    }
}
