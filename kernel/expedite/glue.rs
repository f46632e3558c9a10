// SPDX-License-Identifier: GPL-2.0
//! Declarations of the module's C half: glue.h in Rust. Functions without preconditions have safe wrappers.
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
    pub(crate) cred: *const c_void,
    pub(crate) way: u32,
    pub(crate) cpu: u32,
    pub(crate) is_boostable: bool,
    pub(crate) is_pinned: bool,
}

impl Waiter {
    /// Returns the id of the user that pays for the thread.
    ///
    /// # Safety
    /// The task is valid during the call.
    pub(crate) unsafe fn payer(&self) -> u32 {
        // SAFETY: the caller guarantees that the task is valid.
        unsafe { expedite_payer(self.task) }
    }
}

/// `struct expedite_obstacles`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Obstacles {
    pub(crate) sleeps: u64,
    pub(crate) is_asleep: bool,
    pub(crate) is_switched_out: bool,
    pub(crate) is_realtime: bool,
    pub(crate) is_ending: bool,
    pub(crate) is_behind: bool,
    pub(crate) is_locked: bool,
}

impl Obstacles {
    /// Returns why a task may not be boostable.
    ///
    /// # Safety
    /// The task is valid during the call.
    pub(crate) unsafe fn of(task: *mut bindings::task_struct) -> Self {
        let mut obstacles = core::mem::MaybeUninit::uninit();
        // SAFETY: the caller guarantees that the task is valid.
        unsafe { expedite_obstacles(task, obstacles.as_mut_ptr()) };
        // SAFETY: the function sets all fields.
        unsafe { obstacles.assume_init() }
    }
}

/// `struct expedite_hold`.
#[repr(C)]
pub(crate) struct Hold {
    pub(crate) kind: c_uint,
    pub(crate) object: *mut c_void,
    pub(crate) queue: *mut bindings::wait_queue_head,
}

impl Hold {
    /// Holds nothing.
    pub(crate) const NONE: Self = Self { kind: 0, object: null_mut(), queue: null_mut() };
}

/// `EXPEDITE_EVENTFD`.
pub(crate) const KIND_EVENTFD: c_uint = 1;

/// `EXPEDITE_FILE`: holds that have to be checked often.
pub(crate) const KIND_FILE: c_uint = 2;

/// `struct expedite_saved`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Saved {
    policy: u32,
    reset_on_fork: u32,
}

impl Saved {
    /// Returns the class that a task has now.
    ///
    /// # Safety
    /// The task is valid during the call.
    pub(crate) unsafe fn of(task: *mut bindings::task_struct) -> Self {
        let mut saved = Self::default();
        // SAFETY: the caller guarantees that the task is valid.
        unsafe { expedite_class(task, &raw mut saved) };
        saved
    }
}

/// Returns whether a task has the class of a boost.
///
/// # Safety
/// The task is valid during the call.
pub(crate) unsafe fn is_boost(task: *const bindings::task_struct) -> bool {
    // SAFETY: the caller guarantees that the task is valid.
    unsafe { expedite_is_boost(task) }
}

/// `struct expedite_thread`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    pub(crate) runtime: u64,
    pub(crate) waited: u64,
    pub(crate) arrival: u64,
    pub(crate) arrivals: u64,
    pub(crate) sleeps: u64,
    pub(crate) migrations: u64,
    pub(crate) group: *mut c_void,
    pub(crate) cpu: u32,
    pub(crate) uid: u32,
    pub(crate) is_asleep: bool,
    pub(crate) is_switched_out: bool,
    pub(crate) is_on_cpu: bool,
    pub(crate) is_realtime: bool,
    pub(crate) is_ending: bool,
    pub(crate) is_behind: bool,
    pub(crate) is_locked: bool,
}

impl Snapshot {
    /// Returns the state of a task now.
    ///
    /// # Safety
    /// The task is valid during the call.
    pub(crate) unsafe fn of(task: *mut bindings::task_struct) -> Self {
        let mut snapshot = core::mem::MaybeUninit::uninit();
        // SAFETY: the caller guarantees that the task is valid.
        unsafe { expedite_snapshot(task, snapshot.as_mut_ptr()) };
        // SAFETY: the function sets all fields.
        unsafe { snapshot.assume_init() }
    }
}

