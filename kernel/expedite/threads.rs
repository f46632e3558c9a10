// SPDX-License-Identifier: GPL-2.0
//! State of a thread, and the decision when an arrival is about to wake it.
//!
//! sched-policy makes the decisions, under the lock of the state. A denial that lasts until a known time is repeated without
//! the lock (threads/refusal.rs).
//!
//! # Invariants
//! 1. A boost's stage is `Idle`, or `Removed`, unless exactly one of these is about to act on it: the arrival or the worker that
//!    raises it, its timer, or the worker that lowers it. That one advances the stage, under the lock, as its last
//!    access.
//! 2. A thread in the table is valid. Only the reaper frees it, after it was removed while `Idle`, and after an RCU grace
//!    period, since code under the lock of a wait queue finds it without the lock of the state.
//! 3. A thread holds a reference to its task.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU64, Ordering};

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::abi::Query;
use crate::accounts::{Account, Accounting, FlagAccount, Payers, GROUP_SLICE};
use crate::glue::{self, Obstacles, Saved, Snapshot, Waiter};
use crate::policy::boost::{step, Action, Event, Meter, Terms};
use crate::policy::budget::Budget;
use crate::policy::caps::Payer;
use crate::policy::time::Nanos;
use crate::state::{self, State};

mod boost;
mod refusal;
mod table;
mod tally;

use boost::{Boost, Stage};
use tally::Tally;

pub(crate) use refusal::Refusal;
pub(crate) use table::{add_tallies, forget_all, forget_idle, Table};
pub(crate) use tally::Reason;

/// State of a thread for which data has arrived lately.
pub(crate) struct Thread {
    next: AtomicPtr<Thread>,
    task: *mut bindings::task_struct,
    /// The user that paid for it when it was first seen.
    uid: u32,
    refusal: Refusal,
    tally: Tally,
    last_call: AtomicU64,
    sleeps: Sleeps,
    /// Accessed under the lock, or by the one that acts on it (invariant 1).
    boost: UnsafeCell<Boost>,
}

/// The sleeps in which a boosted thread was found in a queue with a hook, without the lock.
///
/// A boosted thread that sleeps can raise another thread instead: the owner of a lock with priority inheritance. It cannot
/// while it waits for an arrival. So the sleeps in which it was found are counted; time in other sleeps is charged.
pub(super) struct Sleeps {
    is_boosted: AtomicBool,
    /// Number of the last sleep in which it was found, and of such sleeps in this boost.
    last: AtomicU64,
    found: AtomicU64,
}

impl Sleeps {
    const fn new() -> Self {
        Self { is_boosted: AtomicBool::new(false), last: AtomicU64::new(0), found: AtomicU64::new(0) }
    }

    /// Begins a boost in this sleep of the thread. Called under the lock, before the thread is raised.
    fn begin(&self, sleep: u64) {
        self.last.store(sleep, Ordering::Relaxed);
        self.found.store(0, Ordering::Relaxed);
        self.is_boosted.store(true, Ordering::Relaxed);
    }

    /// The thread was found in this sleep.
    fn saw(&self, sleep: u64) {
        if self.last.swap(sleep, Ordering::Relaxed) != sleep {
            self.found.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a boost. Returns whether the thread waited for arrivals in all of its sleeps, of which there were `count`. Called by the
    /// worker that lowers the thread.
    fn end(&self, count: u64, last: &Snapshot) -> bool {
        self.is_boosted.store(false, Ordering::Relaxed);
        let is_in_another = last.is_switched_out && self.last.load(Ordering::Relaxed) != last.sleeps;
        // The last sleep goes on. If the thread does not wait for such a lock now, it did not before in this sleep.
        let found = self.found.load(Ordering::Relaxed).saturating_add(u64::from(is_in_another));
        !last.is_locked && count <= found
    }
}

/// Flag and time of an arrival.
pub(crate) struct Source<'a> {
    /// Slice of the flag; zero if it sets none.
    pub(crate) slice: Nanos,
    /// Account of the flag, if it has a cap of its own.
    pub(crate) account: Option<&'a Arc<FlagAccount>>,
    /// The flag is for threads that use little of a CPU in total.
    pub(crate) sleepers_only: bool,
    pub(crate) now: Nanos,
}

/// Next step after a decision about an arrival.
enum Verdict {
    Nothing(Reason),
    /// An account does not exist yet.
    Unknown,
    /// The thread was removed from the table meanwhile.
    Removed,
    Raise(*mut Boost),
}

/// An arrival for one thread.
struct Arrival<'a> {
    thread: &'a Thread,
    waiter: &'a Waiter,
    snapshot: Snapshot,
    source: &'a Source<'a>,
}

