// SPDX-License-Identifier: GPL-2.0
//! The boost: a thread is raised before it is woken, lowered one slice after it was dispatched, and charged exactly.
//!
//! If a thread announces the arrival, it changes the class immediately. An interrupt cannot, so a real-time worker on the
//! boosted thread's CPU does it; so it does if no lock keeps the boosted thread in its wait. The worker always does the
//! lowering, when a timer expires. Time is the scheduler's count for the thread, read while it does not run. The invariants
//! are those of threads.rs.
//!
//! A boosted thread that waits for a lock with priority inheritance makes the owner real-time, and the scheduler counts the time
//! for the owner. So time in which a boosted thread slept is charged to it, unless it certainly waited for an arrival.

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{bump, Thread};
use crate::abi::Counts;
use crate::accounts::{Account, Accounting, FlagAccount, Payers, Reservation};
use crate::glue::{self, Saved, Snapshot, Waiter};
use crate::policy::boost::{step, Event, Phase, Terms};
use crate::policy::budget::{self, Budget};
use crate::policy::caps::{self, Accounts, Caps};
use crate::policy::time::Nanos;
use crate::state;

/// Maximum time that a boosted thread waits for a CPU, because other threads are real-time, too. It is then lowered without
/// having been dispatched.
const UNDISPATCHED: Nanos = Nanos::from_millis(10);

/// Charge for each boost in addition to the time that the thread runs: two changes of class, a timer, and two runs of the
/// worker. Without it, boosts of a microsecond each would be nearly free, and their worker would use the CPU.
pub(super) const PRICE: Nanos = Nanos::from_micros(20);

/// Shortest time between two checks of a thread that is not dispatched.
const PATIENCE: Nanos = Nanos::from_micros(100);

/// Time by which a timer may expire early.
const EARLY: Nanos = Nanos::from_micros(5);

/// Stage of a boost; it says which code acts on the boost next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    /// The arrival raises the thread, or the worker does on its request.
    Raising,
    /// The timer acts next.
    Raised,
    /// The worker lowers the thread.
    Dropping,
    /// The thread was removed from the table, and is freed soon. This stage is the last.
    Removed,
}

/// The one boost of a thread.
pub(super) struct Boost {
    pub(super) stage: Stage,
    pub(super) phase: Phase,
    pub(super) budget: Budget,
    slice: Nanos,
    /// CPU time of the thread at the last event, in nanoseconds.
    pub(super) runtime: u64,
    /// When the boost was decided: how often the thread had been dispatched, how often it had gone to sleep, the nanoseconds that it
    /// had waited for a CPU, and how often it had changed its CPU.
    arrivals: u64,
    sleeps: u64,
    waited: u64,
    migrations: u64,
    /// The thread waited for the arrival for certain.
    is_pinned: bool,
    raised_at: Nanos,
    /// End of the slice, once it is known to have begun.
    until: Option<Nanos>,
    reservation: Option<Reservation>,
    saved: Saved,
    /// Budget of all CPU time of the thread, for flags for sleepers only, and the time up to which it was charged.
    total: Option<(Budget, u64)>,
    pub(super) counts: Counts,
    pub(super) timer: bindings::hrtimer,
    /// Starts the timer, after a wake-up in progress that has to finish first.
    pub(super) afterwards: bindings::irq_work,
    work: bindings::kthread_work,
}

