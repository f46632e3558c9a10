//! `libexpedite.so`: the interface of the Expedite paper (section 3.1) for unmodified programs.
//!
//! `fcntl(fd, F_SETFL, flags | O_EXPEDITE)` flags the open file of a descriptor through the kernel module, and sets the other flags as
//! always. Without `O_EXPEDITE` it removes the flag. `F_GETFL` shows it. Programs that do not use the flag are not affected.
//!
//! The library replaces `fcntl` in programs that are linked with the C library dynamically:
//! `LD_PRELOAD=/usr/lib/libexpedite.so PROGRAM`. Statically linked programs are served by `pronto expedite run`. The process holds the
//! module's device open from the first flag on. Its flags end when it, and the children that it has forked since, have ended or executed
//! another program.
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
    options: u32,
    reserved: u64,
}

/// `fcntl` of the C library. A thread can be cancelled in it, which unwinds its stack.
type Fcntl = unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int;

/// The functions of the C library. They are found when the library is loaded, because a signal handler may call them first.
static FCNTL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static FCNTL64: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Called by the dynamic linker.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    real(&FCNTL, c"fcntl");
    real(&FCNTL64, c"fcntl64");
}

/// The device, once a flag was set; before, a negative number.
static OPEN: AtomicI32 = AtomicI32::new(-1);

/// Device number and inode of the open device, to recognise it.
#[expect(clippy::disallowed_types, reason = "no dependency: the library is loaded into any program")]
static IDENTITY: [core::sync::atomic::AtomicU64; 2] = [const { core::sync::atomic::AtomicU64::new(0) }; 2];

/// Lowest number of the descriptor of the device, which keeps it out of the range that programs use or close.
const LOWEST: c_int = 100;

/// Replaces `fcntl`, which programs call that were compiled for files of up to 2 GiB.
///
/// # Safety
/// As for `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: I1.
    unsafe { replaced(real(&FCNTL, c"fcntl"), fd, command, argument) }
}

/// Replaces `fcntl64`, which most programs call.
///
/// # Safety
/// As for `fcntl`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: I1.
    unsafe { replaced(real(&FCNTL64, c"fcntl64"), fd, command, argument) }
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

/// Sets or removes the flag of a file. Returns 0, or -1 with `errno`. `errno` is unchanged if it returns 0.
fn set(fd: c_int, wanted: bool) -> c_int {
    let before = errno();
    let result = if wanted {
        let flag = Flag { fd, tid: 0, slice_ns: 0, percent: 0, options: 0, reserved: 0 };
        open_device().and_then(|()| request(FLAG, (&raw const flag).cast()))
    } else {
        // Fails for a file without a flag, and if no flag was ever set.
        request(UNFLAG, (&raw const fd).cast()).or(Ok(()))
    };
    match result {
        // It has the flag already.
        Ok(()) | Err(libc::EEXIST) => {
            set_errno(before);
            0
        }
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
fn open_device() -> Result<(), c_int> {
    let open = OPEN.load(Ordering::Relaxed);
    if identity(open).is_some_and(is_device) {
        return Ok(());
    }
    // SAFETY: the path is a terminated string.
    let new = unsafe { libc::open(DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if new == -1 {
        return Err(if errno() == libc::ENOENT { libc::ENODEV } else { errno() });
    }
    // SAFETY: the call takes numbers only, and the function is known since the library was loaded.
    let high =
        real(&FCNTL, c"fcntl").map_or(-1, |fcntl| unsafe { fcntl(new, libc::F_DUPFD_CLOEXEC, LOWEST) });
    let kept = if high == -1 {
        new
    } else {
        // SAFETY: the descriptor is that of this function.
        unsafe { libc::close(new) };
        high
    };
    let Some([device, inode]) = identity(kept) else { return Err(libc::ENODEV) };
    IDENTITY[0].store(device, Ordering::Relaxed);
    IDENTITY[1].store(inode, Ordering::Relaxed);
    if OPEN.compare_exchange(open, kept, Ordering::Release, Ordering::Relaxed).is_err() {
        // Another thread was faster.
        // SAFETY: the descriptor is that of this function.
        unsafe { libc::close(kept) };
    }
    Ok(())
}

/// Returns device number and inode of an open file.
fn identity(fd: c_int) -> Option<[u64; 2]> {
    let mut stat = core::mem::MaybeUninit::uninit();
    // SAFETY: the call checks the descriptor, and writes to the structure.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded.
    let stat: libc::stat = unsafe { stat.assume_init() };
    Some([stat.st_rdev, stat.st_ino])
}

fn is_device(identity: [u64; 2]) -> bool {
    identity == [IDENTITY[0].load(Ordering::Relaxed), IDENTITY[1].load(Ordering::Relaxed)]
}

/// Makes a request of the module. The program may have closed the device and opened another file with its number, which does not get
/// the request.
fn request(number: c_ulong, argument: *const c_void) -> Result<(), c_int> {
    let device = OPEN.load(Ordering::Acquire);
    if !identity(device).is_some_and(is_device) {
        return Err(libc::ENODEV);
    }
    // SAFETY: I2.
    match unsafe { libc::ioctl(device, number, argument) } {
        0 => Ok(()),
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
