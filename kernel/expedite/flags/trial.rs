// SPDX-License-Identifier: GPL-2.0
//! The trial when the module is loaded: the loading thread waits in a queue, a kernel thread announces an arrival there, and the waiting
//! thread must be boosted once and lowered. A kernel on which this fails gets no module.

use core::ptr::null;

use kernel::prelude::*;

use super::requests::find_thread;
use super::{choose, Flag, Hook};
use crate::glue::{self, Trial};
use crate::{state, threads};

/// Milliseconds after which the data arrives, in each attempt. It is too early if the thread does not sleep yet, which happens on a virtual
/// machine that stands still.
const ATTEMPTS: [u32; 5] = [1, 5, 20, 50, 100];

/// Boosts the calling thread once, with this state, which is then used up.
///
/// # Errors
/// `ENODEV`: it was not boosted, or not lowered. The kernel's log says which. `ENOMEM`.
pub(crate) fn try_out() -> Result {
    let task = find_thread(0)?;
    let mut flag = KBox::new(Flag::new(null(), task.0), GFP_KERNEL)?;
    let mut hook = KBox::new(Hook::new(), GFP_KERNEL)?;
    if let Some(place) = hook.flags.first_mut() {
        *place = &raw mut *flag;
    }
    // SAFETY: the hook is in no queue yet.
    unsafe { choose(&raw mut *hook) };
    let queue = glue::trial_queue();
    hook.entry.private = queue.cast();
    hook.entry.func = Some(glue::expedite_arrived);
    // SAFETY: queue and entry stay in place until the entry is removed below. The flag of the hook is valid until then.
    unsafe { glue::expedite_queue_add(queue, &raw mut hook.entry) };
    let mut result = Trial::NotBoosted;
    for ms in ATTEMPTS {
        result = attempt(ms);
        if result != Trial::NotBoosted {
            break;
        }
    }
    // SAFETY: as above.
    unsafe {
        let irqs = glue::expedite_queue_lock(queue);
        glue::expedite_queue_remove(queue, &raw mut hook.entry);
        glue::expedite_queue_unlock(queue, irqs);
    }
    match result {
        Trial::Fine => Ok(()),
        Trial::NotBoosted => {
            let totals = crate::engine::totals();
            let counts = &totals.counts;
            pr_err!(
                "the trial failed: a thread that waited was not boosted when data arrived; this kernel is not supported\n"
            );
            pr_err!(
                "counters: calls {} running {} realtime {} behind {} locked {} denied {} {} {} {}\n",
                counts.calls,
                counts.running,
                counts.realtime,
                counts.behind,
                counts.locked,
                counts.denied_thread,
                counts.denied_user,
                counts.denied_cpu,
                counts.denied_memory
            );
            Err(ENODEV)
        }
        Trial::NotLowered => {
            // SAFETY: `task` holds a reference, and no flag is left by which the thread could be boosted again.
            unsafe { threads::give_up(task.0) };
            pr_err!("the trial failed: a boosted thread did not return to its class; this kernel is not supported\n");
            Err(ENODEV)
        }
    }
}

fn attempt(ms: u32) -> Trial {
    let boosts = || {
        let count = |state: &mut state::State| state.totals.counts.direct.wrapping_add(state.totals.counts.worker);
        state::with(count).unwrap_or(0)
    };
    let before = boosts();
    let is_raised = glue::trial_wait(ms);
    if boosts() == before || !is_raised {
        Trial::NotBoosted
    } else if glue::trial_is_lowered() {
        Trial::Fine
    } else {
        Trial::NotLowered
    }
}
