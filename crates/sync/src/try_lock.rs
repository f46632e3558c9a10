//! A lock without waiting: a thread that finds it taken leaves its work to the holder.
//!
//! # Invariants
//! 1. The value is accessed only through a guard, or through `&mut`.
//! 2. A guard exists only between the CAS that took the lock and the store that releases it.
//! 3. A poisoned lock has no holder, and looks taken to every function except [`TryLock::take_poisoned`].
#![expect(unsafe_code, reason = "the guard turns exclusion into references")]

use core::fmt;
use core::ops::{Deref, DerefMut};

use core::marker::PhantomData;
use core::mem;

use crate::atomic::{AtomicU8, Ordering, fence};
use crate::cell::UnsafeCell;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const POISONED: u8 = 2;

/// The effect of the holder's panic on a lock: [`Frees`] or [`Poisons`].
pub trait OnPanic {
    /// The state of the lock after a panic.
    #[doc(hidden)]
    const LEAVES: u8;
}

/// A panic of the holder releases the lock, like any other exit.
#[derive(Debug)]
pub struct Frees;

/// A panic of the holder leaves the lock taken, until [`TryLock::take_poisoned`] gives the value to a thread that repairs it. Needs
/// feature `std`; without it a panic releases the lock.
#[derive(Debug)]
pub struct Poisons;

impl OnPanic for Frees {
    const LEAVES: u8 = FREE;
}

impl OnPanic for Poisons {
    const LEAVES: u8 = POISONED;
}

/// A value that one thread at a time may access.
pub struct TryLock<T, P = Frees> {
    state: AtomicU8,
    on_panic: PhantomData<fn() -> P>,
    value: UnsafeCell<T>,
}

// SAFETY: invariants 1 and 2: threads access the value one after another, so it moves between them but is not shared.
unsafe impl<T: Send, P> Sync for TryLock<T, P> {}

impl<T> TryLock<T> {
    /// Returns a free lock around `value`. A panic of its holder releases it.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self::with(value)
    }

    /// Returns a free lock around `value`. A panic of its holder releases it.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self::with(value)
    }
}

impl<T, P: OnPanic> TryLock<T, P> {
    /// Returns a free lock around `value`. The type parameter `P` decides the effect of a panic.
    #[cfg(not(loom))]
    pub const fn with(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), on_panic: PhantomData, value: UnsafeCell::new(value) }
    }

    /// Returns a free lock around `value`. The type parameter `P` decides the effect of a panic.
    #[cfg(loom)]
    pub fn with(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), on_panic: PhantomData, value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free. A failed attempt only reads the lock's cache line.
    #[inline]
    pub fn try_lock(&self) -> Option<TryLockGuard<'_, T, P>> {
        if self.state.load(Ordering::Relaxed) != FREE {
            return None;
        }
        // SYNC: Acquire sees the last holder's changes; pairs with the Release in TryLockGuard::leave.
        match self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(TryLockGuard { lock: self }),
            Err(_) => None,
        }
    }

    /// Returns whether a holder has panicked and no thread has taken the value since.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == POISONED
    }

    /// Takes a poisoned lock, whose value may be half changed. `None` if it is not poisoned, or another thread was first.
    pub fn take_poisoned(&self) -> Option<TryLockGuard<'_, T, P>> {
        // SYNC: Acquire sees the holder's changes before its panic; pairs with the Release in TryLockGuard::leave.
        let taken = self.state.compare_exchange(POISONED, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(TryLockGuard { lock: self })
    }

    /// Does the work that other threads have left for the lock holder, until none is pending.
    ///
    /// A thread publishes its work where `pending` finds it, then calls this. Either the thread gets the lock and `work` runs,
    /// or the holder finds the work, as it rechecks after it has released the lock. Returns whether `work` ran here.
    ///
    /// `pending` must return true while published work is not served, and `work` must serve everything that it finds.
    pub fn serve(&self, pending: impl Fn() -> bool, mut work: impl FnMut(&mut T)) -> bool {
        let mut served = false;
        // SYNC: one side publishes, fences and reads the lock; the other releases the lock, fences and reads `pending`. As SeqCst
        // fences have a total order, at least one side sees the other's store.
        fence(Ordering::SeqCst);
        while let Some(mut guard) = self.try_lock() {
            work(&mut guard);
            guard.release();
            served = true;
            fence(Ordering::SeqCst);
            if !pending() {
                break;
            }
        }
        served
    }

    /// Returns the value without locking, as `&mut self` excludes other threads.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1: `&mut self` excludes every guard.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns whether a thread holds the lock. The result may be out of date when the caller gets it.
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }
}

