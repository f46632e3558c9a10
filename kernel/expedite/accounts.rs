// SPDX-License-Identifier: GPL-2.0
//! Accounts that pay for boosts in addition to the thread: its user on a CPU, the CPU, a flag with a cap of its own, and a group
//! with a limit of CPU time.
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

use crate::policy::budget::{Budget, Cap, Terms};
use crate::policy::caps::{self, Accounts, Caps};
use crate::policy::share;
use crate::policy::time::Nanos;
use crate::threads::Refusal;

/// Number of lists of accounts; the key selects one.
const BUCKETS: usize = 64;

/// Maximum number of accounts, and that number for each CPU if it is more. Threads without an account are not boosted. A user has
/// one account per CPU and one for all CPUs, and few for groups, so it takes many users to reach the maximum.
const MAX_ACCOUNTS: u32 = 4096;
const MAX_ACCOUNTS_PER_CPU: u32 = 64;

/// Boosted time of a group whose CPU time is limited (`cpu.max`), over all CPUs: the scheduler does not count boosted time against
/// that limit, so this is the share of a CPU by which the group can exceed it.
const GROUP: share::Share = share::Share::percent(2);

/// Maximum slice of a thread in such a group: a new account holds little more.
pub(crate) const GROUP_SLICE: Nanos = Nanos::from_micros(150);

/// Maximum number of accounts of one user's groups: a user can make any number of groups.
const MAX_GROUPS_PER_USER: u16 = 64;

/// Number of counters of groups by user. Users with the same counter share the maximum.
const GROUP_COUNTERS: usize = 251;

/// The holder of an account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    User { uid: u32, cpu: u32 },
    /// A user on all CPUs together. Pays, with the cap of one CPU, for boosts whose time cannot be charged to one CPU: the thread
    /// changed it, or another one may have run in its place. Without it, boosts on many CPUs could all use the same one.
    Everywhere { uid: u32 },
    /// The address of a group. It may be gone, and another one may have its address.
    Group(usize),
}

/// An account of a user, on one CPU or on all, or of a group.
pub(crate) struct Account {
    key: Key,
    terms: Terms,
    share: Share,
    pins: u32,
    /// Counter of the user of a group.
    counter: usize,
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

