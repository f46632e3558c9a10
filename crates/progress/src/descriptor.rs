//! Descriptors that are given as numbers.
//!
//! # Invariants
//! 1. A number that is borrowed here belongs to a channel that its source keeps open, or is refused by the kernel as closed.
#![expect(unsafe_code, reason = "the fabric seam passes a channel's descriptor as a number")]

use std::os::fd::BorrowedFd;

use nix::poll::PollFlags;
use nix::sys::epoll::EpollFlags;
use pronto_core::fabric::Interest;

/// Returns the descriptor, for one system call.
pub(crate) fn borrow<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: invariant 1.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Returns the epoll flags for an interest.
pub(crate) fn epoll_flags(interest: Interest) -> EpollFlags {
    let mut flags = EpollFlags::empty();
    flags.set(EpollFlags::EPOLLIN, interest.readable);
    flags.set(EpollFlags::EPOLLOUT, interest.writable);
    flags
}

/// Returns the poll(2) flags for an interest.
pub(crate) fn poll_flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, interest.readable);
    flags.set(PollFlags::POLLOUT, interest.writable);
    flags
}