impl Boost {
    /// Returns the boost of a thread that was never raised.
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            stage: Stage::Idle,
            phase: Phase::NEW,
            budget,
            slice: Nanos::ZERO,
            runtime: 0,
            arrivals: 0,
            sleeps: 0,
            waited: 0,
            migrations: 0,
            is_pinned: false,
            raised_at: Nanos::ZERO,
            until: None,
            reservation: None,
            saved: Saved::default(),
            total: None,
            counts: Counts::default(),
            timer: bindings::hrtimer::default(),
            afterwards: bindings::irq_work::default(),
            work: bindings::kthread_work::default(),
        }
    }

    /// Prepares to raise the thread, at the cost of the reservation.
    pub(super) fn prepare(
        &mut self,
        phase: Phase,
        slice: Nanos,
        thread: &Snapshot,
        is_pinned: bool,
        reservation: Reservation,
    ) {
        self.phase = phase;
        self.slice = slice;
        self.arrivals = thread.arrivals;
        self.sleeps = thread.sleeps;
        self.waited = thread.waited;
        self.migrations = thread.migrations;
        self.is_pinned = is_pinned;
        self.until = None;
        self.reservation = Some(reservation);
        self.stage = Stage::Raising;
    }

    /// Returns whether the thread uses less than 2 % of a CPU in total, as [`caps::LITTLE`] measures it. Charges the time that it has run
    /// since the last call.
    pub(super) fn uses_little(&mut self, runtime: u64, now: Nanos) -> bool {
        let terms = budget::Terms::quantum(caps::LITTLE);
        let (budget, charged) = self.total.unwrap_or((Budget::new(&terms, now), runtime));
        let ran = Nanos(runtime.saturating_sub(charged));
        // It never falls into debt: a thread that computed for a minute may be a sleeper soon after.
        let budget = budget.charged(ran.min(budget.left())).refilled(&terms, now);
        self.total = Some((budget, runtime));
        budget.allowance(&terms).is_some()
    }

    /// Charges the time that the thread has run since the last event, and the `price` of a boost.
    pub(super) fn ran(
        &mut self,
        runtime: u64,
        price: Nanos,
        accounts: Accounts,
        now: Nanos,
        terms: &Terms,
    ) -> Accounts {
        let span = Nanos(runtime.saturating_sub(self.runtime)).after(price);
        self.runtime = runtime;
        let start = step(self.phase, accounts, Event::ScheduledIn, now.since(span), terms);
        let end = step(start.phase, start.accounts, Event::ScheduledOut, now, terms);
        self.phase = end.phase;
        end.accounts
    }
}

/// Returns the thread of a boost.
///
/// # Safety
/// The boost is that of a thread, which stays valid.
unsafe fn thread_of<'a>(boost: *mut Boost) -> &'a Thread {
    let boost = boost.cast::<core::cell::UnsafeCell<Boost>>();
    // SAFETY: the caller guarantees that the boost is a field of a valid thread.
    unsafe { &*kernel::container_of!(boost, Thread, boost) }
}

/// Returns the class that the thread had before its boost.
///
/// # Safety
/// The boost is that of a valid thread, which has the class of a boost.
pub(super) unsafe fn saved(boost: *mut Boost) -> Saved {
    // SAFETY: the caller guarantees that no other code writes to it now.
    unsafe { (*boost).saved }
}

/// Raises a thread after the decision to boost it: here, or by the worker of its CPU.
///
/// # Safety
/// The boost is `Raising`, and the caller acts on it.
pub(super) unsafe fn begin(boost: *mut Boost, waiter: &Waiter) {
    if glue::in_interrupt() || !waiter.is_pinned {
        // SAFETY: [I1] the boost is `Raising`, and the worker acts on it.
        unsafe { glue::expedite_queue(&raw mut (*boost).work, waiter.cpu) };
    } else {
        // SAFETY: [I1] the boost is `Raising`, and this caller acts on it.
        unsafe { raise(boost, Path::Direct) };
    }
}

/// The code that changes the class.
#[derive(Clone, Copy)]
enum Path {
    Direct,
    Worker,
}

/// `-EDEADLK`: the thread waits for a lock with priority inheritance.
const IS_LOCKED: i32 = -(bindings::EDEADLK as i32);

