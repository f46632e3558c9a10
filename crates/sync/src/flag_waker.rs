//! A slot for the waker of a task that awaits a flag.
//!
//! The flag itself is stored elsewhere. The awaiting task registers its waker, then reads the flag. The other side sets the
//! flag, then wakes. If the wake comes during a registration, the registering side wakes its task itself.
//!
//! # Invariants
//! 1. Only the side that moved the state from `IDLE` (to `REGISTERING` or to `WAKING`) accesses the slot, until it moves the
//!    state back.
//! 2. If `WAKING` is set while the state is `REGISTERING`, the registering side must wake its own task.
#![expect(unsafe_code, reason = "the state word decides which side may access the slot")]

use core::fmt;
use core::task::Waker;

use crate::atomic::{AtomicU8, Ordering};
use crate::cell::UnsafeCell;

const IDLE: u8 = 0;
const REGISTERING: u8 = 1;
const WAKING: u8 = 2;

/// A slot for one waker. Any thread may wake; one thread at a time may register.
pub struct FlagWaker {
    state: AtomicU8,
    slot: UnsafeCell<Option<Waker>>,
}

// SAFETY: invariant 1: one thread at a time accesses the slot, and a Waker is Send.
unsafe impl Sync for FlagWaker {}

impl FlagWaker {
    /// Returns an empty slot.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(IDLE), slot: UnsafeCell::new(None) }
    }

    /// Returns an empty slot.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(IDLE), slot: UnsafeCell::new(None) }
    }

    /// Stores the waker. The caller must read its flag *afterwards*. If another thread registers or wakes at the same time,
    /// wakes `waker` immediately, so that its task registers again.
    pub fn register(&self, waker: &Waker) {
        // SYNC: Acquire sees the last waking side's access to the slot; pairs with the store in take.
        let begun = self.state.compare_exchange(IDLE, REGISTERING, Ordering::Acquire, Ordering::Acquire);
        if begun.is_err() {
            waker.wake_by_ref();
            return;
        }
        // If the foreign code of Waker::clone panics, the state remains REGISTERING. Later registrations then wake their task
        // immediately, so that it polls instead of hanging. The old waker is dropped after the slot is released.
        let old = self.swap_if_other(waker);
        // SYNC: publishes the slot; pairs with the fetch_or in take. Acquire sees the flag of a wake that came meanwhile.
        let ended = self.state.compare_exchange(REGISTERING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if ended.is_err() {
            // Invariant 2 requires this wake.
            let waker = self.take_slot();
            self.state.swap(IDLE, Ordering::AcqRel);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        drop(old);
    }

    /// Wakes the registered task, if there is one.
    pub fn wake(&self) {
        if let Some(waker) = self.take() {
            waker.wake();
        }
    }

    /// Takes the registered waker out; the caller may wake it later. Returns `None` if there is none, or if a registration is in
    /// progress; the registering side then wakes its own task.
    pub fn take(&self) -> Option<Waker> {
        // SYNC: Acquire sees the registered waker; Release publishes the flag set before to a registering side.
        match self.state.fetch_or(WAKING, Ordering::AcqRel) {
            IDLE => {
                let waker = self.take_slot();
                // SYNC: releases the slot; pairs with the CAS in register.
                self.state.store(IDLE, Ordering::Release);
                waker
            }
            _ => None,
        }
    }

    /// Stores `waker` unless the slot has a waker of the same task. Returns the replaced waker. The caller ensures invariant 1.
    fn swap_if_other(&self, waker: &Waker) -> Option<Waker> {
        self.slot.with_mut(|slot| {
            // SAFETY: invariant 1: the caller moved the state from IDLE to REGISTERING.
            let slot = unsafe { &mut *slot };
            match slot {
                Some(old) if old.will_wake(waker) => None,
                _ => slot.replace(waker.clone()),
            }
        })
    }

    /// Empties the slot. The caller ensures invariant 1.
    fn take_slot(&self) -> Option<Waker> {
        self.slot.with_mut(|slot| {
            // SAFETY: invariant 1: the caller moved the state from IDLE.
            unsafe { &mut *slot }.take()
        })
    }
}

impl Default for FlagWaker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FlagWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlagWaker").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use core::task::Waker;

    use super::FlagWaker;
    use crate::atomic::{AtomicU32, Ordering};

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_last_registered_waker_is_woken_once() {
        let (first, second) = (Arc::new(Count(AtomicU32::new(0))), Arc::new(Count(AtomicU32::new(0))));
        let slot = FlagWaker::new();
        slot.wake();
        slot.register(&Waker::from(Arc::clone(&first)));
        slot.register(&Waker::from(Arc::clone(&second)));
        slot.wake();
        slot.wake();
        assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(Arc::strong_count(&first), 1, "a replaced waker is dropped");
    }

    #[test]
    fn take_returns_the_waker_without_waking_it() {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let slot = FlagWaker::new();
        assert!(slot.take().is_none());
        slot.register(&Waker::from(Arc::clone(&count)));
        let taken = slot.take().unwrap();
        assert!(slot.take().is_none());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        taken.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
