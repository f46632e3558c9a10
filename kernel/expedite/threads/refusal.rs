// SPDX-License-Identifier: GPL-2.0
//! Denials that hold until a known time, so that arrivals before that time are denied without the lock.
//!
//! A budget that is too low stays too low until an epoch begins that refills it, because until then charges can only lower
//! it. A thread that was denied for that reason is denied again, and the module only counts the arrival.
//!
//! # Invariants
//! 1. A denial is written under the lock of the state and may be read without it. The sequence is odd while it is written.
//! 2. A reader holds the lock of a wait queue, so the thread, which is freed after an RCU grace period, is valid.

use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use crate::abi::Counts;
use crate::glue::{Waiter, WAYS};
use crate::policy::time::Nanos;

/// The owner of the budget that was too low.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum LowBudget {
    Thread = 0,
    /// The user of the thread, on its CPU.
    User = 1,
    Cpu = 2,
    Flag = 3,
}

/// Number of budgets that can be too low.
const BUDGETS: usize = 4;

impl LowBudget {
    const ALL: [Self; BUDGETS] = [Self::Thread, Self::User, Self::Cpu, Self::Flag];

    /// Returns the counter of such denials.
    pub(crate) fn count(self, counts: &mut Counts) -> &mut u64 {
        match self {
            Self::Thread => &mut counts.denied_thread,
            Self::User => &mut counts.denied_user,
            Self::Cpu => &mut counts.denied_cpu,
            Self::Flag => &mut counts.denied_flag,
        }
    }
}

/// A denial and the time until which it holds.
pub(crate) struct Refusal {
    sequence: AtomicU32,
    low_budget: AtomicU32,
    /// User and CPU, for the two budgets that belong to them.
    place: AtomicU64,
    until: AtomicU64,
}

impl Refusal {
    pub(crate) const fn none() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            low_budget: AtomicU32::new(0),
            place: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Denies boosts until a time. Called under the lock of the state.
    pub(crate) fn set(&self, low_budget: LowBudget, (uid, cpu): (u32, u32), until: Nanos) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.low_budget.store(low_budget as u32, Ordering::Relaxed);
        self.place.store(place(uid, cpu), Ordering::Relaxed);
        self.until.store(until.0, Ordering::Relaxed);
        // SYNC: publishes the refusal; pairs with the load in `holds`.
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Returns the owner of a budget that is known to be still too low for this thread.
    #[inline]
    pub(crate) fn holds(&self, waiter: &Waiter, now: Nanos) -> Option<LowBudget> {
        let before = self.sequence.load(Ordering::Acquire);
        let until = self.until.load(Ordering::Relaxed);
        if now.0 >= until {
            return None;
        }
        let low_budget = *LowBudget::ALL.get(self.low_budget.load(Ordering::Relaxed) as usize)?;
        let theirs = self.place.load(Ordering::Relaxed);
        // SYNC: the values are of one denial if the sequence has not changed; pairs with the fence in `set`.
        fence(Ordering::Acquire);
        if before & 1 != 0 || self.sequence.load(Ordering::Relaxed) != before {
            return None;
        }
        let applies = match low_budget {
            LowBudget::Thread | LowBudget::Flag => true,
            LowBudget::User => theirs == place(waiter.uid, waiter.cpu),
            LowBudget::Cpu => theirs as u32 == waiter.cpu,
        };
        applies.then_some(low_budget)
    }
}

fn place(uid: u32, cpu: u32) -> u64 {
    (u64::from(uid) << 32) | u64::from(cpu)
}

/// Counters of one thread that are changed without the lock.
pub(super) struct Tally {
    denied: [AtomicU64; BUDGETS],
    by_way: [AtomicU64; WAYS],
}

impl Tally {
    pub(super) const fn new() -> Self {
        Self { denied: [const { AtomicU64::new(0) }; BUDGETS], by_way: [const { AtomicU64::new(0) }; WAYS] }
    }

    /// Counts an arrival that was denied.
    #[inline]
    pub(super) fn count(&self, low_budget: LowBudget, way: usize) {
        if let (Some(denied), Some(by_way)) = (self.denied.get(low_budget as usize), self.by_way.get(way)) {
            denied.fetch_add(1, Ordering::Relaxed);
            by_way.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds the counters to those under the lock.
    pub(super) fn add_to(&self, counts: &mut Counts, by_way: Option<&mut [u64; WAYS]>) {
        self.each(counts, by_way, |count| count.load(Ordering::Relaxed));
    }

    /// Moves the counters to those under the lock. Called under the lock.
    pub(super) fn move_to(&self, counts: &mut Counts, by_way: &mut [u64; WAYS]) {
        self.each(counts, Some(by_way), |count| count.swap(0, Ordering::Relaxed));
    }

    fn each(&self, counts: &mut Counts, by_way: Option<&mut [u64; WAYS]>, take: impl Fn(&AtomicU64) -> u64) {
        for (low_budget, more) in LowBudget::ALL.iter().zip(&self.denied) {
            let more = take(more);
            counts.calls = counts.calls.wrapping_add(more);
            let count = low_budget.count(counts);
            *count = count.wrapping_add(more);
        }
        for (total, more) in by_way.into_iter().flatten().zip(&self.by_way) {
            *total = total.wrapping_add(take(more));
        }
    }
}