/// Raises a thread and starts its timer.
///
/// # Safety
/// The boost is `Raising`, the caller acts on it, and this is not an interrupt.
unsafe fn raise(boost: *mut Boost, path: Path) {
    // SAFETY: [I2] the thread is in the table.
    let thread = unsafe { thread_of(boost) };
    // SAFETY: [I3] the task is valid, and [I1] no other code writes to `saved`.
    let done = unsafe { glue::expedite_raise(thread.task, &raw mut (*boost).saved) };
    let _flag = state::with(|state| {
        // SAFETY: the lock is held.
        let boost = unsafe { &mut *boost };
        let totals = &mut state.totals.counts;
        if done == 0 {
            boost.stage = Stage::Raised;
            boost.raised_at = Nanos(glue::clock());
            for counts in [&mut boost.counts, totals] {
                bump(match path {
                    Path::Direct => &mut counts.direct,
                    Path::Worker => &mut counts.worker,
                });
            }
            return None;
        }
        // The thread has become real-time meanwhile, and its class stays, or it waits for a lock.
        for counts in [&mut boost.counts, totals] {
            bump(if done == IS_LOCKED { &mut counts.locked } else { &mut counts.realtime });
        }
        thread.sleeps.is_boosted.store(false, core::sync::atomic::Ordering::Relaxed);
        let used = Use { runtime: boost.runtime, slept: Nanos::ZERO, cpu: None, is_elsewhere: false };
        state.accounts.end(boost, used, Nanos(glue::clock()), &state.terms)
    });
    match path {
        _ if done != 0 => {}
        // Starting a timer here would delay the wake-up of the thread.
        // SAFETY: [I1] the timer, which `afterwards` starts, acts next on the thread.
        Path::Direct => unsafe { glue::expedite_do_afterwards(&raw mut (*boost).afterwards) },
        // SAFETY: [I1] the timer acts next on the thread.
        Path::Worker => unsafe { start_timer(boost) },
    }
}

/// Starts the timer of a thread.
///
/// # Safety
/// The thread is `Raised`, and its timer was not started yet.
unsafe fn start_timer(boost: *mut Boost) {
    // SAFETY: [I1] no other code acts on the thread, so the slice does not change.
    let slice = unsafe { (*boost).slice };
    // SAFETY: [I1] from here on the timer acts on the thread.
    unsafe { glue::expedite_start(&raw mut (*boost).timer, slice.0) };
}

/// Starts the timer of a boosted thread after the thread was woken.
///
/// # Safety
/// Called once after each boost by the thread that announced the arrival.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_afterwards(afterwards: *mut bindings::irq_work) {
    // SAFETY: only boosts have such work.
    let boost = unsafe { kernel::container_of!(afterwards, Boost, afterwards) };
    // SAFETY: [I1] the thread is `Raised`, and only this call starts its timer.
    unsafe { start_timer(boost) };
}

/// Lowers a thread and charges its boost.
///
/// # Safety
/// The thread is `Dropping`, the caller acts on it, and this is not an interrupt.
unsafe fn lower(boost: *mut Boost) {
    // SAFETY: [I2] the thread is in the table.
    let thread = unsafe { thread_of(boost) };
    // SAFETY: [I1] no other code acts on the thread, so this does not change.
    let saved = unsafe { (*boost).saved };
    // SAFETY: [I3] the task is valid.
    let replaced = unsafe { glue::expedite_lower(thread.task, &saved) } != 0;
    // SAFETY: [I3] the task is valid.
    let snapshot = unsafe { Snapshot::of(thread.task) };
    let now = Nanos(glue::clock());
    // SAFETY: [I1] no other code acts on the thread.
    let boost_now = unsafe { &*boost };
    let slept = boost_now.slept(thread, &snapshot, now);
    // It may have run, or made another thread run, on any CPU.
    let is_elsewhere = slept > Nanos::ZERO || boost_now.migrations != snapshot.migrations;
    let accounts = new_accounts(&snapshot, is_elsewhere, now);
    let _left = state::with(|state| {
        // SAFETY: the lock is held.
        let boost = unsafe { &mut *boost };
        let left = accounts.map(|account| account.and_then(|account| state.accounts.insert(account)));
        let ran = snapshot.runtime.saturating_sub(boost.runtime);
        for counts in [&mut boost.counts, &mut state.totals.counts] {
            bump(&mut counts.drops);
            if replaced {
                bump(&mut counts.replaced);
            }
            counts.boosted_ns = counts.boosted_ns.wrapping_add(ran);
            counts.slept_ns = counts.slept_ns.wrapping_add(slept.0);
        }
        // SAFETY: [I3] the task is valid. After the boost has ended, the thread may be freed.
        unsafe { glue::expedite_trace_drop(thread.task, ran, slept.0, replaced) };
        let used = Use { runtime: snapshot.runtime, slept, cpu: Some(snapshot.cpu), is_elsewhere };
        (left, state.accounts.end(boost, used, now, &state.terms))
    });
}

