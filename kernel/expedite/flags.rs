// SPDX-License-Identifier: GPL-2.0
//! Flags on open files. The first flag on a file puts a hook at the head of its wait queue, which the kernel calls before it
//! wakes any thread; further flags, through other devices, share the hook. So an arrival costs the same however many there are.
//!
//! A hook holds the memory that contains the queue, and not the open file where possible (descriptors.c). So the flagged
//! file closes when its owner closes it, and its flags are removed some time later. A flag also ends with the device through
//! which it was set.
//!
//! # Invariants
//! 1. All lists, hooks and flags are changed under the lock of [`FLAGS`]. The parts of a hook that [`expedite_found`] reads are
//!    changed under the lock of its queue as well.
//! 2. A hook in a list is valid, is in the queue that it holds, and has a flag. A flag of a hook is valid.
//! 3. A removed flag is valid as long as threads sleep there, and a removed hook as long as one of its flags is. So the queue
//!    stays in place for these threads; the last of them frees it.
//! 4. After a hook or a flag was removed under the lock of the queue, [`expedite_found`] does not reach it.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};

use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_uint, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::abi::{Flag as FlagRequest, Wait, FLAGS_MAX, FLAGS_PER_FILE, SLEEPERS_ONLY};
use crate::accounts::FlagAccount;
use crate::glue::{self, Hold, Waiter, KIND_EVENTFD, KIND_FILE};
use crate::links::{self, Link, Linked};
use crate::policy::budget::{self, Budget, Cap};
use crate::policy::caps;
use crate::policy::share::Share;
use crate::policy::time::Nanos;
use crate::state;
use crate::threads::{self, Source};

/// Period of the reaper, in milliseconds, while a hook holds an open file or a thread sleeps at a flag: half of the time within
/// which a connection must have ended.
const SHORT_PERIOD: u32 = 10;

/// Period of the reaper for other hooks and for threads, in milliseconds.
const LONG_PERIOD: u32 = 1_000;

/// Minimum slice of a flag: a shorter one is rounded up. Its timer must not expire much more often than boosts cost.
const MIN_SLICE: Nanos = Nanos::from_micros(10);

/// Number of lists of hooks; the address of the held object selects one.
const BUCKETS: usize = 256;

/// `-EOPNOTSUPP`.
const CANNOT_BE_FLAGGED: c_int = -(bindings::EOPNOTSUPP as c_int);

/// The hook in the queue of a flagged file.
struct Hook {
    entry: bindings::wait_queue_entry,
    hold: Hold,
    /// The flags on the file, in no order.
    flags: [*mut Flag; FLAGS_PER_FILE],
    /// The flag with the loosest terms, which counts; null if there is no flag.
    best: *mut Flag,
    /// Flags and removed flags that point here.
    users: u32,
    /// An eventfd reported that its last descriptor was closed.
    has_ended: AtomicBool,
    /// Place in the list of its bucket.
    place: Link<Hook>,
    /// Place in the list of the hooks that the reaper checks often.
    often: Link<Hook>,
}

const PLACE: usize = 0;
const OFTEN: usize = 1;

impl Linked<PLACE> for Hook {
    unsafe fn link(this: *mut Self) -> *mut Link<Self> {
        // SAFETY: the caller guarantees that the hook is valid.
        unsafe { &raw mut (*this).place }
    }
}

impl Linked<OFTEN> for Hook {
    unsafe fn link(this: *mut Self) -> *mut Link<Self> {
        // SAFETY: the caller guarantees that the hook is valid.
        unsafe { &raw mut (*this).often }
    }
}

/// A flag on a file, through one device.
struct Flag {
    hook: *mut Hook,
    /// The device through which it was set; it outlives its flags.
    device: *const DeviceFlags,
    /// Place in the list of the device.
    place: Link<Flag>,
    /// The user whose flags it counts among.
    user: *mut User,
    /// The thread to boost if no waiting thread is recognised.
    thread: *mut bindings::task_struct,
    slice: Nanos,
    percent: u32,
    sleepers_only: bool,
    /// The account of a flag with a cap of its own.
    account: Option<Arc<FlagAccount>>,
    /// The flag has ended: it was removed, or an eventfd reported that its last descriptor was closed.
    has_ended: AtomicBool,
    /// Number of threads that wait through the device.
    sleepers: u32,
}

