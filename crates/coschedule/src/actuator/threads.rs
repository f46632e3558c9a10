//! Nice values and time slices of the threads of a process.
//!
//! A new thread or process inherits the values of the thread that has created it, also changed ones. So a new one of a changed process
//! counts as changed, with the values that its creator had before. One whose creator has ended meanwhile is recognised by its value.
//!
//! A value that somebody else sets meanwhile is the one that is restored.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use pronto_expedite::process::unless_ended;
use pronto_expedite::schedule::{self, CALLER, Class};
use pronto_sched_policy::policy::weight::Weight;

use super::{ActuateError, One, first_error};
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
    /// The processes that existed when [`Self::adopt`] was called last.
    known: BTreeSet<Identity>,
}

#[derive(Debug)]
struct Changed {
    /// The weight that its threads should have.
    weight: Weight,
    /// Values before, of its main thread.
    before: ThreadBefore,
    threads: BTreeMap<Identity, Thread>,
}

/// A thread of a changed process.
#[derive(Clone, Copy, Debug)]
struct Thread {
    before: ThreadBefore,
    /// The values that it had after the last change; `None` before the first: it may have inherited changed ones.
    given: Option<Given>,
}

/// Values of a thread after a change, and its weight; `None` if only a part of the change was possible.
#[derive(Clone, Copy, Debug)]
struct Given {
    weight: Option<Weight>,
    nice: i32,
    slice_ns: Option<u64>,
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

    /// Changes a thread that had other values before. Returns false if a part was left out, because the thread is in another class now: there
    /// it has a nice value, which counts later, and no slice.
    fn apply(self, before: &ThreadBefore, weight: Weight, kernels: Duration) -> Result<bool, Errno> {
        let thread = before.thread.id.cast_signed();
        if self.nice {
            schedule::set_nice(thread, (before.nice - i32::from(weight.as_nice_steps())).max(LOWEST_NICE))?;
        }
        let Some(slice_ns) = before.slice_ns.filter(|_| self.slice) else { return Ok(true) };
        if schedule::policy(thread)? != ORDINARY {
            return Ok(false);
        }
        let slice = if slice_ns == 0 { kernels } else { Duration::from_nanos(slice_ns) };
        let shorter = (slice * Weight::ORDINARY.as_hundredths()) / weight.as_hundredths();
        let slice =
            if weight == Weight::ORDINARY { Duration::from_nanos(slice_ns) } else { shorter.max(SHORTEST) };
        schedule::schedule(thread, Class::Slice(slice))?;
        Ok(true)
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
        Self { means, kernels: kernels_slice(), changed: BTreeMap::new(), known: BTreeSet::new() }
    }

    /// Gives the threads of a process a weight, unless they have it.
    pub(super) fn set(
        &mut self,
        process: Identity,
        weight: Weight,
        journal: &mut Journal,
    ) -> Result<bool, ActuateError> {
        match self.changed.get_mut(&process) {
            Some(changed) if changed.weight == weight && changed.has_it() => return Ok(false),
            Some(changed) => changed.weight = weight,
            None if weight == Weight::ORDINARY => return Ok(false),
            None => {
                let Some(changed) = self.claim(process, weight, journal)? else { return Ok(false) };
                self.changed.insert(process, changed);
            }
        }
        self.give(process, journal)?;
        Ok(true)
    }

    /// Enters the threads of a process in the journal, each with its present values. Returns `None` if it has ended.
    ///
    /// # Errors
    /// [`ActuateError::Taken`]: another coscheduler has done so, too.
    fn claim(
        &self,
        process: Identity,
        weight: Weight,
        journal: &mut Journal,
    ) -> Result<Option<Changed>, ActuateError> {
        let Some(before) = self.read(process.id, process) else { return Ok(None) };
        let mut threads = BTreeMap::new();
        for tid in process::threads(process.id).map_err(ActuateError::Processes)? {
            let stat = unless_ended(Stat::of_thread(process.id, tid)).map_err(ActuateError::Processes)?;
            let now = stat.and_then(|stat| self.read(process.id, stat.identity));
            if let Some(before) = now {
                journal.write(&Entry::Thread(before))?;
                threads.insert(before.thread, Thread { before, given: None });
            }
        }
        // After the lines were written: of two that claim a process now, each sees the other, and both try again later.
        let others = journal.of_others();
        if threads.keys().any(|thread| others.threads.contains_key(thread)) {
            for thread in threads.keys() {
                journal.write(&Entry::Released(*thread))?;
            }
            return Err(ActuateError::Taken);
        }
        Ok(Some(Changed { weight, before, threads }))
    }

    /// Reads the present values of a thread; `None` if it has ended.
    fn read(&self, process: u32, thread: Identity) -> Option<ThreadBefore> {
        let id = thread.id.cast_signed();
        let nice = schedule::nice(id).ok()?;
        let slice = schedule::slice(id).ok()?;
        // The kernel reports its own slice like a requested one.
        let requested = if slice == self.kernels { Duration::ZERO } else { slice };
        let slice_ns = self.means.slice.then(|| u64::try_from(requested.as_nanos()).unwrap_or(0));
        Some(ThreadBefore { process, thread, nice, slice_ns })
    }

