//! Looking at a completion channel without sleeping on it.
#![expect(unsafe_code, reason = "the seam names a channel by its number")]

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::fabric::Interest;

/// Whether a sleeper with this interest would be awake.
pub(crate) fn is_ready(descriptor: i32, interest: Interest) -> bool {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, interest.readable);
    flags.set(PollFlags::POLLOUT, interest.writable);
    // SAFETY: the queue pair that told the number is borrowed by the caller and keeps its channel open while it lives.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut fds = [PollFd::new(descriptor, flags)];
    poll(&mut fds, PollTimeout::ZERO).expect("a channel can be polled") > 0
}
