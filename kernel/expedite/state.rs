// SPDX-License-Identifier: GPL-2.0
//! State of all boosts, under one lock: threads, accounts, counters.
//!
//! The lock is taken with interrupts off, inside the locks of wait queues. No other lock is taken under it. It is held for
//! a few hundred nanoseconds of arithmetic for each arrival on a flagged descriptor that leads to a boost or to a new
//! denial.
//!
//! # Invariants
//! 1. The state is accessed through [`with`] only, and so by one CPU at a time.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use kernel::prelude::*;

use crate::abi::{Caps, Totals};
use crate::accounts::Accounting;
use crate::glue;
use crate::policy::boost::Terms;
use crate::policy::time::Nanos;
use crate::threads::Table;

/// State that changes when something arrives.
pub(crate) struct State {
    /// Limits of boosts.
    pub(crate) terms: Terms,
    pub(crate) threads: Table,
    pub(crate) accounts: Accounting,
    /// Counters of boosts, and of what ended threads have counted.
    pub(crate) totals: Totals,
    /// Number of flags.
    pub(crate) flags: u64,
    /// The parameters that the limits are from.
    pub(crate) caps: Caps,
}

impl State {
    /// Returns the state of a module that was never used.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(terms: Terms, now: Nanos) -> Result<KBox<Self>> {
        let accounts = Accounting::new(&terms.caps, glue::cpus(), now)?;
        let (threads, totals, caps) = (Table::new(), Totals::default(), Caps::default());
        let state = Self { terms, threads, accounts, totals, flags: 0, caps };
        Ok(KBox::new(state, GFP_KERNEL)?)
    }
}

struct Shared(UnsafeCell<Option<KBox<State>>>);

// SAFETY: [I1] it is accessed under the lock only.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(None));

/// The parameter `even_if_idle` is not set.
static ONLY_IF_BUSY: AtomicBool = AtomicBool::new(true);

/// Returns whether no thread is boosted while a CPU is idle on which it may run.
pub(crate) fn boosts_only_if_busy() -> bool {
    ONLY_IF_BUSY.load(Ordering::Relaxed)
}

pub(crate) fn set_only_if_busy(only_if_busy: bool) {
    ONLY_IF_BUSY.store(only_if_busy, Ordering::Relaxed);
}

/// Calls `work` with the state, under the lock. Returns `None` without a call while the module has no state.
pub(crate) fn with<R>(work: impl FnOnce(&mut State) -> R) -> Option<R> {
    // SAFETY: acquired here and released below, and `work` does not call this function.
    let flags = unsafe { glue::expedite_lock() };
    // SAFETY: [I1] the lock is held.
    let state = unsafe { &mut *SHARED.0.get() };
    let result = state.as_mut().map(|state| work(state));
    // SAFETY: `flags` are those of the lock taken above.
    unsafe { glue::expedite_unlock(flags) };
    result
}

/// Replaces the state and returns the old one. The module starts with a state and ends with `None`.
pub(crate) fn replace(new: Option<KBox<State>>) -> Option<KBox<State>> {
    // SAFETY: as in `with`.
    let flags = unsafe { glue::expedite_lock() };
    // SAFETY: [I1] the lock is held.
    let old = unsafe { core::mem::replace(&mut *SHARED.0.get(), new) };
    // SAFETY: `flags` are those of the lock taken above.
    unsafe { glue::expedite_unlock(flags) };
    old
}
