// SPDX-License-Identifier: GPL-2.0
//! Removal of flags on closed files. The invariants are those of flags.rs.

use core::sync::atomic::Ordering;

use kernel::ffi::c_uint;

use super::{Flags, Hook, BUCKETS, FLAGS, LONG_PERIOD, OFTEN, SHORT_PERIOD};
use crate::glue::{self, KIND_FILE};
use crate::links;
use crate::policy::time::Nanos;
use crate::{state, threads};

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
