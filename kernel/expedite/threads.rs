// SPDX-License-Identifier: GPL-2.0
//! What is known of a thread, and what is decided when something arrives that is about to wake it.
//!
//! The decisions are those of sched-policy. They are made under the lock of the state; a refusal that lasts until a known
//! time is repeated without it (threads/refusal.rs).
//!
//! # Invariants
//! 1. A boost's stage is `Idle` unless exactly one of these is about to act on it: the arrival or the worker that
//!    raises it, its timer, or the worker that lowers it. Whoever it is moves the stage on, under the lock, as its last
//!    access.
//! 2. A thread in the table is valid; it is freed by the reaper alone, after it was taken out while `Idle`, and after a
//!    grace period of RCU, since whoever is in the lock of a wait queue finds it without the lock of the state.
//! 3. A thread holds a reference to its task.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::abi::{Counts, Query};
use crate::accounts::{Account, Accounting, FlagAccount};
use crate::glue::{self, Look, Waiter};
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

pub(crate) use refusal::{Poor, Refusal};
pub(crate) use table::{add_tallies, forget_all, forget_idle, Table};

/// What is known of a thread.
pub(crate) struct Thread {
    next: AtomicPtr<Thread>,
    task: *mut bindings::task_struct,
    refusal: Refusal,
    tally: Tally,
    last_call: AtomicU64,
    /// Reached under the lock, or by who is to act on it.
    boost: UnsafeCell<Boost>,
}

/// Where something has arrived, and when.
pub(crate) struct Source<'a> {
    /// For how long the flag boosts, zero if it does not say.
    pub(crate) slice: Nanos,
    /// What the flag may cost, if it has a cap of its own.
    pub(crate) account: Option<&'a Arc<FlagAccount>>,
    pub(crate) now: Nanos,
}

/// What is to be done about an arrival.
enum Verdict {
    Nothing,
    /// The thread, or its user's account, is not known yet.
    Unknown,
    Raise(*mut Boost),
}

/// Whose time it is before anything may be called.
struct Arrival<'a> {
    task: *mut bindings::task_struct,
    look: Look,
    /// How it waits.
    way: usize,
    source: &'a Source<'a>,
}

impl Thread {
    /// What is kept of a task from now on. May be called where sleeping is not allowed.
    ///
    /// # Safety
    /// The task is valid during the call.
    unsafe fn new(task: *mut bindings::task_struct, look: &Look, budget: Budget) -> Result<KBox<Self>> {
        let thread = Self {
            next: AtomicPtr::new(null_mut()),
            task,
            refusal: Refusal::none(),
            tally: Tally::new(),
            last_call: AtomicU64::new(0),
            boost: UnsafeCell::new(Boost::new(task, look.runtime, budget)),
        };
        let mut thread = KBox::new(thread, GFP_ATOMIC)?;
        let boost = thread.boost.get_mut();
        // SAFETY: both are in their final place, and nobody uses them yet.
        unsafe { glue::expedite_thread_init(&mut boost.timer, &mut boost.afterwards) };
        // SAFETY: the caller says that the task is valid.
        unsafe { glue::expedite_get_task(task) };
        Ok(thread)
    }
}

/// Something has arrived that is about to wake this thread: decides, and boosts it. Called wherever a wake-up can be.
///
/// # Safety
/// The task is valid during the call, and the lock of a wait queue is held.
pub(crate) unsafe fn arrived(waiter: &Waiter, source: &Source<'_>) {
    // SAFETY: the caller says that such a lock is held.
    if waiter.is_plain && unsafe { is_refused(waiter, source) } {
        return;
    }
    let task = waiter.task;
    let mut look = Look::default();
    // SAFETY: the caller says that the task is valid.
    unsafe { glue::expedite_look(task, &mut look) };
    let arrival = Arrival { task, look, way: waiter.way as usize, source };
    let mut verdict = state::with(|state| state.call(&arrival));
    if let Some(Verdict::Unknown) = verdict {
        // SAFETY: the caller says that the task is valid.
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
        // SAFETY: [I1] the boost is `Raising`, and this is the one to act on it.
        unsafe { boost::begin(boost, arrival.look.cpu) };
    }
}

/// Whether a refusal still holds; then the arrival is counted, and nothing else is to be done.
///
/// # Safety
/// The lock of a wait queue is held.
unsafe fn is_refused(waiter: &Waiter, source: &Source<'_>) -> bool {
    // SAFETY: [I2] the caller holds such a lock, so what is found is valid until it is given back.
    let Some(thread) = (unsafe { table::find(waiter.task).as_ref() }) else { return false };
    let flags = source.account.and_then(|account| account.refusal.holds(waiter, source.now));
    let Some(poor) = flags.or_else(|| thread.refusal.holds(waiter, source.now)) else { return false };
    thread.tally.count(poor, waiter.way as usize);
    thread.last_call.store(source.now.0, Ordering::Relaxed);
    true
}

