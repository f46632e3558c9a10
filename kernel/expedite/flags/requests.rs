// SPDX-License-Identifier: GPL-2.0
//! Requests of devices about flags. The invariants are those of flags.rs.

use core::mem::ManuallyDrop;
use core::ptr::from_ref;

use kernel::bindings;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{choose, free, DeviceFlags, Flag, Hook, FLAGS, LONG_PERIOD, PLACE, SHORT_PERIOD};
use crate::abi::{Flag as FlagRequest, Wait, FLAGS_MAX, SLEEPERS_ONLY};
use crate::accounts::FlagAccount;
use crate::glue::{self, Hold, KIND_FILE};
use crate::links;
use crate::policy::budget::{self, Budget, Cap};
use crate::policy::caps;
use crate::policy::share::Share;
use crate::policy::time::Nanos;
use crate::state;

/// Minimum slice of a flag: a shorter one is rounded up. Its timer must not expire much more often than boosts cost.
const MIN_SLICE: Nanos = Nanos::from_micros(10);

/// `-EOPNOTSUPP`.
const CANNOT_BE_FLAGGED: c_int = -(bindings::EOPNOTSUPP as c_int);

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
    let mut hook = KBox::new(Hook::new(), GFP_KERNEL_ACCOUNT)?;
    let mut flag = KBox::new(
        Flag {
            slice,
            percent: request.percent,
            sleepers_only: request.options == SLEEPERS_ONLY,
            account,
            ..Flag::new(from_ref(device), thread.0)
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
    // Under the lock, so that it comes before the subtraction of another thread that removes the flag.
    state::with(|state| state.flags = state.flags.saturating_add(1));
    drop(flags);
    glue::reap_in(if identity.kind == KIND_FILE { SHORT_PERIOD } else { LONG_PERIOD });
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
pub(super) struct TaskRef(pub(super) *mut bindings::task_struct);

impl Drop for TaskRef {
    fn drop(&mut self) {
        // SAFETY: the reference is that of `find_thread`.
        unsafe { glue::expedite_put_task(self.0) };
    }
}

/// Returns a thread that the caller may name.
pub(super) fn find_thread(tid: i32) -> Result<TaskRef> {
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
