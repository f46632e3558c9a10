//! Polling of network devices within a sleep: the kernel looks at a device for a while before the engine's thread sleeps on its
//! connections (EPIOCSPARAMS, `fs/eventpoll.c` since Linux 6.9; Documentation/networking/napi.rst).
//!
//! What is polled is the queue that the last packet of a watched connection came from. Connections over the loopback interface
//! have none: then a sleep is what it was.
//!
//! # Invariants
//! 1. The structure is the kernel's (`struct epoll_params`), by the C library's definition, and outlives each call.
#![expect(unsafe_code, reason = "two requests that have no safe form")]

use std::fmt;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use thiserror::Error;

nix::ioctl_write_ptr!(epoll_set_params, 0x8a, 0x01, libc::epoll_params);
nix::ioctl_read!(epoll_get_params, 0x8a, 0x02, libc::epoll_params);

/// Packets in one go that any process may ask for (NAPI_POLL_WEIGHT); more takes CAP_NET_ADMIN.
pub const MOST_PACKETS: u16 = 64;

/// How devices are polled within a sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyPoll {
    /// For so long, microseconds, before the thread sleeps; 0 is not at all.
    pub micros: u32,
    /// Packets taken in one go; 0 is what the kernel has of its own, 8.
    pub packets: u16,
    /// Whether polling goes before the device's interrupts, which then stay off for as long as the device's `irq-suspend-timeout` or
    /// `gro_flush_timeout` says; without one of them it is of no effect.
    pub prefer: bool,
}

/// Why devices are not polled within sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BusyPollError {
    /// The kernel has no such request.
    #[error("the kernel cannot be told to (it is older than 6.9)")]
    TooOld,
    /// It was built without busy polling.
    #[error("the kernel was built without busy polling (CONFIG_NET_RX_BUSY_POLL)")]
    NotBuilt,
    /// More than [`MOST_PACKETS`] in one go.
    #[error("more than {MOST_PACKETS} packets in one go take CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel took it, and has something else.
    #[error("the kernel has {0} instead")]
    Changed(BusyPoll),
    /// Anything else.
    #[error("the system says: {0}")]
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
            write!(f, ", {packets} packets in one go")?;
        }
        if prefer { f.write_str(", before interrupts") } else { Ok(()) }
    }
}

/// Whether the kernel can be told to poll devices within sleeps: an epoll instance is told to for a microsecond, asked, and
/// closed.
///
/// # Errors
/// Why it cannot.
pub fn busy_poll_offered() -> Result<(), BusyPollError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    set(epoll.0.as_fd(), BusyPoll { micros: 1, packets: 8, prefer: false })
}

/// Has an epoll instance poll devices; it is asked afterwards what it does.
pub(crate) fn set(epoll: BorrowedFd<'_>, wanted: BusyPoll) -> Result<(), BusyPollError> {
    let params = libc::epoll_params {
        busy_poll_usecs: wanted.micros,
        busy_poll_budget: wanted.packets,
        prefer_busy_poll: wanted.prefer.into(),
        __pad: 0,
    };
    // SAFETY: invariant 1; the kernel reads it.
    unsafe { epoll_set_params(epoll.as_raw_fd(), &raw const params) }?;
    let has = get(epoll)?;
    if has == wanted { Ok(()) } else { Err(BusyPollError::Changed(has)) }
}

/// What an epoll instance does.
pub(crate) fn get(epoll: BorrowedFd<'_>) -> Result<BusyPoll, BusyPollError> {
    let mut params =
        libc::epoll_params { busy_poll_usecs: 0, busy_poll_budget: 0, prefer_busy_poll: 0, __pad: 0 };
    // SAFETY: invariant 1; the kernel writes it.
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

    /// A kernel that has it keeps what it was told, and one that has not says why.
    #[test]
    fn what_is_asked_for_is_kept_or_refused() {
        let (epoll, fresh) = (epoll(), BusyPoll::default());
        let wanted = BusyPoll { micros: 50, packets: 16, prefer: true };
        match set(epoll.0.as_fd(), wanted) {
            Ok(()) => {
                assert_eq!(get(epoll.0.as_fd()), Ok(wanted));
                assert_eq!(set(epoll.0.as_fd(), fresh), Ok(()), "and taken back");
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

    /// Who may not is told, and the instance does what it did.
    #[test]
    fn what_is_refused_changes_nothing() {
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
    fn what_has_no_such_parameters_says_so() {
        let no_epoll = nix::sys::eventfd::EventFd::new().expect("an eventfd");
        assert_eq!(set(no_epoll.as_fd(), BusyPoll::default()), Err(BusyPollError::TooOld));
    }
}