/// Lowers a thread and ends its boost, whatever its stage.
///
/// # Safety
/// The worker of the boost does nothing, sleeping is allowed, and the thread stays in the table.
pub(super) unsafe fn give_up(boost: *mut Boost) {
    // SAFETY: the caller guarantees that the thread is valid, and that sleeping is allowed.
    unsafe {
        bindings::irq_work_sync(&raw mut (*boost).afterwards);
        bindings::hrtimer_cancel(&raw mut (*boost).timer);
    }
    // SAFETY: the lock is held.
    let has_ended = state::with(|_| unsafe { (*boost).stage } == Stage::Idle).unwrap_or(true);
    if !has_ended {
        // SAFETY: [I1] nothing else acts on the boost any more, and this is not an interrupt.
        unsafe { lower(boost) };
    }
}

/// Returns new accounts for the end of a boost, if the user lacks them: on the CPU where the thread is now, and on all CPUs together if
/// `is_elsewhere`.
fn new_accounts(thread: &Snapshot, is_elsewhere: bool, now: Nanos) -> [Option<KBox<Account>>; 2] {
    let payers = Payers { uid: thread.uid, cpu: thread.cpu, group: 0 };
    let lacks = state::with(|state| (state.terms.caps, state.accounts.lacks(payers)));
    let Some((caps, (lacks_here, lacks_everywhere))) = lacks else { return [None, None] };
    let new = |wanted: bool, account: fn(&Caps, Payers, Nanos) -> Result<KBox<Account>>| {
        if wanted {
            account(&caps, payers, now).ok()
        } else {
            None
        }
    };
    [new(lacks_here, Account::of_user), new(is_elsewhere && lacks_everywhere, Account::of_user_everywhere)]
}

/// Use of a boost that ends.
struct Use {
    /// CPU time of the thread now, in nanoseconds.
    runtime: u64,
    /// Time that the thread slept and is charged for.
    slept: Nanos,
    /// CPU where the thread is now; `None` if it was not raised.
    cpu: Option<u32>,
    /// Other CPUs may have been used, too.
    is_elsewhere: bool,
}

impl Accounting {
    /// Ends a boost: charges its use, and makes the boost `Idle`. Returns the flag's account, which must not be dropped under the lock.
    fn end(
        &mut self,
        boost: &mut Boost,
        used: Use,
        now: Nanos,
        terms: &Terms,
    ) -> Option<Arc<FlagAccount>> {
        boost.stage = Stage::Idle;
        let mut reservation = boost.reservation.take()?;
        let terms = Terms { slice: boost.slice, ..*terms };
        let Use { runtime, slept, cpu, is_elsewhere } = used;
        let ran = Nanos(runtime.saturating_sub(boost.runtime));
        let price = PRICE.after(slept);
        let (budget, cpu) = (boost.budget, cpu.unwrap_or(reservation.cpu()));
        if is_elsewhere {
            self.charge_everywhere(&reservation, ran.after(price), now);
        }
        let flag = self.settle_limits(&mut reservation, ran.after(price), now);
        boost.budget = self.settle(reservation, cpu, budget, |accounts| {
            let accounts = boost.ran(runtime, price, accounts, now, &terms);
            let dropped = step(boost.phase, accounts, Event::Dropped, now, &terms);
            boost.phase = dropped.phase;
            dropped.accounts
        });
        flag
    }
}