/// Makes room for a task and its user.
///
/// # Safety
/// The task is valid during the call.
unsafe fn introduce(arrival: &Arrival<'_>) -> Result {
    let Arrival { task, look, source, .. } = arrival;
    let terms = state::with(|state| state.terms).ok_or(ENODEV)?;
    let account = Account::new(&terms.caps, look.uid, look.cpu, source.now)?;
    // SAFETY: the caller says that the task is valid.
    let thread = unsafe { Thread::new(*task, look, Budget::new(&terms.caps.thread, source.now)) }?;
    let left = state::with(|state| {
        let account = state.accounts.insert(account);
        (account, state.threads.insert(thread))
    });
    if let Some((_, Some(thread))) = left {
        // SAFETY: it was never in the table.
        unsafe { table::free(KBox::into_raw(thread)) };
    }
    Ok(())
}

impl State {
    fn call(&mut self, arrival: &Arrival<'_>) -> Verdict {
        // SAFETY: [I2] it is in the table, or null, and the lock is held.
        let Some(thread) = (unsafe { table::find(arrival.task).as_ref() }) else { return Verdict::Unknown };
        thread.last_call.store(arrival.source.now.0, Ordering::Relaxed);
        // SAFETY: the lock is held.
        let boost = unsafe { &mut *thread.boost.get() };
        let (verdict, reason) = match decide(boost, &mut self.accounts, &self.terms, arrival) {
            Decision::Unknown => return Verdict::Unknown,
            Decision::Boost => (Verdict::Raise(boost), None),
            Decision::Not(reason) => (Verdict::Nothing, Some(reason)),
            Decision::Refused(poor, until) => {
                let refusal = match arrival.source.account {
                    Some(account) if poor == Poor::Flag => &account.refusal,
                    _ => &thread.refusal,
                };
                if let Some(until) = until {
                    refusal.set(poor, (arrival.look.uid, arrival.look.cpu), until);
                }
                thread.tally.count(poor, arrival.way);
                return Verdict::Nothing;
            }
        };
        if let Some(told) = self.totals.told.get_mut(arrival.way) {
            bump(told);
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

/// What is counted when there is no boost.
type Reason = fn(&mut Counts) -> &mut u64;

/// What was decided about an arrival.
enum Decision {
    /// The user has no account yet.
    Unknown,
    Boost,
    Not(Reason),
    /// A budget is too low, and will be until then, if that is known.
    Refused(Poor, Option<Nanos>),
}

/// Decides about one arrival for a known thread.
fn decide(boost: &mut Boost, accounting: &mut Accounting, terms: &Terms, arrival: &Arrival<'_>) -> Decision {
    let Arrival { look, source, .. } = arrival;
    let (now, place) = (source.now, (look.uid, look.cpu));
    match boost.stage {
        _ if look.is_ending => return Decision::Not(|counts| &mut counts.running),
        Stage::Raising | Stage::Raised | Stage::Dropping => {
            return Decision::Not(|counts| &mut counts.boosted);
        }
        Stage::Idle if look.is_realtime => return Decision::Not(|counts| &mut counts.realtime),
        Stage::Idle if !look.is_blocked => return Decision::Not(|counts| &mut counts.running),
        Stage::Idle => {}
    }
    let Some(accounts) = accounting.free(&terms.caps, boost.budget, place, now) else {
        return Decision::Unknown;
    };
    let slice = if source.slice == Nanos::ZERO { terms.slice } else { source.slice.min(terms.slice) };
    let terms = Terms { slice, ..*terms };
    let accounts = if terms.meter == Meter::All {
        boost.ran(look.runtime, Nanos::ZERO, accounts, now, &terms)
    } else {
        boost.runtime = look.runtime;
        accounts
    };
    if let Some(account) = source.account {
        if let Err(until) = accounting.flag_pays(account, now) {
            boost.budget = accounts.thread;
            return Decision::Refused(Poor::Flag, until);
        }
    }
    let waits = step(boost.phase, accounts, Event::Wait, now, &terms);
    boost.budget = waits.accounts.thread;
    match waits.action {
        Action::Raise(_) => {
            // It sleeps already, so the way into the wait takes no time.
            let asleep = step(waits.phase, waits.accounts, Event::ScheduledOut, now, &terms);
            let reservation = accounting.reserve(place, slice, source.account);
            boost.prepare(asleep.phase, slice, look.arrivals, reservation);
            Decision::Boost
        }
        Action::Refuse(Payer::User) => {
            Decision::Refused(Poor::User, accounting.user_until(&terms.caps, place))
        }
        Action::Refuse(Payer::Processor) => {
            Decision::Refused(Poor::Processor, accounting.processor_until(&terms.caps, look.cpu))
        }
        // What else the thread runs is counted by the epoch then, and not across several.
        _ if terms.meter == Meter::All => {
            Decision::Refused(Poor::Thread, Some(boost.budget.next_epoch(&terms.caps.thread)))
        }
        _ => Decision::Refused(Poor::Thread, Some(boost.budget.not_before(&terms.caps.thread))),
    }
}

/// One more. It wraps after centuries; nothing in here may panic.
fn bump(count: &mut u64) {
    *count = count.wrapping_add(1);
}

/// Fills in what is known of a task.
///
/// # Errors
/// Nothing is.
pub(crate) fn query(task: *mut bindings::task_struct, query: &mut Query) -> Result {
    let now = Nanos(glue::clock());
    let found = state::with(|state| {
        // SAFETY: [I2] it is in the table, or null, and the lock is held.
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
