// SPDX-License-Identifier: GPL-2.0
//! State of a thread, and the decision when an arrival is about to wake it.
//!
//! sched-policy makes the decisions, under the lock of the state. A denial that lasts until a known time is repeated without
//! the lock (threads/refusal.rs).
//!
//! # Invariants
//! 1. A boost's stage is `Idle` unless exactly one of these is about to act on it: the arrival or the worker that
//!    raises it, its timer, or the worker that lowers it. That one advances the stage, under the lock, as its last
//!    access.
//! 2. A thread in the table is valid. Only the reaper frees it, after it was removed while `Idle`, and after an RCU grace
//!    period, since code under the lock of a wait queue finds it without the lock of the state.
//! 3. A thread holds a reference to its task.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::abi::{Counts, Query};
use crate::accounts::{Account, Accounting, FlagAccount};
use crate::glue::{self, Snapshot, Waiter};
use crate::policy::boost::{step, Action, Event, Meter, Terms};
use crate::policy::budget::Budget;
use crate::policy::caps::Payer;
use crate::policy::time::Nanos;
use crate::state::{self, State};

mod boost;
mod refusal;
mod table;

use boost::{Boost, Stage};
use refusal::Tally;

pub(crate) use refusal::{LowBudget, Refusal};
pub(crate) use table::{add_tallies, forget_all, forget_idle, Table};

/// State of a thread for which data has arrived lately.
pub(crate) struct Thread {
    next: AtomicPtr<Thread>,
    task: *mut bindings::task_struct,
    refusal: Refusal,
    tally: Tally,
    last_call: AtomicU64,
    /// Accessed under the lock, or by the one that acts on it (invariant 1).
    boost: UnsafeCell<Boost>,
}

/// Flag and time of an arrival.
pub(crate) struct Source<'a> {
    /// Slice of the flag; zero if it sets none.
    pub(crate) slice: Nanos,
    /// Account of the flag, if it has a cap of its own.
    pub(crate) account: Option<&'a Arc<FlagAccount>>,
    pub(crate) now: Nanos,
}

/// Next step after a decision about an arrival.
enum Verdict {
    Nothing,
    /// The thread, or its user's account, is not known yet.
    Unknown,
    Raise(*mut Boost),
}

/// An arrival for one thread.
struct Arrival<'a> {
    task: *mut bindings::task_struct,
    snapshot: Snapshot,
    /// The way in which it waits.
    way: usize,
    source: &'a Source<'a>,
}

impl Thread {
    /// Returns the state of a new task. May be called where sleeping is not allowed.
    ///
    /// # Safety
    /// The task is valid during the call.
    unsafe fn new(
        task: *mut bindings::task_struct,
        snapshot: &Snapshot,
        budget: Budget,
    ) -> Result<KBox<Self>> {
        let thread = Self {
            next: AtomicPtr::new(null_mut()),
            task,
            refusal: Refusal::none(),
            tally: Tally::new(),
            last_call: AtomicU64::new(0),
            boost: UnsafeCell::new(Boost::new(task, snapshot.runtime, budget)),
        };
        let mut thread = KBox::new(thread, GFP_ATOMIC)?;
        let boost = thread.boost.get_mut();
        // SAFETY: both have their final address, and are not in use yet.
        unsafe { glue::expedite_thread_init(&mut boost.timer, &mut boost.afterwards) };
        // SAFETY: the caller guarantees that the task is valid.
        unsafe { glue::expedite_get_task(task) };
        Ok(thread)
    }
}

