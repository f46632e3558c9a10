// SPDX-License-Identifier: GPL-2.0
//! Counters of arrivals that led to no boost. They are changed without the lock of the state.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{Counts, Totals, WAYS};

/// Why an arrival led to no boost.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// A budget was too low: that of the thread, of its user on its CPU, of the CPU, of the flag, or of the group.
    Thread = 0,
    User = 1,
    Cpu = 2,
    Flag = 3,
    Group = 4,
    /// Memory was short, or a table is full.
    Memory = 5,
    Running = 6,
    /// The thread was boosted already.
    Boosted = 7,
    Realtime = 8,
    /// A CPU on which the thread may run was idle.
    Idle = 9,
    /// The thread is to run after others.
    Behind = 10,
    /// The thread waits for a lock with priority inheritance.
    Locked = 11,
}

const REASONS: usize = 12;

impl Reason {
    const ALL: [Self; REASONS] = [
        Self::Thread,
        Self::User,
        Self::Cpu,
        Self::Flag,
        Self::Group,
        Self::Memory,
        Self::Running,
        Self::Boosted,
        Self::Realtime,
        Self::Idle,
        Self::Behind,
        Self::Locked,
    ];

    /// Returns the reason with a number.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Returns the counter of such arrivals.
    fn count(self, counts: &mut Counts) -> &mut u64 {
        match self {
            Self::Thread => &mut counts.denied_thread,
            Self::User => &mut counts.denied_user,
            Self::Cpu => &mut counts.denied_cpu,
            Self::Flag => &mut counts.denied_flag,
            Self::Group => &mut counts.denied_group,
            Self::Memory => &mut counts.denied_memory,
            Self::Running => &mut counts.running,
            Self::Boosted => &mut counts.boosted,
            Self::Realtime => &mut counts.realtime,
            Self::Idle => &mut counts.idle,
            Self::Behind => &mut counts.behind,
            Self::Locked => &mut counts.locked,
        }
    }
}

/// Arrivals for one thread, or for threads that are not stored.
pub(super) struct Tally {
    reasons: [AtomicU64; REASONS],
    by_way: [AtomicU64; WAYS],
}

impl Tally {
    pub(super) const fn new() -> Self {
        Self {
            reasons: [const { AtomicU64::new(0) }; REASONS],
            by_way: [const { AtomicU64::new(0) }; WAYS],
        }
    }

    /// Counts an arrival that led to no boost.
    #[inline]
    pub(super) fn count(&self, reason: Reason, way: u32) {
        if let Some(count) = self.reasons.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.count_way(way);
    }

    /// Counts the way in which a thread waits.
    #[inline]
    pub(super) fn count_way(&self, way: u32) {
        if let Some(count) = self.by_way.get(way as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds the arrivals that led to no boost.
    pub(super) fn add_to(&self, counts: &mut Counts) {
        add(&self.reasons, counts, |count| count.load(Ordering::Relaxed));
    }

    /// Adds all counters.
    pub(super) fn add_to_totals(&self, totals: &mut Totals) {
        self.add_to(&mut totals.counts);
        for (total, more) in totals.by_way.iter_mut().zip(&self.by_way) {
            *total = total.wrapping_add(more.load(Ordering::Relaxed));
        }
    }

    /// Moves all counters.
    pub(super) fn move_to(&self, totals: &mut Totals) {
        add(&self.reasons, &mut totals.counts, |count| count.swap(0, Ordering::Relaxed));
        for (total, more) in totals.by_way.iter_mut().zip(&self.by_way) {
            *total = total.wrapping_add(more.swap(0, Ordering::Relaxed));
        }
    }
}

fn add(reasons: &[AtomicU64; REASONS], counts: &mut Counts, take: impl Fn(&AtomicU64) -> u64) {
    for (reason, more) in Reason::ALL.iter().zip(reasons) {
        let more = take(more);
        counts.calls = counts.calls.wrapping_add(more);
        let count = reason.count(counts);
        *count = count.wrapping_add(more);
    }
}
