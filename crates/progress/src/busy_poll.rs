//! Polling of network devices during a sleep: the kernel polls a device for a while before the engine thread sleeps on its
//! connections (EPIOCSPARAMS, `fs/eventpoll.c` since Linux 6.9; Documentation/networking/napi.rst).
//!
//! The kernel polls the queue from which the last packet of a watched connection came. Connections over the loopback interface
//! have no queue, so sleeps on them do not change.
//!
//! # Invariants
//! 1. The structure is the kernel's (`struct epoll_params`), by the C library's definition, and outlives each call.
#![expect(unsafe_code, reason = "two ioctl requests without a safe wrapper")]

use std::fmt;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use thiserror::Error;

nix::ioctl_write_ptr!(epoll_set_params, 0x8a, 0x01, libc::epoll_params);
nix::ioctl_read!(epoll_get_params, 0x8a, 0x02, libc::epoll_params);

/// Maximum number of packets per poll for a process without CAP_NET_ADMIN (the kernel's NAPI_POLL_WEIGHT).
pub const MOST_PACKETS: u16 = 64;

/// Parameters with which the kernel polls devices during a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyPoll {
    /// Time for which the kernel polls before the thread sleeps, microseconds; 0 turns polling off.
    pub micros: u32,
    /// Packets per poll; 0 selects the kernel's default of 8.
    pub packets: u16,
    /// Whether polling takes precedence over the device's interrupts, which are then suspended for the device's `irq-suspend-timeout`
    /// or `gro_flush_timeout`. Has no effect unless one of these is set.
    pub prefer: bool,
}

/// Reason for which the kernel does not poll devices during sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BusyPollError {
    /// The kernel has no such request.
    #[error("the kernel does not support it (needs Linux 6.9 or later)")]
    TooOld,
    /// The kernel was built without busy polling.
    #[error("the kernel was built without busy polling (CONFIG_NET_RX_BUSY_POLL)")]
    NotBuilt,
    /// More than [`MOST_PACKETS`] packets per poll, without the privilege for it.
    #[error("more than {MOST_PACKETS} packets per poll require CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel accepted the request and reports other parameters.
    #[error("the kernel uses {0} instead")]
    Changed(BusyPoll),
    /// Any other error of the system.
    #[error("system error: {0}")]
    System(Errno),
}

impl From<Errno> for BusyPollError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOTTY => Self::TooOld,
            Errno::EOPNOTSUPP => Self::NotBuilt,
            Errno::EPERM => Self::NotPermitted,
            other => Self::System(other),
        }
    }
}

impl fmt::Display for BusyPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { micros, packets, prefer } = *self;
        write!(f, "{micros} us")?;
        if packets != 0 {
            write!(f, ", {packets} packets per poll")?;
        }
        if prefer { f.write_str(", preferred over interrupts") } else { Ok(()) }
    }
}

/// Checks whether the kernel can poll devices during sleeps, with a temporary epoll instance.
///
/// # Errors
/// Returns the reason if it cannot.
pub fn busy_poll_offered() -> Result<(), BusyPollError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    set(epoll.0.as_fd(), BusyPoll { micros: 1, packets: 8, prefer: false })
}

/// Sets the parameters of an epoll instance and reads them back.
pub(crate) fn set(epoll: BorrowedFd<'_>, wanted: BusyPoll) -> Result<(), BusyPollError> {
    let params = libc::epoll_params {
        busy_poll_usecs: wanted.micros,
        busy_poll_budget: wanted.packets,
        prefer_busy_poll: wanted.prefer.into(),
        __pad: 0,
    };
    // SAFETY: invariant 1; the kernel reads the structure.
    unsafe { epoll_set_params(epoll.as_raw_fd(), &raw const params) }?;
    let has = get(epoll)?;
    if has == wanted { Ok(()) } else { Err(BusyPollError::Changed(has)) }
}

/// Returns the parameters of an epoll instance.
pub(crate) fn get(epoll: BorrowedFd<'_>) -> Result<BusyPoll, BusyPollError> {
    let mut params =
        libc::epoll_params { busy_poll_usecs: 0, busy_poll_budget: 0, prefer_busy_poll: 0, __pad: 0 };
    // SAFETY: invariant 1; the kernel writes the structure.
    unsafe { epoll_get_params(epoll.as_raw_fd(), &raw mut params) }?;
    Ok(BusyPoll {
        micros: params.busy_poll_usecs,
        packets: params.busy_poll_budget,
        prefer: params.prefer_busy_poll != 0,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn epoll() -> Epoll {
        Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("an epoll")
    }

    /// A kernel with busy polling keeps the parameters; another one reports why not.
    ///
    /// Shows: operations.epoll-options
    #[test]
    fn parameters_are_kept_or_refused() {
        let (epoll, fresh) = (epoll(), BusyPoll::default());
        let wanted = BusyPoll { micros: 50, packets: 16, prefer: true };
        match set(epoll.0.as_fd(), wanted) {
            Ok(()) => {
                assert_eq!(get(epoll.0.as_fd()), Ok(wanted));
                assert_eq!(set(epoll.0.as_fd(), fresh), Ok(()), "polling can be turned off again");
                assert_eq!(get(epoll.0.as_fd()), Ok(fresh));
                assert_eq!(busy_poll_offered(), Ok(()));
            }
            Err(why) => {
                assert!(matches!(why, BusyPollError::TooOld | BusyPollError::NotBuilt), "{why}");
                assert_eq!(get(epoll.0.as_fd()), Err(why));
                assert_eq!(busy_poll_offered(), Err(why));
            }
        }
    }

    /// A refused request reports an error and leaves the instance as it was.
    ///
    /// Shows: operations.busy-poll-refused
    #[test]
    fn a_refused_request_changes_nothing() {
        let epoll = epoll();
        let Ok(before) = get(epoll.0.as_fd()) else { return };
        let too_long = BusyPoll { micros: u32::MAX, ..BusyPoll::default() };
        assert_eq!(set(epoll.0.as_fd(), too_long), Err(BusyPollError::System(Errno::EINVAL)));
        assert_eq!(get(epoll.0.as_fd()), Ok(before));
        let many = BusyPoll { packets: MOST_PACKETS + 1, ..BusyPoll::default() };
        let set = set(epoll.0.as_fd(), many);
        let has = get(epoll.0.as_fd());
        assert!(
            (set, has) == (Ok(()), Ok(many)) || (set, has) == (Err(BusyPollError::NotPermitted), Ok(before))
        );
    }

    #[test]
    fn a_descriptor_without_such_parameters_is_refused() {
        let no_epoll = nix::sys::eventfd::EventFd::new().expect("an eventfd");
        assert_eq!(set(no_epoll.as_fd(), BusyPoll::default()), Err(BusyPollError::TooOld));
    }
}
