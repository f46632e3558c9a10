// SPDX-License-Identifier: GPL-2.0
//! One boost for each thread: raised before it is woken, lowered a slice after it was dispatched, paid for exactly.
//!
//! Where the arrival is announced by a thread, the class changes there and then; in an interrupt it cannot, so a
//! real-time worker on the processor of the thread does it. Lowering is always the worker's: a timer says when. The
//! decisions are those of sched-policy. Time is what the scheduler counts for the thread, read while it does not run.
//!
//! # Invariants
//! 1. A thread's stage is `Idle` unless exactly one of these is about to act on it: the arrival or the worker that
//!    raises it, its timer, or the worker that lowers it. Whoever it is moves the stage on, under the lock, as its last
//!    access.
//! 2. A thread in the table is valid; it is freed by the reaper alone, after it was taken out while `Idle`.
//! 3. A thread holds a reference to its task.

use core::ptr::null_mut;

use kernel::bindings;
use kernel::prelude::*;

use crate::abi::{Counts, Query};
use crate::accounts::{Account, Reservation};
use crate::glue::{self, Look, Saved};
use crate::policy::boost::{step, Action, Event, Meter, Phase, Terms};
use crate::policy::budget::Budget;
use crate::policy::caps::{Accounts, Payer};
use crate::policy::time::Nanos;
use crate::state::{self, State};

mod table;

pub(crate) use table::{forget_all, forget_idle, Table};

/// For how long a boosted thread may wait for a processor: others are real-time too. Then it is lowered undispatched.
const UNDISPATCHED: Nanos = Nanos::from_millis(10);

/// What is charged for each boost besides the time that the thread runs: two changes of class, a timer, and two turns of
/// the worker. Without it, boosts of a microsecond each would be nearly free, and their worker would take the processor.
const PRICE: Nanos = Nanos::from_micros(20);

/// What a timer may come early by.
const EARLY: Nanos = Nanos::from_micros(5);

/// Who acts next on a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// The arrival, or the worker that it asked.
    Raising,
    /// The timer.
    Raised,
    /// The worker.
    Dropping,
}

/// What is known of a thread.
pub(crate) struct Thread {
    next: *mut Thread,
    task: *mut bindings::task_struct,
    stage: Stage,
    phase: Phase,
    budget: Budget,
    slice: Nanos,
    /// What it had run at the last event.
    runtime: u64,
    /// How often it had been dispatched when it was raised.
    arrivals: u64,
    raised_at: Nanos,
    /// When the slice is over, once it was seen to have begun.
    until: Option<Nanos>,
    reservation: Option<Reservation>,
    saved: Saved,
    counts: Counts,
    last_call: Nanos,
    timer: bindings::hrtimer,
    /// Starts the timer, where a wake-up is going on that has to come first.
    afterwards: bindings::irq_work,
    work: bindings::kthread_work,
}

/// What is to be done about an arrival.
enum Verdict {
    Nothing,
    /// The thread, or its user's account, is not known yet.
    Unknown,
    Raise(*mut Thread),
}

/// Whose time it is before anything may be called.
struct Arrival {
    task: *mut bindings::task_struct,
    look: Look,
    slice: Nanos,
    now: Nanos,
    /// How it waits; nothing if the flag names it.
    way: Option<usize>,
}

impl Thread {
    /// What is kept of a task from now on. May be called where sleeping is not allowed.
    ///
    /// # Safety
    /// The task is valid during the call.
    unsafe fn new(task: *mut bindings::task_struct, look: &Look, budget: Budget) -> Result<KBox<Self>> {
        let thread = Self {
            next: null_mut(),
            task,
            stage: Stage::Idle,
            phase: Phase::NEW,
            budget,
            slice: Nanos::ZERO,
            runtime: look.runtime,
            arrivals: 0,
            raised_at: Nanos::ZERO,
            until: None,
            reservation: None,
            saved: Saved::default(),
            counts: Counts::default(),
            last_call: Nanos::ZERO,
            timer: bindings::hrtimer::default(),
            afterwards: bindings::irq_work::default(),
            work: bindings::kthread_work::default(),
        };
        let mut thread = KBox::new(thread, GFP_ATOMIC)?;
        // SAFETY: both are in their final place, and nobody uses them yet.
        unsafe { glue::expedite_thread_init(&mut thread.timer, &mut thread.afterwards) };
        // SAFETY: the caller says that the task is valid.
        unsafe { glue::expedite_get_task(task) };
        Ok(thread)
    }