impl Linked<PLACE> for Flag {
    unsafe fn link(this: *mut Self) -> *mut Link<Self> {
        // SAFETY: the caller guarantees that the flag is valid.
        unsafe { &raw mut (*this).place }
    }
}

/// A user with flags.
struct User {
    uid: u32,
    flags: u32,
    place: Link<User>,
}

impl Linked<PLACE> for User {
    unsafe fn link(this: *mut Self) -> *mut Link<Self> {
        // SAFETY: the caller guarantees that the user is valid.
        unsafe { &raw mut (*this).place }
    }
}

/// All flags.
struct Flags {
    hooks: [*mut Hook; BUCKETS],
    often: *mut Hook,
    users: *mut User,
    /// Maximum number of flags of one user.
    max_per_user: u32,
    /// Time of the last check of all hooks.
    checked_all: Nanos,
}

// SAFETY: this exclusively owns the objects behind the pointers.
unsafe impl Send for Flags {}

kernel::sync::global_lock! {
    // SAFETY: `prepare` is called once, before all other functions of this file.
    unsafe(uninit) static FLAGS: Mutex<Flags> = Flags {
        hooks: [null_mut(); BUCKETS],
        often: null_mut(),
        users: null_mut(),
        max_per_user: 0,
        checked_all: Nanos::ZERO,
    };
}

/// The flags that were set through one open device.
pub(crate) struct DeviceFlags {
    first: UnsafeCell<*mut Flag>,
    count: UnsafeCell<u32>,
}

// SAFETY: [I1] both are accessed under the lock of `FLAGS`.
unsafe impl Send for DeviceFlags {}
// SAFETY: [I1] as above.
unsafe impl Sync for DeviceFlags {}

impl DeviceFlags {
    pub(crate) const fn new() -> Self {
        Self { first: UnsafeCell::new(null_mut()), count: UnsafeCell::new(0) }
    }
}

/// A reference to an open file.
struct OpenFile(*mut bindings::file);

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

    /// Returns kind and object of the file; `None` if it cannot be flagged.
    fn identity(&self) -> Option<Hold> {
        let mut hold = Hold::NONE;
        // SAFETY: both are valid.
        unsafe { glue::expedite_identify(self.0, &mut hold) }.then_some(hold)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: the reference is that of `get`.
        unsafe { bindings::fput(self.0) };
    }
}

impl Flags {
    fn bucket(&mut self, object: *mut c_void) -> Option<*mut *mut Hook> {
        // Objects are aligned to 64 bytes or more, mostly.
        let at = (object.addr() >> 6 ^ object.addr() >> 14) % BUCKETS;
        self.hooks.get_mut(at).map(|first| &raw mut *first)
    }

    /// Returns the hook of a file, or null.
    fn find(&mut self, file: &Hold) -> *mut Hook {
        // SAFETY: the bucket is borrowed from the array.
        let mut at = self.bucket(file.object).map_or(null_mut(), |bucket| unsafe { *bucket });
        // SAFETY: [I2] each element of the list is a hook.
        while let Some(hook) = unsafe { at.as_ref() } {
            if hook.hold.object == file.object && hook.hold.kind == file.kind {
                break;
            }
            at = hook.place.next();
        }
        at
    }

    /// Returns the flag on a file through a device, or null.
    fn find_flag(&mut self, file: &Hold, device: *const DeviceFlags) -> *mut Flag {
        // SAFETY: [I2] it is a hook, or null.
        let Some(hook) = (unsafe { self.find(file).as_ref() }) else { return null_mut() };
        // SAFETY: [I2] the flags of a hook are valid.
        let is_it = |flag: &&*mut Flag| unsafe { flag.as_ref() }.is_some_and(|flag| flag.device == device);
        hook.flags.iter().find(is_it).copied().unwrap_or(null_mut())
    }

    /// Counts one more flag of a user. Returns the user.
    ///
    /// # Errors
    /// `ENOSPC`: the user has the maximum. `ENOMEM`.
    fn count_for(&mut self, uid: u32) -> Result<*mut User> {
        let mut at = self.users;
        // SAFETY: each element of the list is a user.
        while let Some(user) = unsafe { at.as_mut() } {
            if user.uid == uid {
                if user.flags >= self.max_per_user {
                    return Err(ENOSPC);
                }
                user.flags = user.flags.saturating_add(1);
                return Ok(at);
            }
            at = user.place.next();
        }
        let user = KBox::into_raw(KBox::new(User { uid, flags: 1, place: Link::none() }, GFP_KERNEL_ACCOUNT)?);
        // SAFETY: the user is new.
        unsafe { links::insert::<_, PLACE>(&raw mut self.users, user) };
        Ok(user)
    }