    /// Gives all threads of a changed process its weight that have another one. Goes on after a refusal, and returns the first.
    fn give(&mut self, process: Identity, journal: &mut Journal) -> Result<(), ActuateError> {
        self.find_threads(process, journal)?;
        let (means, kernels) = (self.means, self.kernels);
        let Some(changed) = self.changed.get(&process) else { return Ok(()) };
        let weight = changed.weight;
        let has_another = |thread: &Thread| thread.given.is_none_or(|given| given.weight != Some(weight));
        let threads = changed.threads.iter().map(|(identity, thread)| (*identity, *thread));
        let others: Vec<_> = threads.filter(|(_, thread)| has_another(thread)).collect();
        let mut result = Ok(());
        for (identity, mut thread) in others {
            let Some(now) = self.read(process.id, identity) else { continue };
            let own = thread.own_values(&now);
            if own != thread.before {
                journal.write(&Entry::Thread(own))?;
                thread.before = own;
            }
            let applied = means.apply(&thread.before, weight, kernels);
            // Also after a part of the change, which is not to be taken for somebody else's.
            if let Some(now) = self.read(process.id, identity) {
                let weight = (applied == Ok(true)).then_some(weight);
                thread.given = Some(Given { weight, nice: now.nice, slice_ns: now.slice_ns });
            }
            match applied {
                Ok(_) | Err(Errno::ESRCH) => {}
                Err(errno) => result = first_error(result, Err(refusal(means, identity, errno))),
            }
            if let Some(changed) = self.changed.get_mut(&process) {
                changed.threads.insert(identity, thread);
            }
        }
        result
    }

    /// Enters the threads of a changed process that are new, and forgets those that have ended.
    fn find_threads(&mut self, process: Identity, journal: &mut Journal) -> Result<(), ActuateError> {
        let Some(changed) = self.changed.get(&process) else { return Ok(()) };
        let mut threads = BTreeMap::new();
        for tid in process::threads(process.id).map_err(ActuateError::Processes)? {
            let stat = unless_ended(Stat::of_thread(process.id, tid)).map_err(ActuateError::Processes)?;
            let Some(identity) = stat.map(|stat| stat.identity) else { continue };
            let thread = match changed.threads.get(&identity) {
                Some(thread) => *thread,
                None => {
                    let Some(now) = self.read(process.id, identity) else { continue };
                    let before = self.original(now, &changed.before);
                    journal.write(&Entry::Thread(before))?;
                    Thread { before, given: None }
                }
            };
            threads.insert(identity, thread);
        }
        if let Some(changed) = self.changed.get_mut(&process) {
            changed.threads = threads;
        }
        Ok(())
    }

    /// Returns the values that a new thread would have if its creator had not been changed. Those of the creator are `creator` and were
    /// changed by this actuator.
    fn original(&self, now: ThreadBefore, creator: &ThreadBefore) -> ThreadBefore {
        let could_inherit_nice = (creator.nice - most_steps()..=creator.nice).contains(&now.nice);
        let nice = if self.means.nice && could_inherit_nice { creator.nice } else { now.nice };
        ThreadBefore { nice, slice_ns: creator.slice_ns, ..now }
    }

    /// Gives new threads of changed processes their weight. Enters new processes of changed parents, with the weight of the parent. Restores
    /// the processes that have left. Goes on after a refusal, and returns the first.
    pub(super) fn adopt(
        &mut self,
        processes: &BTreeMap<Identity, u32>,
        journal: &mut Journal,
    ) -> Result<(), ActuateError> {
        let known = core::mem::replace(&mut self.known, processes.keys().copied().collect());
        let is_new = |process: &Identity| !known.contains(process) && !self.changed.contains_key(process);
        let mut new: Vec<_> = processes.iter().filter(|(process, _)| is_new(process)).collect();
        // A child may have a lower number than its parent, and then be found before it.
        loop {
            let unknown = new.len();
            new.retain(|(process, parent)| !self.inherits(**process, **parent, processes));
            if new.len() == unknown {
                break;
            }
        }
        // Processes that left the group keep running with the values of before.
        let left: Vec<_> =
            self.changed.keys().filter(|process| !processes.contains_key(process)).copied().collect();
        let mut result = Ok(());
        for process in left {
            let Some(changed) = self.changed.remove(&process) else { continue };
            for (identity, thread) in changed.threads {
                if self.restore_one(&thread) == One::Refused {
                    journal.keep(thread.before);
                } else {
                    let written = journal.write(&Entry::Released(identity));
                    result = first_error(result, written.map_err(Into::into));
                }
            }
        }
        for process in self.changed.keys().copied().collect::<Vec<_>>() {
            result = first_error(result, self.give(process, journal));
        }
        let threads = self.changed.values().flat_map(|changed| &changed.threads);
        let threads = threads.map(|(identity, thread)| (*identity, thread.before)).collect();
        first_error(result, journal.compact(&threads, &[]).map_err(Into::into))
    }

