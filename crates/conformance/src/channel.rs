//! Completion channels, by their numbers: to look at one without sleeping on it, and for those who sleep.
#![expect(unsafe_code, reason = "the seam names a channel by its number")]

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::fabric::Interest;

/// Whether a sleeper with this interest would be awake.
pub(crate) fn is_ready(descriptor: i32, interest: Interest) -> bool {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, interest.readable);
    flags.set(PollFlags::POLLOUT, interest.writable);
    let mut fds = [PollFd::new(borrowed(descriptor), flags)];
    poll(&mut fds, PollTimeout::ZERO).expect("a channel can be polled") > 0
}

/// A channel, by the number that a queue pair has told just now.
pub(crate) fn borrowed<'a>(descriptor: i32) -> BorrowedFd<'a> {
    // SAFETY: the queue pair that told the number keeps its channel open while it lives, which is longer than any test uses this.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}
