// SPDX-License-Identifier: GPL-2.0
//! The boost itself: raised before the thread is woken, lowered a slice after it was dispatched, paid for exactly.
//!
//! Where the arrival is announced by a thread, the class changes there and then; in an interrupt it cannot, so a
//! real-time worker on the processor of the thread does it. Lowering is always the worker's: a timer says when. Time is
//! what the scheduler counts for the thread, read while it does not run. The invariants are those of threads.rs.

use kernel::bindings;
use kernel::sync::Arc;

use super::bump;
use crate::abi::Counts;
use crate::accounts::{Accounting, FlagAccount, Reservation};
use crate::glue::{self, Look, Saved};
use crate::policy::boost::{step, Event, Phase, Terms};
use crate::policy::budget::Budget;
use crate::policy::caps::Accounts;
use crate::policy::time::Nanos;
use crate::state;

/// For how long a boosted thread may wait for a processor: others are real-time too. Then it is lowered undispatched.
const UNDISPATCHED: Nanos = Nanos::from_millis(10);

/// What is charged for each boost besides the time that the thread runs: two changes of class, a timer, and two turns of
/// the worker. Without it, boosts of a microsecond each would be nearly free, and their worker would take the processor.
const PRICE: Nanos = Nanos::from_micros(20);

/// What a timer may come early by.
const EARLY: Nanos = Nanos::from_micros(5);

/// Who acts next on a boost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    /// The arrival, or the worker that it asked.
    Raising,
    /// The timer.
    Raised,
    /// The worker.
    Dropping,
}

/// The one boost of a thread.
pub(super) struct Boost {
    task: *mut bindings::task_struct,
    pub(super) stage: Stage,
    pub(super) phase: Phase,
    pub(super) budget: Budget,
    slice: Nanos,
    /// What it had run at the last event.
    pub(super) runtime: u64,
    /// How often it had been dispatched when it was raised.
    arrivals: u64,
    raised_at: Nanos,
    /// When the slice is over, once it was seen to have begun.
    until: Option<Nanos>,
    reservation: Option<Reservation>,
    saved: Saved,
    pub(super) counts: Counts,
    pub(super) timer: bindings::hrtimer,
    /// Starts the timer, where a wake-up is going on that has to come first.
    pub(super) afterwards: bindings::irq_work,
    work: bindings::kthread_work,
}

impl Boost {
    /// That of a task which was never raised.
    pub(super) fn new(task: *mut bindings::task_struct, runtime: u64, budget: Budget) -> Self {
        Self {
            task,
            stage: Stage::Idle,
            phase: Phase::NEW,
            budget,
            slice: Nanos::ZERO,
            runtime,
            arrivals: 0,
            raised_at: Nanos::ZERO,
            until: None,
            reservation: None,
            saved: Saved::default(),
            counts: Counts::default(),
            timer: bindings::hrtimer::default(),
            afterwards: bindings::irq_work::default(),
            work: bindings::kthread_work::default(),
        }
    }

    /// It is to be raised, at the cost of what was set aside.
    pub(super) fn prepare(&mut self, phase: Phase, slice: Nanos, arrivals: u64, reservation: Reservation) {
        self.phase = phase;
        self.slice = slice;
        self.arrivals = arrivals;
        self.until = None;
        self.reservation = Some(reservation);
        self.stage = Stage::Raising;
    }