    /// Enters a new process if it has inherited changed values. Returns whether it has.
    fn inherits(&mut self, process: Identity, parent: u32, processes: &BTreeMap<Identity, u32>) -> bool {
        let Some(now) = self.read(process.id, process) else { return false };
        let Some((weight, creator)) = self.creator(process, parent, &now, processes) else { return false };
        let before = self.original(now, &creator);
        if before == now {
            return false;
        }
        self.changed.insert(process, Changed { weight, before, threads: BTreeMap::new() });
        true
    }

    /// Returns the weight and the values before of the process that has created a new one, if it is changed. The parent of one whose
    /// creator has ended is another process: then it is one that has the same changed values, and is not younger.
    fn creator(
        &self,
        process: Identity,
        parent: u32,
        now: &ThreadBefore,
        processes: &BTreeMap<Identity, u32>,
    ) -> Option<(Weight, ThreadBefore)> {
        let of = |changed: &Changed| (changed.weight, changed.before);
        if processes.keys().any(|known| known.id == parent) {
            return self.changed.iter().find(|(known, _)| known.id == parent).map(|(_, changed)| of(changed));
        }
        let gave_it = |changed: &&Changed| {
            let given = changed.threads.values().filter_map(|thread| thread.given);
            given.into_iter().any(|given| {
                (given.nice, given.slice_ns) == (now.nice, now.slice_ns)
                    && (given.nice, given.slice_ns) != (changed.before.nice, changed.before.slice_ns)
            })
        };
        let older = self.changed.iter().filter(|(known, _)| known.started <= process.started);
        older.map(|(_, changed)| changed).find(gave_it).map(of)
    }

    /// Returns the weight that a process has from this actuator.
    pub(super) fn weight(&self, process: Identity) -> Weight {
        self.changed.get(&process).map_or(Weight::ORDINARY, |changed| changed.weight)
    }

    /// Restores all changed threads, and forgets them. Returns each with the result.
    pub(super) fn restore(&mut self) -> Vec<(ThreadBefore, One)> {
        let changed = core::mem::take(&mut self.changed);
        let threads = changed.into_values().flat_map(|changed| changed.threads.into_values());
        threads.map(|thread| (thread.before, self.restore_one(&thread))).collect()
    }

    /// Restores a thread, unless somebody else has changed it since it was given its values.
    fn restore_one(&self, thread: &Thread) -> One {
        let before = &thread.before;
        match self.read(before.process, before.thread) {
            Some(now) if thread.own_values(&now) != *before => One::Left,
            _ => restore(before),
        }
    }
}

impl Changed {
    /// Returns whether all its threads were given its weight.
    fn has_it(&self) -> bool {
        self.threads
            .values()
            .all(|thread| thread.given.is_some_and(|given| given.weight == Some(self.weight)))
    }
}

impl Thread {
    /// Returns the values that it would have without this actuator: those of before, except the ones that somebody has changed since. It has
    /// the values `now`.
    fn own_values(&self, now: &ThreadBefore) -> ThreadBefore {
        let Some(given) = self.given else { return self.before };
        let nice = if now.nice == given.nice { self.before.nice } else { now.nice };
        // A thread of another class has no slice.
        let has_own_slice = now.slice_ns != given.slice_ns && now.slice_ns != Some(0);
        let slice_ns = if has_own_slice { now.slice_ns } else { self.before.slice_ns };
        ThreadBefore { nice, slice_ns, ..self.before }
    }
}

/// Returns the reason for which the kernel does not change a thread.
fn refusal(means: Means, thread: Identity, errno: Errno) -> ActuateError {
    match errno {
        Errno::EPERM | Errno::EACCES if means.nice => ActuateError::NicePermission,
        errno => ActuateError::Thread(thread.id, errno),
    }
}

/// Restores the values of a thread, unless somebody else has set others.
pub(super) fn restore(before: &ThreadBefore) -> One {
    match unless_ended(Stat::of_thread(before.process, before.thread.id)) {
        Ok(Some(stat)) if stat.identity == before.thread => {}
        Ok(_) => return One::Gone,
        Err(_) => return One::Refused,
    }
    let id = before.thread.id.cast_signed();
    let attempt = || -> Result<One, Errno> {
        let nice = schedule::nice(id)?;
        if !(before.nice - most_steps()..=before.nice).contains(&nice) {
            return Ok(One::Left);
        }
        // A thread of another class has no slice, and gets the kernel's when it returns.
        if let Some(slice_ns) = before.slice_ns
            && schedule::policy(id)? == ORDINARY
        {
            schedule::schedule(id, Class::Slice(Duration::from_nanos(slice_ns)))?;
        }
        schedule::set_nice(id, before.nice)?;
        Ok(One::Restored)
    };
    match attempt() {
        Ok(one) => one,
        Err(Errno::ESRCH) => One::Gone,
        Err(_) => One::Refused,
    }
}
