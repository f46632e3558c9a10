//! Scheduling decisions as pure functions: everything is in [`policy`], which the kernel module includes by path.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod policy;