#[allow(improper_ctypes, reason = "structures of the kernel are passed by address only; one form of the module knows their fields")]
extern "C" {
    pub(crate) fn expedite_arrived(
        ours: *mut bindings::wait_queue_entry,
        mode: c_uint,
        flags: c_int,
        key: *mut c_void,
    ) -> c_int;
    fn expedite_payer(task: *mut bindings::task_struct) -> u32;
    fn expedite_obstacles(task: *mut bindings::task_struct, obstacles: *mut Obstacles);
    pub(crate) fn expedite_finds_idle_cpu(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn expedite_sleep(
        file: *mut bindings::file,
        queue: *mut bindings::wait_queue_head,
        ended: *const bool,
        ns: u64,
    ) -> c_int;
    pub(crate) fn expedite_wake_sleepers(queue: *mut bindings::wait_queue_head);
    pub(crate) fn expedite_identify(file: *mut bindings::file, hold: *mut Hold) -> bool;
    pub(crate) fn expedite_hold(file: *mut bindings::file, hold: *mut Hold) -> c_int;
    pub(crate) fn expedite_release(hold: *mut Hold);
    pub(crate) fn expedite_is_closed(hold: *const Hold) -> bool;
    pub(crate) fn expedite_queue_lock(queue: *mut bindings::wait_queue_head) -> c_ulong;
    pub(crate) fn expedite_queue_unlock(queue: *mut bindings::wait_queue_head, flags: c_ulong);
    pub(crate) fn expedite_queue_add(
        queue: *mut bindings::wait_queue_head,
        entry: *mut bindings::wait_queue_entry,
    );
    pub(crate) fn expedite_queue_remove(
        queue: *mut bindings::wait_queue_head,
        entry: *mut bindings::wait_queue_entry,
    );
    fn expedite_snapshot(task: *mut bindings::task_struct, thread: *mut Snapshot);
    pub(crate) fn expedite_raise(task: *mut bindings::task_struct, saved: *mut Saved) -> c_int;
    pub(crate) fn expedite_lower(task: *mut bindings::task_struct, saved: *const Saved) -> c_int;
    fn expedite_is_boost(task: *const bindings::task_struct) -> bool;
    fn expedite_class(task: *mut bindings::task_struct, saved: *mut Saved);
    pub(crate) fn expedite_trace_drop(task: *mut bindings::task_struct, ran: u64, slept: u64, replaced: bool);
    pub(crate) fn expedite_put_task(task: *mut bindings::task_struct);
    pub(crate) fn expedite_get_task(task: *mut bindings::task_struct);
    pub(crate) fn expedite_may_name(task: *mut bindings::task_struct) -> bool;
    pub(crate) fn expedite_lock() -> c_ulong;
    pub(crate) fn expedite_unlock(flags: c_ulong);
    pub(crate) fn expedite_thread_init(timer: *mut bindings::hrtimer, afterwards: *mut bindings::irq_work);
    pub(crate) fn expedite_do_afterwards(afterwards: *mut bindings::irq_work);
    pub(crate) fn expedite_start(timer: *mut bindings::hrtimer, ns: u64);
    pub(crate) fn expedite_queue(work: *mut bindings::kthread_work, cpu: u32);
    #[allow(dead_code, reason = "C counts the references in the portable form")]
    pub(crate) fn expedite_module_put();
    #[allow(dead_code, reason = "as above")]
    fn expedite_module_get() -> bool;
    fn expedite_find_task(tid: i32) -> *mut bindings::task_struct;
    fn expedite_in_interrupt() -> bool;
    fn expedite_caller() -> u32;
    fn expedite_clock() -> u64;
    fn expedite_cpus() -> u32;
    fn expedite_workers_start() -> c_int;
    fn expedite_workers_stop();
    fn expedite_children_watch() -> c_int;
    fn expedite_children_leave();
    fn expedite_reap_in(ms: c_uint);
    fn expedite_cancel_reap();
    fn expedite_wait_for_stragglers();
    fn expedite_trial_queue() -> *mut bindings::wait_queue_head;
    fn expedite_trial_is_possible() -> bool;
    fn expedite_trial_wait(ms: c_uint) -> bool;
    fn expedite_trial_is_lowered() -> bool;
}

/// Result of the trial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trial {
    Fine,
    NotBoosted,
    NotLowered,
}

