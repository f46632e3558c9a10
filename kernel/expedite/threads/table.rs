// SPDX-License-Identifier: GPL-2.0
//! The threads for which something arrived lately: found by their task, forgotten by the reaper.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use kernel::bindings;
use kernel::prelude::*;

use super::{Boost, Stage, Thread};
use crate::glue::{self, Look};
use crate::policy::time::Nanos;
use crate::state::{self, Totals};

/// Lists of threads, by the address of their task.
const BUCKETS: usize = 256;

/// Threads that are remembered at once; more are denied.
const MOST: u32 = 8192;

/// After how long without an arrival a thread is forgotten.
const FORGOTTEN_AFTER: Nanos = Nanos::from_millis(2_000);

/// The lists. They are changed under the lock of the state, and read under that, or under the lock of a wait queue.
static THREADS: [AtomicPtr<Thread>; BUCKETS] = [const { AtomicPtr::new(null_mut()) }; BUCKETS];

/// The right to change the lists.
pub(crate) struct Table {
    count: u32,
}

fn bucket(task: *mut bindings::task_struct) -> Option<&'static AtomicPtr<Thread>> {
    // Tasks lie on cache lines of their own.
    THREADS.get((task.addr() >> 6) % BUCKETS)
}

/// A thread by its task, or null. Without the lock of the state, one that was taken in just now may be missed.
///
/// # Safety
/// The lock of the state or of a wait queue is held; what is found is valid as long as it is.
#[inline]
pub(super) unsafe fn find(task: *mut bindings::task_struct) -> *mut Thread {
    // SYNC: pairs with the store in `insert`.
    let mut at = bucket(task).map_or(null_mut(), |bucket| bucket.load(Ordering::Acquire));
    // SAFETY: [I2] what a bucket leads to is a thread, or null.
    while let Some(thread) = unsafe { at.as_ref() } {
        if thread.task == task {
            break;
        }
        at = thread.next.load(Ordering::Acquire);
    }
    at
}

/// Adds what was counted of all threads without the lock.
pub(crate) fn add_tallies(_lists: &Table, totals: &mut Totals) {
    for bucket in &THREADS {
        let mut at = bucket.load(Ordering::Acquire);
        // SAFETY: [I2] what a bucket leads to is a thread, or null, and the lock of the state is held.
        while let Some(thread) = unsafe { at.as_ref() } {
            thread.tally.add_to(&mut totals.counts, Some(&mut totals.told));
            at = thread.next.load(Ordering::Acquire);
        }
    }
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { count: 0 }
    }

    /// Takes a thread in, unless there are too many or it is known; then it is returned.
    pub(super) fn insert(&mut self, thread: KBox<Thread>) -> Option<KBox<Thread>> {
        // SAFETY: the lock is held: nothing else lends this table.
        if self.count >= MOST || !unsafe { find(thread.task) }.is_null() {
            return Some(thread);
        }
        let Some(bucket) = bucket(thread.task) else { return Some(thread) };
        thread.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        // SYNC: publishes the thread; pairs with the loads in `find`.
        bucket.store(KBox::into_raw(thread), Ordering::Release);
        self.count = self.count.saturating_add(1);
        None
    }

    /// Takes out those that nobody acts on and that `done_with` names; they form a list. Whoever is on the way through
    /// the lists meanwhile may go on in that one, and finds nothing or what it looks for.
    fn take_out(
        &mut self,
        totals: &mut Totals,
        mut done_with: impl FnMut(&Thread, &Boost) -> bool,
    ) -> *mut Thread {
        let mut out = null_mut();
        for bucket in &THREADS {
            let mut link = bucket;
            // SAFETY: `link` is a bucket or the link of a thread that stays; [I2] it leads to a thread, or null.
            while let Some(thread) = unsafe { link.load(Ordering::Relaxed).as_ref() } {
                // SAFETY: the lock is held.
                let boost = unsafe { &*thread.boost.get() };
                if boost.stage == Stage::Idle && done_with(thread, boost) {
                    let this = link.load(Ordering::Relaxed);
                    link.store(thread.next.load(Ordering::Relaxed), Ordering::Release);
                    thread.next.store(out, Ordering::Release);
                    out = this;
                    thread.tally.move_to(&mut totals.counts, &mut totals.told);
                    self.count = self.count.saturating_sub(1);
                } else {
                    link = &thread.next;
                }
            }
        }
        out
    }

    /// How many threads are known.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

/// Forgets threads that have ended, and those for which nothing has arrived for long and that owe nothing. May sleep.
pub(crate) fn forget_idle() {
    let now = Nanos(glue::clock());
    let out = state::with(|state| {
        let accounts = state.accounts.forget_idle(&state.terms.caps, now);
        let threads = state.threads.take_out(&mut state.totals, |thread, boost| {
            let mut look = Look::default();
            // SAFETY: [I3] the task is valid.
            unsafe { glue::expedite_look(thread.task, &mut look) };
            let is_old = now.since(Nanos(thread.last_call.load(Ordering::Relaxed))) > FORGOTTEN_AFTER;
            look.is_ending || (is_old && boost.budget.debt() == Nanos::ZERO)
        });
        (accounts, threads)
    });
    if let Some((_accounts, threads)) = out {
        // SAFETY: [I2] they were taken out while nobody acted on them.
        unsafe { free_all(threads) };
    }
}

/// Forgets all threads, after whoever acts on one of them has done so. May sleep.
pub(crate) fn forget_all() {
    loop {
        let (out, left) = state::with(|state| {
            (state.threads.take_out(&mut state.totals, |_, _| true), state.threads.count)
        })
        .unwrap_or((null_mut(), 0));
        // SAFETY: [I2] they were taken out while nobody acted on them.
        unsafe { free_all(out) };
        if left == 0 {
            return;
        }
        // SAFETY: sleeping is allowed. A boost lasts for some ten milliseconds at most.
        unsafe { bindings::msleep(1) };
    }
}

/// # Safety
/// A list of threads that are not in the table, on which nobody acts.
unsafe fn free_all(mut list: *mut Thread) {
    if list.is_null() {
        return;
    }
    // SAFETY: sleeping is allowed. Until nobody is on its way through the lists who may have met one of them.
    unsafe { bindings::synchronize_rcu() };
    // SAFETY: the caller says that it is a list of threads, or its end.
    while let Some(thread) = unsafe { list.as_ref() } {
        let this = list;
        list = thread.next.load(Ordering::Relaxed);
        // What came between its removal and now.
        state::with(|state| thread.tally.move_to(&mut state.totals.counts, &mut state.totals.told));
        let boost = thread.boost.get();
        // SAFETY: as the caller says. It may still be about to return.
        unsafe { bindings::irq_work_sync(&raw mut (*boost).afterwards) };
        // SAFETY: as the caller says.
        unsafe { bindings::hrtimer_cancel(&raw mut (*boost).timer) };
        // SAFETY: as the caller says. What the worker was asked for was done, or the stage would be another one.
        unsafe { free(this) };
    }
}

/// # Safety
/// The thread is not in the table, and neither its timer nor its work is running or to come.
pub(super) unsafe fn free(thread: *mut Thread) {
    // SAFETY: [I3] the reference is given back once, here.
    unsafe { glue::expedite_put_task((*thread).task) };
    // SAFETY: it came from a box, and nobody else has it.
    drop(unsafe { KBox::from_raw(thread) });
}