/// Handles the expiry of a boosted thread's timer. Returns the nanoseconds until it expires again, or 0 for never.
///
/// # Safety
/// Called by the timer of a thread.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_timer(timer: *mut bindings::hrtimer) -> u32 {
    // SAFETY: only boosts have such timers.
    let boost = unsafe { kernel::container_of!(timer, Boost, timer) };
    // SAFETY: [I2] the thread is valid while its timer runs, and [I3] so is its task.
    let snapshot = unsafe { Snapshot::of(thread_of(boost).task) };
    let now = Nanos(glue::clock());
    let again = state::with(|_| {
        // SAFETY: [I1] the thread is `Raised`, so the timer acts on it.
        let boost = unsafe { &mut *boost };
        let left = boost.left(&snapshot, now);
        if left == Nanos::ZERO {
            boost.stage = Stage::Dropping;
        }
        left
    });
    if again == Some(Nanos::ZERO) {
        // SAFETY: [I1] the thread is `Dropping`, and the worker acts on it.
        unsafe { glue::expedite_queue(&raw mut (*boost).work, snapshot.cpu) };
    }
    again.map_or(0, |left| u32::try_from(left.0).unwrap_or(u32::MAX))
}

impl Boost {
    /// Returns the time that the thread slept boosted and is charged for: none if it certainly waited for arrivals, otherwise all.
    /// Called once in each boost, at its end.
    fn slept(&self, thread: &Thread, snapshot: &Snapshot, now: Nanos) -> Nanos {
        let waited_for_arrivals = thread.sleeps.end(snapshot.sleeps.saturating_sub(self.sleeps), snapshot);
        if waited_for_arrivals && self.is_pinned {
            return Nanos::ZERO;
        }
        let ran = Nanos(snapshot.runtime.saturating_sub(self.runtime));
        let waited = Nanos(snapshot.waited.saturating_sub(self.waited));
        now.since(self.raised_at).since(ran).since(waited)
    }

    /// Returns the rest of the slice, which begins when the thread is dispatched. The first call comes a whole slice after
    /// the thread was raised. If the thread was dispatched by then, the end of the slice is fixed, and later dispatches do
    /// not change it.
    fn left(&mut self, snapshot: &Snapshot, now: Nanos) -> Nanos {
        let until = match self.until {
            Some(until) => until,
            // Once since then, as usual.
            None if snapshot.arrivals == self.arrivals.wrapping_add(1) => {
                let dispatched = Nanos(snapshot.arrival).max(self.raised_at).min(now);
                *self.until.insert(dispatched.after(self.slice))
            }
            // More than once, or it had not left its CPU when it was raised.
            None if snapshot.arrivals != self.arrivals
                || snapshot.is_on_cpu
                || snapshot.runtime != self.runtime =>
            {
                *self.until.insert(self.raised_at.after(self.slice))
            }
            // The arrival has not woken it.
            None if snapshot.is_asleep => return Nanos::ZERO,
            None if now.since(self.raised_at) > UNDISPATCHED => return Nanos::ZERO,
            None => return self.slice.max(PATIENCE),
        };
        let left = until.since(now);
        if left > EARLY {
            left
        } else {
            Nanos::ZERO
        }
    }
}

/// Raises or lowers a thread, on the request of an arrival or a timer.
///
/// # Safety
/// Called by a worker with the work of a thread.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_work(work: *mut bindings::kthread_work) {
    // SAFETY: only boosts have such work.
    let boost = unsafe { kernel::container_of!(work, Boost, work) };
    // SAFETY: [I1] the worker acts on the thread, so the stage does not change.
    match unsafe { (*boost).stage } {
        // SAFETY: [I1] the boost is `Raising`, and this worker acts on it.
        Stage::Raising => unsafe { raise(boost, Path::Worker) },
        // SAFETY: [I1] the boost is `Dropping`, and this worker acts on it.
        Stage::Dropping => unsafe { lower(boost) },
        Stage::Idle | Stage::Raised | Stage::Removed => {}
    }
}
