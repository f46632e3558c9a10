// SPDX-License-Identifier: GPL-2.0
//! The portable form of the module: the same sources, without the Rust code of the kernel, compiled ahead of the kernel's own build.
//!
//! This file and the folder portable/ stand for the crate `kernel`, as far as the sources use it, on the functions of module.c. The
//! result is one object for all kernels: it contains no offset of a structure of the kernel, and room for the largest. The C files are
//! compiled for each kernel.
//!
//! # Invariants
//! 1. The declarations are those of module.h and of exported functions of the kernel.

#![no_std]
#![allow(non_upper_case_globals, reason = "names of C")]
#![warn(missing_docs, unreachable_pub, clippy::undocumented_unsafe_blocks)]

extern crate self as kernel;

use core::panic::PanicInfo;

mod abi;
mod accounts;
#[path = "portable/bindings.rs"]
pub mod bindings;
mod engine;
#[path = "portable/error.rs"]
pub mod error;
mod flags;
mod glue;
#[path = "portable/ioctl.rs"]
pub mod ioctl;
mod links;
#[path = "portable/memory.rs"]
mod memory;
#[path = "../../crates/sched-policy/src/policy/mod.rs"]
pub mod policy;
#[path = "portable/print.rs"]
mod print;
mod state;
#[path = "portable/sync.rs"]
pub mod sync;
mod threads;
#[path = "portable/transmute.rs"]
pub mod transmute;
#[path = "portable/uaccess.rs"]
pub mod uaccess;

use crate::bindings::c_uint;
use crate::flags::DeviceFlags;
use crate::memory::{KBox, GFP_KERNEL_ACCOUNT};

/// Types of C.
pub mod ffi {
    pub use core::ffi::c_void;

    pub use crate::bindings::{c_int, c_uint, c_ulong};
}

/// The names that the sources import with one line.
pub mod prelude {
    pub use crate::error::code::*;
    pub use crate::error::{Error, Result};
    pub use crate::memory::{KBox, KVec, GFP_ATOMIC, GFP_KERNEL, GFP_KERNEL_ACCOUNT};
    pub use crate::{pr_err, pr_info};
}

/// Returns a pointer to the structure that contains a field.
#[macro_export]
macro_rules! container_of {
    ($field:expr, $structure:ty, $name:ident) => {
        $field.byte_sub(core::mem::offset_of!($structure, $name)).cast::<$structure>()
    };
}

/// Sizes that module.c compares with those of its structures.
#[no_mangle]
static expedite_rooms: [u32; 8] = [
    size_of::<bindings::hrtimer>() as u32,
    size_of::<bindings::irq_work>() as u32,
    size_of::<bindings::kthread_work>() as u32,
    size_of::<glue::Waiter>() as u32,
    size_of::<glue::Snapshot>() as u32,
    size_of::<glue::Obstacles>() as u32,
    size_of::<engine::Parameters>() as u32,
    size_of::<glue::Hold>() as u32,
];

/// Starts the module. Returns 0 or an error.
///
/// # Safety
/// Called once, when the module is loaded, with valid parameters.
#[no_mangle]
unsafe extern "C" fn expedite_module_start(parameters: *const engine::Parameters) -> i32 {
    // SAFETY: the caller guarantees this.
    match engine::Engine::start(unsafe { &*parameters }) {
        Ok(engine) => {
            // `expedite_module_stop` stops it.
            core::mem::forget(engine);
            0
        }
        Err(error) => error.to_errno(),
    }
}

/// Stops the module.
///
/// # Safety
/// Called once, after a successful start, when every device is closed.
#[no_mangle]
unsafe extern "C" fn expedite_module_stop() {
    drop(engine::Engine);
}

/// Returns the flags of a new device, or null.
#[no_mangle]
extern "C" fn expedite_open() -> *mut DeviceFlags {
    KBox::new(DeviceFlags::new(), GFP_KERNEL_ACCOUNT).map_or(core::ptr::null_mut(), KBox::into_raw)
}

/// Removes the flags of a device.
///
/// # Safety
/// They are those of `expedite_open`, and are not used any more.
#[no_mangle]
unsafe extern "C" fn expedite_close(device: *mut DeviceFlags) {
    // SAFETY: the caller guarantees this.
    let device = unsafe { KBox::from_raw(device) };
    flags::device_closed(&device);
}

/// Handles a request. Returns 0 or an error.
///
/// # Safety
/// The flags are those of `expedite_open`.
#[no_mangle]
unsafe extern "C" fn expedite_request(device: *const DeviceFlags, command: c_uint, argument: usize) -> i32 {
    // SAFETY: the caller guarantees this.
    let device = unsafe { &*device };
    match engine::request(device, command, argument) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    print::error(format_args!("{info}\n"));
    // SAFETY: [I1] it has no preconditions, and does not return.
    unsafe { bindings::expedite_panic() }
}
