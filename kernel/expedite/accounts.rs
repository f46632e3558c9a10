// SPDX-License-Identifier: GPL-2.0
//! Who pays for boosts besides the thread: its user on a processor, and the processor.
//!
//! What threads may still run, as they are boosted now, is set aside: a hundred threads that are woken together are
//! not granted one slice of the same account each. What they really ran is charged when each of them is dropped.
//!
//! # Invariants
//! 1. An account's pointer is valid while it is pinned, and an account in a bucket is valid.

use core::ptr::null_mut;

use kernel::prelude::*;

use crate::policy::budget::Budget;
use crate::policy::caps::{Accounts, Caps};
use crate::policy::time::Nanos;

/// Lists of accounts, by user and processor.
const BUCKETS: usize = 64;

/// Users times processors that are remembered at once; more are denied.
const MOST: u32 = 4096;

/// A user's account on a processor.
pub(crate) struct Account {
    uid: u32,
    cpu: u32,
    share: Share,
    pins: u32,
    next: *mut Account,
}

/// A budget, and what of it is set aside.
struct Share {
    budget: Budget,
    aside: Nanos,
}

impl Share {
    /// The budget as far as it can be given out.
    fn free(&self) -> Budget {
        self.budget.charged(self.aside)
    }
}

/// The accounts of all users and processors.
pub(crate) struct Accounting {
    users: [*mut Account; BUCKETS],
    count: u32,
    processors: KVec<Share>,
}

// SAFETY: the pointers lead to what this owns alone.
unsafe impl Send for Accounting {}

/// What a boosted thread has set aside, and where.
#[derive(Clone, Copy)]
pub(crate) struct Reservation {
    account: *mut Account,
    cpu: u32,
    amount: Nanos,
}

impl Reservation {
    /// The processor whose time was set aside.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }
}

impl Account {
    /// A fresh account. May be called where sleeping is not allowed.
    pub(crate) fn new(caps: &Caps, uid: u32, cpu: u32, now: Nanos) -> Result<KBox<Self>> {
        let share = Share { budget: Budget::new(&caps.user, now), aside: Nanos::ZERO };
        Ok(KBox::new(Self { uid, cpu, share, pins: 0, next: null_mut() }, GFP_ATOMIC)?)
    }
}

impl Accounting {
    pub(crate) fn new(caps: &Caps, processors: u32, now: Nanos) -> Result<Self> {
        let mut list = KVec::new();
        for _ in 0..processors {
            list.push(Share { budget: Budget::new(&caps.processor, now), aside: Nanos::ZERO }, GFP_KERNEL)?;
        }
        Ok(Self { users: [null_mut(); BUCKETS], count: 0, processors: list })
    }

    fn bucket(uid: u32, cpu: u32) -> usize {
        (uid.wrapping_mul(31).wrapping_add(cpu) as usize) % BUCKETS
    }

    /// Whether the user has an account on the processor.
    fn has(&self, uid: u32, cpu: u32) -> bool {
        !self.find(uid, cpu).is_null()
    }

    fn find(&self, uid: u32, cpu: u32) -> *mut Account {
        let mut at = self.users.get(Self::bucket(uid, cpu)).copied().unwrap_or(null_mut());
        // SAFETY: [I1] what a bucket leads to is an account, or null.
        while let Some(account) = unsafe { at.as_ref() } {
            if account.uid == uid && account.cpu == cpu {
                return at;
            }
            at = account.next;
        }
        null_mut()
    }

    /// Takes an account in, unless there are too many or the user has one.
    pub(crate) fn insert(&mut self, mut account: KBox<Account>) {
        if self.count >= MOST || self.has(account.uid, account.cpu) {
            return;
        }
        if let Some(bucket) = self.users.get_mut(Self::bucket(account.uid, account.cpu)) {
            account.next = *bucket;
            *bucket = KBox::into_raw(account);
            self.count = self.count.saturating_add(1);
        }
    }