/// Decides about an arrival that is about to wake this thread, and boosts it. Called in any context that can wake threads.
///
/// # Safety
/// The task is valid during the call, and the lock of a wait queue is held.
pub(crate) unsafe fn arrived(waiter: &Waiter, source: &Source<'_>) {
    // SAFETY: the caller guarantees that such a lock is held.
    if waiter.is_boostable && unsafe { is_refused(waiter, source) } {
        return;
    }
    let task = waiter.task;
    let mut snapshot = Snapshot::default();
    // SAFETY: the caller guarantees that the task is valid.
    unsafe { glue::expedite_snapshot(task, &mut snapshot) };
    let arrival = Arrival { task, snapshot, way: waiter.way as usize, source };
    let mut verdict = state::with(|state| state.call(&arrival));
    if let Some(Verdict::Unknown) = verdict {
        // SAFETY: the caller guarantees that the task is valid.
        verdict = if unsafe { introduce(&arrival) }.is_ok() {
            state::with(|state| state.call(&arrival))
        } else {
            None
        };
        if !matches!(verdict, Some(Verdict::Nothing | Verdict::Raise(_))) {
            state::with(|state| bump(&mut state.totals.counts.denied_memory));
        }
    }
    if let Some(Verdict::Raise(boost)) = verdict {
        // SAFETY: [I1] the boost is `Raising`, and this arrival acts on it.
        unsafe { boost::begin(boost, arrival.snapshot.cpu) };
    }
}

/// Returns whether a denial still holds. If so, counts the arrival; nothing else is to be done.
///
/// # Safety
/// The lock of a wait queue is held.
unsafe fn is_refused(waiter: &Waiter, source: &Source<'_>) -> bool {
    // SAFETY: [I2] the caller holds such a lock, so the thread is valid until the lock is released.
    let Some(thread) = (unsafe { table::find(waiter.task).as_ref() }) else { return false };
    let flags = source.account.and_then(|account| account.refusal.holds(waiter, source.now));
    let Some(low_budget) = flags.or_else(|| thread.refusal.holds(waiter, source.now)) else { return false };
    thread.tally.count(low_budget, waiter.way as usize);
    thread.last_call.store(source.now.0, Ordering::Relaxed);
    true
}

/// Adds a task to the table, and an account for its user.
///
/// # Safety
/// The task is valid during the call.
unsafe fn introduce(arrival: &Arrival<'_>) -> Result {
    let Arrival { task, snapshot, source, .. } = arrival;
    let terms = state::with(|state| state.terms).ok_or(ENODEV)?;
    let account = Account::new(&terms.caps, snapshot.uid, snapshot.cpu, source.now)?;
    // SAFETY: the caller guarantees that the task is valid.
    let thread = unsafe { Thread::new(*task, snapshot, Budget::new(&terms.caps.thread, source.now)) }?;
    let left = state::with(|state| {
        let account = state.accounts.insert(account);
        (account, state.threads.insert(thread))
    });
    if let Some((_, Some(thread))) = left {
        // SAFETY: the thread was never in the table.
        unsafe { table::free(KBox::into_raw(thread)) };
    }
    Ok(())
}

impl State {
    fn call(&mut self, arrival: &Arrival<'_>) -> Verdict {
        // SAFETY: [I2] the thread is in the table, or null, and the lock is held.
        let Some(thread) = (unsafe { table::find(arrival.task).as_ref() }) else { return Verdict::Unknown };
        thread.last_call.store(arrival.source.now.0, Ordering::Relaxed);
        // SAFETY: the lock is held.
        let boost = unsafe { &mut *thread.boost.get() };
        let (verdict, reason) = match decide(boost, &mut self.accounts, &self.terms, arrival) {
            Decision::Unknown => return Verdict::Unknown,
            Decision::Boost => (Verdict::Raise(boost), None),
            Decision::Not(reason) => (Verdict::Nothing, Some(reason)),
            Decision::Refused(low_budget, until) => {
                let refusal = match arrival.source.account {
                    Some(account) if low_budget == LowBudget::Flag => &account.refusal,
                    _ => &thread.refusal,
                };
                if let Some(until) = until {
                    refusal.set(low_budget, (arrival.snapshot.uid, arrival.snapshot.cpu), until);
                }
                thread.tally.count(low_budget, arrival.way);
                return Verdict::Nothing;
            }
        };
        if let Some(by_way) = self.totals.by_way.get_mut(arrival.way) {
            bump(by_way);
        }
        for counts in [&mut boost.counts, &mut self.totals.counts] {
            bump(&mut counts.calls);
            if let Some(reason) = reason {
                bump(reason(counts));
            }
        }
        verdict
    }
}

