// SPDX-License-Identifier: GPL-2.0
//! Accounts that pay for boosts in addition to the thread: its user on a CPU, the CPU, and a flag with a cap of its own.
//!
//! Time that boosted threads may still run is reserved, so that a hundred threads that are woken together do not each get
//! one slice of the same account. The time that they really ran is charged when each of them is lowered.
//!
//! # Invariants
//! 1. An account's pointer is valid while it is pinned, and an account in a bucket is valid.
//! 2. A flag's budget is accessed with `Accounting` borrowed, which is under the lock.

use core::cell::UnsafeCell;
use core::ptr::null_mut;

use kernel::prelude::*;
use kernel::sync::Arc;

use crate::policy::budget::{Budget, Terms};
use crate::policy::caps::{Accounts, Caps};
use crate::policy::time::Nanos;
use crate::threads::Refusal;

/// Number of lists of accounts; user and CPU select one.
const BUCKETS: usize = 64;

/// Maximum number of user accounts, one per user and CPU. Threads of others are not boosted.
const MAX_ACCOUNTS: u32 = 4096;

/// A user's account on a CPU.
pub(crate) struct Account {
    uid: u32,
    cpu: u32,
    share: Share,
    pins: u32,
    next: *mut Account,
}

/// A budget, and the reserved part of it.
struct Share {
    budget: Budget,
    reserved: Nanos,
}

impl Share {
    /// Returns the part of the budget that is not reserved.
    fn free(&self) -> Budget {
        self.budget.charged(self.reserved)
    }

    /// Returns the time until which the budget is too low; `None` if it is too low only because of reservations.
    fn refused_until(&self, terms: &Terms) -> Option<Nanos> {
        let until = self.budget.not_before(terms);
        (until > Nanos::ZERO).then_some(until)
    }
}

/// The budget of one flag.
pub(crate) struct FlagAccount {
    terms: Terms,
    pub(crate) refusal: Refusal,
    share: UnsafeCell<Share>,
}

// SAFETY: [I2] the share is accessed under the lock only; the rest may be read by any thread.
unsafe impl Send for FlagAccount {}
// SAFETY: [I2] as above.
unsafe impl Sync for FlagAccount {}

