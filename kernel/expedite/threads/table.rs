// SPDX-License-Identifier: GPL-2.0
//! The threads for which data has arrived lately: found by their task, removed by the reaper.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use kernel::bindings;
use kernel::prelude::*;

use super::{Boost, Stage, Tally, Thread};
use crate::abi::Totals;
use crate::accounts::Accounting;
use crate::glue::{self, Obstacles};
use crate::policy::time::Nanos;
use crate::state;

/// Number of lists of threads; the address of the task selects one.
const BUCKETS: usize = 256;

/// Maximum number of threads in the table; others are not boosted.
const MAX_THREADS: u32 = 8192;

/// Maximum number of threads of one user.
const MAX_PER_USER: u16 = 1024;

/// Number of counters of threads by user. Users with the same counter share the maximum.
const USERS: usize = 256;

/// Arrivals for threads that are not in the table.
pub(super) static OTHERS: Tally = Tally::new();

/// Time without an arrival after which a thread is removed.
const FORGOTTEN_AFTER: Nanos = Nanos::from_millis(2_000);

/// The lists. They are changed under the lock of the state, and read under that lock or under the lock of a wait queue.
static THREADS: [AtomicPtr<Thread>; BUCKETS] = [const { AtomicPtr::new(null_mut()) }; BUCKETS];

/// The right to change the lists.
pub(crate) struct Table {
    count: u32,
    by_user: [u16; USERS],
}

fn bucket(task: *mut bindings::task_struct) -> Option<&'static AtomicPtr<Thread>> {
    // Tasks are aligned to cache lines.
    THREADS.get((task.addr() >> 6) % BUCKETS)
}

/// Returns a thread by its task, or null. Without the lock of the state, a thread that is being inserted may be missed.
///
/// # Safety
/// The lock of the state or of a wait queue is held. The thread is valid while the lock is held.
#[inline]
pub(super) unsafe fn find(task: *mut bindings::task_struct) -> *mut Thread {
    // SYNC: pairs with the store in `insert`.
    let mut at = bucket(task).map_or(null_mut(), |bucket| bucket.load(Ordering::Acquire));
    // SAFETY: [I2] each link of a bucket is a thread, or null.
    while let Some(thread) = unsafe { at.as_ref() } {
        if thread.task == task {
            break;
        }
        at = thread.next.load(Ordering::Acquire);
    }
    at
}

/// Adds the tallies of all threads, which are counted without the lock. A thread that is removed meanwhile may be missing, or counted
/// twice.
pub(crate) fn add_tallies(totals: &mut Totals) {
    let _no_thread_is_freed = kernel::sync::rcu::read_lock();
    OTHERS.add_to_totals(totals);
    for bucket in &THREADS {
        let mut at = bucket.load(Ordering::Acquire);
        // SAFETY: [I2] each link of a bucket is a thread, or null, and no thread is freed before the RCU section ends.
        while let Some(thread) = unsafe { at.as_ref() } {
            thread.tally.add_to_totals(totals);
            at = thread.next.load(Ordering::Acquire);
        }
    }
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { count: 0, by_user: [0; USERS] }
    }

    /// Returns the number of threads of a user.
    fn of_user(&mut self, uid: u32) -> Option<&mut u16> {
        // The remainder of a prime number, as ids of users are often consecutive in ranges of powers of two.
        self.by_user.get_mut(uid as usize % 251)
    }

    /// Inserts a thread. Returns it if the table is full, has as many of its user as it may, or already has it.
    pub(super) fn insert(&mut self, thread: KBox<Thread>) -> Option<KBox<Thread>> {
        // SAFETY: the lock is held: the table is borrowed from the state only.
        if self.count >= MAX_THREADS || !unsafe { find(thread.task) }.is_null() {
            return Some(thread);
        }
        let Some(bucket) = bucket(thread.task) else { return Some(thread) };
        let Some(of_user) = self.of_user(thread.uid).filter(|count| **count < MAX_PER_USER) else {
            return Some(thread);
        };
        *of_user = of_user.saturating_add(1);
        thread.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        // SYNC: publishes the thread; pairs with the loads in `find`.
        bucket.store(KBox::into_raw(thread), Ordering::Release);
        self.count = self.count.saturating_add(1);
        None
    }

    /// Removes the idle threads of one list for which `done_with` is true, and puts them before `out`, which it returns. A reader that
    /// walks the lists meanwhile may continue in that one, and finds either its thread or nothing. A reader that has found such a
    /// thread cannot boost it any more.
    fn take_out(
        &mut self,
        bucket: &AtomicPtr<Thread>,
        totals: &mut Totals,
        mut out: *mut Thread,
        mut done_with: impl FnMut(&Thread, &Boost) -> bool,
    ) -> *mut Thread {
        let mut link = bucket;
        // SAFETY: `link` is a bucket or the link of a thread that stays; [I2] it points to a thread, or is null.
        while let Some(thread) = unsafe { link.load(Ordering::Relaxed).as_ref() } {
            // SAFETY: the lock is held.
            let boost = unsafe { &mut *thread.boost.get() };
            if boost.stage == Stage::Idle && done_with(thread, boost) {
                boost.stage = Stage::Removed;
                let this = link.load(Ordering::Relaxed);
                link.store(thread.next.load(Ordering::Relaxed), Ordering::Release);
                thread.next.store(out, Ordering::Release);
                out = this;
                thread.tally.move_to(totals);
                self.count = self.count.saturating_sub(1);
                if let Some(of_user) = self.of_user(thread.uid) {
                    *of_user = of_user.saturating_sub(1);
                }
            } else {
                link = &thread.next;
            }
        }
        out
    }

    /// Returns the number of threads in the table.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

