//! Numbers of requests, as include/uapi/asm-generic/ioctl.h makes them.

#![allow(non_snake_case, reason = "they are those of the kernel")]

const WRITE: u32 = 1;
const READ: u32 = 2;

const fn number(direction: u32, kind: u32, request: u32, size: usize) -> u32 {
    assert!(size < 1 << 14, "the number has 14 bits for the size");
    direction << 30 | (size as u32) << 16 | kind << 8 | request
}

/// A request that reads from the kernel.
pub const fn _IOR<T>(kind: u32, request: u32) -> u32 {
    number(READ, kind, request, size_of::<T>())
}

/// A request that writes to the kernel.
pub const fn _IOW<T>(kind: u32, request: u32) -> u32 {
    number(WRITE, kind, request, size_of::<T>())
}

/// A request that does both.
pub const fn _IOWR<T>(kind: u32, request: u32) -> u32 {
    number(READ | WRITE, kind, request, size_of::<T>())
}
