//! Nice values and time slices of the threads of a process.
//!
//! A new thread or process inherits the values of the thread that has created it, also changed ones. So a new one of a changed process
//! counts as changed, with the values that its creator had before.

use core::time::Duration;
use std::collections::BTreeMap;

use nix::errno::Errno;
use pronto_expedite::schedule::{self, CALLER, Class};
use pronto_sched_policy::policy::weight::Weight;

use super::{ActuateError, One};
use crate::journal::{Entry, Journal, ThreadBefore};
use crate::process::{self, Identity, Stat};

/// Shortest time slice that the kernel accepts (`kernel/sched/fair.c`, since Linux 6.12).
const SHORTEST: Duration = Duration::from_micros(100);

/// Attributes of a thread that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Means {
    pub(super) nice: bool,
    pub(super) slice: bool,
}

#[derive(Debug)]
pub(super) struct Threads {
    means: Means,
    /// The kernel's own time slice, that of a thread which never had another one.
    kernels: Duration,
    /// The threads that were changed, by process.
    changed: BTreeMap<Identity, Changed>,
}

#[derive(Debug)]
struct Changed {
    weight: Weight,
    /// Values before, of its main thread.
    before: ThreadBefore,
    threads: BTreeMap<Identity, ThreadBefore>,
}

/// Returns whether this process may lower nice values.
pub(super) fn may_lower_nice() -> bool {
    // In a thread of its own, which ends with the changed value.
    let attempt = || -> Result<(), Errno> {
        let nice = schedule::nice(CALLER)?;
        schedule::set_nice(CALLER, nice - 1)?;
        (schedule::nice(CALLER)? < nice).then_some(()).ok_or(Errno::EPERM)
    };
    std::thread::scope(|scope| scope.spawn(attempt).join()).is_ok_and(|result| result.is_ok())
}

/// Returns the time slice that the kernel gives to a thread that has requested none; zero if it does not report any.
fn kernels_slice() -> Duration {
    let of_new =
        || schedule::schedule(CALLER, Class::Slice(Duration::ZERO)).and_then(|()| schedule::slice(CALLER));
    std::thread::scope(|scope| scope.spawn(of_new).join()).ok().and_then(Result::ok).unwrap_or(Duration::ZERO)
}

impl Means {
    /// Checks that this process may use the means.
    pub(super) fn check(self) -> Result<(), ActuateError> {
        if self.nice && !may_lower_nice() {
            return Err(ActuateError::NicePermission);
        }
        if self.slice && kernels_slice().is_zero() {
            return Err(ActuateError::NoSlices);
        }
        Ok(())
    }

    /// Changes a thread that had other values before.
    fn apply(self, before: &ThreadBefore, weight: Weight, kernels: Duration) -> Result<(), Errno> {
        let thread = before.thread.id.cast_signed();
        // A thread of another class is left to the program that has chosen it.
        if schedule::policy(thread)? != ORDINARY {
            return Ok(());
        }
        if self.slice {
            let slice = if before.slice_ns == 0 { kernels } else { Duration::from_nanos(before.slice_ns) };
            let shorter = (slice * Weight::ORDINARY.as_hundredths()) / weight.as_hundredths();
            let slice = if weight == Weight::ORDINARY {
                Duration::from_nanos(before.slice_ns)
            } else {
                shorter.max(SHORTEST)
            };
            schedule::schedule(thread, Class::Slice(slice))?;
        }
        if self.nice {
            schedule::set_nice(thread, (before.nice - i32::from(weight.as_nice_steps())).max(LOWEST_NICE))?;
        }
        Ok(())
    }
}

/// `SCHED_OTHER`.
const ORDINARY: i32 = 0;

/// The lowest nice value.
const LOWEST_NICE: i32 = -20;

/// Nice values by which a thread is changed at most.
fn most_steps() -> i32 {
    Weight::LIMIT.as_nice_steps().into()
}

impl Threads {
    pub(super) fn new(means: Means) -> Self {
        Self { means, kernels: kernels_slice(), changed: BTreeMap::new() }
    }

    /// Gives the threads of a process a weight, unless they have it.
    pub(super) fn set(
        &mut self,
        process: Identity,
        weight: Weight,
        journal: &mut Journal,
    ) -> Result<bool, ActuateError> {
        match self.changed.get_mut(&process) {
            Some(changed) if changed.weight == weight => return Ok(false),
            Some(changed) => changed.weight = weight,
            None if weight == Weight::ORDINARY => return Ok(false),
            None => {
                let Some(before) = self.read(process.id, process) else { return Ok(false) };
                let threads = BTreeMap::new();
                self.changed.insert(process, Changed { weight, before, threads });
            }
        }
        self.give(process, journal)?;
        Ok(true)
    }

    /// Reads the present values of a thread; `None` if it has ended.
    fn read(&self, process: u32, thread: Identity) -> Option<ThreadBefore> {
        let id = thread.id.cast_signed();
        let slice = schedule::slice(id).ok()?;
        // The kernel reports its own slice like a requested one.
        let requested = if slice == self.kernels { Duration::ZERO } else { slice };
        let slice_ns = u64::try_from(requested.as_nanos()).unwrap_or(0);
        Some(ThreadBefore { process, thread, nice: schedule::nice(id).ok()?, slice_ns })
    }

