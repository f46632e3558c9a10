//! How the kernel schedules a thread: the one system call that says all of it.
//!
//! # Invariants
//! 1. The attributes given to the kernel outlive the call, and say their own size.

use core::time::Duration;

use nix::errno::Errno;
use nix::libc;

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// As any thread is.
    Normal,
    /// As any thread, with a time slice of this length (`EEVDF`, from Linux 6.12 on; from 0.1 to 100 ms). Needs no right.
    Slice(Duration),
    /// Before every thread of the others, at the lowest real-time priority. Needs a right.
    Fifo,
}

/// Schedules the calling thread so.
///
/// # Errors
/// `EPERM` if this process may not, `EINVAL` if the kernel knows no such thing.
pub fn schedule(class: Class) -> Result<(), Errno> {
    let (policy, priority, slice) = match class {
        Class::Normal => (libc::SCHED_OTHER, 0, Duration::ZERO),
        Class::Slice(slice) => (libc::SCHED_OTHER, 0, slice),
        Class::Fifo => (libc::SCHED_FIFO, 1, Duration::ZERO),
    };
    let size = size_of::<libc::sched_attr>();
    let attributes = libc::sched_attr {
        size: u32::try_from(size).expect("a few words"),
        sched_policy: policy.cast_unsigned(),
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: priority,
        sched_runtime: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        sched_deadline: 0,
        sched_period: 0,
    };
    let (this_thread, no_flags) = (0, 0);
    // SAFETY: by I1 the kernel reads as many bytes as there are.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, no_flags) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_always_be_an_ordinary_one() {
        // In a thread of its own: the test's thread is left as it is.
        let done = std::thread::spawn(|| schedule(Class::Normal)).join().unwrap();
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn a_right_that_is_missing_is_said() {
        let done = std::thread::spawn(|| schedule(Class::Fifo)).join().unwrap();
        assert!(matches!(done, Ok(()) | Err(Errno::EPERM)), "{done:?}");
    }
}