impl Thread {
    /// Returns the state of a new task. May be called where sleeping is not allowed.
    ///
    /// # Safety
    /// The task is valid during the call.
    unsafe fn new(task: *mut bindings::task_struct, uid: u32, budget: Budget) -> Result<KBox<Self>> {
        let thread = Self {
            next: AtomicPtr::new(null_mut()),
            task,
            uid,
            refusal: Refusal::none(),
            tally: Tally::new(),
            last_call: AtomicU64::new(0),
            sleeps: Sleeps::new(),
            boost: UnsafeCell::new(Boost::new(budget)),
        };
        let mut thread = KBox::new(thread, GFP_ATOMIC)?;
        let boost = thread.boost.get_mut();
        // SAFETY: both have their final address, and are not in use yet.
        unsafe { glue::expedite_thread_init(&mut boost.timer, &mut boost.afterwards) };
        // SAFETY: the caller guarantees that the task is valid.
        unsafe { glue::expedite_get_task(task) };
        Ok(thread)
    }

    /// Returns why an arrival leads to no boost, if that is known without the lock.
    #[inline]
    fn known_reason(&self, waiter: &Waiter, source: &Source<'_>) -> Option<Reason> {
        if !waiter.is_boostable || self.sleeps.is_boosted.load(Ordering::Relaxed) {
            return self.obstacle(waiter);
        }
        let holds = |refusal: &Refusal| refusal.holds(waiter, source.now);
        source.account.and_then(|account| holds(&account.refusal)).or_else(|| holds(&self.refusal))
    }

    /// Returns why the thread cannot be boosted now.
    #[inline(never)]
    fn obstacle(&self, waiter: &Waiter) -> Option<Reason> {
        // SAFETY: [I3] the task is valid.
        let obstacles = unsafe { Obstacles::of(self.task) };
        if obstacles.is_ending {
            return Some(Reason::Running);
        }
        if self.sleeps.is_boosted.load(Ordering::Relaxed) {
            if waiter.is_pinned {
                self.found_asleep(&obstacles);
            }
            return Some(Reason::Boosted);
        }
        match obstacles {
            Obstacles { is_realtime: true, .. } => Some(Reason::Realtime),
            Obstacles { is_asleep: false, .. } => Some(Reason::Running),
            Obstacles { is_behind: true, .. } => Some(Reason::Behind),
            Obstacles { is_locked: true, .. } => Some(Reason::Locked),
            // It has changed meanwhile.
            _ => None,
        }
    }

    /// Counts the sleep of a boosted thread that waits in a queue with a hook.
    fn found_asleep(&self, obstacles: &Obstacles) {
        if obstacles.is_switched_out && !obstacles.is_locked {
            self.sleeps.saw(obstacles.sleeps);
        }
    }
}

/// Notes that a thread waits in a queue with a hook.
///
/// # Safety
/// The task is valid during the call, and a lock is held without which it cannot leave its wait.
pub(crate) unsafe fn noted(task: *mut bindings::task_struct) {
    // SAFETY: [I2] the lock is a spinlock, which delays RCU's grace period, so the thread is valid until it is released.
    let Some(thread) = (unsafe { table::find(task).as_ref() }) else { return };
    if thread.sleeps.is_boosted.load(Ordering::Relaxed) {
        // SAFETY: [I3] the task is valid.
        thread.found_asleep(&unsafe { Obstacles::of(task) });
    }
}

