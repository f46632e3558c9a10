// SPDX-License-Identifier: GPL-2.0
//! The ABI with user space: expedite.h in Rust. abi.c compares the two when the module is compiled.

use kernel::ioctl::{_IOW, _IOWR};
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
    pub(crate) reserved: u32,
    pub(crate) more_reserved: u64,
}

/// `struct expedite_wait`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) fd: i32,
    pub(crate) reserved: u32,
    pub(crate) timeout_ns: u64,
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

/// Counters of one thread, or of all threads together.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) direct: u64,
    pub(crate) worker: u64,
    pub(crate) running: u64,
    pub(crate) boosted: u64,
    pub(crate) realtime: u64,
    pub(crate) denied_thread: u64,
    pub(crate) denied_user: u64,
    pub(crate) denied_cpu: u64,
    pub(crate) denied_flag: u64,
    pub(crate) denied_memory: u64,
    pub(crate) drops: u64,
    pub(crate) replaced: u64,
    pub(crate) boosted_ns: u64,
}

// SAFETY: [I1] integers without padding: every bit pattern is a value.
unsafe impl FromBytes for Flag {}
// SAFETY: [I1] integers without padding: every bit pattern is a value.
unsafe impl FromBytes for Wait {}
// SAFETY: [I1] integers without padding: every bit pattern is a value.
unsafe impl FromBytes for Query {}
// SAFETY: [I1] integers without padding: every byte is initialised.
unsafe impl AsBytes for Query {}

pub(crate) const FLAG: u32 = _IOW::<Flag>('E' as u32, 0xe0);
pub(crate) const UNFLAG: u32 = _IOW::<i32>('E' as u32, 0xe1);
pub(crate) const QUERY: u32 = _IOWR::<Query>('E' as u32, 0xe2);
pub(crate) const WAIT: u32 = _IOW::<Wait>('E' as u32, 0xe3);

/// `EXPEDITE_FLAGS_MAX`.
pub(crate) const FLAGS_MAX: u32 = 1024;

// The command numbers of expedite.h, which contain the sizes: 32, 4, 128 and 16 bytes.
const _: () = assert!(FLAG == 0x4020_45e0 && UNFLAG == 0x4004_45e1);
const _: () = assert!(QUERY == 0xc080_45e2 && WAIT == 0x4010_45e3);

impl Flag {
    /// Returns the request if its reserved fields are zero and its values are in range.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.reserved == 0 && self.more_reserved == 0 && self.tid >= 0 && self.percent <= 100 {
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

impl Counts {
    /// Adds the difference between `after` and `before`.
    pub(crate) fn add_new(&mut self, before: &Self, after: &Self) {
        let add = |total: &mut u64, before: u64, after: u64| {
            *total = total.wrapping_add(after.wrapping_sub(before));
        };
        add(&mut self.calls, before.calls, after.calls);
        add(&mut self.direct, before.direct, after.direct);
        add(&mut self.worker, before.worker, after.worker);
        add(&mut self.running, before.running, after.running);
        add(&mut self.boosted, before.boosted, after.boosted);
        add(&mut self.realtime, before.realtime, after.realtime);
        add(&mut self.denied_thread, before.denied_thread, after.denied_thread);
        add(&mut self.denied_user, before.denied_user, after.denied_user);
        add(&mut self.denied_cpu, before.denied_cpu, after.denied_cpu);
        add(&mut self.denied_flag, before.denied_flag, after.denied_flag);
        add(&mut self.denied_memory, before.denied_memory, after.denied_memory);
        add(&mut self.drops, before.drops, after.drops);
        add(&mut self.replaced, before.replaced, after.replaced);
        add(&mut self.boosted_ns, before.boosted_ns, after.boosted_ns);
    }
}
