//! A cell that threads share by their own rules; loom checks that the rules hold.

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// Interior mutability whose exclusion is somebody else's promise.
///
/// The closures get raw pointers: whoever dereferences one states why no other access overlaps.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Shows the cell's place for reading.
    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Shows the cell's place for writing.
    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }

    /// What was in it.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