/// Returns the class of a thread without its boost, if data has arrived for the thread lately.
///
/// # Safety
/// The task is the calling thread.
unsafe fn own_class(task: *mut bindings::task_struct) -> Option<Saved> {
    let _no_thread_is_freed = kernel::sync::rcu::read_lock();
    // SAFETY: [I2] no thread is freed before the RCU section ends.
    let thread = unsafe { table::find(task).as_ref() }?;
    // Before the class: a boost is decided while the thread sleeps, so none is decided now, but one may take effect, or end.
    let is_boosted = thread.sleeps.is_boosted.load(Ordering::Acquire);
    // SAFETY: the caller guarantees that the task is valid.
    Some(if is_boosted && unsafe { glue::is_boost(task) } {
        // SYNC: pairs with the lock of the run queue in `expedite_raise`, under which the class changed after it was saved.
        fence(Ordering::Acquire);
        // SAFETY: the class was saved before the thread got that of the boost, and is saved next after another sleep of the thread.
        unsafe { boost::saved(thread.boost.get()) }
    } else {
        // SAFETY: as above.
        unsafe { Saved::of(task) }
    })
}

/// Stores the class of a thread without its boost. Returns false if no data has arrived for the thread lately.
///
/// # Safety
/// The task is the calling thread, and `own` can be written.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_own_class(
    task: *mut bindings::task_struct,
    own: *mut Saved,
) -> bool {
    // SAFETY: the caller guarantees this.
    let class = unsafe { own_class(task) };
    if let Some(class) = class {
        // SAFETY: the caller guarantees this.
        unsafe { own.write(class) };
    }
    class.is_some()
}

/// Decides about an arrival that is about to wake this thread, and boosts it. Returns why it does not. Called in any context that
/// can wake threads.
///
/// # Safety
/// The task is valid during the call, and the lock of a wait queue is held.
#[inline]
pub(crate) unsafe fn arrived(waiter: &Waiter, source: &Source<'_>) -> Option<Reason> {
    // SAFETY: [I2] the caller holds such a lock, so the thread is valid until the lock is released.
    if let Some(thread) = unsafe { table::find(waiter.task).as_ref() } {
        if let Some(reason) = thread.known_reason(waiter, source) {
            thread.last_call.store(source.now.0, Ordering::Relaxed);
            thread.tally.count(reason, waiter.way);
            return Some(reason);
        }
    }
    // SAFETY: the caller guarantees the same.
    let decide = || unsafe { arrived_slowly(waiter, source) };
    match decide().or_else(decide) {
        Some(result) => result,
        // It was removed from the table twice meanwhile.
        None => {
            table::OTHERS.count(Reason::Memory, waiter.way);
            Some(Reason::Memory)
        }
    }
}

/// As [`arrived`], if the reason for no boost is not known. Returns `None` if the thread was removed from the table meanwhile.
///
/// # Safety
/// As for [`arrived`].
#[inline(never)]
unsafe fn arrived_slowly(waiter: &Waiter, source: &Source<'_>) -> Option<Option<Reason>> {
    // SAFETY: [I2] the caller holds such a lock, so the thread is valid until the lock is released.
    let mut thread = unsafe { table::find(waiter.task).as_ref() };
    if thread.is_none() {
        // SAFETY: the caller guarantees that the task is valid.
        thread = unsafe { introduce(waiter, source).ok().and_then(|()| table::find(waiter.task).as_ref()) };
    }
    let Some(thread) = thread else {
        table::OTHERS.count(Reason::Memory, waiter.way);
        return Some(Some(Reason::Memory));
    };
    thread.last_call.store(source.now.0, Ordering::Relaxed);
    // SAFETY: the caller guarantees that the task is valid, and holds a spinlock.
    let finds_idle_cpu =
        || state::boosts_only_if_busy() && unsafe { glue::expedite_finds_idle_cpu(waiter.task) };
    let known = thread.obstacle(waiter).or_else(|| finds_idle_cpu().then_some(Reason::Idle));
    if let Some(reason) = known {
        thread.tally.count(reason, waiter.way);
        return Some(Some(reason));
    }
    // SAFETY: the caller guarantees that the task is valid.
    let snapshot = unsafe { Snapshot::of(waiter.task) };
    let arrival = Arrival { thread, waiter, snapshot, source };
    let mut verdict = state::with(|state| state.call(&arrival));
    if let Some(Verdict::Unknown) = verdict {
        verdict = match open_accounts(&arrival) {
            Ok(()) => state::with(|state| state.call(&arrival)),
            Err(_) => None,
        };
    }
    match verdict {
        Some(Verdict::Removed) => None,
        Some(Verdict::Nothing(reason)) => Some(Some(reason)),
        Some(Verdict::Raise(boost)) => {
            // SAFETY: [I1] the boost is `Raising`, and this arrival acts on it.
            unsafe { boost::begin(boost, waiter) };
            Some(None)
        }
        Some(Verdict::Unknown) | None => {
            thread.tally.count(Reason::Memory, waiter.way);
            Some(Some(Reason::Memory))
        }
    }
}

