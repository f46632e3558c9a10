//! Memory of the kernel: a box and a list.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{null_mut, NonNull};

use crate::bindings;
use crate::error::{code, Error};

/// Alignment of memory from the kernel's allocator, at least: `ARCH_KMALLOC_MINALIGN`.
const ALIGNMENT: usize = 8;

/// How memory is allocated: numbers that module.c knows.
#[derive(Debug, Clone, Copy)]
pub struct Flags(u32);

/// May sleep.
pub const GFP_KERNEL: Flags = Flags(0);
/// May sleep, and counts for the caller's group.
pub const GFP_KERNEL_ACCOUNT: Flags = Flags(1);
/// Does not sleep.
pub const GFP_ATOMIC: Flags = Flags(2);

/// No memory.
#[derive(Debug)]
pub struct AllocError;

impl From<AllocError> for Error {
    fn from(AllocError: AllocError) -> Self {
        code::ENOMEM
    }
}

/// Allocates memory for a value.
pub(crate) fn allocate<T>(value: T, flags: Flags) -> Result<NonNull<T>, AllocError> {
    const { assert!(size_of::<T>() > 0 && align_of::<T>() <= ALIGNMENT) };
    // SAFETY: the size is not 0, and the flags are some of those above.
    let memory = unsafe { bindings::expedite_alloc(size_of::<T>(), flags.0) };
    let place = NonNull::new(memory.cast::<T>()).ok_or(AllocError)?;
    // SAFETY: it is new memory of this size.
    unsafe { place.write(value) };
    Ok(place)
}

/// Drops a value and frees its memory.
///
/// # Safety
/// It came from `allocate`, and is not used any more.
pub(crate) unsafe fn free<T>(place: NonNull<T>) {
    // SAFETY: the caller guarantees this.
    unsafe {
        place.drop_in_place();
        bindings::expedite_free(place.as_ptr().cast());
    }
}

/// A value in memory of its own.
#[derive(Debug)]
pub struct KBox<T>(NonNull<T>);

// SAFETY: it owns the value.
unsafe impl<T: Send> Send for KBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for KBox<T> {}

impl<T> KBox<T> {
    /// Moves a value into new memory.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        allocate(value, flags).map(Self)
    }

    /// Returns the pointer to the value, which [`from_raw`](Self::from_raw) takes back.
    pub fn into_raw(this: Self) -> *mut T {
        ManuallyDrop::new(this).0.as_ptr()
    }

    /// Returns the box of a value.
    ///
    /// # Safety
    /// The pointer is that of [`into_raw`](Self::into_raw), and is used once.
    pub unsafe fn from_raw(pointer: *mut T) -> Self {
        // SAFETY: the caller guarantees that it is that of a box, so not null.
        Self(unsafe { NonNull::new_unchecked(pointer) })
    }
}

impl<T> Deref for KBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box owns the value.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for KBox<T> {
    fn drop(&mut self) {
        // SAFETY: the box owns the value, and ends.
        unsafe { free(self.0) };
    }
}

/// A list that grows.
#[derive(Debug)]
pub struct KVec<T> {
    first: *mut T,
    length: usize,
    room: usize,
}

// SAFETY: it owns the values.
unsafe impl<T: Send> Send for KVec<T> {}

impl<T> KVec<T> {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { first: null_mut(), length: 0, room: 0 }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// There is no memory.
    pub fn push(&mut self, value: T, flags: Flags) -> Result<(), AllocError> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= ALIGNMENT) };
        if self.length == self.room {
            self.grow(flags)?;
        }
        // SAFETY: there is room for one more.
        unsafe { self.first.add(self.length).write(value) };
        self.length = self.length.saturating_add(1);
        Ok(())
    }

    fn grow(&mut self, flags: Flags) -> Result<(), AllocError> {
        let room = self.room.saturating_mul(2).max(4);
        let bytes = room.checked_mul(size_of::<T>()).ok_or(AllocError)?;
        // SAFETY: the size is not 0, and the flags are valid.
        let memory = unsafe { bindings::expedite_alloc(bytes, flags.0) };
        if memory.is_null() {
            return Err(AllocError);
        }
        if self.length > 0 {
            // SAFETY: the new memory has room for the values, which move there.
            unsafe { self.first.copy_to_nonoverlapping(memory.cast(), self.length) };
        }
        // SAFETY: the old memory is not used any more, or is null.
        unsafe { bindings::expedite_free(self.first.cast()) };
        self.first = memory.cast();
        self.room = room;
        Ok(())
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: that many values are there.
        unsafe { core::slice::from_raw_parts(self.first, self.length) }
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.first, self.length) }
    }
}

impl<T> Drop for KVec<T> {
    fn drop(&mut self) {
        // SAFETY: the list owns the values, and ends; the memory may be null.
        unsafe {
            core::ptr::drop_in_place(&raw mut **self);
            bindings::expedite_free(self.first.cast());
        }
    }
}