/// Returns the queue of the trial.
pub(crate) fn trial_queue() -> *mut bindings::wait_queue_head {
    // SAFETY: [I1] returns an address.
    unsafe { expedite_trial_queue() }
}

/// Returns whether the calling thread can be boosted on a kernel that is supported.
pub(crate) fn trial_is_possible() -> bool {
    // SAFETY: [I1] reads the calling thread.
    unsafe { expedite_trial_is_possible() }
}

/// Waits for an arrival in the queue of the trial, which comes after `ms` milliseconds. Returns whether the arrival made the calling thread
/// real-time.
pub(crate) fn trial_wait(ms: u32) -> bool {
    // SAFETY: [I1] called where sleeping is allowed, by one thread at a time: when the module is loaded.
    unsafe { expedite_trial_wait(ms) }
}

/// Returns whether the calling thread is an ordinary one soon.
pub(crate) fn trial_is_lowered() -> bool {
    // SAFETY: [I1] called where sleeping is allowed.
    unsafe { expedite_trial_is_lowered() }
}

/// Returns whether this is an interrupt, in which a scheduling class must not be changed.
pub(crate) fn in_interrupt() -> bool {
    // SAFETY: [I1] reads a counter of this CPU.
    unsafe { expedite_in_interrupt() }
}

/// Returns the id of the user that pays for the calling thread.
pub(crate) fn caller() -> u32 {
    // SAFETY: [I1] reads the credentials of the caller.
    unsafe { expedite_caller() }
}

/// Returns the time of this CPU's scheduling clock, in nanoseconds.
pub(crate) fn clock() -> u64 {
    // SAFETY: [I1] reads a clock.
    unsafe { expedite_clock() }
}

/// Returns the number of possible CPUs.
pub(crate) fn cpus() -> u32 {
    // SAFETY: [I1] reads a number.
    unsafe { expedite_cpus() }
}

/// Takes a reference to this module. Returns false if the module is being unloaded.
#[allow(dead_code, reason = "as above")]
pub(crate) fn module_get() -> bool {
    // SAFETY: [I1] this code is in the module, so the module exists.
    unsafe { expedite_module_get() }
}

/// Returns a thread with a reference, or null.
pub(crate) fn find_task(tid: i32) -> *mut bindings::task_struct {
    // SAFETY: [I1] every number is allowed.
    unsafe { expedite_find_task(tid) }
}

/// Runs the reaper after `ms` milliseconds; 0 is never.
pub(crate) fn reap_in(ms: u32) {
    // SAFETY: [I1] queues delayed work of this module, which is cancelled before the module is unloaded.
    unsafe { expedite_reap_in(ms) }
}

/// Stops the reaper. May sleep.
pub(crate) fn cancel_reap() {
    // SAFETY: [I1] called where sleeping is allowed, when no code queues the work any more.
    unsafe { expedite_cancel_reap() }
}

/// Starts the workers. Returns 0 or an error.
pub(crate) fn workers_start() -> c_int {
    // SAFETY: [I1] called once, where sleeping is allowed.
    unsafe { expedite_workers_start() }
}

/// Stops the workers after their queued work is done.
pub(crate) fn workers_stop() {
    // SAFETY: [I1] called once, where sleeping is allowed, when no code queues work any more.
    unsafe { expedite_workers_stop() }
}

/// Begins to correct the scheduling of children of boosted threads. Returns 0 or an error.
pub(crate) fn children_watch() -> c_int {
    // SAFETY: [I1] called once, where sleeping is allowed.
    unsafe { expedite_children_watch() }
}

/// Ends what [`children_watch`] began, if it did.
pub(crate) fn children_leave() {
    // SAFETY: [I1] called once, where sleeping is allowed.
    unsafe { expedite_children_leave() }
}

/// Waits until no thread is in code of this module.
pub(crate) fn wait_for_stragglers() {
    // SAFETY: [I1] called where sleeping is allowed.
    unsafe { expedite_wait_for_stragglers() }
}
