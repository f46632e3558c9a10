//! One slot for the waker of whoever awaits a flag.
//!
//! The flag itself lies elsewhere. The awaiting task registers, then looks at the flag; the other side sets the flag, then
//! wakes. A wake that meets a registration half-way is carried out by the registering side.
//!
//! # Invariants
//! 1. The slot is reached only by who moved the state from `IDLE` (to `REGISTERING`, or to `WAKING`), until that side
//!    moves it back.
//! 2. `WAKING` set while `REGISTERING` is a duty of the registering side: it wakes its own task.
#![expect(unsafe_code, reason = "the state word decides who may touch the slot")]

use core::fmt;
use core::task::Waker;

use crate::atomic::{AtomicU8, Ordering};
use crate::cell::UnsafeCell;

const IDLE: u8 = 0;
const REGISTERING: u8 = 1;
const WAKING: u8 = 2;

/// A slot for one waker; any thread may wake, one at a time may register.
pub struct FlagWaker {
    state: AtomicU8,
    slot: UnsafeCell<Option<Waker>>,
}

// SAFETY: invariant 1: the slot is reached by one thread at a time, and a Waker is Send.
unsafe impl Sync for FlagWaker {}

impl FlagWaker {
    /// An empty slot.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(IDLE), slot: UnsafeCell::new(None) }
    }

    /// An empty slot.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(IDLE), slot: UnsafeCell::new(None) }
    }

    /// Remembers whom to wake; the caller looks at its flag *afterwards*. If another thread is registering or waking at
    /// this moment, `waker` is woken at once, so that its task comes again.
    pub fn register(&self, waker: &Waker) {
        // SYNC: Acquire sees the slot as the last waking side left it; pairs with the store in take.
        let begun = self.state.compare_exchange(IDLE, REGISTERING, Ordering::Acquire, Ordering::Acquire);
        if begun.is_err() {
            waker.wake_by_ref();
            return;
        }
        // A panic in the foreign code of Waker::clone leaves the state REGISTERING: later registrations wake themselves
        // at once, so the task polls instead of hanging. The old waker is dropped when the slot is given back.
        let old = self.swap_if_other(waker);
        // SYNC: publishes the slot; pairs with the swap in take. Acquire sees the flag of a wake that came meanwhile.
        let ended = self.state.compare_exchange(REGISTERING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if ended.is_err() {
            // Invariant 2.
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

    /// Takes the registered waker out, to be woken later or not at all. None if there is none, or if a registration is
    /// going on: then the registering side wakes itself.
    pub fn take(&self) -> Option<Waker> {
        // SYNC: Acquire sees the registered waker; Release publishes the flag set before to a registering side.
        match self.state.fetch_or(WAKING, Ordering::AcqRel) {
            IDLE => {
                let waker = self.take_slot();
                // SYNC: gives the slot back; pairs with the CAS in register.
                self.state.store(IDLE, Ordering::Release);
                waker
            }
            _ => None,
        }
    }

    /// Puts `waker` in unless it would wake the same task anyway; returns what was there. Caller: invariant 1.
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

    /// Empties the slot. Caller: invariant 1.
    fn take_slot(&self) -> Option<Waker> {
        self.slot.with_mut(|slot| {
            // SAFETY: invariant 1: the caller holds the state.
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
    fn take_hands_the_waker_out_without_waking() {
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
