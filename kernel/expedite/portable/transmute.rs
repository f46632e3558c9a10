//! Types that may be copied from and to user space.

/// A type of which every bit pattern is a value.
///
/// # Safety
/// It is.
pub unsafe trait FromBytes {}

/// A type of which every byte is initialised.
///
/// # Safety
/// It is.
pub unsafe trait AsBytes {}

// SAFETY: an integer.
unsafe impl FromBytes for i32 {}
