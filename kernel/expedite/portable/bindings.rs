//! Functions and structures of the kernel, and of module.c.
//!
//! The structures have room for those of every kernel that was tried; module.c compares their sizes when it is compiled.

#![allow(missing_docs, non_camel_case_types, reason = "the names are those of the kernel")]

pub use core::ffi::c_void;

pub type c_int = i32;
pub type c_uint = u32;
pub type c_ulong = u64;

pub const EDEADLK: c_uint = 35;
pub const EOPNOTSUPP: c_uint = 95;

/// Room for a structure of the kernel.
type Room<const WORDS: usize> = [u64; WORDS];

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

macro_rules! with_room {
    ($($name:ident: $words:expr;)*) => {$(
        #[repr(C)]
        #[derive(Default)]
        pub struct $name {
            room: Room<$words>,
        }
    )*};
}

opaque! { task_struct file wait_queue_head }

with_room! {
    hrtimer: 16;
    irq_work: 8;
    kthread_work: 16;
}

/// `struct wait_queue_entry`, whose fields have been the same since Linux 4.13.
#[repr(C)]
pub struct wait_queue_entry {
    pub flags: c_uint,
    pub private: *mut c_void,
    pub func:
        Option<unsafe extern "C" fn(*mut wait_queue_entry, mode: c_uint, flags: c_int, *mut c_void) -> c_int>,
    entry: Room<2>,
}

impl Default for wait_queue_entry {
    fn default() -> Self {
        Self { flags: 0, private: core::ptr::null_mut(), func: None, entry: [0; 2] }
    }
}

extern "C" {
    // The kernel's.
    pub fn fget(fd: c_uint) -> *mut file;
    pub fn fput(file: *mut file);
    pub fn hrtimer_cancel(timer: *mut hrtimer) -> c_int;
    pub fn irq_work_sync(work: *mut irq_work);
    pub fn msleep(ms: c_uint);
    pub fn synchronize_rcu();

    // Those of module.c.
    pub fn expedite_alloc(size: usize, kind: c_uint) -> *mut c_void;
    pub fn expedite_free(memory: *mut c_void);
    pub fn expedite_read_user(to: *mut c_void, from: usize, size: usize) -> c_ulong;
    pub fn expedite_write_user(to: usize, from: *const c_void, size: usize) -> c_ulong;
    pub fn expedite_mutex_lock();
    pub fn expedite_mutex_unlock();
    pub fn expedite_rcu_read_lock();
    pub fn expedite_rcu_read_unlock();
    pub fn expedite_print(is_error: bool, text: *const u8, length: usize);
    pub fn expedite_panic() -> !;
}
