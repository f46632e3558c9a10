//! Scheduling attributes of a thread: the system calls that set and query them.
//!
//! # Invariants
//! 1. The attributes given to the kernel outlive the call, and contain their own size.
#![expect(
    unsafe_code,
    reason = "sched_setattr and sched_getattr have no safe form in nix; listed in docs/unsafe.md"
)]

use core::time::Duration;

use nix::errno::Errno;

/// Scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The ordinary class (`SCHED_OTHER`). The nice value is kept.
    Normal,
    /// The ordinary class with a time slice of this length (EEVDF, Linux 6.12 and later; 0.1 to 100 ms). Needs no privilege.
    Slice(Duration),
    /// `SCHED_FIFO`, ahead of all ordinary threads, at a real-time priority from 1 (lowest) to 99. Needs a privilege. Child
    /// threads are ordinary threads.
    Fifo(u8),
    /// `SCHED_DEADLINE`: at most `runtime` of CPU time in each `period`, ahead of all other classes. Needs a privilege. Child
    /// threads are ordinary threads.
    Deadline {
        /// CPU time per period.
        runtime: Duration,
        /// Length of a period, which begins with a wake-up.
        period: Duration,
    },
}

/// The calling thread.
pub const CALLER: i32 = 0;

/// Sets the scheduling class of a thread.
///
/// # Errors
/// `EPERM` if this process may not, or a deadline thread is bound to a subset of the CPUs; `EBUSY` if there is no room
/// for another deadline thread; `EINVAL` if the kernel does not support the class; `ESRCH` if there is no such thread.
pub fn schedule(thread: i32, class: Class) -> Result<(), Errno> {
    let (policy, priority, runtime, period) = match class {
        Class::Normal => (libc::SCHED_OTHER, 0, Duration::ZERO, Duration::ZERO),
        Class::Slice(slice) => (libc::SCHED_OTHER, 0, slice, Duration::ZERO),
        Class::Fifo(priority) => (libc::SCHED_FIFO, priority.into(), Duration::ZERO, Duration::ZERO),
        Class::Deadline { runtime, period } => (libc::SCHED_DEADLINE, 0, runtime, period),
    };
    let real_time = matches!(class, Class::Fifo(_) | Class::Deadline { .. });
    let before = attributes(thread)?;
    let nice = nice(thread)?;
    let inherited = u64::from(libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned());
    let attributes = libc::sched_attr {
        sched_policy: policy.cast_unsigned(),
        // Clearing this flag needs a privilege.
        sched_flags: if real_time { inherited } else { before.sched_flags & inherited },
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: nanos(runtime),
        sched_deadline: nanos(period),
        sched_period: nanos(period),
        size: SIZE,
    };
    let no_flags = 0;
    // SAFETY: by I1 the kernel reads as many bytes as there are.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, no_flags) };
    Errno::result(result).map(drop)
}

/// Returns the time slice of a thread; zero for a real-time thread, and if the kernel does not report it.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn slice(thread: i32) -> Result<Duration, Errno> {
    let attributes = attributes(thread)?;
    let ordinary = attributes.sched_policy == libc::SCHED_OTHER.cast_unsigned();
    Ok(if ordinary { Duration::from_nanos(attributes.sched_runtime) } else { Duration::ZERO })
}

/// Sets the nice value of a thread, from -20 (most CPU time) to 19. The class is kept.
///
/// # Errors
/// `EACCES` or `EPERM` if this process may not, `ESRCH` if there is no such thread.
pub fn set_nice(thread: i32, nice: i32) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.cast_unsigned(), nice) };
    Errno::result(result).map(drop)
}

/// Returns the scheduling policy of a thread, as `sched(7)` numbers it.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn policy(thread: i32) -> Result<i32, Errno> {
    Ok(attributes(thread)?.sched_policy.cast_signed())
}

/// Returns the nice value of a thread, also while it is real-time.
///
/// # Errors
/// `ESRCH` if there is no such thread.
pub fn nice(thread: i32) -> Result<i32, Errno> {
    Errno::clear();
    // SAFETY: the call takes numbers only.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, thread.cast_unsigned()) };
    match Errno::last_raw() {
        0 => Ok(nice),
        errno => Err(Errno::from_raw(errno)),
    }
}

fn attributes(thread: i32) -> Result<libc::sched_attr, Errno> {
    let mut attributes = libc::sched_attr {
        size: SIZE,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let no_flags = 0;
    // SAFETY: by I1 the kernel writes at most as many bytes as there are.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, SIZE, no_flags) };
    Errno::result(result).map(|_| attributes)
}

#[expect(clippy::cast_possible_truncation, reason = "a few words")]
const SIZE: u32 = size_of::<libc::sched_attr>() as u32;

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` in a thread of its own, so that the test's thread keeps its class.
    fn in_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn the_ordinary_class_is_always_permitted() {
        assert_eq!(in_own_thread(|| schedule(CALLER, Class::Normal)), Ok(()));
    }

    #[test]
    fn a_missing_privilege_is_reported() {
        let done = in_own_thread(|| schedule(CALLER, Class::Fifo(1)).map(|()| policy(CALLER)));
        assert!(matches!(done, Ok(Ok(libc::SCHED_FIFO)) | Err(Errno::EPERM)), "{done:?}");
    }

    #[test]
    fn a_slice_is_the_requested_one_or_none() {
        let asked = Duration::from_micros(100);
        let got =
            in_own_thread(|| schedule(CALLER, Class::Slice(asked)).and_then(|()| slice(CALLER))).unwrap();
        assert!(got == asked || got == Duration::ZERO, "{got:?}");
    }

    #[test]
    fn the_nice_value_survives() {
        let kept = in_own_thread(|| {
            set_nice(CALLER, 3)?;
            let _may_be_refused = schedule(CALLER, Class::Fifo(1));
            schedule(CALLER, Class::Normal).and_then(|()| nice(CALLER))
        });
        assert_eq!(kept, Ok(3));
    }

    #[test]
    fn a_missing_thread_is_reported() {
        assert_eq!(policy(i32::MAX), Err(Errno::ESRCH));
    }
}
