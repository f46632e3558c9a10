//! How the duty passes from a thread that is blocked to a spare, and back: what both agree on, whatever they wait with.
//!
//! # Invariants
//! 1. While a call is under way, whoever leaves the role behind, or finds it with somebody who has been there meanwhile, has set the
//!    timer after that: so a call that blocks is noticed, whichever thread made it.
//! 2. That the engine's thread wants the role is said before the sleeper is rung for, and holds until it has the role: a spare that
//!    sleeps, or is about to, hears of it.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pronto_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The role of the thread on duty, which one thread has at a time.
pub(crate) trait Roles<'a> {
    /// The role, until dropped.
    type Role;

    /// The role, if nobody has it.
    fn try_take(&'a self) -> Option<Self::Role>;

    /// The role, as soon as nobody has it.
    fn take(&'a self) -> Self::Role;
}

/// What threads of a post wake each other by.
pub(crate) trait Signals {
    /// Has a spare woken in a while. One that waits already is not woken sooner.
    fn set_timer(&self);

    /// Has none woken.
    fn unset_timer(&self);

    /// Ends the present sleep of whoever is on duty, or the next.
    fn ring(&self);
}

impl<'a, R: 'a> Roles<'a> for Mutex<R> {
    type Role = MutexGuard<'a, R>;

    fn try_take(&'a self) -> Option<Self::Role> {
        match self.try_lock() {
            Ok(role) => Some(role),
            Err(TryLockError::Poisoned(role)) => Some(role.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn take(&'a self) -> Self::Role {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Calls under way that may block.
    blocked: AtomicUsize,
    /// The engine's thread is back, and waits for the role.
    wanted: AtomicBool,
}

impl Handover {
    pub(crate) fn new() -> Self {
        Self { blocked: AtomicUsize::new(0), wanted: AtomicBool::new(false) }
    }

    /// A thread that has left the role is about to make a call that may block: `hire` sees to it that there are spares for so many.
    pub(crate) fn begins(&self, hire: impl FnOnce(usize), signals: &impl Signals) {
        hire(self.blocked.fetch_add(1, Ordering::AcqRel) + 1);
        signals.set_timer();
    }

    /// That call has returned.
    pub(crate) fn ends(&self, signals: &impl Signals) {
        self.blocked.fetch_sub(1, Ordering::AcqRel);
        // Perhaps that of another thread: see `stays`.
        signals.unset_timer();
    }

    /// Whether a call is under way that may block.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire) != 0
    }

    /// Whether a spare on duty is to leave it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// The role, for a spare that was woken: none if nobody is blocked, or somebody has it.
    pub(crate) fn relieves<'a, R: Roles<'a>>(&self, roles: &'a R) -> Option<R::Role> {
        let role = roles.try_take()?;
        (self.is_blocked() && !self.is_wanted()).then_some(role)
    }

    /// The role, for the engine's thread that is back from its tasklets: a spare that has it gives it back.
    pub(crate) fn takes_back<'a, R: Roles<'a>>(&self, roles: &'a R, signals: &impl Signals) -> R::Role {
        if let Some(role) = roles.try_take() {
            return role;
        }
        self.wanted.store(true, Ordering::Release);
        signals.ring();
        let role = roles.take();
        self.wanted.store(false, Ordering::Release);
        role
    }

    /// The role, for a spare that is back from its tasklets: none if another thread has it, or the engine's has had it meanwhile. That
    /// one may be blocked again, under a timer that the end of this one's calls has taken back.
    pub(crate) fn stays<'a, R: Roles<'a>>(
        &self,
        roles: &'a R,
        is_still_its: impl FnOnce(&R::Role) -> bool,
        signals: &impl Signals,
    ) -> Option<R::Role> {
        let role = roles.try_take()?;
        if is_still_its(&role) {
            return Some(role);
        }
        drop(role);
        if self.is_blocked() {
            signals.set_timer();
        }
        None
    }
}
