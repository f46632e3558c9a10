// SPDX-License-Identifier: GPL-2.0
//! Flags on what is open: an entry at the head of its wait queue, so that we are asked before anybody is woken.
//!
//! A flag holds the memory that the queue lies in, and not the open file where that can be helped (descriptors.c). So
//! what is flagged closes when its owner closes it, and the flag is taken away some time later. It ends with the device
//! through which it was set.
//!
//! # Invariants
//! 1. A flag in the list is valid, its entry is in the queue that it holds, and its thread is valid. One that was taken out
//!    is valid as long as threads sleep there; the last of them frees it.
//! 2. After an entry was removed from its queue, nobody is in [`expedite_arrived`] with it: that runs under the lock of
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

/// Threads that are boosted for one arrival, at most.
const WAITERS: usize = 4;

/// How often flags are looked through where only the open file could be held, milliseconds: half of the time within which
/// a connection must have ended.
const OFTEN: u32 = 10;

/// How often the others are, and threads.
const RARELY: u32 = 1_000;

/// A flag on something open.
struct Watch {
    entry: bindings::wait_queue_entry,
    next: *mut Watch,
    /// The device through which it was set.
    device: usize,
    hold: Hold,
    /// Who is taken where it cannot be told who waits.
    thread: *mut bindings::task_struct,
    slice: Nanos,
    /// What it may cost, if it has a cap of its own.
    account: Option<Arc<FlagAccount>>,
    /// It is over: an eventfd said that its last descriptor was closed, or it was taken out of the list.
    ended: AtomicBool,
    /// It was taken out of the list. Changed under the lock of the list.
    is_out: AtomicBool,
    /// Threads that wait through the device. Changed under the lock of the list.
    sleepers: AtomicU32,
}

/// All flags.
struct Flags {
    first: *mut Watch,
}

// SAFETY: the pointers lead to what this owns alone.
unsafe impl Send for Flags {}

kernel::sync::global_lock! {
    // SAFETY: `prepare` is called before anything else here, once.
    unsafe(uninit) static FLAGS: Mutex<Flags> = Flags { first: null_mut() };
}

/// An open file, as long as this lives.
struct OpenFile(*mut bindings::file);

impl Flags {
    /// Those that were set through a device.
    fn through(&self, device: usize) -> impl Iterator<Item = &Watch> {
        // SAFETY: [I1] what the list leads to is a flag, or null, and the list is borrowed.
        let first = unsafe { self.first.as_ref() };
        // SAFETY: [I1] as above.
        let all = core::iter::successors(first, |watch| unsafe { watch.next.as_ref() });
        all.filter(move |watch| watch.device == device)
    }

    /// The flag on what is open there, if it has one through this device.
    fn find(&self, device: usize, file: &OpenFile) -> Option<&Watch> {
        // SAFETY: both are valid.
        self.through(device).find(|watch| unsafe { glue::expedite_holds(&watch.hold, file.0) })
    }
}

impl OpenFile {
    fn get(fd: i32) -> Result<Self> {
        let fd = u32::try_from(fd).map_err(|_| EBADF)?;
        // SAFETY: any number may be asked for.
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

/// Makes the list ready. Called once, before everything else.
pub(crate) fn prepare() {
    // SAFETY: called once, by the module's start.
    unsafe { FLAGS.init() };
}

/// Flags what is open at a descriptor, through this device.
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
    // SAFETY: both are valid; what is held is let go in `remove`.
    to_result(unsafe { glue::expedite_hold(file.0, &mut watch.hold) })?;
    core::mem::forget(thread);
    let often = if watch.hold.kind == KIND_FILE { OFTEN } else { RARELY };
    watch.next = flags.first;
    watch.entry.private = watch.hold.queue.cast();
    watch.entry.func = Some(expedite_arrived);
    let watch = KBox::into_raw(watch);
    flags.first = watch;
    // SAFETY: [I1] the queue is held, and the entry stays where it is until it is removed.
    unsafe { bindings::add_wait_queue_priority((*watch).hold.queue, &raw mut (*watch).entry) };
    drop(flags);
    state::with(|state| state.totals.flags = state.totals.flags.wrapping_add(1));
    glue::reap_in(often);
    Ok(())
}

/// The account of a flag with a cap of its own, and with this slice.
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

/// A thread that the caller may name.
fn find_thread(tid: i32) -> Result<TaskRef> {
    let task = glue::find_task(tid);
    if task.is_null() {
        return Err(ESRCH);
    }
    let task = TaskRef(task);
    // SAFETY: there is a reference to it.
    if unsafe { glue::expedite_may_name(task.0) } {
        Ok(task)
    } else {
        Err(EPERM)
    }
}

/// Does something with a thread that the caller may name.
///
/// # Errors
/// There is no such thread, or it is not the caller's.
pub(crate) fn with_thread<R>(
    tid: i32,
    work: impl FnOnce(*mut bindings::task_struct) -> Result<R>,
) -> Result<R> {
    let task = find_thread(tid)?;
    work(task.0)
}

/// Takes back the flag on what is open at a descriptor.
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

/// Takes away all flags that were set through a device.
pub(crate) fn device_closed(device: usize) {
    remove(|watch| watch.device == device);
}

/// Waits until something arrives, or is there, at what is flagged and open at a descriptor.
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
    glue::reap_in(OFTEN);
    let file = ManuallyDrop::new(file);
    // SAFETY: [I1] the flag, and so the queue, is valid as long as this is one of its sleepers. The reference is given up.
    let result = unsafe { glue::expedite_sleep(file.0, queue, ended, wait.timeout_ns) };
    let flags = FLAGS.lock();
    // SAFETY: [I1] as above.
    let watch_ref = unsafe { &*watch };
    let was_last = watch_ref.sleepers.fetch_sub(1, Ordering::Relaxed) == 1;
    if was_last && watch_ref.is_out.load(Ordering::Relaxed) {
        // SAFETY: [I1] it is out of the list, and this was the last to sleep there.
        unsafe { free(watch.cast_mut()) };
    }
    drop(flags);
    to_result(result)
}