    /// Checks that the budget covers a boost.
    ///
    /// # Errors
    /// It does not, and will not before this time. The time is unknown if only reservations prevent it, because they can end
    /// at any time.
    fn pays(&self, terms: &Terms) -> Result<(), Option<Nanos>> {
        match self.free().allowance(terms) {
            Some(_) => Ok(()),
            None => Err(self.refused_until(terms)),
        }
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

/// The accounts of all users, groups and CPUs.
pub(crate) struct Accounting {
    accounts: [*mut Account; BUCKETS],
    count: u32,
    groups: [u16; GROUP_COUNTERS],
    cpus: KVec<Share>,
}

// SAFETY: this exclusively owns the objects behind the pointers.
unsafe impl Send for Accounting {}

/// A thread's user, CPU and group: the holders of accounts that pay for it.
#[derive(Clone, Copy)]
pub(crate) struct Payers {
    pub(crate) uid: u32,
    pub(crate) cpu: u32,
    /// Address of the group with a limit of CPU time; zero if there is none.
    pub(crate) group: usize,
}

/// Time reserved for a boosted thread, and the accounts that it is reserved in.
pub(crate) struct Reservation {
    user: *mut Account,
    /// Null if the thread's group has no limit.
    group: *mut Account,
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

impl Key {
    fn bucket(self) -> usize {
        let number = match self {
            Self::User { uid, cpu } => u64::from(uid) << 32 | u64::from(cpu),
            Self::Everywhere { uid } => u64::from(uid) << 32 | u64::from(u32::MAX),
            Self::Group(address) => address as u64,
        };
        // The golden ratio spreads consecutive and aligned numbers.
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BUCKETS
    }
}

impl Account {
    /// Returns a new account of a user on a CPU. May be called where sleeping is not allowed.
    pub(crate) fn of_user(caps: &Caps, payers: Payers, now: Nanos) -> Result<KBox<Self>> {
        Self::new(Key::User { uid: payers.uid, cpu: payers.cpu }, caps.user, now)
    }

    /// Returns a new account of a user on all CPUs together. May be called where sleeping is not allowed.
    pub(crate) fn of_user_everywhere(caps: &Caps, payers: Payers, now: Nanos) -> Result<KBox<Self>> {
        Self::new(Key::Everywhere { uid: payers.uid }, caps.user, now)
    }

    /// Returns a new account of a group. May be called where sleeping is not allowed.
    pub(crate) fn of_group(payers: Payers, now: Nanos) -> Result<KBox<Self>> {
        let cap = Cap { share: GROUP, window: caps::WINDOW };
        let mut account = Self::new(Key::Group(payers.group), Terms::capped(cap, GROUP_SLICE), now)?;
        account.counter = payers.uid as usize % GROUP_COUNTERS;
        Ok(account)
    }

    fn new(key: Key, terms: Terms, now: Nanos) -> Result<KBox<Self>> {
        let share = Share { budget: Budget::new(&terms, now), reserved: Nanos::ZERO };
        Ok(KBox::new(Self { key, terms, share, pins: 0, counter: 0, next: null_mut() }, GFP_ATOMIC)?)
    }

    /// Reserves time, and keeps the account in place.
    fn pin(&mut self, amount: Nanos) {
        self.pins = self.pins.saturating_add(1);
        self.share.reserved = self.share.reserved.after(amount);
    }

    fn unpin(&mut self, amount: Nanos) {
        self.pins = self.pins.saturating_sub(1);
        self.share.reserved = self.share.reserved.since(amount);
    }

    /// Checks that the account can pay for a boost.
    ///
    /// # Errors
    /// It cannot, and will not before this time, if that is known.
    fn pays(&mut self, now: Nanos) -> Result<(), Option<Nanos>> {
        self.share.budget = self.share.budget.refilled(&self.terms, now);
        self.share.pays(&self.terms)
    }
}

impl Accounting {
    /// Number of lists of accounts.
    pub(crate) const BUCKETS: usize = BUCKETS;

    pub(crate) fn new(caps: &Caps, cpus: u32, now: Nanos) -> Result<Self> {
        let mut list = KVec::new();
        for _ in 0..cpus {
            list.push(
                Share { budget: Budget::new(&caps.cpu, now), reserved: Nanos::ZERO },
                GFP_KERNEL,
            )?;
        }
        Ok(Self { accounts: [null_mut(); BUCKETS], count: 0, groups: [0; GROUP_COUNTERS], cpus: list })
    }

    fn find(&self, key: Key) -> *mut Account {
        let mut at = self.accounts.get(key.bucket()).copied().unwrap_or(null_mut());
        // SAFETY: [I1] each link of a bucket is an account, or null.
        while let Some(account) = unsafe { at.as_ref() } {
            if account.key == key {
                return at;
            }
            at = account.next;
        }
        null_mut()
    }

    /// Returns whether a user has no account on a CPU, and none on all CPUs together.
    pub(crate) fn lacks(&self, payers: Payers) -> (bool, bool) {
        (self.find(payers.user()).is_null(), self.find(payers.everywhere()).is_null())
    }

    /// Inserts an account. Returns it if there are too many, its user has too many groups, or its holder already has one.
    pub(crate) fn insert(&mut self, mut account: KBox<Account>) -> Option<KBox<Account>> {
        let cpus = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        let most = MAX_ACCOUNTS.max(MAX_ACCOUNTS_PER_CPU.saturating_mul(cpus));
        if self.count >= most || !self.find(account.key).is_null() {
            return Some(account);
        }
        let Some(bucket) = self.accounts.get_mut(account.key.bucket()) else {
            return Some(account);
        };
        if let Key::Group(_) = account.key {
            match self.groups.get_mut(account.counter) {
                Some(count) if *count < MAX_GROUPS_PER_USER => *count = count.saturating_add(1),
                _ => return Some(account),
            }
        }
        account.next = *bucket;
        *bucket = KBox::into_raw(account);
        self.count = self.count.saturating_add(1);
        None
    }

    /// Returns the unreserved budgets of thread, user and CPU; `None` if one of them, or the account of the group, is missing.
    /// Refills those of the user and the CPU, so that no later arrival has to count all epochs since the last boost.
    pub(crate) fn free(
        &mut self,
        caps: &Caps,
        thread: Budget,
        payers: Payers,
        now: Nanos,
    ) -> Option<Accounts> {
        if payers.group != 0 && self.find(Key::Group(payers.group)).is_null() {
            return None;
        }
        // SAFETY: [I1] the account is in a bucket, or null.
        let user = unsafe { self.find(payers.user()).as_mut()? };
        let share = self.cpus.get_mut(payers.cpu as usize)?;
        user.share.budget = user.share.budget.refilled(&caps.user, now);
        share.budget = share.budget.refilled(&caps.cpu, now);
        let cpu = share.free();
        let mut of_user = user.share.free();
        // SAFETY: [I1] the account is in a bucket, or null.
        if let Some(everywhere) = unsafe { self.find(payers.everywhere()).as_mut() } {
            everywhere.share.budget = everywhere.share.budget.refilled(&caps.user, now);
            if everywhere.share.budget.left() < of_user.left() {
                of_user = everywhere.share.budget;
            }
        }
        Some(Accounts { thread, user: of_user, cpu })
    }

    /// Checks that a flag can pay for a boost.
    ///
    /// # Errors
    /// It cannot, and will not before this time. The time is unknown if only reservations prevent it, because they can end
    /// at any time.
    pub(crate) fn flag_pays(&mut self, account: &FlagAccount, now: Nanos) -> Result<(), Option<Nanos>> {
        let share = account.share(self);
        share.budget = share.budget.refilled(&account.terms, now);
        share.pays(&account.terms)
    }

    /// Checks that the group, if there is one with a limit, can pay for a boost.
    ///
    /// # Errors
    /// As for [`flag_pays`](Self::flag_pays).
    pub(crate) fn group_pays(&mut self, payers: Payers, now: Nanos) -> Result<(), Option<Nanos>> {
        // SAFETY: [I1] the account is in a bucket, or null.
        match unsafe { self.find(Key::Group(payers.group)).as_mut() } {
            Some(account) if payers.group != 0 => account.pays(now),
            _ => Ok(()),
        }
    }

    /// Returns the time until which a user who cannot pay on a CPU remains unable to, if that is known.
    pub(crate) fn user_until(&self, caps: &Caps, payers: Payers) -> Option<Nanos> {
        let until = |key| {
            // SAFETY: [I1] the account is in a bucket, or null.
            unsafe { self.find(key).as_ref()? }.share.refused_until(&caps.user)
        };
        until(payers.user()).max(until(payers.everywhere()))
    }

    /// Charges the user of a reservation on all CPUs together. The account exists, unless memory was short.
    pub(crate) fn charge_everywhere(&mut self, reservation: &Reservation, spent: Nanos, now: Nanos) {
        // SAFETY: [I1] the account was pinned, or is null.
        let Some(Key::User { uid, .. }) = unsafe { reservation.user.as_ref() }.map(|user| user.key) else {
            return;
        };
        // SAFETY: [I1] the account is in a bucket, or null.
        if let Some(account) = unsafe { self.find(Key::Everywhere { uid }).as_mut() } {
            account.share.budget = account.share.budget.charged(spent).refilled(&account.terms, now);
        }
    }

    /// Returns the time until which a CPU that cannot pay remains unable to, if that is known.
    pub(crate) fn cpu_until(&self, caps: &Caps, cpu: u32) -> Option<Nanos> {
        self.cpus.get(cpu as usize)?.refused_until(&caps.cpu)
    }

    /// Reserves time for a boost. The accounts exist, because [`free`](Self::free) has returned budgets.
    pub(crate) fn reserve(
        &mut self,
        payers: Payers,
        amount: Nanos,
        flag: Option<&Arc<FlagAccount>>,
    ) -> Reservation {
        let user = self.find(payers.user());
        let group = if payers.group == 0 { null_mut() } else { self.find(Key::Group(payers.group)) };
        for account in [user, group] {
            // SAFETY: [I1] the account is in a bucket, or null.
            if let Some(account) = unsafe { account.as_mut() } {
                account.pin(amount);
            }
        }
        if let Some(share) = self.cpus.get_mut(payers.cpu as usize) {
            share.reserved = share.reserved.after(amount);
        }
        if let Some(flag) = flag {
            let share = flag.share(self);
            share.reserved = share.reserved.after(amount);
        }
        Reservation { user, group, flag: flag.cloned(), cpu: payers.cpu, amount }
    }

    /// Charges flag and group with the time `spent` in a boost that ends, and drops their reservations. Returns the flag's
    /// account, which must not be dropped under the lock.
    pub(crate) fn settle_limits(
        &mut self,
        reservation: &mut Reservation,
        spent: Nanos,
        now: Nanos,
    ) -> Option<Arc<FlagAccount>> {
        let group = core::mem::replace(&mut reservation.group, null_mut());
        // SAFETY: [I1] the account was pinned, or is null.
        if let Some(account) = unsafe { group.as_mut() } {
            account.unpin(reservation.amount);
            account.share.budget = account.share.budget.charged(spent).refilled(&account.terms, now);
        }
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
        let Reservation { user, cpu: reserved_on, amount, .. } = reservation;
        if let Some(share) = self.cpus.get_mut(reserved_on as usize) {
            share.reserved = share.reserved.since(amount);
        }
        // SAFETY: [I1] the account was pinned, or is null.
        let Some(first) = (unsafe { user.as_mut() }) else { return thread };
        first.unpin(amount);
        let there = match first.key {
            Key::User { uid, .. } => self.find(Key::User { uid, cpu }),
            Key::Everywhere { .. } | Key::Group(_) => null_mut(),
        };
        let (payer, cpu) = if there.is_null() { (user, reserved_on) } else { (there, cpu) };
        // SAFETY: [I1] the account is in a bucket, or was pinned until now.
        let user = unsafe { &mut *payer };
        let Some(share) = self.cpus.get_mut(cpu as usize) else { return thread };
        let after = pay(Accounts { thread, user: user.share.budget, cpu: share.budget });
        user.share.budget = after.user;
        share.budget = after.cpu;
        after.thread
    }

    /// Removes accounts of one list that are not pinned and whose budget is at least that of a new one, within a microsecond. The result
    /// must be dropped after the lock was released, because memory is not freed under such a lock.
    pub(crate) fn forget_idle(&mut self, bucket: usize, now: Nanos) -> Forgotten {
        self.forget(bucket, Forgotten(null_mut()), |account| {
            let budget = account.share.budget.refilled(&account.terms, now);
            account.pins == 0 && budget.left() >= account.terms.most().since(Nanos(1_000))
        })
    }

    fn forget(
        &mut self,
        bucket: usize,
        mut out: Forgotten,
        mut done_with: impl FnMut(&Account) -> bool,
    ) -> Forgotten {
        if let Some(bucket) = self.accounts.get_mut(bucket) {
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
                    if let Key::Group(_) = account.key {
                        if let Some(count) = self.groups.get_mut(account.counter) {
                            *count = count.saturating_sub(1);
                        }
                    }
                } else {
                    link = &mut account.next;
                }
            }
        }
        out
    }

    /// Returns the number of accounts of users and groups.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Payers {
    fn everywhere(self) -> Key {
        Key::Everywhere { uid: self.uid }
    }

    fn user(self) -> Key {
        Key::User { uid: self.uid, cpu: self.cpu }
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        let all = Forgotten(null_mut());
        drop((0..BUCKETS).fold(all, |out, bucket| self.forget(bucket, out, |_| true)));
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
