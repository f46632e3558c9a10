// SPDX-License-Identifier: GPL-2.0
//! Arrivals at flagged files, as waiters.c reports them. The invariants are those of flags.rs.

use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use kernel::bindings;

use super::Hook;
use crate::glue::{self, Waiter, KIND_EVENTFD};
use crate::policy::time::Nanos;
use crate::threads::{self, Source};

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

/// Notes that a thread waits in a queue with a hook, although nothing has arrived.
///
/// # Safety
/// The task is valid during the call, and a lock is held without which it cannot leave its wait.
#[no_mangle]
pub(crate) unsafe extern "C" fn expedite_noted(task: *mut bindings::task_struct) {
    // SAFETY: the caller guarantees this.
    unsafe { threads::noted(task) };
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
