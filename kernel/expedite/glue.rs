// SPDX-License-Identifier: GPL-2.0
//! The C half of the module, as Rust sees it: glue.h. What has no conditions is wrapped in safe functions.
//!
//! # Invariants
//! 1. The declarations are those of glue.h.

use core::ptr::null_mut;

use kernel::bindings;
use kernel::ffi::{c_int, c_uint, c_ulong, c_void};

/// `struct expedite_waiter`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) task: *mut bindings::task_struct,
    pub(crate) way: u32,
    pub(crate) cpu: u32,
    pub(crate) uid: u32,
    pub(crate) is_plain: bool,
}

impl Waiter {
    /// Nobody, as long as nobody was found.
    pub(crate) const NOBODY: Self = Self { task: null_mut(), way: 0, cpu: 0, uid: 0, is_plain: false };
}

/// `struct expedite_hold`.
#[repr(C)]
pub(crate) struct Hold {
    pub(crate) kind: c_uint,
    pub(crate) object: *mut c_void,
    pub(crate) queue: *mut bindings::wait_queue_head,
}

/// `EXPEDITE_EVENTFD`.
pub(crate) const KIND_EVENTFD: c_uint = 1;

/// `EXPEDITE_FILE`: holds that have to be looked through often.
pub(crate) const KIND_FILE: c_uint = 2;

/// How many ways of waiting are told apart: those of `enum expedite_way`, and the last.
pub(crate) const WAYS: usize = 6;

/// It cannot be told who waits, and the flag names somebody.
pub(crate) const BY_NAME: u32 = 5;

/// `struct expedite_saved`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Saved {
    policy: u32,
    reset_on_fork: u32,
}

/// `struct expedite_thread`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Look {
    pub(crate) runtime: u64,
    pub(crate) arrival: u64,
    pub(crate) arrivals: u64,
    pub(crate) cpu: u32,
    pub(crate) uid: u32,
    pub(crate) policy: u32,
    pub(crate) is_blocked: bool,
    pub(crate) is_realtime: bool,
    pub(crate) is_ending: bool,
}

#[expect(improper_ctypes, reason = "kernel structures are passed by address only")]
extern "C" {
    pub(crate) fn expedite_waiters(
        ours: *mut bindings::wait_queue_entry,
        key: *mut c_void,
        found: *mut Waiter,
        most: c_int,
        untold: *mut bool,
    ) -> c_int;
    pub(crate) fn expedite_glance(task: *mut bindings::task_struct, waiter: *mut Waiter);
    pub(crate) fn expedite_sleep(
        file: *mut bindings::file,
        queue: *mut bindings::wait_queue_head,
        ended: *const bool,
        ns: u64,
    ) -> c_int;
    pub(crate) fn expedite_wake_sleepers(queue: *mut bindings::wait_queue_head);
    pub(crate) fn expedite_hold(file: *mut bindings::file, hold: *mut Hold) -> c_int;
    pub(crate) fn expedite_let_go(hold: *mut Hold);
    pub(crate) fn expedite_holds(hold: *const Hold, file: *mut bindings::file) -> bool;
    pub(crate) fn expedite_is_closed(hold: *const Hold) -> bool;
    pub(crate) fn expedite_look(task: *mut bindings::task_struct, thread: *mut Look);
    pub(crate) fn expedite_raise(task: *mut bindings::task_struct, saved: *mut Saved) -> c_int;
    pub(crate) fn expedite_lower(task: *mut bindings::task_struct, saved: *const Saved) -> c_int;
    pub(crate) fn expedite_put_task(task: *mut bindings::task_struct);
    pub(crate) fn expedite_get_task(task: *mut bindings::task_struct);
    pub(crate) fn expedite_may_name(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn expedite_lock() -> c_ulong;
    pub(crate) fn expedite_unlock(flags: c_ulong);
    pub(crate) fn expedite_thread_init(timer: *mut bindings::hrtimer, afterwards: *mut bindings::irq_work);
    pub(crate) fn expedite_do_afterwards(afterwards: *mut bindings::irq_work);
    pub(crate) fn expedite_start(timer: *mut bindings::hrtimer, ns: u64);
    pub(crate) fn expedite_queue(work: *mut bindings::kthread_work, cpu: u32);
    pub(crate) fn expedite_module_put();
    fn expedite_module_get() -> bool;
    fn expedite_find_task(tid: i32) -> *mut bindings::task_struct;
    fn expedite_in_interrupt() -> bool;
    fn expedite_clock() -> u64;
    fn expedite_cpus() -> u32;
    fn expedite_workers_start() -> c_int;
    fn expedite_workers_stop();
    fn expedite_reap_in(ms: c_uint);
    fn expedite_reap_never();
    fn expedite_wait_for_stragglers();
}

/// Whether a scheduling class may not be changed here.
pub(crate) fn in_interrupt() -> bool {
    // SAFETY: [I1] reads a counter of this processor.
    unsafe { expedite_in_interrupt() }
}

/// Nanoseconds of this processor's scheduling clock.
pub(crate) fn clock() -> u64 {
    // SAFETY: [I1] reads a clock.
    unsafe { expedite_clock() }
}

/// Processors that there can be.
pub(crate) fn cpus() -> u32 {
    // SAFETY: [I1] reads a number.
    unsafe { expedite_cpus() }
}

/// Says that this module is used, unless it is going already.
pub(crate) fn module_get() -> bool {
    // SAFETY: [I1] this code is in the module, so that is there.
    unsafe { expedite_module_get() }
}

/// A thread with a reference, or null.
pub(crate) fn find_task(tid: i32) -> *mut bindings::task_struct {
    // SAFETY: [I1] any number may be asked for.
    unsafe { expedite_find_task(tid) }
}

/// Looks through flags and threads after so many milliseconds; 0 is never.
pub(crate) fn reap_in(ms: u32) {
    // SAFETY: [I1] queues delayed work of this module, which is cancelled before the module goes.
    unsafe { expedite_reap_in(ms) }
}

/// No reaping from here on. May sleep.
pub(crate) fn reap_never() {
    // SAFETY: [I1] called where sleeping is allowed, when nothing queues it any more.
    unsafe { expedite_reap_never() }
}

/// Starts the workers; 0, or an error.
pub(crate) fn workers_start() -> c_int {
    // SAFETY: [I1] called once, where sleeping is allowed.
    unsafe { expedite_workers_start() }
}

/// Ends the workers, after what was queued is done.
pub(crate) fn workers_stop() {
    // SAFETY: [I1] called once, where sleeping is allowed, when nothing is queued any more.
    unsafe { expedite_workers_stop() }
}

/// Until no thread is in code of this module.
pub(crate) fn wait_for_stragglers() {
    // SAFETY: [I1] called where sleeping is allowed.
    unsafe { expedite_wait_for_stragglers() }
}
