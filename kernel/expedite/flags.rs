// SPDX-License-Identifier: GPL-2.0
//! Flags on open files: an entry at the head of the wait queue, which the kernel calls before it wakes any thread.
//!
//! A flag holds the memory that contains the queue, and not the open file where possible (descriptors.c). So the flagged
//! file closes when its owner closes it, and the flag is removed some time later. A flag also ends with the device through
//! which it was set.
//!
//! # Invariants
//! 1. A flag in the list is valid, its entry is in the queue that it holds, and its thread is valid. A removed flag is valid
//!    as long as threads sleep there; the last of them frees it.
//! 2. After an entry was removed from its queue, no thread is in [`expedite_arrived`] with it: that runs under the lock of
//!    the queue.

use core::mem::ManuallyDrop;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_uint, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::abi::{Flag, Wait, FLAGS_MAX};
use crate::accounts::FlagAccount;
use crate::glue::{self, Hold, Waiter, BY_NAME, KIND_EVENTFD, KIND_FILE};
use crate::policy::budget::{self, Budget, Cap};
use crate::policy::caps;
use crate::policy::share::Share;
use crate::policy::time::Nanos;
use crate::state;
use crate::threads::{self, Source};

/// `EXPEDITE_ARRIVAL`.
const ARRIVAL: u32 = bindings::POLLIN
    | bindings::POLLPRI
    | bindings::POLLERR
    | bindings::POLLHUP
    | bindings::POLLRDNORM
    | bindings::POLLRDBAND
    | bindings::POLLRDHUP;

/// Maximum number of threads that are boosted for one arrival.
const WAITERS: usize = 4;

/// Period of the reaper, in milliseconds, while a flag holds an open file or a thread sleeps at one: half of the time within
/// which a connection must have ended.
const SHORT_PERIOD: u32 = 10;

/// Period of the reaper for other flags and for threads, in milliseconds.
const LONG_PERIOD: u32 = 1_000;

/// A flag on an open file.
struct Watch {
    entry: bindings::wait_queue_entry,
    next: *mut Watch,
    /// The device through which it was set.
    device: usize,
    hold: Hold,
    /// The thread to boost if no waiting thread is recognised.
    thread: *mut bindings::task_struct,
    slice: Nanos,
    /// The account of a flag with a cap of its own.
    account: Option<Arc<FlagAccount>>,
    /// The flag has ended: an eventfd reported that its last descriptor was closed, or the flag was removed from the list.
    ended: AtomicBool,
    /// The flag was removed from the list. Changed under the lock of the list.
    is_out: AtomicBool,
    /// Number of threads that wait through the device. Changed under the lock of the list.
    sleepers: AtomicU32,
}

/// All flags.
struct Flags {
    first: *mut Watch,
}

// SAFETY: this exclusively owns the objects behind the pointers.
unsafe impl Send for Flags {}

kernel::sync::global_lock! {
    // SAFETY: `prepare` is called once, before all other functions of this file.
    unsafe(uninit) static FLAGS: Mutex<Flags> = Flags { first: null_mut() };
}

/// A reference to an open file.
struct OpenFile(*mut bindings::file);

impl Flags {
    /// Returns the flags that were set through a device.
    fn through(&self, device: usize) -> impl Iterator<Item = &Watch> {
        // SAFETY: [I1] each link of the list is a flag or null, and the list is borrowed.
        let first = unsafe { self.first.as_ref() };
        // SAFETY: [I1] as above.
        let all = core::iter::successors(first, |watch| unsafe { watch.next.as_ref() });
        all.filter(move |watch| watch.device == device)
    }

    /// Returns the flag on this file that was set through this device.
    fn find(&self, device: usize, file: &OpenFile) -> Option<&Watch> {
        // SAFETY: both are valid.
        self.through(device).find(|watch| unsafe { glue::expedite_holds(&watch.hold, file.0) })
    }
}

