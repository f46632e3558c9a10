//! A lock that nobody waits for: who finds it taken leaves the work to the holder.
//!
//! # Invariants
//! 1. The value is reached through a guard only, or through `&mut`.
//! 2. A guard exists only between the CAS that took the lock and the store that gives it back.
#![expect(unsafe_code, reason = "the guard turns exclusion into references")]

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::atomic::{AtomicBool, Ordering, fence};
use crate::cell::UnsafeCell;

/// A value that one thread at a time may enter. A panic inside gives the lock back as any other exit does.
pub struct TryLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: invariants 1 and 2: threads reach the value one after another, so it moves between them but is not shared.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    /// A free lock around `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// A free lock around `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free. A failing attempt only reads the lock's line.
    #[inline]
    pub fn try_lock(&self) -> Option<TryLockGuard<'_, T>> {
        if self.taken.load(Ordering::Relaxed) {
            return None;
        }
        // SYNC: Acquire sees what the last holder did; pairs with the Release in TryLockGuard::drop.
        match self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(TryLockGuard { lock: self }),
            Err(_) => None,
        }
    }

    /// Does the work that other threads leave for whoever holds the lock, and leaves none behind.
    ///
    /// A thread publishes its work where `pending` looks for it, then calls this. Either it gets the lock and `work` runs,
    /// or the holder sees the work: it looks once more after giving the lock back. Returns whether `work` ran here.
    ///
    /// `pending` must be true as soon as published work lies unserved, and `work` must serve everything it finds.
    pub fn serve(&self, pending: impl Fn() -> bool, mut work: impl FnMut(&mut T)) -> bool {
        let mut served = false;
        // SYNC: publish, fence, read the lock; against give the lock back, fence, read `pending`. With both fences in
        // the one order of SeqCst fences, at least one side sees the other's store.
        fence(Ordering::SeqCst);
        while let Some(mut guard) = self.try_lock() {
            work(&mut guard);
            drop(guard);
            served = true;
            fence(Ordering::SeqCst);
            if !pending() {
                break;
            }
        }
        served
    }

    /// The value, without locking: `&mut` is proof enough.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1: `&mut self` excludes every guard.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Whether somebody holds it at the moment; old news by the time the caller knows.
    pub fn is_locked(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for TryLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryLock").field("taken", &self.is_locked()).finish_non_exhaustive()
    }
}

/// The right to the value, until dropped.
pub struct TryLockGuard<'a, T> {
    lock: &'a TryLock<T>,
}

// SAFETY: a shared guard gives out `&T` only, so it may be shared between threads if `T` may. (The guard may also move
// to another thread with T: Send, which holds by its reference to a Sync lock.)
unsafe impl<T: Send + Sync> Sync for TryLockGuard<'_, T> {}

impl<T> Deref for TryLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariant 2: this guard is the only one; its borrow excludes deref_mut.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for TryLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 2: this guard is the only one, and it is borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SYNC: publishes what the holder did; pairs with the Acquire in try_lock.
        self.lock.taken.store(false, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for TryLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TryLockGuard").field(&**self).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::TryLock;

    #[test]
    fn a_taken_lock_refuses_and_a_dropped_guard_frees() {
        let lock = TryLock::new(1);
        let mut guard = lock.try_lock().unwrap();
        *guard += 1;
        assert!(lock.try_lock().is_none());
        assert!(lock.is_locked());
        drop(guard);
        assert_eq!(*lock.try_lock().unwrap(), 2);
    }

    #[test]
    fn a_panic_inside_gives_the_lock_back() {
        let lock = TryLock::new(0);
        let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            let _guard = lock.try_lock().unwrap();
            panic!("inside");
        }));
        assert!(result.is_err());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn serve_runs_again_while_work_is_pending() {
        let lock = TryLock::new(0);
        let left = core::cell::Cell::new(3);
        let served = lock.serve(
            || left.get() > 0,
            |count| {
                *count += 1;
                left.set(left.get() - 1);
            },
        );
        assert!(served);
        assert_eq!(*lock.try_lock().unwrap(), 3);
    }

    #[test]
    fn serve_leaves_the_work_to_the_holder() {
        let lock = TryLock::new(0);
        let guard = lock.try_lock();
        assert!(!lock.serve(|| true, |_| unreachable!("the lock is taken")));
        drop(guard);
    }
}