impl<T, P: OnPanic> fmt::Debug for TryLock<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryLock").field("taken", &self.is_locked()).finish_non_exhaustive()
    }
}

/// A guard that gives access to the value and releases the lock when dropped.
pub struct TryLockGuard<'a, T, P: OnPanic = Frees> {
    lock: &'a TryLock<T, P>,
}

// SAFETY: a shared guard gives out only `&T`, so threads may share it if they may share `T`. (The guard may also move to
// another thread if T: Send, which follows from its reference to a Sync lock.)
unsafe impl<T: Send + Sync, P: OnPanic> Sync for TryLockGuard<'_, T, P> {}

impl<T, P: OnPanic> TryLockGuard<'_, T, P> {
    /// Releases the lock. Unlike dropping the guard, this does not check for a panic, so that a destructor can release the lock while
    /// its thread unwinds.
    #[inline]
    pub fn release(self) {
        self.leave(FREE);
        mem::forget(self);
    }

    #[inline]
    fn leave(&self, state: u8) {
        // SYNC: publishes the holder's changes; pairs with the Acquire in try_lock and take_poisoned.
        self.lock.state.store(state, Ordering::Release);
    }
}

impl<T, P: OnPanic> Deref for TryLockGuard<'_, T, P> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariant 2: this guard is the only one; its borrow excludes deref_mut.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, P: OnPanic> DerefMut for TryLockGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 2: this guard is the only one, and it is borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, P: OnPanic> Drop for TryLockGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        let panics = P::LEAVES != FREE && panicking();
        self.leave(if panics { P::LEAVES } else { FREE });
    }
}

/// Returns whether the calling thread unwinds.
#[inline]
fn panicking() -> bool {
    #[cfg(any(test, feature = "std"))]
    return std::thread::panicking();
    #[cfg(not(any(test, feature = "std")))]
    false
}

impl<T: fmt::Debug, P: OnPanic> fmt::Debug for TryLockGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TryLockGuard").field(&**self).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Poisons, TryLock};

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
    fn a_panic_of_the_holder_releases_the_lock() {
        let lock = TryLock::new(0);
        let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            let _guard = lock.try_lock().unwrap();
            panic!("inside");
        }));
        assert!(result.is_err());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_panic_of_the_holder_poisons_until_a_thread_takes_the_value() {
        let lock = TryLock::<_, Poisons>::with(0);
        let panics = || {
            let mut guard = lock.try_lock().unwrap();
            *guard = 1;
            panic!("inside");
        };
        assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(panics)).is_err());
        assert!(lock.is_poisoned() && lock.is_locked() && lock.try_lock().is_none());
        assert!(!lock.serve(|| true, |_| unreachable!("the lock is poisoned")));
        let guard = lock.take_poisoned().unwrap();
        assert!(*guard == 1 && lock.take_poisoned().is_none());
        drop(guard);
        assert!(!lock.is_poisoned() && lock.try_lock().is_some());
    }

    #[test]
    fn a_destructor_releases_the_lock_while_its_thread_unwinds() {
        struct Uses<'a>(&'a TryLock<i32, Poisons>);
        impl Drop for Uses<'_> {
            fn drop(&mut self) {
                assert!(std::thread::panicking());
                self.0.try_lock().unwrap().release();
            }
        }
        let lock = TryLock::<_, Poisons>::with(0);
        let panics = || {
            let _uses = Uses(&lock);
            panic!("outside");
        };
        assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(panics)).is_err());
        assert!(!lock.is_poisoned() && lock.try_lock().is_some());
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