    /// Takes the time that it has run since the last event, and the `price` of a boost.
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

/// Raises a thread about which that was decided: here, or by the worker of its processor.
///
/// # Safety
/// The boost is `Raising`, and the caller is the one to act on it.
pub(super) unsafe fn begin(boost: *mut Boost, cpu: u32) {
    if glue::in_interrupt() {
        // SAFETY: [I1] the boost is `Raising`, and the worker is the one to act on it.
        unsafe { glue::expedite_queue(&raw mut (*boost).work, cpu) };
    } else {
        // SAFETY: [I1] the boost is `Raising`, and this is the one to act on it.
        unsafe { raise(boost, Path::Direct) };
    }
}

/// Where the class was changed.
#[derive(Clone, Copy)]
enum Path {
    Direct,
    Worker,
}

/// Raises a thread and starts its timer.
///
/// # Safety
/// The boost is `Raising`, the caller is the one to act on it, and this is no interrupt.
unsafe fn raise(boost: *mut Boost, path: Path) {
    // SAFETY: [I3] the task is valid, and [I1] nobody else writes to `saved`.
    let done = unsafe { glue::expedite_raise((*boost).task, &raw mut (*boost).saved) };
    let _flag = state::with(|state| {
        // SAFETY: [I2] it is in the table, and the lock is held.
        let boost = unsafe { &mut *boost };
        let before = boost.counts;
        let mut flag = None;
        if done == 0 {
            boost.stage = Stage::Raised;
            boost.raised_at = Nanos(glue::clock());
            match path {
                Path::Direct => bump(&mut boost.counts.direct),
                Path::Worker => bump(&mut boost.counts.worker),
            }
        } else {
            // It has become real-time meanwhile, and is left alone.
            let (runtime, now) = (boost.runtime, Nanos(glue::clock()));
            flag = state.accounts.end(boost, runtime, None, now, &state.terms);
            bump(&mut boost.counts.realtime);
        }
        state.totals.counts.add_new(&before, &boost.counts);
        flag
    });
    match path {
        _ if done != 0 => {}
        // Setting a timer takes a while, and the thread is not even awake yet.
        // SAFETY: [I1] the timer, which that starts, is the next to act on the thread.
        Path::Direct => unsafe { glue::expedite_do_afterwards(&raw mut (*boost).afterwards) },
        // SAFETY: [I1] the timer is the next to act on the thread.
        Path::Worker => unsafe { start_timer(boost) },
    }
}

/// Starts the timer of a thread.
///
/// # Safety
/// The thread is `Raised`, and its timer was not started yet.
unsafe fn start_timer(boost: *mut Boost) {
    // SAFETY: [I1] nobody else acts on the thread, so the slice does not change.
    let slice = unsafe { (*boost).slice };
    // SAFETY: [I1] from here on the timer is the one to act on the thread.
    unsafe { glue::expedite_start(&raw mut (*boost).timer, slice.0) };
}

/// A boosted thread was woken, and its timer can be started.
///
/// # Safety
/// Called once after each boost by the thread that announced the arrival.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_afterwards(afterwards: *mut bindings::irq_work) {
    // SAFETY: only threads have such work.
    let boost = unsafe { kernel::container_of!(afterwards, Boost, afterwards) };
    // SAFETY: [I1] the thread is `Raised`, and this is what starts its timer.
    unsafe { start_timer(boost) };
}

/// Lowers a thread, and lets it pay.
///
/// # Safety
/// The thread is `Dropping`, the caller is the one to act on it, and this is no interrupt.
unsafe fn lower(boost: *mut Boost) {
    // SAFETY: [I1] nobody else acts on the thread, so both stay as they are.
    let (task, saved) = unsafe { ((*boost).task, (*boost).saved) };
    // SAFETY: [I3] the task is valid.
    let replaced = unsafe { glue::expedite_lower(task, &saved) } != 0;
    let mut look = Look::default();
    // SAFETY: [I3] the task is valid.
    unsafe { glue::expedite_look(task, &mut look) };
    let _flag = state::with(|state| {
        // SAFETY: [I2] it is in the table, and the lock is held.
        let boost = unsafe { &mut *boost };
        let before = boost.counts;
        bump(&mut boost.counts.drops);
        if replaced {
            bump(&mut boost.counts.replaced);
        }
        let now = Nanos(glue::clock());
        let flag = state.accounts.end(boost, look.runtime, Some(look.cpu), now, &state.terms);
        state.totals.counts.add_new(&before, &boost.counts);
        flag
    });
}

