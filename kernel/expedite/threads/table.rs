// SPDX-License-Identifier: GPL-2.0
//! The threads for which something arrived lately: found by their task, forgotten by the reaper.

use core::ptr::null_mut;

use kernel::bindings;
use kernel::prelude::*;

use super::{Stage, Thread};
use crate::glue::{self, Look};
use crate::policy::time::Nanos;
use crate::state;

/// Lists of threads, by the address of their task.
const BUCKETS: usize = 256;

/// Threads that are remembered at once; more are denied.
const MOST: u32 = 8192;

/// After how long without an arrival a thread is forgotten.
const FORGOTTEN_AFTER: Nanos = Nanos::from_millis(2_000);

/// All threads for which something arrived lately.
pub(crate) struct Table {
    buckets: [*mut Thread; BUCKETS],
    count: u32,
}

// SAFETY: the pointers lead to what this owns alone.
unsafe impl Send for Table {}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { buckets: [null_mut(); BUCKETS], count: 0 }
    }

    fn bucket(task: *mut bindings::task_struct) -> usize {
        // Tasks lie on cache lines of their own.
        (task.addr() >> 6) % BUCKETS
    }

    pub(super) fn find(&self, task: *mut bindings::task_struct) -> *mut Thread {
        let mut at = self.buckets.get(Self::bucket(task)).copied().unwrap_or(null_mut());
        // SAFETY: [I2] what a bucket leads to is a thread, or null.
        while let Some(thread) = unsafe { at.as_ref() } {
            if thread.task == task {
                return at;
            }
            at = thread.next;
        }
        null_mut()
    }

    /// Takes a thread in, unless there are too many or it is known; then it is returned.
    pub(super) fn insert(&mut self, mut thread: KBox<Thread>) -> Option<KBox<Thread>> {
        if self.count >= MOST || !self.find(thread.task).is_null() {
            return Some(thread);
        }
        let Some(bucket) = self.buckets.get_mut(Self::bucket(thread.task)) else { return Some(thread) };
        thread.next = *bucket;
        *bucket = KBox::into_raw(thread);
        self.count = self.count.saturating_add(1);
        None
    }

    /// Takes out those that nobody acts on and that `done_with` names; they form a list.
    fn take_out(&mut self, mut done_with: impl FnMut(&Thread) -> bool) -> *mut Thread {
        let mut out = null_mut();
        for bucket in &mut self.buckets {
            let mut link: *mut *mut Thread = bucket;
            // SAFETY: `link` is a bucket or the link of a thread that stays; [I2] it leads to a thread, or null.
            while let Some(thread) = unsafe { (*link).as_mut() } {
                if thread.stage == Stage::Idle && done_with(thread) {
                    let this: *mut Thread = thread;
                    // SAFETY: as above.
                    unsafe { *link = thread.next };
                    thread.next = out;
                    out = this;
                    self.count = self.count.saturating_sub(1);
                } else {
                    link = &mut thread.next;
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
        state.accounts.forget_idle(&state.terms.caps, now);
        state.threads.take_out(|thread| {
            let mut look = Look::default();
            // SAFETY: [I3] the task is valid.
            unsafe { glue::expedite_look(thread.task, &mut look) };
            let is_old = now.since(thread.last_call) > FORGOTTEN_AFTER;
            look.is_ending || (is_old && thread.budget.debt() == Nanos::ZERO)
        })
    });
    // SAFETY: [I2] they were taken out while nobody acted on them.
    unsafe { free_all(out.unwrap_or(null_mut())) };
}

/// Forgets all threads, after whoever acts on one of them has done so. May sleep.
pub(crate) fn forget_all() {
    loop {
        let (out, left) = state::with(|state| (state.threads.take_out(|_| true), state.threads.count))
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
    while !list.is_null() {
        let thread = list;
        // SAFETY: the caller says that it is a list of threads.
        list = unsafe { (*thread).next };
        // SAFETY: as the caller says. It may still be about to return.
        unsafe { bindings::irq_work_sync(&raw mut (*thread).afterwards) };
        // SAFETY: as the caller says.
        unsafe { bindings::hrtimer_cancel(&raw mut (*thread).timer) };
        // SAFETY: as the caller says. What the worker was asked for was done, or the stage would be another one.
        unsafe { free(thread) };
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