    /// Gives all threads of a changed process its weight.
    fn give(&mut self, process: Identity, journal: &mut Journal) -> Result<(), ActuateError> {
        self.find_threads(process, journal)?;
        let Some(changed) = self.changed.get(&process) else { return Ok(()) };
        for before in changed.threads.values() {
            match self.means.apply(before, changed.weight, self.kernels) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(Errno::EPERM | Errno::EACCES) if self.means.nice => {
                    return Err(ActuateError::NicePermission);
                }
                Err(errno) => return Err(ActuateError::Thread(before.thread.id, errno)),
            }
        }
        Ok(())
    }

    /// Enters the threads of a changed process that are new, and forgets those that have ended. Returns whether there were new ones.
    fn find_threads(&mut self, process: Identity, journal: &mut Journal) -> Result<bool, ActuateError> {
        let Some(changed) = self.changed.get(&process) else { return Ok(false) };
        let mut threads = BTreeMap::new();
        let mut has_new = false;
        for tid in process::threads(process.id) {
            let Ok(stat) = Stat::of_thread(process.id, tid) else { continue };
            let thread = stat.identity;
            let before = match changed.threads.get(&thread) {
                Some(before) => *before,
                None => {
                    let Some(now) = self.read(process.id, thread) else { continue };
                    let before = self.original(now, &changed.before);
                    journal.write(&Entry::Thread(before))?;
                    has_new = true;
                    before
                }
            };
            threads.insert(thread, before);
        }
        if let Some(changed) = self.changed.get_mut(&process) {
            changed.threads = threads;
        }
        Ok(has_new)
    }

    /// Returns the values that a new thread would have if its creator had not been changed. Those of the creator are `creator` and were
    /// changed by this actuator.
    fn original(&self, now: ThreadBefore, creator: &ThreadBefore) -> ThreadBefore {
        let could_inherit_nice = (creator.nice - most_steps()..=creator.nice).contains(&now.nice);
        let nice = if self.means.nice && could_inherit_nice { creator.nice } else { now.nice };
        let slice_ns = if self.means.slice { creator.slice_ns } else { now.slice_ns };
        ThreadBefore { nice, slice_ns, ..now }
    }

    /// Gives new threads of changed processes their weight. Enters new processes of changed parents, with the weight of the parent.
    pub(super) fn adopt(
        &mut self,
        processes: &BTreeMap<Identity, u32>,
        journal: &mut Journal,
    ) -> Result<(), ActuateError> {
        // Processes that left the group keep running with the values of before.
        let left: Vec<_> =
            self.changed.keys().filter(|process| !processes.contains_key(process)).copied().collect();
        let mut live: BTreeMap<u32, Identity> =
            self.changed.keys().map(|process| (process.id, *process)).collect();
        for (process, parent) in processes {
            let Some(creator) = live.get(parent).and_then(|parent| self.changed.get(parent)) else {
                continue;
            };
            if self.changed.contains_key(process) {
                continue;
            }
            let (weight, creator) = (creator.weight, creator.before);
            let Some(now) = self.read(process.id, *process) else { continue };
            let before = self.original(now, &creator);
            if before != now {
                self.changed.insert(*process, Changed { weight, before, threads: BTreeMap::new() });
                live.insert(process.id, *process);
            }
        }
        for process in left {
            if let Some(changed) = self.changed.remove(&process) {
                changed.threads.values().for_each(|before| _ = restore(before));
            }
        }
        for process in self.changed.keys().copied().collect::<Vec<_>>() {
            if self.find_threads(process, journal)? {
                self.give(process, journal)?;
            }
        }
        let threads = self.changed.values().flat_map(|changed| &changed.threads);
        let threads = threads.map(|(thread, before)| (*thread, *before)).collect();
        Ok(journal.compact(&threads, &[])?)
    }

    /// Returns the weight that a process has from this actuator.
    pub(super) fn weight(&self, process: Identity) -> Weight {
        self.changed.get(&process).map_or(Weight::ORDINARY, |changed| changed.weight)
    }

    /// Returns the entries of all changed threads, and forgets them.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        let changed = core::mem::take(&mut self.changed);
        changed.into_values().flat_map(|changed| changed.threads.into_values()).map(Entry::Thread).collect()
    }
}

/// Restores the values of a thread, unless somebody else has set others.
pub(super) fn restore(before: &ThreadBefore) -> One {
    let same =
        Stat::of_thread(before.process, before.thread.id).is_ok_and(|stat| stat.identity == before.thread);
    if !same {
        return One::Gone;
    }
    let id = before.thread.id.cast_signed();
    let attempt = || -> Result<One, Errno> {
        if schedule::policy(id)? != ORDINARY {
            return Ok(One::Left);
        }
        let nice = schedule::nice(id)?;
        if !(before.nice - most_steps()..=before.nice).contains(&nice) {
            return Ok(One::Left);
        }
        // A slice of zero is the kernel's.
        schedule::schedule(id, Class::Slice(Duration::from_nanos(before.slice_ns)))?;
        schedule::set_nice(id, before.nice)?;
        Ok(One::Restored)
    };
    match attempt() {
        Ok(one) => one,
        Err(Errno::ESRCH) => One::Gone,
        Err(_) => One::Left,
    }
}
