// SPDX-License-Identifier: GPL-2.0
//! Denials that hold until a known time, so that arrivals before that time are denied without the lock.
//!
//! A budget that is too low stays too low until an epoch begins that refills it, because until then charges can only lower
//! it. A thread that was denied for that reason is denied again, and the module only counts the arrival.
//!
//! # Invariants
//! 1. A denial is written under the lock of the state and may be read without it. The sequence is odd while it is written.
//! 2. A reader holds the lock of a wait queue, so the thread, which is freed after an RCU grace period, is valid.

use core::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::tally::Reason;
use crate::glue::Waiter;
use crate::policy::time::Nanos;

/// A denial and the time until which it holds.
pub(crate) struct Refusal {
    sequence: AtomicU32,
    reason: AtomicU32,
    /// CPU, for the two budgets that belong to it.
    cpu: AtomicU32,
    /// Address of the thread's credentials, for the budget of its user: with the same ones it is the same user.
    cred: AtomicUsize,
    until: AtomicU64,
}

impl Refusal {
    pub(crate) const fn none() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            reason: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
            cred: AtomicUsize::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Denies boosts until a time, because a budget is too low. Called under the lock of the state.
    pub(crate) fn set(&self, reason: Reason, waiter: &Waiter, until: Nanos) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.reason.store(reason as u32, Ordering::Relaxed);
        self.cpu.store(waiter.cpu, Ordering::Relaxed);
        self.cred.store(waiter.cred.addr(), Ordering::Relaxed);
        self.until.store(until.0, Ordering::Relaxed);
        // SYNC: publishes the refusal; pairs with the load in `holds`.
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Returns the budget that is known to be still too low for this thread.
    #[inline]
    pub(crate) fn holds(&self, waiter: &Waiter, now: Nanos) -> Option<Reason> {
        let before = self.sequence.load(Ordering::Acquire);
        let until = self.until.load(Ordering::Relaxed);
        if now.0 >= until {
            return None;
        }
        let reason = Reason::from_number(self.reason.load(Ordering::Relaxed))?;
        let is_here = self.cpu.load(Ordering::Relaxed) == waiter.cpu;
        let is_same_user = self.cred.load(Ordering::Relaxed) == waiter.cred.addr();
        // SYNC: the values are of one denial if the sequence has not changed; pairs with the fence in `set`.
        fence(Ordering::Acquire);
        if before & 1 != 0 || self.sequence.load(Ordering::Relaxed) != before {
            return None;
        }
        let applies = match reason {
            Reason::User => is_here && is_same_user,
            Reason::Cpu => is_here,
            _ => true,
        };
        applies.then_some(reason)
    }
}
