//! The protocol by which the role passes from a blocked thread to a spare and back, independent of the primitives they wait with.
//!
//! # Invariants
//! 1. While a call that may block is under way, the timer is set after every event that could leave the role without a holder: a
//!    thread releases the role and begins such a call, or a spare finds that the engine thread has held the role meanwhile. A call
//!    that blocks is therefore noticed, whichever thread made it.
//! 2. The engine thread sets `wanted` before it rings, and clears it only when it has the role. A spare that sleeps, or is about to,
//!    therefore sees one of the two.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pronto_sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The engine role, which one thread holds at a time.
pub(crate) trait Roles<'a> {
    /// Guard of the role, which releases it when dropped.
    type Role;

    /// Takes the role if it is free.
    fn try_take(&'a self) -> Option<Self::Role>;

    /// Takes the role, and waits until it is free.
    fn take(&'a self) -> Self::Role;
}

/// Signals with which the threads of a post wake each other.
pub(crate) trait Signals {
    /// Sets the timer that wakes a spare. Replaces an earlier setting.
    fn set_timer(&self);

    /// Cancels the timer.
    fn unset_timer(&self);

    /// Ends the present sleep of the role holder, or its next one.
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

/// State of the protocol that threads of a post share.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Number of calls under way that may block.
    blocked: AtomicUsize,
    /// The engine thread has finished its tasklets and waits for the role.
    wanted: AtomicBool,
}

impl Handover {
    pub(crate) fn new() -> Self {
        Self { blocked: AtomicUsize::new(0), wanted: AtomicBool::new(false) }
    }

    /// Begins a call that may block, on a thread that has released the role. `hire` gets the number of such calls under way, and
    /// starts a spare if there are too few.
    pub(crate) fn begin_call(&self, hire: impl FnOnce(usize), signals: &impl Signals) {
        hire(self.blocked.fetch_add(1, Ordering::AcqRel) + 1);
        signals.set_timer();
    }

    /// Ends a call that may block.
    pub(crate) fn end_call(&self, signals: &impl Signals) {
        self.blocked.fetch_sub(1, Ordering::AcqRel);
        // The timer may be that of another thread's call; see `keep`.
        signals.unset_timer();
    }

    /// Returns whether a call that may block is under way.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire) != 0
    }

    /// Returns whether a spare that holds the role must return it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Takes the role for a spare that was woken. Returns `None` if no call is under way, the engine thread wants the role, or another
    /// thread has it.
    pub(crate) fn relieve<'a, R: Roles<'a>>(&self, roles: &'a R) -> Option<R::Role> {
        let role = roles.try_take()?;
        (self.is_blocked() && !self.is_wanted()).then_some(role)
    }

    /// Takes the role for the engine thread after its tasklets, and makes a spare that holds the role return it.
    pub(crate) fn take_back<'a, R: Roles<'a>>(&self, roles: &'a R, signals: &impl Signals) -> R::Role {
        if let Some(role) = roles.try_take() {
            return role;
        }
        self.wanted.store(true, Ordering::Release);
        signals.ring();
        let role = roles.take();
        self.wanted.store(false, Ordering::Release);
        role
    }

    /// Takes the role again for a spare after its tasklets. Returns `None` if another thread has the role, or the engine thread has
    /// held it meanwhile. The engine thread may then be blocked again, and the end of this spare's calls may have cancelled the timer
    /// of that call, so the timer is set again.
    pub(crate) fn keep<'a, R: Roles<'a>>(
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
