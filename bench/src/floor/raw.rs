//! The futex system call: sleeping until a word changes, and waking a sleeper.
//!
//! # Invariants
//! 1. The address given to the kernel is that of a live, aligned word: it comes from a reference that outlives the
//!    call.
//! 2. The kernel only reads the word, atomically, and keeps nothing of it when the call returns.

use nix::libc;

use super::word::SleepWord;

/// Sleeps while `word` is `expected`. Wake-ups may be spurious, so the caller reads the word again.
pub(super) fn futex_wait(word: &SleepWord, expected: u32) {
    let no_timeout = core::ptr::null::<libc::timespec>();
    // SAFETY: by I1 the address is valid, by I2 the kernel does not write to it; a null timeout means none.
    let _woken_or_changed =
        unsafe { libc::syscall(libc::SYS_futex, word.address(), WAIT, expected, no_timeout) };
}

/// Wakes at most one thread that sleeps on `word`. Returns the number of woken threads.
pub(super) fn futex_wake(word: &SleepWord) -> i64 {
    let one = 1_u32;
    // SAFETY: by I1 the address is valid; waking uses it only as a key.
    unsafe { libc::syscall(libc::SYS_futex, word.address(), WAKE, one) }
}

/// Private: the word is not shared with another process.
const WAIT: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