    /// Takes the time that it has run since the last event, and the `price` of a boost.
    fn ran(&mut self, runtime: u64, price: Nanos, accounts: Accounts, now: Nanos, terms: &Terms) -> Accounts {
        let span = Nanos(runtime.saturating_sub(self.runtime)).after(price);
        self.runtime = runtime;
        let start = step(self.phase, accounts, Event::ScheduledIn, now.since(span), terms);
        let end = step(start.phase, start.accounts, Event::ScheduledOut, now, terms);
        self.phase = end.phase;
        end.accounts
    }
}

/// Something has arrived that is about to wake this task: decides, and boosts it. Called wherever a wake-up can be.
///
/// # Safety
/// The task is valid during the call.
pub(crate) unsafe fn arrived(task: *mut bindings::task_struct, slice_ns: u64, way: Option<usize>) {
    let mut look = Look::default();
    // SAFETY: the caller says that the task is valid.
    unsafe { glue::expedite_look(task, &mut look) };
    let arrival = Arrival { task, look, slice: Nanos(slice_ns), now: Nanos(glue::clock()), way };
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
    let Some(Verdict::Raise(thread)) = verdict else { return };
    if glue::in_interrupt() {
        // SAFETY: [I1] the thread is `Raising`, and the worker is the one to act on it.
        unsafe { glue::expedite_queue(&raw mut (*thread).work, arrival.look.cpu) };
    } else {
        // SAFETY: [I1] the thread is `Raising`, and this is the one to act on it.
        unsafe { raise(thread, Path::Direct) };
    }
}

/// Makes room for a task and its user.
///
/// # Safety
/// The task is valid during the call.
unsafe fn introduce(arrival: &Arrival) -> Result {
    let Arrival { task, look, now, .. } = arrival;
    let terms = state::with(|state| state.terms).ok_or(ENODEV)?;
    let account = Account::new(&terms.caps, look.uid, look.cpu, *now)?;
    // SAFETY: the caller says that the task is valid.
    let thread = unsafe { Thread::new(*task, look, Budget::new(&terms.caps.thread, *now)) }?;
    let left = state::with(|state| {
        state.accounts.insert(account);
        state.threads.insert(thread)
    });
    if let Some(Some(thread)) = left {
        // SAFETY: it was never in the table.
        unsafe { table::free(KBox::into_raw(thread)) };
    }
    Ok(())
}

