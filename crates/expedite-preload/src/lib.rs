//! `libexpedite.so`: the interface of the Expedite paper (section 3.1) for unmodified programs.
//!
//! `fcntl(fd, F_SETFL, flags | O_EXPEDITE)` flags the open file of a descriptor through the kernel module, and sets the other flags as
//! always. Without `O_EXPEDITE` it removes the flag. `F_GETFL` shows it. Programs that do not use the flag are not affected.
//!
//! The library replaces `fcntl` in programs that are linked with the C library dynamically:
//! `LD_PRELOAD=/usr/lib/libexpedite.so PROGRAM`. Statically linked programs are served by `pronto expedite run`. The process holds the
//! module's device open from the first flag on; its flags end when it ends or executes another program.
//!
//! # Invariants
//! 1. `fcntl` gets the arguments of its caller, of which the third one is a number or a pointer, or is not used.
//! 2. The structures have the layout of `kernel/expedite/expedite.h`, and live during the request.
#![expect(unsafe_code, reason = "replaces a function of the C library; listed in docs/unsafe.md")]

use core::ffi::{CStr, c_int, c_ulong, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// `O_EXPEDITE` of `expedite.h`.
const O_EXPEDITE: c_int = 0x2000_0000;

/// `EXPEDITE_FLAG`, `EXPEDITE_UNFLAG`, `EXPEDITE_FIND`.
const FLAG: c_ulong = 0x4020_45e0;
const UNFLAG: c_ulong = 0x4004_45e1;
const FIND: c_ulong = 0x4004_45e5;

const DEVICE: &CStr = c"/dev/expedite";

/// `struct expedite_flag`.
#[repr(C)]
struct Flag {
    fd: c_int,
    tid: c_int,
    slice_ns: u64,
    percent: u32,
    reserved: u32,
    more_reserved: u64,
}

/// `fcntl` of the C library.
type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;

/// The device, once a flag was set; before, a negative number.
static OPEN: AtomicI32 = AtomicI32::new(-1);

/// Replaces `fcntl`, which programs call that were compiled for files of up to 2 GiB.
///
/// # Safety
/// As for `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    // SAFETY: I1.
    unsafe { replaced(real(&REAL, c"fcntl"), fd, command, argument) }
}

/// Replaces `fcntl64`, which most programs call.
///
/// # Safety
/// As for `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    // SAFETY: I1.
    unsafe { replaced(real(&REAL, c"fcntl64"), fd, command, argument) }
}

/// Returns the function of the C library with this name.
fn real(known: &AtomicPtr<c_void>, name: &CStr) -> Option<Fcntl> {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a terminated string.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(found, Ordering::Relaxed);
    }
    // SAFETY: the function with this name has this type; null is `None`.
    unsafe { transmute::<*mut c_void, Option<Fcntl>>(found) }
}

/// # Safety
/// As for `fcntl`.
unsafe fn replaced(real: Option<Fcntl>, fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let Some(real) = real else { return fail(libc::ENOSYS) };
    if command == libc::F_SETFL {
        #[expect(clippy::cast_possible_truncation, reason = "the argument of this command is an int")]
        let flags = argument.addr() as c_int;
        // SAFETY: I1.
        let result = unsafe { real(fd, command, flags & !O_EXPEDITE) };
        return if result == -1 { result } else { set(fd, flags & O_EXPEDITE != 0) };
    }
    // SAFETY: I1.
    let result = unsafe { real(fd, command, argument) };
    if command == libc::F_GETFL && result != -1 && is_flagged(fd) { result | O_EXPEDITE } else { result }
}

/// Sets or removes the flag of a file. Returns 0, or -1 with `errno`.
fn set(fd: c_int, wanted: bool) -> c_int {
    let result = if wanted {
        let flag = Flag { fd, tid: 0, slice_ns: 0, percent: 0, reserved: 0, more_reserved: 0 };
        match device() {
            Ok(_) => request(FLAG, (&raw const flag).cast()),
            Err(errno) => Err(errno),
        }
    } else {
        request(UNFLAG, (&raw const fd).cast())
    };
    match result {
        Ok(()) => 0,
        // It has the flag already.
        Err(libc::EEXIST) if wanted => 0,
        // A file without a flag, or no flag was ever set.
        Err(_) if !wanted => 0,
        Err(errno) => fail(errno),
    }
}

fn is_flagged(fd: c_int) -> bool {
    let before = errno();
    let is_flagged = request(FIND, (&raw const fd).cast()).is_ok();
    // `fcntl` succeeded, and so leaves `errno` unchanged.
    set_errno(before);
    is_flagged
}

/// Opens the device, if it is not open.
fn device() -> Result<c_int, c_int> {
    let open = OPEN.load(Ordering::Relaxed);
    if open >= 0 && request(FIND, (&raw const open).cast()) != Err(libc::EBADF) {
        return Ok(open);
    }
    // SAFETY: the path is a terminated string.
    let new = unsafe { libc::open(DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if new == -1 {
        return Err(if errno() == libc::ENOENT { libc::ENODEV } else { errno() });
    }
    match OPEN.compare_exchange(open, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Ok(new),
        Err(other) => {
            // SAFETY: the descriptor is that of this function.
            unsafe { libc::close(new) };
            Ok(other)
        }
    }
}

/// Makes a request of the module. If the program has closed the device, its number may be that of another file, which does not
/// know the request: the result is then `EBADF`.
fn request(number: c_ulong, argument: *const c_void) -> Result<(), c_int> {
    let device = OPEN.load(Ordering::Relaxed);
    if device < 0 {
        return Err(libc::ENODEV);
    }
    // SAFETY: I2; another file does not know the request.
    match unsafe { libc::ioctl(device, number, argument) } {
        0 => Ok(()),
        _ if errno() == libc::ENOTTY => Err(libc::EBADF),
        _ => Err(errno()),
    }
}

fn errno() -> c_int {
    // SAFETY: the call has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is the address of a variable of this thread.
    unsafe { *place }
}

fn set_errno(errno: c_int) {
    // SAFETY: the call has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is the address of a variable of this thread.
    unsafe { *place = errno };
}

fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}