/// Adds a task to the table.
///
/// # Safety
/// The task is valid during the call.
unsafe fn introduce(waiter: &Waiter, source: &Source<'_>) -> Result {
    let terms = state::with(|state| state.terms).ok_or(ENODEV)?;
    // SAFETY: the caller guarantees that the task is valid.
    let thread = unsafe {
        Thread::new(waiter.task, waiter.payer(), Budget::new(&terms.caps.thread, source.now))
    }?;
    let left = state::with(|state| state.threads.insert(thread));
    if let Some(Some(thread)) = left {
        // SAFETY: the thread was never in the table.
        unsafe { table::free(KBox::into_raw(thread)) };
    }
    Ok(())
}

/// Adds accounts for the user and the group of a thread.
fn open_accounts(arrival: &Arrival<'_>) -> Result {
    let terms = state::with(|state| state.terms).ok_or(ENODEV)?;
    let (payers, now) = (arrival.payers(), arrival.source.now);
    let user = Account::of_user(&terms.caps, payers, now)?;
    let group = if payers.group == 0 { None } else { Some(Account::of_group(payers, now)?) };
    // Accounts that are not inserted are dropped after the lock was released.
    let _left = state::with(|state| {
        (state.accounts.insert(user), group.and_then(|group| state.accounts.insert(group)))
    });
    Ok(())
}

impl Arrival<'_> {
    fn payers(&self) -> Payers {
        let Snapshot { uid, cpu, group, .. } = self.snapshot;
        Payers { uid, cpu, group: group.addr() }
    }
}

impl State {
    fn call(&mut self, arrival: &Arrival<'_>) -> Verdict {
        let Arrival { thread, waiter, .. } = arrival;
        // SAFETY: the lock is held.
        let boost = unsafe { &mut *thread.boost.get() };
        match decide(boost, &mut self.accounts, &self.terms, arrival) {
            Decision::Unknown => Verdict::Unknown,
            Decision::Removed => Verdict::Removed,
            Decision::Boost => {
                thread.tally.count_way(waiter.way);
                boost.counts.calls = boost.counts.calls.wrapping_add(1);
                self.totals.counts.calls = self.totals.counts.calls.wrapping_add(1);
                Verdict::Raise(boost)
            }
            Decision::Not(reason) => {
                thread.tally.count(reason, waiter.way);
                Verdict::Nothing(reason)
            }
            Decision::Refused(reason, until) => {
                let refusal = match arrival.source.account {
                    Some(account) if reason == Reason::Flag => &account.refusal,
                    _ => &thread.refusal,
                };
                if let Some(until) = until {
                    refusal.set(reason, waiter, until);
                }
                thread.tally.count(reason, waiter.way);
                Verdict::Nothing(reason)
            }
        }
    }
}

/// A decision about an arrival.
enum Decision {
    /// The user or the group has no account yet.
    Unknown,
    /// The thread is not in the table any more.
    Removed,
    Boost,
    Not(Reason),
    /// A budget is too low, and remains so until this time, if that is known.
    Refused(Reason, Option<Nanos>),
}

