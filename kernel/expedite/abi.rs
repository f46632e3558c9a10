// SPDX-License-Identifier: GPL-2.0
//! The ABI with user space: expedite.h in Rust. abi.c compares the two when the module is compiled.

use kernel::ioctl::{_IOR, _IOW, _IOWR};
use kernel::prelude::*;
use kernel::transmute::{AsBytes, FromBytes};

/// `struct expedite_flag`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Flag {
    pub(crate) fd: i32,
    pub(crate) tid: i32,
    pub(crate) slice_ns: u64,
    pub(crate) percent: u32,
    pub(crate) options: u32,
    pub(crate) reserved: u64,
}

/// `EXPEDITE_SLEEPERS_ONLY`.
pub(crate) const SLEEPERS_ONLY: u32 = 1;

/// `struct expedite_wait`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) fd: i32,
    pub(crate) reserved: u32,
    pub(crate) timeout_ns: u64,
}

/// `struct expedite_counts`: counters of one thread, or of all threads together.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) direct: u64,
    pub(crate) worker: u64,
    pub(crate) running: u64,
    pub(crate) boosted: u64,
    pub(crate) realtime: u64,
    pub(crate) idle: u64,
    pub(crate) behind: u64,
    pub(crate) locked: u64,
    pub(crate) denied_thread: u64,
    pub(crate) denied_user: u64,
    pub(crate) denied_cpu: u64,
    pub(crate) denied_flag: u64,
    pub(crate) denied_group: u64,
    pub(crate) denied_memory: u64,
    pub(crate) drops: u64,
    pub(crate) replaced: u64,
    pub(crate) boosted_ns: u64,
    pub(crate) slept_ns: u64,
}

/// `struct expedite_query`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Query {
    pub(crate) tid: i32,
    pub(crate) reserved: u32,
    pub(crate) counts: Counts,
    pub(crate) left_ns: u64,
}

/// `EXPEDITE_WAYS`.
pub(crate) const WAYS: usize = 6;

/// `struct expedite_totals`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) flags: u64,
    pub(crate) threads: u64,
    pub(crate) accounts: u64,
    pub(crate) by_way: [u64; WAYS],
    pub(crate) counts: Counts,
}

/// `struct expedite_caps`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Caps {
    pub(crate) slice_us: u32,
    pub(crate) thread_percent: u32,
    pub(crate) user_percent: u32,
    pub(crate) cpu_percent: u32,
    pub(crate) sleepers_only: u32,
    pub(crate) even_if_idle: u32,
    pub(crate) user_flags: u32,
    pub(crate) reserved: u32,
}

// SAFETY: [I1] integers without padding: every bit pattern is a value.
unsafe impl FromBytes for Flag {}
// SAFETY: [I1] integers without padding: every bit pattern is a value.
unsafe impl FromBytes for Wait {}
// SAFETY: [I1] integers without padding: every bit pattern is a value.
unsafe impl FromBytes for Query {}
// SAFETY: [I1] integers without padding: every byte is initialised.
unsafe impl AsBytes for Query {}
// SAFETY: [I1] integers without padding: every byte is initialised.
unsafe impl AsBytes for Totals {}
// SAFETY: [I1] integers without padding: every byte is initialised.
unsafe impl AsBytes for Caps {}

pub(crate) const FLAG: u32 = _IOW::<Flag>('E' as u32, 0xe0);
pub(crate) const UNFLAG: u32 = _IOW::<i32>('E' as u32, 0xe1);
pub(crate) const QUERY: u32 = _IOWR::<Query>('E' as u32, 0xe2);
pub(crate) const WAIT: u32 = _IOW::<Wait>('E' as u32, 0xe3);
pub(crate) const TOTALS: u32 = _IOR::<Totals>('E' as u32, 0xe4);

pub(crate) const FIND: u32 = _IOW::<i32>('E' as u32, 0xe5);
pub(crate) const CAPS: u32 = _IOR::<Caps>('E' as u32, 0xe6);

/// `EXPEDITE_FLAGS_MAX`.
pub(crate) const FLAGS_MAX: u32 = 1024;

/// `EXPEDITE_FLAGS_PER_FILE`.
pub(crate) const FLAGS_PER_FILE: usize = 8;

// The command numbers of expedite.h, which contain the sizes: 32, 4, 168, 16, 224 and 32 bytes.
const _: () = assert!(FLAG == 0x4020_45e0 && UNFLAG == 0x4004_45e1 && FIND == 0x4004_45e5);
const _: () = assert!(QUERY == 0xc0a8_45e2 && WAIT == 0x4010_45e3 && TOTALS == 0x80e0_45e4);
const _: () = assert!(CAPS == 0x8020_45e6);

impl Flag {
    /// Returns the request if its reserved fields are zero and its values are in range.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.reserved == 0 && self.options <= SLEEPERS_ONLY && self.tid >= 0 && self.percent <= 100 {
            Ok(self)
        } else {
            Err(EINVAL)
        }
    }
}

impl Wait {
    /// Returns the request if its reserved field is zero.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.reserved == 0 {
            Ok(self)
        } else {
            Err(EINVAL)
        }
    }
}
