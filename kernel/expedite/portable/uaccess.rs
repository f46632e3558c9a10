//! Memory of user space.

use core::mem::MaybeUninit;

use crate::bindings;
use crate::error::{code, Result};
use crate::transmute::{AsBytes, FromBytes};

/// An address in user space, which may be invalid.
#[derive(Debug, Clone, Copy)]
pub struct UserPtr(usize);

impl UserPtr {
    /// Returns the pointer with this address.
    pub fn from_addr(address: usize) -> Self {
        Self(address)
    }
}

/// A range in user space.
#[derive(Debug)]
pub struct UserSlice {
    from: UserPtr,
    size: usize,
}

impl UserSlice {
    /// Returns the range of `size` bytes from here.
    pub fn new(from: UserPtr, size: usize) -> Self {
        Self { from, size }
    }

    /// Returns a reader of the range.
    pub fn reader(self) -> UserSliceReader {
        UserSliceReader(self)
    }

    /// Returns a writer of the range.
    pub fn writer(self) -> UserSliceWriter {
        UserSliceWriter(self)
    }

    /// Returns both.
    pub fn reader_writer(self) -> (UserSliceReader, UserSliceWriter) {
        let Self { from, size } = self;
        (UserSliceReader(self), UserSliceWriter(Self { from, size }))
    }
}

/// Reads one value.
#[derive(Debug)]
pub struct UserSliceReader(UserSlice);

impl UserSliceReader {
    /// Reads the value at the beginning of the range.
    ///
    /// # Errors
    /// `EFAULT`: the range is too short, or the memory cannot be read.
    pub fn read<T: FromBytes>(&mut self) -> Result<T> {
        let mut value = MaybeUninit::<T>::uninit();
        if size_of::<T>() > self.0.size {
            return Err(code::EFAULT);
        }
        // SAFETY: the value has that many bytes.
        let left = unsafe {
            bindings::expedite_read_user(value.as_mut_ptr().cast(), self.0.from.0, size_of::<T>())
        };
        if left > 0 {
            return Err(code::EFAULT);
        }
        // SAFETY: all bytes are set, and every bit pattern is a value.
        Ok(unsafe { value.assume_init() })
    }
}

/// Writes one value.
#[derive(Debug)]
pub struct UserSliceWriter(UserSlice);

impl UserSliceWriter {
    /// Writes a value to the beginning of the range.
    ///
    /// # Errors
    /// `EFAULT`: the range is too short, or the memory cannot be written.
    pub fn write<T: AsBytes>(&mut self, value: &T) -> Result {
        if size_of::<T>() > self.0.size {
            return Err(code::EFAULT);
        }
        let from = core::ptr::from_ref(value).cast();
        // SAFETY: the value has that many bytes, and all are initialised.
        let left = unsafe { bindings::expedite_write_user(self.0.from.0, from, size_of::<T>()) };
        if left > 0 {
            Err(code::EFAULT)
        } else {
            Ok(())
        }
    }
}