/// Removes the flags that `done_with` names; returns how many. May sleep.
fn remove(mut done_with: impl FnMut(&Watch) -> bool) -> u64 {
    let mut flags = FLAGS.lock();
    let mut count: u64 = 0;
    let mut link: *mut *mut Watch = &mut flags.first;
    // SAFETY: `link` is the list or the link of a flag that stays; [I1] it leads to a flag, or null.
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
            // SAFETY: [I1] it is out of the list, and nobody sleeps there.
            unsafe { free(this) };
        } else {
            // SAFETY: [I1] the flag, and so the queue, is valid as long as somebody sleeps there: the lock is held.
            unsafe { glue::expedite_wake_sleepers(watch.hold.queue) };
        }
        count = count.wrapping_add(1);
    }
    drop(flags);
    state::with(|state| state.totals.flags = state.totals.flags.wrapping_sub(count));
    count
}

/// # Safety
/// The flag is out of the list and of its queue, and nobody sleeps there.
unsafe fn free(watch: *mut Watch) {
    // SAFETY: [I2] nobody comes to the flag any more.
    let mut watch = unsafe { KBox::from_raw(watch) };
    // SAFETY: the thread came with a reference, which is given back once, here.
    unsafe { glue::expedite_put_task(watch.thread) };
    // SAFETY: what is held is let go once, here.
    unsafe { glue::expedite_let_go(&mut watch.hold) };
}

/// Looks for flags on what has been closed, and for threads that are gone; returns when to look again, in milliseconds.
#[no_mangle]
pub(crate) extern "C" fn expedite_reap() -> c_uint {
    // SAFETY: [I1] the hold is valid.
    let is_closed = |watch: &Watch| unsafe { glue::expedite_is_closed(&watch.hold) };
    let mut again = 0;
    remove(|watch| {
        let closed = watch.ended.load(Ordering::Relaxed) || is_closed(watch);
        if !closed {
            let has_sleepers = watch.sleepers.load(Ordering::Relaxed) > 0;
            let often = watch.hold.kind == KIND_FILE || has_sleepers || again == OFTEN;
            again = if often { OFTEN } else { RARELY };
        }
        closed
    });
    threads::forget_idle();
    let known =
        state::with(|state| state.threads.count().saturating_add(state.accounts.count())).unwrap_or(0);
    if again == 0 && known > 0 {
        RARELY
    } else {
        again
    }
}

/// Something has arrived on a flagged queue, and nobody was woken yet.
///
/// # Safety
/// Called by the queue that a flag's entry is in, under its lock.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_arrived(
    entry: *mut bindings::wait_queue_entry,
    _mode: c_uint,
    _flags: c_int,
    key: *mut c_void,
) -> c_int {
    // What is not said can be anything.
    let events = key.addr() as u32;
    if events != 0 && events & ARRIVAL == 0 {
        return 0;
    }
    // SAFETY: only flags have such entries.
    let watch = unsafe { &*kernel::container_of!(entry, Watch, entry) };
    if watch.hold.kind == KIND_EVENTFD && events & bindings::POLLHUP != 0 {
        watch.ended.store(true, Ordering::Relaxed);
    }
    let mut found = [Waiter::NOBODY; WAITERS];
    let mut untold = false;
    // SAFETY: the lock of the queue is held, and `found` has room for so many.
    let count =
        unsafe { glue::expedite_waiters(entry, key, found.as_mut_ptr(), WAITERS as c_int, &mut untold) };
    let mut count = usize::try_from(count).unwrap_or(0);
    if count == 0 && untold {
        let [first, ..] = &mut found;
        // SAFETY: [I1] the flag's thread is valid while the flag is in the queue.
        unsafe { glue::expedite_glance(watch.thread, first) };
        first.way = BY_NAME;
        count = 1;
    }
    if count == 0 {
        return 0;
    }
    let account = watch.account.as_ref();
    let source = Source { slice: watch.slice, account, now: Nanos(glue::clock()) };
    for waiter in found.iter().take(count) {
        // SAFETY: the lock of the queue is held, and so the task is valid.
        unsafe { threads::arrived(waiter, &source) };
    }
    0
}