impl State {
    fn call(&mut self, arrival: &Arrival) -> Verdict {
        let Arrival { task, slice, now, way, .. } = arrival;
        // SAFETY: [I2] it is in the table, or null.
        let Some(thread) = (unsafe { self.threads.find(*task).as_mut() }) else { return Verdict::Unknown };
        thread.last_call = *now;
        let decision = decide(thread, &mut self.accounts, &self.terms, arrival, *slice);
        if let Verdict::Unknown = decision.0 {
            return Verdict::Unknown;
        }
        let (verdict, reason) = decision;
        bump(way.and_then(|way| self.totals.told.get_mut(way)).unwrap_or(&mut self.totals.named));
        for counts in [&mut thread.counts, &mut self.totals.counts] {
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

/// Decides about one arrival for a known thread.
fn decide(
    thread: &mut Thread,
    accounting: &mut crate::accounts::Accounting,
    terms: &Terms,
    arrival: &Arrival,
    slice: Nanos,
) -> (Verdict, Option<Reason>) {
    let Arrival { look, now, .. } = arrival;
    let reason: Reason = match thread.stage {
        _ if look.is_ending => |counts| &mut counts.running,
        Stage::Raising | Stage::Raised | Stage::Dropping => |counts| &mut counts.boosted,
        Stage::Idle if look.is_realtime => |counts| &mut counts.realtime,
        Stage::Idle if !look.is_blocked => |counts| &mut counts.running,
        Stage::Idle => {
            let Some(accounts) = accounting.free(&terms.caps, thread.budget, (look.uid, look.cpu), *now)
            else {
                return (Verdict::Unknown, None);
            };
            let slice = if slice == Nanos::ZERO { terms.slice } else { slice.min(terms.slice) };
            let terms = Terms { slice, ..*terms };
            let accounts = if terms.meter == Meter::All {
                thread.ran(look.runtime, Nanos::ZERO, accounts, *now, &terms)
            } else {
                thread.runtime = look.runtime;
                accounts
            };
            let waits = step(thread.phase, accounts, Event::Wait, *now, &terms);
            thread.budget = waits.accounts.thread;
            match waits.action {
                Action::Raise(_) => {
                    // It sleeps already, so the way into the wait takes no time.
                    let asleep = step(waits.phase, waits.accounts, Event::ScheduledOut, *now, &terms);
                    thread.phase = asleep.phase;
                    thread.slice = slice;
                    thread.arrivals = look.arrivals;
                    thread.until = None;
                    thread.stage = Stage::Raising;
                    thread.reservation = Some(accounting.reserve(look.uid, look.cpu, slice));
                    return (Verdict::Raise(thread), None);
                }
                Action::Refuse(Payer::User) => |counts| &mut counts.denied_user,
                Action::Refuse(Payer::Processor) => |counts| &mut counts.denied_cpu,
                _ => |counts| &mut counts.denied_thread,
            }
        }
    };
    (Verdict::Nothing, Some(reason))
}

/// One more. It wraps after centuries; nothing in here may panic.
fn bump(count: &mut u64) {
    *count = count.wrapping_add(1);
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
/// The thread is `Raising`, the caller is the one to act on it, and this is no interrupt.
unsafe fn raise(thread: *mut Thread, path: Path) {
    // SAFETY: [I3] the task is valid, and [I1] nobody else writes to `saved`.
    let done = unsafe { glue::expedite_raise((*thread).task, &raw mut (*thread).saved) };
    state::with(|state| {
        // SAFETY: [I2] it is in the table, and the lock is held.
        let thread = unsafe { &mut *thread };
        let before = thread.counts;
        if done == 0 {
            thread.stage = Stage::Raised;
            thread.raised_at = Nanos(glue::clock());
            match path {
                Path::Direct => bump(&mut thread.counts.direct),
                Path::Worker => bump(&mut thread.counts.worker),
            }
        } else {
            // It has become real-time meanwhile, and is left alone.
            let (runtime, now) = (thread.runtime, Nanos(glue::clock()));
            state.accounts.end(thread, runtime, None, now, &state.terms);
            bump(&mut thread.counts.realtime);
        }
        state.totals.counts.add_new(&before, &thread.counts);
    });
    match path {
        _ if done != 0 => {}
        // Setting a timer takes a while, and the thread is not even awake yet.
        // SAFETY: [I1] the timer, which that starts, is the next to act on the thread.
        Path::Direct => unsafe { glue::expedite_do_afterwards(&raw mut (*thread).afterwards) },
        // SAFETY: [I1] the timer is the next to act on the thread.
        Path::Worker => unsafe { start_timer(thread) },
    }
}

/// Starts the timer of a thread.
///
/// # Safety
/// The thread is `Raised`, and its timer was not started yet.
unsafe fn start_timer(thread: *mut Thread) {
    // SAFETY: [I1] nobody else acts on the thread, so the slice does not change.
    let slice = unsafe { (*thread).slice };
    // SAFETY: [I1] from here on the timer is the one to act on the thread.
    unsafe { glue::expedite_start(&raw mut (*thread).timer, slice.0) };
}

/// A boosted thread was woken, and its timer can be started.
///
/// # Safety
/// Called once after each boost by the thread that announced the arrival.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_afterwards(afterwards: *mut bindings::irq_work) {
    // SAFETY: only threads have such work.
    let thread = unsafe { kernel::container_of!(afterwards, Thread, afterwards) };
    // SAFETY: [I1] the thread is `Raised`, and this is what starts its timer.
    unsafe { start_timer(thread) };
}

/// Lowers a thread, and lets it pay.
///
/// # Safety
/// The thread is `Dropping`, the caller is the one to act on it, and this is no interrupt.
unsafe fn lower(thread: *mut Thread) {
    // SAFETY: [I1] nobody else acts on the thread, so both stay as they are.
    let (task, saved) = unsafe { ((*thread).task, (*thread).saved) };
    // SAFETY: [I3] the task is valid.
    let replaced = unsafe { glue::expedite_lower(task, &saved) } != 0;
    let mut look = Look::default();
    // SAFETY: [I3] the task is valid.
    unsafe { glue::expedite_look(task, &mut look) };
    state::with(|state| {
        // SAFETY: [I2] it is in the table, and the lock is held.
        let thread = unsafe { &mut *thread };
        let before = thread.counts;
        bump(&mut thread.counts.drops);
        if replaced {
            bump(&mut thread.counts.replaced);
        }
        let now = Nanos(glue::clock());
        state.accounts.end(thread, look.runtime, Some(look.cpu), now, &state.terms);
        state.totals.counts.add_new(&before, &thread.counts);
    });
}

impl crate::accounts::Accounting {
    /// The end of a boost: the thread pays for what it ran, and nobody acts on it any more.
    fn end(&mut self, thread: &mut Thread, runtime: u64, cpu: Option<u32>, now: Nanos, terms: &Terms) {
        if let Some(reservation) = thread.reservation.take() {
            let terms = Terms { slice: thread.slice, ..*terms };
            let used = runtime.saturating_sub(thread.runtime);
            thread.counts.boosted_ns = thread.counts.boosted_ns.saturating_add(used);
            let (budget, cpu) = (thread.budget, cpu.unwrap_or(reservation.cpu()));
            thread.budget = self.settle(reservation, cpu, budget, |accounts| {
                let accounts = thread.ran(runtime, PRICE, accounts, now, &terms);
                let dropped = step(thread.phase, accounts, Event::Dropped, now, &terms);
                thread.phase = dropped.phase;
                dropped.accounts
            });
        }
        thread.stage = Stage::Idle;
    }
}

/// A boosted thread's timer has come: nanoseconds until it shall come again, or 0.
///
/// # Safety
/// Called by the timer of a thread.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_timer(timer: *mut bindings::hrtimer) -> u32 {
    // SAFETY: only threads have such timers.
    let thread = unsafe { kernel::container_of!(timer, Thread, timer) };
    let mut look = Look::default();
    // SAFETY: [I2] the thread is valid while its timer runs, and [I3] so is its task.
    unsafe { glue::expedite_look((*thread).task, &mut look) };
    let now = Nanos(glue::clock());
    let again = state::with(|_| {
        // SAFETY: [I1] the thread is `Raised`, so the timer is the one to act on it.
        let thread = unsafe { &mut *thread };
        let left = thread.left(&look, now);
        if left == Nanos::ZERO {
            thread.stage = Stage::Dropping;
        }
        left
    });
    if again == Some(Nanos::ZERO) {
        // SAFETY: [I1] the thread is `Dropping`, and the worker is the one to act on it.
        unsafe { glue::expedite_queue(&raw mut (*thread).work, look.cpu) };
    }
    again.map_or(0, |left| u32::try_from(left.0).unwrap_or(u32::MAX))
}

impl Thread {
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
    let thread = unsafe { kernel::container_of!(work, Thread, work) };
    // SAFETY: [I1] the worker is the one to act on the thread, so the stage does not change.
    match unsafe { (*thread).stage } {
        // SAFETY: [I1] as said.
        Stage::Raising => unsafe { raise(thread, Path::Worker) },
        // SAFETY: [I1] as said.
        Stage::Dropping => unsafe { lower(thread) },
        Stage::Idle | Stage::Raised => {}
    }
}

/// Fills in what is known of a task.
///
/// # Errors
/// Nothing is.
pub(crate) fn query(task: *mut bindings::task_struct, query: &mut Query) -> Result {
    let now = Nanos(glue::clock());
    let found = state::with(|state| {
        // SAFETY: [I2] it is in the table, or null.
        let thread = unsafe { state.threads.find(task).as_ref() }?;
        query.counts = thread.counts;
        query.left_ns = thread.budget.refilled(&state.terms.caps.thread, now).left().0;
        Some(())
    });
    found.flatten().ok_or(ENOENT)
}