    /// Counts one flag of a user less.
    ///
    /// # Safety
    /// The user is one that [`count_for`](Self::count_for) has returned, once for each call.
    unsafe fn uncount(&mut self, user: *mut User) {
        // SAFETY: the caller guarantees that the user is valid.
        let left = unsafe {
            (*user).flags = (*user).flags.saturating_sub(1);
            (*user).flags
        };
        if left == 0 {
            // SAFETY: no flag points to the user any more.
            unsafe { links::remove::<_, PLACE>(user) };
            // SAFETY: as above; the user came from a box.
            drop(unsafe { KBox::from_raw(user) });
        }
    }

    /// Makes the reaper check a hook often, from now on.
    ///
    /// # Safety
    /// The hook is valid.
    unsafe fn check_often(&mut self, hook: *mut Hook) {
        // SAFETY: the caller guarantees that the hook is valid.
        if unsafe { !(*hook).often.is_linked() } {
            // SAFETY: as above.
            unsafe { links::insert::<_, OFTEN>(&raw mut self.often, hook) };
        }
    }

    /// Removes a flag from its hook, its device and its user, and the hook with its last flag. Frees what nobody uses.
    ///
    /// # Safety
    /// The flag is one of a hook. It is not used after the call.
    unsafe fn remove(&mut self, flag: *mut Flag, device: &DeviceFlags) {
        // SAFETY: the caller guarantees that the flag is valid, and [I3] so is its hook.
        unsafe {
            let hook = (*flag).hook;
            let queue = (*hook).hold.queue;
            let irqs = glue::expedite_queue_lock(queue);
            for place in &mut (*hook).flags {
                if *place == flag {
                    *place = null_mut();
                }
            }
            choose(hook);
            let is_last = (*hook).best.is_null();
            if is_last {
                glue::expedite_queue_remove(queue, &raw mut (*hook).entry);
            }
            glue::expedite_queue_unlock(queue, irqs);
            if is_last {
                links::remove::<_, PLACE>(hook);
                links::remove::<_, OFTEN>(hook);
            }
            links::remove::<_, PLACE>(flag);
            *device.count.get() = (*device.count.get()).saturating_sub(1);
            self.uncount((*flag).user);
            (*flag).has_ended.store(true, Ordering::Relaxed);
            if (*flag).sleepers == 0 {
                free(flag);
            } else {
                glue::expedite_wake_sleepers(queue);
            }
        }
        state::with(|state| state.flags = state.flags.saturating_sub(1));
    }
}

/// Chooses the flag that counts: one that is not for sleepers only before the others, and of these the first without a cap of its
/// own, or else the one with the highest.
///
/// # Safety
/// The hook is valid, and the lock of its queue is held, or it is in no queue.
unsafe fn choose(hook: *mut Hook) {
    // SAFETY: the caller guarantees that the hook is valid.
    let hook = unsafe { &mut *hook };
    // SAFETY: [I2] the flags of a hook are valid.
    let looseness = |flag: *mut Flag| unsafe { flag.as_ref() }.map(|flag| match flag.percent {
        0 => (!flag.sleepers_only, u32::MAX),
        percent => (!flag.sleepers_only, percent),
    });
    let mut best = null_mut();
    for flag in hook.flags {
        if looseness(flag) > looseness(best) {
            best = flag;
        }
    }
    hook.best = best;
}

/// Frees a removed flag, and its hook with its last flag. May sleep.
///
/// # Safety
/// The flag was removed, and no thread sleeps there.
unsafe fn free(flag: *mut Flag) {
    // SAFETY: [I4] no thread accesses the flag any more, and [I3] its hook is valid.
    unsafe {
        let flag = KBox::from_raw(flag);
        glue::expedite_put_task(flag.thread);
        let hook = flag.hook;
        drop(flag);
        (*hook).users = (*hook).users.saturating_sub(1);
        if (*hook).users == 0 {
            let mut hook = KBox::from_raw(hook);
            glue::expedite_release(&mut hook.hold);
        }
    }
}

