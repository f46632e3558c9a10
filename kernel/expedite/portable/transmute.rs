//! Types that may be copied from and to user space.

/// A type that may be read from any bytes.
///
/// # Safety
/// Every bit pattern is a value of the type.
pub unsafe trait FromBytes {}

/// A type whose bytes may be copied.
///
/// # Safety
/// Every byte of a value is initialised.
pub unsafe trait AsBytes {}

// SAFETY: an integer.
unsafe impl FromBytes for i32 {}
