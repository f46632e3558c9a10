//! A box that the first thread fills and all threads read. A value that is rarely needed takes no memory until then.
//!
//! # Invariants
//! 1. The pointer is null, or came from a box. It changes once, from null, and the box is dropped with the `OnceBox`.
#![expect(unsafe_code, reason = "the pointer is that of a box which stays until the `OnceBox` is dropped")]

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

use crate::atomic::{AtomicPtr, Ordering};

/// A lazily made value on the heap. Reading costs a load and a comparison; no thread ever waits.
pub struct OnceBox<T> {
    at: AtomicPtr<T>,
    /// Marks that this type owns a value and returns references to it on any thread.
    owns: PhantomData<Box<T>>,
}

// SAFETY: invariant 1: threads share the value by reference, and the thread that drops the `OnceBox` drops the value.
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    /// Returns an empty box.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Returns an empty box.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Returns the value, if one was made already.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SYNC: sees the complete value; pairs with the exchange in `get_or_make`.
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: invariant 1: the value stays as long as the `OnceBox` is borrowed, and no thread changes it.
        unsafe { at.as_ref() }
    }

    /// Returns the value, and makes it if there is none. If two threads make a value concurrently, the later one drops its own.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let made = Box::into_raw(Box::new(make()));
        // SYNC: publishes the value; pairs with the load in `get`. Acquire sees the value of a thread that was first.
        let at = match self.at.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: `made` came from a box above, and was not published.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        };
        // SAFETY: invariant 1: as in `get`.
        unsafe { &*at }
    }
}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        // A model that ended in a deadlock has no running thread, and a load would panic again.
        #[cfg(loom)]
        if std::thread::panicking() {
            return;
        }
        // SYNC: the thread that drops the `OnceBox` has seen all earlier accesses to it.
        let at = self.at.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: invariant 1: the pointer came from a box, and no thread borrows the `OnceBox`.
            drop(unsafe { Box::from_raw(at) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceBox").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::sync::Arc;

    use super::OnceBox;

    #[test]
    fn the_first_value_stays_until_the_box_is_dropped() {
        let value = Arc::new(());
        let place = OnceBox::new();
        assert!(place.get().is_none());
        assert!(Arc::ptr_eq(place.get_or_make(|| Arc::clone(&value)), &value));
        place.get_or_make(|| panic!("a value was made already"));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