/// Initialises the lists. Called once, before all other functions.
pub(crate) fn prepare(max_per_user: u32) {
    // SAFETY: called once, when the module starts.
    unsafe { FLAGS.init() };
    FLAGS.lock().max_per_user = max_per_user;
}

/// Flags the open file of a descriptor, through this device.
///
/// # Errors
/// See expedite.h.
pub(crate) fn set(device: &DeviceFlags, request: &FlagRequest) -> Result {
    let request = request.checked()?;
    let file = OpenFile::get(request.fd)?;
    let thread = find_thread(request.tid)?;
    let slice = match request.slice_ns {
        0 => Nanos::ZERO,
        ns => Nanos(ns).max(MIN_SLICE),
    };
    let account = match request.percent {
        0 => None,
        percent => Some(own_account(percent, slice)?),
    };
    let identity = file.identity().ok_or(Error::from_errno(CANNOT_BE_FLAGGED))?;
    let uid = glue::caller();
    let mut hook = new_hook()?;
    let mut flag = KBox::new(
        Flag {
            hook: null_mut(),
            device: from_ref(device),
            place: Link::none(),
            user: null_mut(),
            thread: thread.0,
            slice,
            percent: request.percent,
            sleepers_only: request.options == SLEEPERS_ONLY,
            account,
            has_ended: AtomicBool::new(false),
            sleepers: 0,
        },
        GFP_KERNEL_ACCOUNT,
    )?;
    let mut flags = FLAGS.lock();
    if !flags.find_flag(&identity, from_ref(device)).is_null() {
        return Err(EEXIST);
    }
    let known = flags.find(&identity);
    // SAFETY: [I2] it is a hook, or null.
    let place = unsafe { known.as_ref() }.map_or(Some(0), |hook| hook.flags.iter().position(|it| it.is_null()));
    let place = place.ok_or(ENOSPC)?;
    // SAFETY: [I1] the lock is held.
    if unsafe { *device.count.get() } >= FLAGS_MAX {
        return Err(ENOSPC);
    }
    if known.is_null() {
        // SAFETY: both are valid; `free` releases the hold.
        to_result(unsafe { glue::expedite_hold(file.0, &mut hook.hold) })?;
    }
    flag.user = match flags.count_for(uid) {
        Ok(user) => user,
        Err(error) => {
            if known.is_null() {
                // SAFETY: the hold was taken above.
                unsafe { glue::expedite_release(&mut hook.hold) };
            }
            return Err(error);
        }
    };
    core::mem::forget(thread);
    let is_new = known.is_null();
    let hook = if is_new { KBox::into_raw(hook) } else { known };
    flag.hook = hook;
    let flag = KBox::into_raw(flag);
    // SAFETY: [I1] the lock is held. [I2] The hook is one in the lists, or is new; the flag is new.
    unsafe {
        let queue = (*hook).hold.queue;
        (*hook).users = (*hook).users.saturating_add(1);
        let irqs = glue::expedite_queue_lock(queue);
        if let Some(place) = (*hook).flags.get_mut(place) {
            *place = flag;
        }
        choose(hook);
        glue::expedite_queue_unlock(queue, irqs);
        links::insert::<_, PLACE>(device.first.get(), flag);
        *device.count.get() = (*device.count.get()).saturating_add(1);
        if is_new {
            (*hook).entry.private = queue.cast();
            (*hook).entry.func = Some(glue::expedite_arrived);
            if let Some(bucket) = flags.bucket((*hook).hold.object) {
                links::insert::<_, PLACE>(bucket, hook);
            }
            if (*hook).hold.kind == KIND_FILE {
                flags.check_often(hook);
            }
            // The entry does not move until it is removed.
            glue::expedite_queue_add(queue, &raw mut (*hook).entry);
        }
    }
    drop(flags);
    state::with(|state| state.flags = state.flags.saturating_add(1));
    glue::reap_in(if identity.kind == KIND_FILE { SHORT_PERIOD } else { LONG_PERIOD });
    Ok(())
}