    /// What the three accounts can give out to a thread; nothing if one of them is missing. Those of user and processor
    /// are brought up to date, so that no later arrival has to count all epochs since the last boost.
    pub(crate) fn free(
        &mut self,
        caps: &Caps,
        thread: Budget,
        (uid, cpu): (u32, u32),
        now: Nanos,
    ) -> Option<Accounts> {
        // SAFETY: [I1] it is in a bucket, or null.
        let user = unsafe { self.find(uid, cpu).as_mut()? };
        let processor = self.processors.get_mut(cpu as usize)?;
        user.share.budget = user.share.budget.refilled(&caps.user, now);
        processor.budget = processor.budget.refilled(&caps.processor, now);
        Some(Accounts { thread, user: user.share.free(), processor: processor.free() })
    }

    /// Sets time aside for a boost. The accounts are there: [`free`](Self::free) said so.
    pub(crate) fn reserve(&mut self, uid: u32, cpu: u32, amount: Nanos) -> Reservation {
        let account = self.find(uid, cpu);
        // SAFETY: [I1] it is in a bucket, or null.
        if let Some(account) = unsafe { account.as_mut() } {
            account.pins = account.pins.saturating_add(1);
            account.share.aside = account.share.aside.after(amount);
        }
        if let Some(processor) = self.processors.get_mut(cpu as usize) {
            processor.aside = processor.aside.after(amount);
        }
        Reservation { account, cpu, amount }
    }

    /// The end of a boost: what was set aside is free again, and what `pay` makes of the accounts is kept. The user and
    /// the processor that pay are those of `cpu`, where the thread ran last, if the user has an account there.
    pub(crate) fn settle(
        &mut self,
        reservation: Reservation,
        cpu: u32,
        thread: Budget,
        pay: impl FnOnce(Accounts) -> Accounts,
    ) -> Budget {
        let Reservation { account, cpu: reserved_on, amount } = reservation;
        if let Some(processor) = self.processors.get_mut(reserved_on as usize) {
            processor.aside = processor.aside.since(amount);
        }
        // SAFETY: [I1] it was pinned, or is null.
        let Some(first) = (unsafe { account.as_mut() }) else { return thread };
        first.pins = first.pins.saturating_sub(1);
        first.share.aside = first.share.aside.since(amount);
        let there = self.find(first.uid, cpu);
        let (payer, cpu) = if there.is_null() { (account, reserved_on) } else { (there, cpu) };
        // SAFETY: [I1] it is in a bucket, or was pinned until now.
        let user = unsafe { &mut *payer };
        let Some(processor) = self.processors.get_mut(cpu as usize) else { return thread };
        let after = pay(Accounts { thread, user: user.share.budget, processor: processor.budget });
        user.share.budget = after.user;
        processor.budget = after.processor;
        after.thread
    }

    /// Forgets accounts of users who have nothing set aside and whose budget is what a new one has, or more.
    pub(crate) fn forget_idle(&mut self, caps: &Caps, now: Nanos) {
        self.forget(|account| {
            let budget = account.share.budget.refilled(&caps.user, now);
            account.pins == 0 && budget.left() >= caps.user.most().since(Nanos(1_000))
        });
    }

    fn forget(&mut self, mut done_with: impl FnMut(&Account) -> bool) {
        for bucket in &mut self.users {
            let mut link: *mut *mut Account = bucket;
            // SAFETY: `link` is a bucket or the link of an account that stays; [I1] it leads to an account, or null.
            while let Some(account) = unsafe { (*link).as_ref() } {
                if done_with(account) {
                    let next = account.next;
                    // SAFETY: [I1] it came from a box, and is taken out of the list here.
                    drop(unsafe { KBox::from_raw(*link) });
                    // SAFETY: as above.
                    unsafe { *link = next };
                    self.count = self.count.saturating_sub(1);
                } else {
                    // SAFETY: [I1] the account stays, so its link can be written to.
                    link = unsafe { &raw mut (**link).next };
                }
            }
        }
    }

    /// How many accounts of users there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        self.forget(|_| true);
    }
}
