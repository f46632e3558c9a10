//! Shared values: one lock, counted references, and protection from being freed.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{fence, AtomicU32, Ordering};

use crate::bindings;
use crate::memory::{allocate, free, AllocError, Flags};

pub use crate::global_lock;

/// Defines `FLAGS`, a value under the mutex of module.c. There is one mutex, so there is no other value.
#[macro_export]
macro_rules! global_lock {
    (unsafe(uninit) static FLAGS: Mutex<$kind:ty> = $value:expr;) => {
        static FLAGS: $crate::sync::Global<$kind> = $crate::sync::Global::new($value);
    };
}

/// The value under the mutex.
pub struct Global<T>(UnsafeCell<T>);

// SAFETY: it is accessed under the mutex only.
unsafe impl<T: Send> Sync for Global<T> {}

impl<T> Global<T> {
    /// Returns a value that is accessed under the mutex.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Does nothing: the mutex of module.c is always ready.
    ///
    /// # Safety
    /// None is needed; the kernel's function of this name has conditions.
    pub unsafe fn init(&self) {}

    /// Locks the mutex. May sleep.
    pub fn lock(&self) -> Guard<'_, T> {
        // SAFETY: the guard unlocks it.
        unsafe { bindings::expedite_mutex_lock() };
        Guard(self)
    }
}

/// Access to the value, until it is dropped.
pub struct Guard<'a, T>(&'a Global<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked.
        unsafe { &*self.0 .0.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is locked.
        unsafe { &mut *self.0 .0.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `lock` has locked it.
        unsafe { bindings::expedite_mutex_unlock() };
    }
}

struct Counted<T> {
    count: AtomicU32,
    value: T,
}

/// A shared value that lives as long as its last reference.
pub struct Arc<T>(NonNull<Counted<T>>);

// SAFETY: as for the standard library's.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    /// Moves a value into new memory.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        allocate(Counted { count: AtomicU32::new(1), value }, flags).map(Self)
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: this is a reference, so the value is valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // A file has 8 flags and a thread one boost, so there are never 2^31 references.
        self.counted().count.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.counted().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last reference.
            unsafe { free(self.0) };
        }
    }
}

/// Sections in which nothing that RCU protects is freed.
pub mod rcu {
    use crate::bindings;

    /// Such a section, until it is dropped.
    pub struct Guard(());

    /// Begins such a section.
    pub fn read_lock() -> Guard {
        // SAFETY: the guard ends it.
        unsafe { bindings::expedite_rcu_read_lock() };
        Guard(())
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            // SAFETY: `read_lock` began it.
            unsafe { bindings::expedite_rcu_read_unlock() };
        }
    }
}
