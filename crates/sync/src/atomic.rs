//! The atomic types: wrappers of those of `core`, or of loom's when the model checker runs.
//!
//! The wrappers have the layout of `core`'s types, and only those operations that loom has, too. Therefore code that
//! compiles for production also compiles for the model checker, and a lint can forbid `core`'s types everywhere else.
//!
//! With `--cfg simulated` each operation is preceded by a switch point of the simulation; see `simulated`.
#![cfg_attr(
    not(loom),
    expect(
        clippy::disallowed_types,
        reason = "this module wraps the types that all other code must not use"
    )
)]

use alloc::boxed::Box;

#[cfg(not(loom))]
use core::sync::atomic as imp;
#[cfg(loom)]
use loom::sync::atomic as imp;

pub use imp::{Ordering, fence};

/// Called before each operation: with `--cfg simulated`, another simulated thread may run here.
#[inline(always)]
fn switch_point() {
    #[cfg(simulated)]
    crate::simulated::point();
}

/// The operations that every atomic type has.
macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[doc = concat!("A `", stringify!($value), "` that threads share, with the layout of one.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(imp::$name);

        impl $name {
            /// Returns an atomic that holds `value`.
            #[cfg(not(loom))]
            pub const fn new(value: $value) -> Self {
                Self(imp::$name::new(value))
            }

            /// Returns an atomic that holds `value`.
            #[cfg(loom)]
            pub fn new(value: $value) -> Self {
                Self(imp::$name::new(value))
            }

            /// Reads the value.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $value {
                switch_point();
                self.0.load(order)
            }

            /// Writes the value.
            #[inline(always)]
            pub fn store(&self, value: $value, order: Ordering) {
                switch_point();
                self.0.store(value, order);
            }

            /// Writes the value and returns the previous one.
            #[inline(always)]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                switch_point();
                self.0.swap(value, order)
            }

            /// Writes `new` if the value is `current`. Returns the previous value, as an error if it was not `current`.
            #[inline(always)]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                switch_point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Writes `new` if the value is `current`, like [`compare_exchange`](Self::compare_exchange), but may fail
            /// spuriously. For loops.
            #[inline(always)]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                switch_point();
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// Combines the value with `value` by OR, and returns the previous value.
            #[inline(always)]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                switch_point();
                self.0.fetch_or(value, order)
            }

            /// Combines the value with `value` by AND, and returns the previous value.
            #[inline(always)]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                switch_point();
                self.0.fetch_and(value, order)
            }
        }
    };
}

/// The additional operations of numbers.
macro_rules! atomic_number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        impl $name {
            /// Adds, wrapping, and returns the previous value.
            #[inline(always)]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                switch_point();
                self.0.fetch_add(value, order)
            }

            /// Subtracts, wrapping, and returns the previous value.
            #[inline(always)]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                switch_point();
                self.0.fetch_sub(value, order)
            }

            /// Writes the greater of the two, and returns the previous value.
            #[inline(always)]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                switch_point();
                self.0.fetch_max(value, order)
            }

            /// Replaces the value `v` by `f(v)`. Repeats this if another thread changes the value meanwhile. Fails if `f` returns
            /// `None`.
            #[inline(always)]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                switch_point();
                self.0.fetch_update(success, failure, f)
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic_number!(AtomicU8, u8);
atomic_number!(AtomicU16, u16);
atomic_number!(AtomicU32, u32);
atomic_number!(AtomicU64, u64);
atomic_number!(AtomicUsize, usize);

/// A pointer that threads share, with the layout of one.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(imp::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// Returns an atomic that holds `value`.
    #[cfg(not(loom))]
    pub const fn new(value: *mut T) -> Self {
        Self(imp::AtomicPtr::new(value))
    }

    /// Returns an atomic that holds `value`.
    #[cfg(loom)]
    pub fn new(value: *mut T) -> Self {
        Self(imp::AtomicPtr::new(value))
    }

    /// Reads the pointer.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> *mut T {
        switch_point();
        self.0.load(order)
    }

    /// Writes `new` if the pointer is `current`. Returns the previous pointer, as an error if it was not `current`.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        switch_point();
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// Returns a boxed slice of `n` zeroed words. It is allocated as zeroed memory, so that untouched pages of a large table
/// never become resident.
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "zeroed memory is made atomic without touching it")]
pub fn zeroed_u64s(n: usize) -> Box<[AtomicU64]> {
    const {
        assert!(align_of::<AtomicU64>() == align_of::<u64>());
    }
    let words = Box::into_raw(alloc::vec![0u64; n].into_boxed_slice());
    // SAFETY: AtomicU64 has the size and bit validity of u64, its alignment is compared above, and the box that
    // owned the words was converted to this pointer.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}

/// Returns a boxed slice of `n` zeroed words.
#[cfg(loom)]
pub fn zeroed_u64s(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{AtomicU32, Ordering, zeroed_u64s};

    #[test]
    fn an_atomic_is_laid_out_like_its_value() {
        assert_eq!(size_of::<AtomicU32>(), 4);
        assert_eq!(align_of::<AtomicU32>(), 4);
    }

    #[test]
    fn a_zeroed_table_is_usable_to_its_end() {
        let table = zeroed_u64s(1000);
        table[999].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(table.iter().map(|word| word.load(Ordering::Relaxed)).max(), Some(u64::MAX));
        assert_eq!(table[0].load(Ordering::Relaxed), 0);
    }
}