fn new_hook() -> Result<KBox<Hook>> {
    let hook = Hook {
        entry: bindings::wait_queue_entry::default(),
        hold: Hold::NONE,
        flags: [null_mut(); FLAGS_PER_FILE],
        best: null_mut(),
        users: 0,
        has_ended: AtomicBool::new(false),
        place: Link::none(),
        often: Link::none(),
    };
    Ok(KBox::new(hook, GFP_KERNEL_ACCOUNT)?)
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
pub(crate) fn take_back(device: &DeviceFlags, fd: i32) -> Result {
    let file = OpenFile::get(fd)?;
    let identity = file.identity().ok_or(ENOENT)?;
    let mut flags = FLAGS.lock();
    let flag = flags.find_flag(&identity, from_ref(device));
    if flag.is_null() {
        return Err(ENOENT);
    }
    // SAFETY: it is a flag of a hook, through this device.
    unsafe { flags.remove(flag, device) };
    Ok(())
}

/// Checks that the open file of a descriptor is flagged through a device.
///
/// # Errors
/// See expedite.h.
pub(crate) fn find(device: &DeviceFlags, fd: i32) -> Result {
    let identity = OpenFile::get(fd)?.identity().ok_or(ENOENT)?;
    if FLAGS.lock().find_flag(&identity, from_ref(device)).is_null() {
        Err(ENOENT)
    } else {
        Ok(())
    }
}

/// Removes all flags that were set through a device.
pub(crate) fn device_closed(device: &DeviceFlags) {
    let mut flags = FLAGS.lock();
    // SAFETY: [I1] the lock is held; each element of the list is a flag.
    while let Some(flag) = unsafe { (*device.first.get()).as_mut() } {
        // SAFETY: as above.
        unsafe { flags.remove(flag, device) };
    }
}

/// Waits until data arrives, or is available, at the flagged file of a descriptor.
///
/// # Errors
/// See expedite.h.
pub(crate) fn wait(device: &DeviceFlags, wait: &Wait) -> Result {
    let wait = wait.checked()?;
    let file = OpenFile::get(wait.fd)?;
    let identity = file.identity().ok_or(ENOENT)?;
    let mut flags = FLAGS.lock();
    let flag = flags.find_flag(&identity, from_ref(device));
    // SAFETY: it is a flag, or null.
    let Some(found) = (unsafe { flag.as_mut() }) else { return Err(ENOENT) };
    found.sleepers = found.sleepers.saturating_add(1);
    let (hook, has_ended) = (found.hook, found.has_ended.as_ptr());
    // SAFETY: [I3] the flag's hook is valid.
    let queue = unsafe { (*hook).hold.queue };
    // SAFETY: as above.
    unsafe { flags.check_often(hook) };
    drop(flags);
    glue::reap_in(SHORT_PERIOD);
    let file = ManuallyDrop::new(file);
    // SAFETY: [I3] the flag, and so the queue, is valid as long as this thread is one of its sleepers. The callee drops the
    // reference to the file.
    let result = unsafe { glue::expedite_sleep(file.0, queue, has_ended, wait.timeout_ns) };
    let flags = FLAGS.lock();
    // SAFETY: [I3] as above, and [I1] the lock is held.
    unsafe {
        (*flag).sleepers = (*flag).sleepers.saturating_sub(1);
        // A removed flag is in no list.
        if (*flag).sleepers == 0 && !(*flag).place.is_linked() {
            free(flag);
        }
    }
    drop(flags);
    to_result(result)
}

/// Removes the flags on closed files, and threads and accounts that are idle. Returns the milliseconds until the next run, 0
/// for none.
#[no_mangle]
pub(crate) extern "C" fn expedite_reap() -> c_uint {
    let now = Nanos(glue::clock());
    let mut flags = FLAGS.lock();
    let mut at = flags.often;
    // SAFETY: [I2] each element of the list is a hook. The next one is read before this one may be freed.
    while let Some(hook) = unsafe { at.as_mut() } {
        let this = core::mem::replace(&mut at, hook.often.next());
        // SAFETY: [I2] it is a hook in the lists.
        if !unsafe { flags.reap(this) } && hook.hold.kind != KIND_FILE && !has_sleepers(hook) {
            // SAFETY: [I1] the lock is held.
            unsafe { links::remove::<_, OFTEN>(this) };
        }
    }
    let is_long_ago = now.since(flags.checked_all) >= Nanos::from_millis(u64::from(LONG_PERIOD));
    let mut has_hooks = false;
    for bucket in 0..BUCKETS {
        let Some(mut at) = flags.hooks.get(bucket).copied() else { break };
        has_hooks |= !at.is_null();
        while is_long_ago {
            // SAFETY: as above.
            let Some(hook) = (unsafe { at.as_mut() }) else { break };
            let this = core::mem::replace(&mut at, hook.place.next());
            // SAFETY: [I2] it is a hook in the lists.
            unsafe { flags.reap(this) };
        }
    }
    if is_long_ago {
        flags.checked_all = now;
    }
    let is_often = !flags.often.is_null();
    drop(flags);
    if is_long_ago {
        threads::forget_idle();
    }
    let known =
        state::with(|state| state.threads.count().saturating_add(state.accounts.count())).unwrap_or(0);
    match (is_often, has_hooks || known > 0) {
        (true, _) => SHORT_PERIOD,
        (false, true) => LONG_PERIOD,
        (false, false) => 0,
    }
}

fn has_sleepers(hook: &Hook) -> bool {
    // SAFETY: [I2] the flags of a hook are valid.
    hook.flags.iter().any(|flag| unsafe { flag.as_ref() }.is_some_and(|flag| flag.sleepers > 0))
}

impl Flags {
    /// Removes all flags on a file, if it is closed. Returns whether it is.
    ///
    /// # Safety
    /// The hook is in the lists. If the file is closed, the hook is not used after the call.
    unsafe fn reap(&mut self, hook: *mut Hook) -> bool {
        // SAFETY: the caller guarantees that the hook is valid.
        let (has_ended, all) = unsafe {
            let has_ended = (*hook).has_ended.load(Ordering::Relaxed);
            (has_ended || glue::expedite_is_closed(&raw const (*hook).hold), (*hook).flags)
        };
        if has_ended {
            for flag in all {
                // SAFETY: [I2] it is a flag, or null.
                if let Some(found) = unsafe { flag.as_ref() } {
                    // SAFETY: as above, and the device outlives its flags: it removes them when it is closed.
                    unsafe { self.remove(flag, &*found.device) };
                }
            }
        }
        has_ended
    }
}

/// Returns the hook of an entry.
///
/// # Safety
/// The entry is that of a hook in its queue, whose lock is held while the result is used.
unsafe fn hook_of<'a>(entry: *mut bindings::wait_queue_entry) -> &'a Hook {
    // SAFETY: the caller guarantees that the entry is a field of a valid hook.
    unsafe { &*kernel::container_of!(entry, Hook, entry) }
}

/// Result of an arrival that led to a boost: the number after those of the reasons for none (trace.h).
const BOOST: u32 = 12;

/// Decides about one of the threads that an arrival is about to wake. Returns the reason for no boost, or [`BOOST`].
///
/// # Safety
/// Called by `expedite_arrived` with a valid waiter, and the entry of a hook, under the lock of its queue.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_found(
    waiter: *const Waiter,
    entry: *mut bindings::wait_queue_entry,
) -> u32 {
    // SAFETY: the caller guarantees this. [I4] The flags of a hook in its queue are valid.
    let (waiter, flag) = unsafe { (&*waiter, hook_of(entry).best.as_ref()) };
    let Some(flag) = flag else { return BOOST };
    let source =
        Source {
            slice: flag.slice,
            account: flag.account.as_ref(),
            sleepers_only: flag.sleepers_only,
            now: Nanos(glue::clock()),
        };
    // SAFETY: as above.
    unsafe { threads::arrived(waiter, &source) }.map_or(BOOST, |reason| reason as u32)
}

/// Returns the thread that the flag names, or null.
///
/// # Safety
/// As for [`expedite_found`].
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_named(
    entry: *mut bindings::wait_queue_entry,
) -> *mut bindings::task_struct {
    // SAFETY: the caller guarantees this. [I4] The flags of a hook in its queue are valid.
    unsafe { hook_of(entry).best.as_ref() }.map_or(null_mut(), |flag| flag.thread)
}

/// Ends the flags of an eventfd: its last descriptor was closed.
///
/// # Safety
/// As for [`expedite_found`].
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_hung_up(entry: *mut bindings::wait_queue_entry) {
    // SAFETY: the caller guarantees this.
    let hook = unsafe { hook_of(entry) };
    if hook.hold.kind != KIND_EVENTFD {
        return;
    }
    hook.has_ended.store(true, Ordering::Relaxed);
    for flag in hook.flags {
        // SAFETY: [I4] the flags of a hook in its queue are valid.
        if let Some(flag) = unsafe { flag.as_ref() } {
            flag.has_ended.store(true, Ordering::Relaxed);
        }
    }
}