impl Accounting {
    /// The end of a boost: the thread pays for what it ran, and nobody acts on it any more. Returns the flag's account,
    /// which is not to be let go under the lock.
    fn end(
        &mut self,
        boost: &mut Boost,
        runtime: u64,
        cpu: Option<u32>,
        now: Nanos,
        terms: &Terms,
    ) -> Option<Arc<FlagAccount>> {
        boost.stage = Stage::Idle;
        let mut reservation = boost.reservation.take()?;
        let terms = Terms { slice: boost.slice, ..*terms };
        let used = Nanos(runtime.saturating_sub(boost.runtime));
        boost.counts.boosted_ns = boost.counts.boosted_ns.saturating_add(used.0);
        let (budget, cpu) = (boost.budget, cpu.unwrap_or(reservation.cpu()));
        let flag = self.settle_flag(&mut reservation, used.after(PRICE), now);
        boost.budget = self.settle(reservation, cpu, budget, |accounts| {
            let accounts = boost.ran(runtime, PRICE, accounts, now, &terms);
            let dropped = step(boost.phase, accounts, Event::Dropped, now, &terms);
            boost.phase = dropped.phase;
            dropped.accounts
        });
        flag
    }
}

/// A boosted thread's timer has come: nanoseconds until it shall come again, or 0.
///
/// # Safety
/// Called by the timer of a thread.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_timer(timer: *mut bindings::hrtimer) -> u32 {
    // SAFETY: only threads have such timers.
    let boost = unsafe { kernel::container_of!(timer, Boost, timer) };
    let mut look = Look::default();
    // SAFETY: [I2] the thread is valid while its timer runs, and [I3] so is its task.
    unsafe { glue::expedite_look((*boost).task, &mut look) };
    let now = Nanos(glue::clock());
    let again = state::with(|_| {
        // SAFETY: [I1] the thread is `Raised`, so the timer is the one to act on it.
        let boost = unsafe { &mut *boost };
        let left = boost.left(&look, now);
        if left == Nanos::ZERO {
            boost.stage = Stage::Dropping;
        }
        left
    });
    if again == Some(Nanos::ZERO) {
        // SAFETY: [I1] the thread is `Dropping`, and the worker is the one to act on it.
        unsafe { glue::expedite_queue(&raw mut (*boost).work, look.cpu) };
    }
    again.map_or(0, |left| u32::try_from(left.0).unwrap_or(u32::MAX))
}

impl Boost {
    /// What is left of the slice. It begins when the thread is dispatched, and is looked at for the first time a whole
    /// slice after the thread was raised; then its end is fixed, however often the thread is dispatched again.
    fn left(&mut self, look: &Look, now: Nanos) -> Nanos {
        let until = match self.until {
            Some(until) => until,
            None if look.arrivals != self.arrivals => {
                let dispatched = Nanos(look.arrival).max(self.raised_at).min(now);
                *self.until.insert(dispatched.after(self.slice))
            }
            None if now.since(self.raised_at) > UNDISPATCHED => return Nanos::ZERO,
            None => return self.slice,
        };
        let left = until.since(now);
        if left > EARLY {
            left
        } else {
            Nanos::ZERO
        }
    }
}

/// What an arrival or a timer asked the worker for.
///
/// # Safety
/// Called by a worker with the work of a thread.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_work(work: *mut bindings::kthread_work) {
    // SAFETY: only threads have such work.
    let boost = unsafe { kernel::container_of!(work, Boost, work) };
    // SAFETY: [I1] the worker is the one to act on the thread, so the stage does not change.
    match unsafe { (*boost).stage } {
        // SAFETY: [I1] as said.
        Stage::Raising => unsafe { raise(boost, Path::Worker) },
        // SAFETY: [I1] as said.
        Stage::Dropping => unsafe { lower(boost) },
        Stage::Idle | Stage::Raised => {}
    }
}
