//! Completion channels by their descriptor numbers: to test one for readiness, and to sleep on one.
#![expect(unsafe_code, reason = "the fabric names a channel by its number")]

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::fabric::Interest;

/// Returns whether a sleeper with this interest would wake up now.
pub(crate) fn is_ready(descriptor: i32, interest: Interest) -> bool {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, interest.readable);
    flags.set(PollFlags::POLLOUT, interest.writable);
    let mut fds = [PollFd::new(borrowed(descriptor), flags)];
    poll(&mut fds, PollTimeout::ZERO).expect("a channel can be polled") > 0
}

/// Borrows a channel by the number that a queue pair has just returned.
pub(crate) fn borrowed<'a>(descriptor: i32) -> BorrowedFd<'a> {
    // SAFETY: the queue pair that returned the number keeps its channel open while it lives, which is longer than any
    // test uses this.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}
