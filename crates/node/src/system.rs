//! System calls without a safe wrapper in nix: futex waits, borrowed descriptors, and a fork handler.
//!
//! # Invariants
//! 1. A futex word outlives the call, which borrows it.
//! 2. A descriptor that is borrowed here belongs to a queue pair that is open, or is refused by the kernel as closed.
//! 3. The fork handler does one store, which is safe in a child of a threaded process.
#![expect(unsafe_code, reason = "system calls without a safe wrapper in nix")]

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use pronto_sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process is a forked child of a process that had a node. Costs one load.
pub(crate) fn is_forked_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Installs the fork handler for [`is_forked_child`].
pub(crate) fn watch_forks() {
    static WATCH: OnceLock<i32> = OnceLock::new();
    WATCH.get_or_init(|| {
        // SAFETY: invariant 3.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
    });
}

/// Returns a number that nobody can predict, for epochs and sessions.
pub(crate) fn random() -> u64 {
    getrandom::u64().expect("getrandom(2) does not fail for eight bytes")
}

/// Sleeps while the wake word is armed, for at most `limit`. May return early.
pub(crate) fn futex_wait_armed(word: &AtomicU32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let (word, armed): (*const AtomicU32, u32) = (word, pronto_sync::ARMED);
    // SAFETY: invariant 1; the kernel reads the word and the timeout, and writes nothing.
    let _woken = unsafe { libc::syscall(libc::SYS_futex, word, operation, armed, &raw const limit) };
}

/// Wakes one thread that sleeps on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let word: *const AtomicU32 = word;
    // SAFETY: invariant 1; the kernel uses the address only.
    let _woken = unsafe { libc::syscall(libc::SYS_futex, word, operation, 1) };
}

/// Returns a queue pair's descriptor, for one system call.
pub(crate) fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: invariant 2.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
