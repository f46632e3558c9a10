//! Errors of the kernel.

use core::num::NonZeroI32;

use crate::bindings::c_int;

/// A negative error number, as the kernel returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(NonZeroI32);

/// A result with an error of the kernel.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// Returns the error of a negative number. Other numbers are `EINVAL`.
    pub fn from_errno(errno: c_int) -> Self {
        match NonZeroI32::new(errno) {
            Some(number) if errno < 0 => Self(number),
            _ => code::EINVAL,
        }
    }

    /// Returns the negative number.
    pub fn to_errno(self) -> c_int {
        self.0.get()
    }
}

/// Returns the result that a number of the kernel stands for: negative ones are errors.
pub fn to_result(number: c_int) -> Result {
    if number < 0 {
        Err(Error::from_errno(number))
    } else {
        Ok(())
    }
}

/// The error numbers that the module uses.
pub mod code {
    use super::{Error, NonZeroI32};

    macro_rules! codes {
        ($($name:ident = $number:literal;)*) => {$(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: Error = match NonZeroI32::new(-$number) {
                Some(number) => Error(number),
                None => unreachable!(),
            };
        )*};
    }

    // include/uapi/asm-generic/errno-base.h and errno.h
    codes! {
        EPERM = 1;
        ENOENT = 2;
        ESRCH = 3;
        EBADF = 9;
        ENOMEM = 12;
        EFAULT = 14;
        EEXIST = 17;
        ENODEV = 19;
        EINVAL = 22;
        ENOTTY = 25;
        ENOSPC = 28;
    }
}
