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

use crate::journal::{self, Changes, Journal, JournalError};
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
    /// The threads of a process cannot be listed, for example because this process has too many open files.
    #[error("the threads of a process cannot be listed now: {0}")]
    Processes(std::io::Error),
    /// Another coscheduler has claimed the process or the control group in the same moment, or before.
    #[error("another coscheduler has changed it, or is about to")]
    Taken,
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
    /// Threads and control groups whose values somebody else has changed meanwhile.
    pub left: usize,
    /// Threads and control groups that this process could not restore, for want of a permission or of memory. They stay in the journal.
    pub refused: usize,
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
        let (mut result, mut left) = (Restored::default(), Changes::default());
        match &mut self.means {
            State::Threads(threads) => {
                for (before, one) in threads.restore() {
                    result.add(one);
                    if one == One::Refused {
                        left.threads.insert(before.thread, before);
                    }
                }
            }
            State::ControlGroups(groups) => return restore(groups.take(), journal),
            State::Scheduler(scheduler) => return Ok(scheduler.restore()),
        }
        journal.clear(left)?;
        Ok(result)
    }
}

/// Restores the changes of a journal, for example of a process that was killed, and empties the journal, except for those that this process
/// may not restore.
///
/// # Errors
/// The journal cannot be written.
pub fn restore(mut changes: Changes, journal: &mut Journal) -> Result<Restored, ActuateError> {
    let mut result = Restored::default();
    let mut is_left = |one: One| {
        result.add(one);
        one == One::Refused
    };
    changes.threads.retain(|_, before| is_left(threads::restore(before)));
    changes.groups.retain(|_, before| is_left(control_group::restore(before)));
    journal.clear(changes)?;
    Ok(result)
}

/// Checks that this process may use an actuator. Control groups are checked when they are used.
///
/// # Errors
/// [`ActuateError`].
pub fn check(kind: ActuatorKind) -> Result<(), ActuateError> {
    Actuator::new(Choice::Only(kind)).map(drop)
}

/// Restores what coschedulers have changed that ended without doing so, and removes their journals, except those with changes that this
/// process may not restore. Those of running ones are left.
///
/// # Errors
/// A journal cannot be written.
pub fn restore_abandoned(state: &Path) -> Result<Restored, ActuateError> {
    let mut result = Restored::default();
    for path in journal::others(state) {
        match Journal::open(&path) {
            Ok((mut journal, changes)) => {
                result = result.plus(restore(changes, &mut journal)?);
                journal.remove()?;
            }
            Err(JournalError::InUse(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(result)
}

/// Returns the first error of two attempts, both of which were made.
fn first_error(one: Result<(), ActuateError>, other: Result<(), ActuateError>) -> Result<(), ActuateError> {
    one.and(other)
}

/// The result of restoring one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum One {
    Restored,
    Gone,
    /// Somebody else has changed it.
    Left,
    /// The kernel refuses it to this process, or cannot do it now.
    Refused,
}

impl Restored {
    /// Returns the result in words; `None` if there was nothing to restore.
    #[must_use]
    pub fn in_words(self) -> Option<String> {
        let Self { restored, gone, left, refused } = self;
        if restored + gone + left + refused == 0 {
            return None;
        }
        let mut words =
            format!("restored the weights of {restored} threads or control groups, {gone} had ended");
        if left > 0 {
            words.push_str(&format!("; {left} left, because something else has changed them"));
        }
        if refused > 0 {
            words.push_str(&format!(
                "; {refused} could not be restored, and stay in the journal: run `pronto coschedule restore` as root"
            ));
        }
        Some(words)
    }

    /// Returns the sums.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            restored: self.restored + other.restored,
            gone: self.gone + other.gone,
            left: self.left + other.left,
            refused: self.refused + other.refused,
        }
    }

    const fn add(&mut self, one: One) {
        match one {
            One::Restored => self.restored += 1,
            One::Gone => self.gone += 1,
            One::Left => self.left += 1,
            One::Refused => self.refused += 1,
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
    fn the_words_of_a_result_name_everything_that_is_not_restored() {
        assert_eq!(Restored::default().in_words(), None);
        let words = Restored { restored: 1, gone: 2, left: 3, refused: 4 }.in_words().unwrap();
        for part in ["1 threads", "2 had ended", "3 left", "4 could not be restored"] {
            assert!(words.contains(part), "{words}");
        }
    }

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
