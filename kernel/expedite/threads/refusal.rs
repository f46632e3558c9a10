// SPDX-License-Identifier: GPL-2.0
//! Refusals that hold until a known time, so that the next arrival before then is answered without the lock.
//!
//! A budget that is too low stays too low until an epoch begins that fills it: until then charges can only make it lower.
//! Who was refused for that is refused again, and all that remains to be done is to count.
//!
//! # Invariants
//! 1. A refusal is written under the lock of the state, and read by anybody; the sequence is odd while it is written.
//! 2. Whoever reads is under the lock of a wait queue, so the thread, which is freed after a grace period of RCU, is valid.

use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use crate::abi::Counts;
use crate::glue::{Waiter, WAYS};
use crate::policy::time::Nanos;

/// Whose budget was too low.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Poor {
    Thread = 0,
    /// The user of the thread, on its processor.
    User = 1,
    Processor = 2,
    Flag = 3,
}

/// How many budgets there are that can be too low.
const PURSES: usize = 4;

impl Poor {
    const ALL: [Self; PURSES] = [Self::Thread, Self::User, Self::Processor, Self::Flag];

    /// Where it is counted.
    pub(crate) fn count(self, counts: &mut Counts) -> &mut u64 {
        match self {
            Self::Thread => &mut counts.denied_thread,
            Self::User => &mut counts.denied_user,
            Self::Processor => &mut counts.denied_cpu,
            Self::Flag => &mut counts.denied_flag,
        }
    }
}

/// Who is refused until when.
pub(crate) struct Refusal {
    sequence: AtomicU32,
    poor: AtomicU32,
    /// User and processor, to whom those two budgets belong.
    place: AtomicU64,
    until: AtomicU64,
}

impl Refusal {
    pub(crate) const fn none() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            poor: AtomicU32::new(0),
            place: AtomicU64::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Refuses until then. Called under the lock of the state.
    pub(crate) fn set(&self, poor: Poor, (uid, cpu): (u32, u32), until: Nanos) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.poor.store(poor as u32, Ordering::Relaxed);
        self.place.store(place(uid, cpu), Ordering::Relaxed);
        self.until.store(until.0, Ordering::Relaxed);
        // SYNC: publishes the refusal; pairs with the load in `holds`.
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Whose budget is still too low for this thread, if that is known.
    #[inline]
    pub(crate) fn holds(&self, waiter: &Waiter, now: Nanos) -> Option<Poor> {
        let before = self.sequence.load(Ordering::Acquire);
        let until = self.until.load(Ordering::Relaxed);
        if now.0 >= until {
            return None;
        }
        let poor = *Poor::ALL.get(self.poor.load(Ordering::Relaxed) as usize)?;
        let theirs = self.place.load(Ordering::Relaxed);
        // SYNC: what was read is one refusal if the sequence is what it was; pairs with the fence in `set`.
        fence(Ordering::Acquire);
        if before & 1 != 0 || self.sequence.load(Ordering::Relaxed) != before {
            return None;
        }
        let is_meant = match poor {
            Poor::Thread | Poor::Flag => true,
            Poor::User => theirs == place(waiter.uid, waiter.cpu),
            Poor::Processor => theirs as u32 == waiter.cpu,
        };
        is_meant.then_some(poor)
    }
}

fn place(uid: u32, cpu: u32) -> u64 {
    (u64::from(uid) << 32) | u64::from(cpu)
}

/// What was counted of one thread without the lock.
pub(super) struct Tally {
    denied: [AtomicU64; PURSES],
    told: [AtomicU64; WAYS],
}

impl Tally {
    pub(super) const fn new() -> Self {
        Self { denied: [const { AtomicU64::new(0) }; PURSES], told: [const { AtomicU64::new(0) }; WAYS] }
    }

    /// One more arrival that was refused.
    #[inline]
    pub(super) fn count(&self, poor: Poor, way: usize) {
        if let (Some(denied), Some(told)) = (self.denied.get(poor as usize), self.told.get(way)) {
            denied.fetch_add(1, Ordering::Relaxed);
            told.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds all of it to what was counted under the lock.
    pub(super) fn add_to(&self, counts: &mut Counts, told: Option<&mut [u64; WAYS]>) {
        self.each(counts, told, |count| count.load(Ordering::Relaxed));
    }

    /// Moves all of it there. Called under the lock.
    pub(super) fn move_to(&self, counts: &mut Counts, told: &mut [u64; WAYS]) {
        self.each(counts, Some(told), |count| count.swap(0, Ordering::Relaxed));
    }

    fn each(&self, counts: &mut Counts, told: Option<&mut [u64; WAYS]>, take: impl Fn(&AtomicU64) -> u64) {
        for (poor, more) in Poor::ALL.iter().zip(&self.denied) {
            let more = take(more);
            counts.calls = counts.calls.wrapping_add(more);
            let count = poor.count(counts);
            *count = count.wrapping_add(more);
        }
        for (total, more) in told.into_iter().flatten().zip(&self.told) {
            *total = total.wrapping_add(take(more));
        }
    }
}