/// Decides about one arrival for a known thread.
fn decide(boost: &mut Boost, accounting: &mut Accounting, terms: &Terms, arrival: &Arrival<'_>) -> Decision {
    let Arrival { thread, waiter, snapshot, source } = arrival;
    let (now, payers) = (source.now, arrival.payers());
    match boost.stage {
        Stage::Removed => return Decision::Removed,
        _ if snapshot.is_ending => return Decision::Not(Reason::Running),
        Stage::Raising | Stage::Raised | Stage::Dropping => return Decision::Not(Reason::Boosted),
        Stage::Idle if snapshot.is_realtime => return Decision::Not(Reason::Realtime),
        Stage::Idle if !snapshot.is_asleep => return Decision::Not(Reason::Running),
        Stage::Idle if snapshot.is_behind => return Decision::Not(Reason::Behind),
        Stage::Idle if snapshot.is_locked => return Decision::Not(Reason::Locked),
        Stage::Idle => {}
    }
    let Some(accounts) = accounting.free(&terms.caps, boost.budget, payers, now) else {
        return Decision::Unknown;
    };
    let mut slice = if source.slice == Nanos::ZERO { terms.slice } else { source.slice.min(terms.slice) };
    if payers.group != 0 {
        slice = slice.min(GROUP_SLICE);
    }
    let terms = Terms { slice, ..*terms };
    let accounts = if terms.meter == Meter::All {
        boost.ran(snapshot.runtime, Nanos::ZERO, accounts, now, &terms)
    } else {
        boost.runtime = snapshot.runtime;
        accounts
    };
    if source.sleepers_only && !boost.uses_little(snapshot.runtime, now) {
        boost.budget = accounts.thread;
        return Decision::Refused(Reason::Thread, None);
    }
    let limits = source.account.map_or(Ok(()), |account| {
        accounting.flag_pays(account, now).map_err(|until| (Reason::Flag, until))
    });
    let limits =
        limits.and_then(|()| accounting.group_pays(payers, now).map_err(|until| (Reason::Group, until)));
    if let Err((reason, until)) = limits {
        boost.budget = accounts.thread;
        return Decision::Refused(reason, until);
    }
    let waits = step(boost.phase, accounts, Event::Wait, now, &terms);
    boost.budget = waits.accounts.thread;
    match waits.action {
        Action::Raise(_) => {
            // The thread sleeps already, so it uses no time until it is scheduled out.
            let asleep = step(waits.phase, waits.accounts, Event::ScheduledOut, now, &terms);
            let reservation = accounting.reserve(payers, slice.after(boost::PRICE), source.account);
            boost.prepare(asleep.phase, slice, snapshot, waiter.is_pinned, reservation);
            thread.sleeps.begin(snapshot.sleeps);
            Decision::Boost
        }
        Action::Refuse(Payer::User) => {
            Decision::Refused(Reason::User, accounting.user_until(&terms.caps, payers))
        }
        Action::Refuse(Payer::Cpu) => {
            Decision::Refused(Reason::Cpu, accounting.cpu_until(&terms.caps, payers.cpu))
        }
        // With this meter, all time of the thread is counted per epoch, not across several.
        _ if terms.meter == Meter::All => {
            Decision::Refused(Reason::Thread, Some(boost.budget.next_epoch(&terms.caps.thread)))
        }
        _ => Decision::Refused(Reason::Thread, Some(boost.budget.not_before(&terms.caps.thread))),
    }
}

/// Increments a counter. It wraps after centuries; code of the module must not panic.
fn bump(count: &mut u64) {
    *count = count.wrapping_add(1);
}

/// Lowers a thread whose boost has not ended although it should have, and ends the boost.
///
/// # Safety
/// The caller has a reference to the task. No arrival boosts the thread any more, and its worker does nothing.
pub(crate) unsafe fn give_up(task: *mut bindings::task_struct) {
    // SAFETY: [I2] only the end of the module removes the thread, and that comes later.
    let Some(thread) = (unsafe { table::find(task).as_ref() }) else { return };
    // SAFETY: [I1] after the timer and the interrupt work have ended, no other code acts on the boost.
    unsafe { boost::give_up(thread.boost.get()) };
}

/// Fills in the counters of a task.
///
/// # Errors
/// `ENOENT`: the task is not in the table.
pub(crate) fn query(task: *mut bindings::task_struct, query: &mut Query) -> Result {
    let now = Nanos(glue::clock());
    let found = state::with(|state| {
        // SAFETY: [I2] the thread is in the table, or null, and the lock is held.
        let thread = unsafe { table::find(task).as_ref() }?;
        // SAFETY: the lock is held.
        let boost = unsafe { &*thread.boost.get() };
        query.counts = boost.counts;
        thread.tally.add_to(&mut query.counts);
        query.left_ns = boost.budget.refilled(&state.terms.caps.thread, now).left().0;
        Some(())
    });
    found.flatten().ok_or(ENOENT)
}