impl FlagAccount {
    /// Returns the account of a flag with these terms.
    pub(crate) fn new(terms: Terms, now: Nanos) -> Result<Arc<Self>> {
        let share = Share { budget: Budget::new(&terms, now), reserved: Nanos::ZERO };
        let account = Self { terms, refusal: Refusal::none(), share: UnsafeCell::new(share) };
        Ok(Arc::new(account, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns the share. The borrow of `Accounting` shows that the access is exclusive.
    #[expect(clippy::mut_from_ref, reason = "the result also borrows all accounts mutably")]
    fn share<'a>(&'a self, _alone: &'a mut Accounting) -> &'a mut Share {
        // SAFETY: [I2] there is one `Accounting`, under the lock, and the caller has it borrowed mutably.
        unsafe { &mut *self.share.get() }
    }
}

/// The accounts of all users and CPUs.
pub(crate) struct Accounting {
    users: [*mut Account; BUCKETS],
    count: u32,
    cpus: KVec<Share>,
}

// SAFETY: this exclusively owns the objects behind the pointers.
unsafe impl Send for Accounting {}

/// Time reserved for a boosted thread, and the accounts that it is reserved in.
pub(crate) struct Reservation {
    account: *mut Account,
    flag: Option<Arc<FlagAccount>>,
    cpu: u32,
    amount: Nanos,
}

impl Reservation {
    /// Returns the CPU whose time was reserved.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }
}

impl Account {
    /// Returns a new account. May be called where sleeping is not allowed.
    pub(crate) fn new(caps: &Caps, uid: u32, cpu: u32, now: Nanos) -> Result<KBox<Self>> {
        let share = Share { budget: Budget::new(&caps.user, now), reserved: Nanos::ZERO };
        Ok(KBox::new(Self { uid, cpu, share, pins: 0, next: null_mut() }, GFP_ATOMIC)?)
    }
}

impl Accounting {
    pub(crate) fn new(caps: &Caps, cpus: u32, now: Nanos) -> Result<Self> {
        let mut list = KVec::new();
        for _ in 0..cpus {
            list.push(
                Share { budget: Budget::new(&caps.cpu, now), reserved: Nanos::ZERO },
                GFP_KERNEL,
            )?;
        }
        Ok(Self { users: [null_mut(); BUCKETS], count: 0, cpus: list })
    }

    fn bucket(uid: u32, cpu: u32) -> usize {
        (uid.wrapping_mul(31).wrapping_add(cpu) as usize) % BUCKETS
    }

    /// Returns whether the user has an account on the CPU.
    fn has(&self, uid: u32, cpu: u32) -> bool {
        !self.find(uid, cpu).is_null()
    }

    fn find(&self, uid: u32, cpu: u32) -> *mut Account {
        let mut at = self.users.get(Self::bucket(uid, cpu)).copied().unwrap_or(null_mut());
        // SAFETY: [I1] each link of a bucket is an account, or null.
        while let Some(account) = unsafe { at.as_ref() } {
            if account.uid == uid && account.cpu == cpu {
                return at;
            }
            at = account.next;
        }
        null_mut()
    }

    /// Inserts an account. Returns it if there are too many or the user already has one.
    pub(crate) fn insert(&mut self, mut account: KBox<Account>) -> Option<KBox<Account>> {
        if self.count >= MAX_ACCOUNTS || self.has(account.uid, account.cpu) {
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

    /// Returns the unreserved budgets of the three accounts; `None` if one of them is missing. Refills those of the user and
    /// the CPU, so that no later arrival has to count all epochs since the last boost.
    pub(crate) fn free(
        &mut self,
        caps: &Caps,
        thread: Budget,
        (uid, cpu): (u32, u32),
        now: Nanos,
    ) -> Option<Accounts> {
        // SAFETY: [I1] the account is in a bucket, or null.
        let user = unsafe { self.find(uid, cpu).as_mut()? };
        let share = self.cpus.get_mut(cpu as usize)?;
        user.share.budget = user.share.budget.refilled(&caps.user, now);
        share.budget = share.budget.refilled(&caps.cpu, now);
        Some(Accounts { thread, user: user.share.free(), cpu: share.free() })
    }

    /// Checks that a flag can pay for a boost.
    ///
    /// # Errors
    /// It cannot, and will not before this time. The time is unknown if only reservations prevent it, because they can end
    /// at any time.
    pub(crate) fn flag_pays(&mut self, account: &FlagAccount, now: Nanos) -> Result<(), Option<Nanos>> {
        let share = account.share(self);
        share.budget = share.budget.refilled(&account.terms, now);
        match share.free().allowance(&account.terms) {
            Some(_) => Ok(()),
            None => Err(share.refused_until(&account.terms)),
        }
    }

    /// Returns the time until which a user who cannot pay on a CPU remains unable to, if that is known.
    pub(crate) fn user_until(&self, caps: &Caps, (uid, cpu): (u32, u32)) -> Option<Nanos> {
        // SAFETY: [I1] the account is in a bucket, or null.
        unsafe { self.find(uid, cpu).as_ref()? }.share.refused_until(&caps.user)
    }

    /// Returns the time until which a CPU that cannot pay remains unable to, if that is known.
    pub(crate) fn cpu_until(&self, caps: &Caps, cpu: u32) -> Option<Nanos> {
        self.cpus.get(cpu as usize)?.refused_until(&caps.cpu)
    }

    /// Reserves time for a boost. The accounts exist, because [`free`](Self::free) has returned them.
    pub(crate) fn reserve(
        &mut self,
        (uid, cpu): (u32, u32),
        amount: Nanos,
        flag: Option<&Arc<FlagAccount>>,
    ) -> Reservation {
        let account = self.find(uid, cpu);
        // SAFETY: [I1] the account is in a bucket, or null.
        if let Some(account) = unsafe { account.as_mut() } {
            account.pins = account.pins.saturating_add(1);
            account.share.reserved = account.share.reserved.after(amount);
        }
        if let Some(share) = self.cpus.get_mut(cpu as usize) {
            share.reserved = share.reserved.after(amount);
        }
        if let Some(flag) = flag {
            let share = flag.share(self);
            share.reserved = share.reserved.after(amount);
        }
        Reservation { account, flag: flag.cloned(), cpu, amount }
    }

    /// Charges the flag with the time `spent` in a boost that ends, and drops its reservation.
    pub(crate) fn settle_flag(
        &mut self,
        reservation: &mut Reservation,
        spent: Nanos,
        now: Nanos,
    ) -> Option<Arc<FlagAccount>> {
        let account = reservation.flag.take()?;
        let share = account.share(self);
        share.reserved = share.reserved.since(reservation.amount);
        share.budget = share.budget.charged(spent).refilled(&account.terms, now);
        Some(account)
    }

    /// Ends a boost: drops the reservation, and stores the accounts that `pay` returns. The user account and the CPU that pay
    /// are those of `cpu`, where the thread ran last, if the user has an account there.
    pub(crate) fn settle(
        &mut self,
        reservation: Reservation,
        cpu: u32,
        thread: Budget,
        pay: impl FnOnce(Accounts) -> Accounts,
    ) -> Budget {
        let Reservation { account, cpu: reserved_on, amount, .. } = reservation;
        if let Some(share) = self.cpus.get_mut(reserved_on as usize) {
            share.reserved = share.reserved.since(amount);
        }
        // SAFETY: [I1] the account was pinned, or is null.
        let Some(first) = (unsafe { account.as_mut() }) else { return thread };
        first.pins = first.pins.saturating_sub(1);
        first.share.reserved = first.share.reserved.since(amount);
        let there = self.find(first.uid, cpu);
        let (payer, cpu) = if there.is_null() { (account, reserved_on) } else { (there, cpu) };
        // SAFETY: [I1] the account is in a bucket, or was pinned until now.
        let user = unsafe { &mut *payer };
        let Some(share) = self.cpus.get_mut(cpu as usize) else { return thread };
        let after = pay(Accounts { thread, user: user.share.budget, cpu: share.budget });
        user.share.budget = after.user;
        share.budget = after.cpu;
        after.thread
    }

    /// Removes accounts that are not pinned and whose budget is at least that of a new one, within a microsecond. The result
    /// must be dropped after the lock was released, because memory is not freed under such a lock.
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
            // SAFETY: `link` is a bucket or the link of an account that stays; [I1] it points to an account, or is null.
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

    /// Returns the number of user accounts.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        drop(self.forget(|_| true));
    }
}

/// Accounts that were removed from their buckets.
pub(crate) struct Forgotten(*mut Account);

// SAFETY: this exclusively owns the objects behind the pointers.
unsafe impl Send for Forgotten {}

impl Drop for Forgotten {
    fn drop(&mut self) {
        while !self.0.is_null() {
            // SAFETY: [I1] the account came from a box, was removed from its bucket once, and is not pinned.
            let account = unsafe { KBox::from_raw(self.0) };
            self.0 = account.next;
        }
    }
}
