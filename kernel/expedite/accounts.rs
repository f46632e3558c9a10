// SPDX-License-Identifier: GPL-2.0
//! Who pays for boosts besides the thread: its user on a processor, the processor, and a flag that has a cap of its own.
//!
//! What threads may still run, as they are boosted now, is set aside: a hundred threads that are woken together are
//! not granted one slice of the same account each. What they really ran is charged when each of them is dropped.
//!
//! # Invariants
//! 1. An account's pointer is valid while it is pinned, and an account in a bucket is valid.
//! 2. What a flag has is reached with `Accounting` in hand, which is under the lock.

use core::cell::UnsafeCell;
use core::ptr::null_mut;

use kernel::prelude::*;
use kernel::sync::Arc;

use crate::policy::budget::{Budget, Terms};
use crate::policy::caps::{Accounts, Caps};
use crate::policy::time::Nanos;
use crate::threads::Refusal;

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

    /// Until when nothing can be given out, if not only since something is set aside.
    fn refused_until(&self, terms: &Terms) -> Option<Nanos> {
        let until = self.budget.not_before(terms);
        (until > Nanos::ZERO).then_some(until)
    }
}

/// What may be spent through one flag.
pub(crate) struct FlagAccount {
    terms: Terms,
    pub(crate) refusal: Refusal,
    share: UnsafeCell<Share>,
}

// SAFETY: [I2] the share is reached under the lock only; the rest may be read by anybody.
unsafe impl Send for FlagAccount {}
// SAFETY: [I2] as above.
unsafe impl Sync for FlagAccount {}

impl FlagAccount {
    /// That of a flag which keeps to these terms.
    pub(crate) fn new(terms: Terms, now: Nanos) -> Result<Arc<Self>> {
        let share = Share { budget: Budget::new(&terms, now), aside: Nanos::ZERO };
        let account = Self { terms, refusal: Refusal::none(), share: UnsafeCell::new(share) };
        Ok(Arc::new(account, GFP_KERNEL_ACCOUNT)?)
    }

    /// The share, to who shows to be alone.
    #[expect(clippy::mut_from_ref, reason = "it is borrowed for as long as all accounts are")]
    fn share<'a>(&'a self, _alone: &'a mut Accounting) -> &'a mut Share {
        // SAFETY: [I2] there is one `Accounting`, under the lock, and it is lent.
        unsafe { &mut *self.share.get() }
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
pub(crate) struct Reservation {
    account: *mut Account,
    flag: Option<Arc<FlagAccount>>,
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

    /// Takes an account in, unless there are too many or the user has one; then it is returned.
    pub(crate) fn insert(&mut self, mut account: KBox<Account>) -> Option<KBox<Account>> {
        if self.count >= MOST || self.has(account.uid, account.cpu) {
            return Some(account);
        }
        let Some(bucket) = self.users.get_mut(Self::bucket(account.uid, account.cpu)) else {
            return Some(account);
        };
        account.next = *bucket;
        *bucket = KBox::into_raw(account);
        self.count = self.count.saturating_add(1);
        None
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

    /// Whether a flag can pay for a boost.
    ///
    /// # Errors
    /// It cannot, and will not until then, if that is known: what is set aside may be free again at any time.
    pub(crate) fn flag_pays(&mut self, account: &FlagAccount, now: Nanos) -> Result<(), Option<Nanos>> {
        let share = account.share(self);
        share.budget = share.budget.refilled(&account.terms, now);
        match share.free().allowance(&account.terms) {
            Some(_) => Ok(()),
            None => Err(share.refused_until(&account.terms)),
        }
    }

    /// Until when a user who cannot pay on a processor will not be able to, if that is known.
    pub(crate) fn user_until(&self, caps: &Caps, (uid, cpu): (u32, u32)) -> Option<Nanos> {
        // SAFETY: [I1] it is in a bucket, or null.
        unsafe { self.find(uid, cpu).as_ref()? }.share.refused_until(&caps.user)
    }

    /// The same of a processor.
    pub(crate) fn processor_until(&self, caps: &Caps, cpu: u32) -> Option<Nanos> {
        self.processors.get(cpu as usize)?.refused_until(&caps.processor)
    }

    /// Sets time aside for a boost. The accounts are there: [`free`](Self::free) said so.
    pub(crate) fn reserve(
        &mut self,
        (uid, cpu): (u32, u32),
        amount: Nanos,
        flag: Option<&Arc<FlagAccount>>,
    ) -> Reservation {
        let account = self.find(uid, cpu);
        // SAFETY: [I1] it is in a bucket, or null.
        if let Some(account) = unsafe { account.as_mut() } {
            account.pins = account.pins.saturating_add(1);
            account.share.aside = account.share.aside.after(amount);
        }
        if let Some(processor) = self.processors.get_mut(cpu as usize) {
            processor.aside = processor.aside.after(amount);
        }
        if let Some(flag) = flag {
            let share = flag.share(self);
            share.aside = share.aside.after(amount);
        }
        Reservation { account, flag: flag.cloned(), cpu, amount }
    }

    /// The flag's part in the end of a boost that has cost so much.
    pub(crate) fn settle_flag(
        &mut self,
        reservation: &mut Reservation,
        spent: Nanos,
        now: Nanos,
    ) -> Option<Arc<FlagAccount>> {
        let account = reservation.flag.take()?;
        let share = account.share(self);
        share.aside = share.aside.since(reservation.amount);
        share.budget = share.budget.charged(spent).refilled(&account.terms, now);
        Some(account)
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
        let Reservation { account, cpu: reserved_on, amount, .. } = reservation;
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

    /// Forgets accounts of users who have nothing set aside and whose budget is what a new one has, or more. What is
    /// returned is to be dropped after the lock was given back: memory is not freed under such a lock.
    pub(crate) fn forget_idle(&mut self, caps: &Caps, now: Nanos) -> Forgotten {
        self.forget(|account| {
            let budget = account.share.budget.refilled(&caps.user, now);
            account.pins == 0 && budget.left() >= caps.user.most().since(Nanos(1_000))
        })
    }

    fn forget(&mut self, mut done_with: impl FnMut(&Account) -> bool) -> Forgotten {
        let mut out = Forgotten(null_mut());
        for bucket in &mut self.users {
            let mut link: *mut *mut Account = bucket;
            // SAFETY: `link` is a bucket or the link of an account that stays; [I1] it leads to an account, or null.
            while let Some(account) = unsafe { (*link).as_mut() } {
                if done_with(account) {
                    let this: *mut Account = account;
                    // SAFETY: as above.
                    unsafe { *link = account.next };
                    account.next = out.0;
                    out.0 = this;
                    self.count = self.count.saturating_sub(1);
                } else {
                    link = &mut account.next;
                }
            }
        }
        out
    }

    /// How many accounts of users there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        drop(self.forget(|_| true));
    }
}

/// Accounts that are in no bucket any more.
pub(crate) struct Forgotten(*mut Account);

// SAFETY: the pointers lead to what this owns alone.
unsafe impl Send for Forgotten {}

impl Drop for Forgotten {
    fn drop(&mut self) {
        while !self.0.is_null() {
            // SAFETY: [I1] it came from a box, was taken out of its bucket once, and nobody has it pinned.
            let account = unsafe { KBox::from_raw(self.0) };
            self.0 = account.next;
        }
    }
}