/// The counter of the reason why there is no boost.
type Reason = fn(&mut Counts) -> &mut u64;

/// A decision about an arrival.
enum Decision {
    /// The user has no account yet.
    Unknown,
    Boost,
    Not(Reason),
    /// A budget is too low, and remains so until this time, if that is known.
    Refused(LowBudget, Option<Nanos>),
}

/// Decides about one arrival for a known thread.
fn decide(boost: &mut Boost, accounting: &mut Accounting, terms: &Terms, arrival: &Arrival<'_>) -> Decision {
    let Arrival { snapshot, source, .. } = arrival;
    let (now, place) = (source.now, (snapshot.uid, snapshot.cpu));
    match boost.stage {
        _ if snapshot.is_ending => return Decision::Not(|counts| &mut counts.running),
        Stage::Raising | Stage::Raised | Stage::Dropping => {
            return Decision::Not(|counts| &mut counts.boosted);
        }
        Stage::Idle if snapshot.is_realtime => return Decision::Not(|counts| &mut counts.realtime),
        Stage::Idle if !snapshot.is_blocked => return Decision::Not(|counts| &mut counts.running),
        Stage::Idle => {}
    }
    let Some(accounts) = accounting.free(&terms.caps, boost.budget, place, now) else {
        return Decision::Unknown;
    };
    let slice = if source.slice == Nanos::ZERO { terms.slice } else { source.slice.min(terms.slice) };
    let terms = Terms { slice, ..*terms };
    let accounts = if terms.meter == Meter::All {
        boost.ran(snapshot.runtime, Nanos::ZERO, accounts, now, &terms)
    } else {
        boost.runtime = snapshot.runtime;
        accounts
    };
    if let Some(account) = source.account {
        if let Err(until) = accounting.flag_pays(account, now) {
            boost.budget = accounts.thread;
            return Decision::Refused(LowBudget::Flag, until);
        }
    }
    let waits = step(boost.phase, accounts, Event::Wait, now, &terms);
    boost.budget = waits.accounts.thread;
    match waits.action {
        Action::Raise(_) => {
            // The thread sleeps already, so it uses no time until it is scheduled out.
            let asleep = step(waits.phase, waits.accounts, Event::ScheduledOut, now, &terms);
            let reservation = accounting.reserve(place, slice, source.account);
            boost.prepare(asleep.phase, slice, snapshot.arrivals, reservation);
            Decision::Boost
        }
        Action::Refuse(Payer::User) => {
            Decision::Refused(LowBudget::User, accounting.user_until(&terms.caps, place))
        }
        Action::Refuse(Payer::Cpu) => {
            Decision::Refused(LowBudget::Cpu, accounting.cpu_until(&terms.caps, snapshot.cpu))
        }
        // With this meter, all time of the thread is counted per epoch, not across several.
        _ if terms.meter == Meter::All => {
            Decision::Refused(LowBudget::Thread, Some(boost.budget.next_epoch(&terms.caps.thread)))
        }
        _ => Decision::Refused(LowBudget::Thread, Some(boost.budget.not_before(&terms.caps.thread))),
    }
}

/// Increments a counter. It wraps after centuries; code of the module must not panic.
fn bump(count: &mut u64) {
    *count = count.wrapping_add(1);
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
        thread.tally.add_to(&mut query.counts, None);
        query.left_ns = boost.budget.refilled(&state.terms.caps.thread, now).left().0;
        Some(())
    });
    found.flatten().ok_or(ENOENT)
}