impl OpenFile {
    fn get(fd: i32) -> Result<Self> {
        let fd = u32::try_from(fd).map_err(|_| EBADF)?;
        // SAFETY: every number is allowed.
        let file = unsafe { bindings::fget(fd) };
        if file.is_null() {
            Err(EBADF)
        } else {
            Ok(Self(file))
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: the reference is that of `get`.
        unsafe { bindings::fput(self.0) };
    }
}

/// Initialises the list. Called once, before all other functions.
pub(crate) fn prepare() {
    // SAFETY: called once, when the module starts.
    unsafe { FLAGS.init() };
}

/// Flags the open file of a descriptor, through this device.
///
/// # Errors
/// See expedite.h.
pub(crate) fn set(device: usize, flag: &Flag) -> Result {
    let flag = flag.checked()?;
    let file = OpenFile::get(flag.fd)?;
    let thread = find_thread(flag.tid)?;
    let account = match flag.percent {
        0 => None,
        percent => Some(own_account(percent, Nanos(flag.slice_ns))?),
    };
    let mut watch = KBox::new(
        Watch {
            entry: bindings::wait_queue_entry::default(),
            next: null_mut(),
            device,
            hold: Hold { kind: 0, object: null_mut(), queue: null_mut() },
            thread: thread.0,
            slice: Nanos(flag.slice_ns),
            account,
            ended: AtomicBool::new(false),
            is_out: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
        },
        GFP_KERNEL_ACCOUNT,
    )?;
    let mut flags = FLAGS.lock();
    if flags.find(device, &file).is_some() {
        return Err(EEXIST);
    }
    if flags.through(device).count() >= FLAGS_MAX as usize {
        return Err(ENOSPC);
    }
    // SAFETY: both are valid; `free` releases the hold.
    to_result(unsafe { glue::expedite_hold(file.0, &mut watch.hold) })?;
    core::mem::forget(thread);
    let often = if watch.hold.kind == KIND_FILE { SHORT_PERIOD } else { LONG_PERIOD };
    watch.next = flags.first;
    watch.entry.private = watch.hold.queue.cast();
    watch.entry.func = Some(expedite_arrived);
    let watch = KBox::into_raw(watch);
    flags.first = watch;
    // SAFETY: [I1] the queue is held, and the entry does not move until it is removed.
    unsafe { bindings::add_wait_queue_priority((*watch).hold.queue, &raw mut (*watch).entry) };
    drop(flags);
    state::with(|state| state.totals.flags = state.totals.flags.wrapping_add(1));
    glue::reap_in(often);
    Ok(())
}

/// Returns the account of a flag with a cap of its own and this slice.
fn own_account(percent: u32, slice: Nanos) -> Result<Arc<FlagAccount>> {
    let most = state::with(|state| state.terms.slice).ok_or(ENODEV)?;
    let slice = if slice == Nanos::ZERO { most } else { slice.min(most) };
    let terms = budget::Terms::capped(Cap { share: Share::percent(percent), window: caps::WINDOW }, slice);
    let now = Nanos(glue::clock());
    if Budget::new(&terms, now).not_before(&terms) == Nanos::NEVER {
        return Err(EINVAL);
    }
    FlagAccount::new(terms, now)
}

/// A task with a reference.
struct TaskRef(*mut bindings::task_struct);

impl Drop for TaskRef {
    fn drop(&mut self) {
        // SAFETY: the reference is that of `find_thread`.
        unsafe { glue::expedite_put_task(self.0) };
    }
}

/// Returns a thread that the caller may name.
fn find_thread(tid: i32) -> Result<TaskRef> {
    let task = glue::find_task(tid);
    if task.is_null() {
        return Err(ESRCH);
    }
    let task = TaskRef(task);
    // SAFETY: `task` holds a reference.
    if unsafe { glue::expedite_may_name(task.0) } {
        Ok(task)
    } else {
        Err(EPERM)
    }
}

/// Calls `work` with a thread that the caller may name.
///
/// # Errors
/// There is no such thread, or the caller may not name it.
pub(crate) fn with_thread<R>(
    tid: i32,
    work: impl FnOnce(*mut bindings::task_struct) -> Result<R>,
) -> Result<R> {
    let task = find_thread(tid)?;
    work(task.0)
}

/// Removes the flag on the open file of a descriptor.
///
/// # Errors
/// See expedite.h.
pub(crate) fn take_back(device: usize, fd: i32) -> Result {
    let file = OpenFile::get(fd)?;
    // SAFETY: the watch and the file are valid.
    let is_it = |watch: &Watch| unsafe { glue::expedite_holds(&watch.hold, file.0) };
    let removed = remove(|watch| watch.device == device && is_it(watch));
    if removed == 0 {
        Err(ENOENT)
    } else {
        Ok(())
    }
}

/// Removes all flags that were set through a device.
pub(crate) fn device_closed(device: usize) {
    remove(|watch| watch.device == device);
}

/// Waits until data arrives, or is available, at the flagged file of a descriptor.
///
/// # Errors
/// See expedite.h.
pub(crate) fn wait(device: usize, wait: &Wait) -> Result {
    let wait = wait.checked()?;
    let file = OpenFile::get(wait.fd)?;
    let flags = FLAGS.lock();
    let watch = flags.find(device, &file).ok_or(ENOENT)?;
    watch.sleepers.fetch_add(1, Ordering::Relaxed);
    let (watch, queue, ended): (*const Watch, _, _) = (watch, watch.hold.queue, watch.ended.as_ptr());
    drop(flags);
    glue::reap_in(SHORT_PERIOD);
    let file = ManuallyDrop::new(file);
    // SAFETY: [I1] the flag, and so the queue, is valid as long as this thread is one of its sleepers. The callee drops the
    // reference to the file.
    let result = unsafe { glue::expedite_sleep(file.0, queue, ended, wait.timeout_ns) };
    let flags = FLAGS.lock();
    // SAFETY: [I1] as above.
    let watch_ref = unsafe { &*watch };
    let was_last = watch_ref.sleepers.fetch_sub(1, Ordering::Relaxed) == 1;
    if was_last && watch_ref.is_out.load(Ordering::Relaxed) {
        // SAFETY: [I1] it is not in the list, and this was the last thread that slept there.
        unsafe { free(watch.cast_mut()) };
    }
    drop(flags);
    to_result(result)
}

/// Removes the flags for which `done_with` is true, and returns their number. May sleep.
fn remove(mut done_with: impl FnMut(&Watch) -> bool) -> u64 {
    let mut flags = FLAGS.lock();
    let mut count: u64 = 0;
    let mut link: *mut *mut Watch = &mut flags.first;
    // SAFETY: `link` is the list or the link of a flag that stays; [I1] it points to a flag, or is null.
    while let Some(watch) = unsafe { (*link).as_ref() } {
        // SAFETY: as above.
        let this = unsafe { *link };
        if !done_with(watch) {
            // SAFETY: [I1] the flag stays, so its link can be written to.
            link = unsafe { &raw mut (*this).next };
            continue;
        }
        // SAFETY: as above.
        unsafe { *link = watch.next };
        // SAFETY: [I1] the entry is in the queue.
        unsafe { bindings::remove_wait_queue(watch.hold.queue, &raw mut (*this).entry) };
        watch.is_out.store(true, Ordering::Relaxed);
        watch.ended.store(true, Ordering::Relaxed);
        if watch.sleepers.load(Ordering::Relaxed) == 0 {
            // SAFETY: [I1] it is not in the list, and no thread sleeps there.
            unsafe { free(this) };
        } else {
            // SAFETY: [I1] the flag, and so the queue, is valid as long as a thread sleeps there: the lock is held.
            unsafe { glue::expedite_wake_sleepers(watch.hold.queue) };
        }
        count = count.wrapping_add(1);
    }
    drop(flags);
    state::with(|state| state.totals.flags = state.totals.flags.wrapping_sub(count));
    count
}

/// Frees a flag.
///
/// # Safety
/// The flag is neither in the list nor in its queue, and no thread sleeps there.
unsafe fn free(watch: *mut Watch) {
    // SAFETY: [I2] no thread accesses the flag any more.
    let mut watch = unsafe { KBox::from_raw(watch) };
    // SAFETY: the flag has a reference to the thread, which is dropped once, here.
    unsafe { glue::expedite_put_task(watch.thread) };
    // SAFETY: the hold is released once, here.
    unsafe { glue::expedite_release(&mut watch.hold) };
}

/// Removes the flags on closed files, and threads and accounts that are idle. Returns the milliseconds until the next run, 0
/// for none.
#[no_mangle]
pub(crate) extern "C" fn expedite_reap() -> c_uint {
    // SAFETY: [I1] the hold is valid.
    let is_closed = |watch: &Watch| unsafe { glue::expedite_is_closed(&watch.hold) };
    let mut again = 0;
    remove(|watch| {
        let closed = watch.ended.load(Ordering::Relaxed) || is_closed(watch);
        if !closed {
            let has_sleepers = watch.sleepers.load(Ordering::Relaxed) > 0;
            let often = watch.hold.kind == KIND_FILE || has_sleepers || again == SHORT_PERIOD;
            again = if often { SHORT_PERIOD } else { LONG_PERIOD };
        }
        closed
    });
    threads::forget_idle();
    let known =
        state::with(|state| state.threads.count().saturating_add(state.accounts.count())).unwrap_or(0);
    if again == 0 && known > 0 {
        LONG_PERIOD
    } else {
        again
    }
}

/// Boosts the threads that an arrival on a flagged queue is about to wake.
///
/// # Safety
/// Called by the queue that contains a flag's entry, under the queue's lock.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_arrived(
    entry: *mut bindings::wait_queue_entry,
    _mode: c_uint,
    _flags: c_int,
    key: *mut c_void,
) -> c_int {
    // A wake-up without events may be for any event.
    let events = key.addr() as u32;
    if events != 0 && events & ARRIVAL == 0 {
        return 0;
    }
    // SAFETY: only flags have such entries.
    let watch = unsafe { &*kernel::container_of!(entry, Watch, entry) };
    if watch.hold.kind == KIND_EVENTFD && events & bindings::POLLHUP != 0 {
        watch.ended.store(true, Ordering::Relaxed);
    }
    let mut found = [Waiter::NONE; WAITERS];
    let mut has_unrecognised = false;
    // SAFETY: the lock of the queue is held, and `found` has room for `WAITERS` entries.
    let count = unsafe {
        glue::expedite_waiters(entry, key, found.as_mut_ptr(), WAITERS as c_int, &mut has_unrecognised)
    };
    let mut count = usize::try_from(count).unwrap_or(0);
    if count == 0 && has_unrecognised {
        let [first, ..] = &mut found;
        // SAFETY: [I1] the flag's thread is valid while the flag is in the queue.
        unsafe { glue::expedite_describe(watch.thread, first) };
        first.way = BY_NAME;
        count = 1;
    }
    if count == 0 {
        return 0;
    }
    let account = watch.account.as_ref();
    let source = Source { slice: watch.slice, account, now: Nanos(glue::clock()) };
    for waiter in found.iter().take(count) {
        // SAFETY: the lock of the queue is held, so the task is valid.
        unsafe { threads::arrived(waiter, &source) };
    }
    0
}