/// Removes threads that have ended, and threads without debt for which no data has arrived for [`FORGOTTEN_AFTER`]. Also
/// removes idle accounts. May sleep.
pub(crate) fn forget_idle() {
    let now = Nanos(glue::clock());
    let done_with = |thread: &Thread, boost: &Boost| {
        // SAFETY: [I3] the task is valid.
        let obstacles = unsafe { Obstacles::of(thread.task) };
        let is_old = now.since(Nanos(thread.last_call.load(Ordering::Relaxed))) > FORGOTTEN_AFTER;
        obstacles.is_ending || (is_old && boost.budget.debt() == Nanos::ZERO)
    };
    let mut out = null_mut();
    // The lock is held for one list at a time.
    for bucket in &THREADS {
        if !bucket.load(Ordering::Relaxed).is_null() {
            let more = state::with(|state| state.threads.take_out(bucket, &mut state.totals, out, done_with));
            out = more.unwrap_or(out);
        }
    }
    // SAFETY: [I2] they were removed while `Idle`.
    unsafe { free_all(out) };
    for bucket in 0..Accounting::BUCKETS {
        // Removed accounts are dropped after the lock was released.
        let _forgotten = state::with(|state| state.accounts.forget_idle(bucket, now));
    }
}

/// Removes all threads, each after its boost has ended. May sleep.
pub(crate) fn forget_all() {
    loop {
        let take_all = |state: &mut state::State| {
            let each = |out, bucket| state.threads.take_out(bucket, &mut state.totals, out, |_, _| true);
            let out = THREADS.iter().fold(null_mut(), each);
            (out, state.threads.count)
        };
        let (out, left) = state::with(take_all).unwrap_or((null_mut(), 0));
        // SAFETY: [I2] they were removed while `Idle`.
        unsafe { free_all(out) };
        if left == 0 {
            return;
        }
        // SAFETY: sleeping is allowed. A boost lasts for some ten milliseconds at most.
        unsafe { bindings::msleep(1) };
    }
}

/// Frees a list of threads.
///
/// # Safety
/// The threads are not in the table, and `Idle`.
unsafe fn free_all(mut list: *mut Thread) {
    if list.is_null() {
        return;
    }
    // SAFETY: sleeping is allowed. Waits for readers of the lists that may have found one of these threads.
    unsafe { bindings::synchronize_rcu() };
    // SAFETY: the caller guarantees that this is a list of threads, or its end.
    while let Some(thread) = unsafe { list.as_ref() } {
        let this = list;
        list = thread.next.load(Ordering::Relaxed);
        // Counts that were added after the removal.
        state::with(|state| thread.tally.move_to(&mut state.totals));
        let boost = thread.boost.get();
        // SAFETY: as the caller guarantees. The interrupt work may still be about to return.
        unsafe { bindings::irq_work_sync(&raw mut (*boost).afterwards) };
        // SAFETY: as the caller guarantees.
        unsafe { bindings::hrtimer_cancel(&raw mut (*boost).timer) };
        // SAFETY: as the caller guarantees. The stage is `Idle`, so the worker has finished its work.
        unsafe { free(this) };
    }
}

/// Frees a thread.
///
/// # Safety
/// The thread is not in the table, and neither its timer nor its work is running or pending.
pub(super) unsafe fn free(thread: *mut Thread) {
    // SAFETY: [I3] the reference is dropped once, here.
    unsafe { glue::expedite_put_task((*thread).task) };
    // SAFETY: the pointer came from a box and has no other owner.
    drop(unsafe { KBox::from_raw(thread) });
}
