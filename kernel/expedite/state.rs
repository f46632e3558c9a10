// SPDX-License-Identifier: GPL-2.0
//! What is known of all boosts, under one lock: threads, accounts, counters.
//!
//! The lock is taken with interrupts off, inside of the locks of wait queues, and nothing is called under it that takes
//! another one. What it protects is a few hundred nanoseconds of arithmetic for each arrival on a flagged descriptor that
//! leads to a boost, or to a new reason for having none.
//!
//! # Invariants
//! 1. The state is reached through [`with`] only, and so by one processor at a time.

use core::cell::UnsafeCell;

use crate::abi::Counts;
use crate::accounts::Accounting;
use crate::glue::{self, WAYS};
use crate::policy::boost::Terms;
use crate::threads::Table;

/// Everything that changes when something arrives.
pub(crate) struct State {
    /// What boosts may cost.
    pub(crate) terms: Terms,
    pub(crate) threads: Table,
    pub(crate) accounts: Accounting,
    pub(crate) totals: Totals,
}

/// Counters over all threads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) counts: Counts,
    /// Waiters by the way in which they wait; the last are those that a flag names.
    pub(crate) told: [u64; WAYS],
    pub(crate) flags: u64,
}

struct Shared(UnsafeCell<Option<State>>);

// SAFETY: [I1] it is reached under the lock only.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(None));

/// Does something with the state, alone; nothing before the module is there.
pub(crate) fn with<R>(work: impl FnOnce(&mut State) -> R) -> Option<R> {
    // SAFETY: taken here, given back below, and `work` does not call this function: it gets no way to.
    let flags = unsafe { glue::expedite_lock() };
    // SAFETY: [I1] the lock is held.
    let state = unsafe { &mut *SHARED.0.get() };
    let result = state.as_mut().map(work);
    // SAFETY: `flags` are those of the lock taken above.
    unsafe { glue::expedite_unlock(flags) };
    result
}

/// Begins with a state, or ends with none; returns what was there.
pub(crate) fn replace(new: Option<State>) -> Option<State> {
    // SAFETY: as in `with`.
    let flags = unsafe { glue::expedite_lock() };
    // SAFETY: [I1] the lock is held.
    let old = unsafe { core::mem::replace(&mut *SHARED.0.get(), new) };
    // SAFETY: `flags` are those of the lock taken above.
    unsafe { glue::expedite_unlock(flags) };
    old
}
