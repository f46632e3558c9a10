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
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use kernel::bindings;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::abi::FLAGS_PER_FILE;
use crate::accounts::FlagAccount;
use crate::glue::{self, Hold};
use crate::links::{self, Link, Linked};
use crate::policy::time::Nanos;
use crate::state;

mod arrivals;
mod reaper;
mod requests;
mod trial;

pub(crate) use requests::{device_closed, find, set, take_back, wait, with_thread};
pub(crate) use trial::try_out;

/// Period of the reaper, in milliseconds, while a hook holds an open file or a thread sleeps at a flag: half of the time within
/// which a connection must have ended.
const SHORT_PERIOD: u32 = 10;

/// Period of the reaper for other hooks and for threads, in milliseconds.
const LONG_PERIOD: u32 = 1_000;

/// Number of lists of hooks; the address of the held object selects one.
const BUCKETS: usize = 256;

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

impl Hook {
    /// Returns a hook that is in no queue.
    fn new() -> Self {
        Self {
            entry: bindings::wait_queue_entry::default(),
            hold: Hold::NONE,
            flags: [null_mut(); FLAGS_PER_FILE],
            best: null_mut(),
            users: 0,
            has_ended: AtomicBool::new(false),
            place: Link::none(),
            often: Link::none(),
        }
    }
}

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

impl Flag {
    /// Returns a flag without options, on no file.
    fn new(device: *const DeviceFlags, thread: *mut bindings::task_struct) -> Self {
        Self {
            hook: null_mut(),
            device,
            place: Link::none(),
            user: null_mut(),
            thread,
            slice: Nanos::ZERO,
            percent: 0,
            sleepers_only: false,
            account: None,
            has_ended: AtomicBool::new(false),
            sleepers: 0,
        }
    }
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
