//! A place that is filled once, by whichever thread comes first, and read by all: what most users never need takes no memory.
//!
//! # Invariants
//! 1. The pointer is null, or came from a box; it changes once, from null, and the box is dropped with the place.
#![expect(unsafe_code, reason = "the pointer is that of a box which stays until the place goes")]

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

use crate::atomic::{AtomicPtr, Ordering};

/// A place for one value, on the heap. Reading costs a load and a comparison; nobody ever waits.
pub struct OnceBox<T> {
    at: AtomicPtr<T>,
    /// It owns a value, and hands out references to it from any thread.
    owns: PhantomData<Box<T>>,
}

// SAFETY: invariant 1: threads share the value by reference, and whichever drops the place drops the value.
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> OnceBox<T> {
    /// An empty place.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// An empty place.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// The value, if there is one by now.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SYNC: sees the value as it was made; pairs with the exchange in `get_or_make`.
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: invariant 1: the value stays as long as the place is borrowed, and nobody changes it.
        unsafe { at.as_ref() }
    }

    /// The value; made now if there is none. Of two threads that make one at a time the later one drops its own.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let made = Box::into_raw(Box::new(make()));
        // SYNC: publishes the value; pairs with the load in `get`. Acquire sees the value of who came first.
        let at = match self.at.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: it came from a box above, and was not published.
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
        // SYNC: whoever drops the place has seen all that was done with it.
        let at = self.at.load(Ordering::Acquire);
        if !at.is_null() {
            // SAFETY: invariant 1: it came from a box, and nobody borrows the place.
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
    fn the_first_value_stays_and_goes_with_its_place() {
        let value = Arc::new(());
        let place = OnceBox::new();
        assert!(place.get().is_none());
        assert!(Arc::ptr_eq(place.get_or_make(|| Arc::clone(&value)), &value));
        place.get_or_make(|| panic!("there is one"));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
