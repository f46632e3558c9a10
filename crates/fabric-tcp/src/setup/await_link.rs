//! Waiting until a link is complete, or until one of its connections breaks.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use super::channel::Channel;
use super::deadline::Deadline;
use super::{Purpose, purpose_of};
use crate::error::SetupError;

/// Event for a connection that the other side has closed or broken, regardless of unread bytes: POLLRDHUP of poll(2),
/// for which nix has no name.
const CLOSED: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// Waits, as the acceptor, until `arrived` is signalled. Until then the dialler must send nothing on the first
/// connection, so that anything readable there ends the wait.
pub(super) fn second(first: &Channel, arrived: &EventFd, deadline: Deadline) -> Result<(), SetupError> {
    if first.has_unread() {
        return Err(SetupError::OutOfTurn);
    }
    let first = first.stream();
    loop {
        let mut fds =
            [PollFd::new(first.as_fd(), PollFlags::POLLIN), PollFd::new(arrived.as_fd(), PollFlags::POLLIN)];
        wait(&mut fds, deadline)?;
        if fds[0].any() == Some(true) {
            return Err(match first.peek(&mut [0]) {
                Ok(0) => SetupError::Lost,
                Ok(_) => SetupError::OutOfTurn,
                Err(error) => error.into(),
            });
        }
        if fds[1].any() == Some(true) {
            return Ok(());
        }
    }
}

/// Waits, as the dialler, until the acceptor reports on the first connection that it has both.
pub(super) fn ready(first: &mut Channel, second: &Channel, deadline: Deadline) -> Result<(), SetupError> {
    loop {
        // Bytes on the second connection already belong to the link, and may arrive before the "ready" preamble.
        let mut fds = [
            PollFd::new(first.stream().as_fd(), PollFlags::POLLIN),
            PollFd::new(second.stream().as_fd(), CLOSED),
        ];
        if !first.has_unread() {
            wait(&mut fds, deadline)?;
        }
        // `None` is an event for which nix has no name; it can only be the requested one.
        let (is_there, is_over) = (fds[0].any() == Some(true), fds[1].any() != Some(false));
        if is_there || first.has_unread() {
            let mut found = [0; 8];
            first.read_exact(deadline, &mut found)?;
            return match purpose_of(found)? {
                Purpose::Ready => Ok(()),
                _ => Err(SetupError::Preamble(found)),
            };
        }
        if is_over {
            return Err(SetupError::Lost);
        }
    }
}

/// Waits for an event; may return without one.
fn wait(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<(), SetupError> {
    let millis = deadline.left()?.as_nanos().div_ceil(1_000_000);
    match poll(fds, PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
