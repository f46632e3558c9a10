//! Waiting for a link to be whole: for what should come, and for the connections that may break meanwhile.

use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use super::deadline::Deadline;
use super::{Purpose, purpose_of};
use crate::error::SetupError;

/// The other side closed or broke the connection, whatever there is to read: POLLRDHUP of poll(2), which nix has no name
/// for.
const CLOSED: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// Acceptor: waits until `arrived` rings. Until then the dialler has nothing to say on the first connection, so that
/// whatever is to be read there ends the wait.
pub(super) fn second(first: &TcpStream, arrived: &EventFd, deadline: Deadline) -> Result<(), SetupError> {
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

/// Dialler: waits until the acceptor says on the first connection that it has both.
pub(super) fn ready(first: &TcpStream, second: &TcpStream, deadline: Deadline) -> Result<(), SetupError> {
    loop {
        // Bytes on the second connection are the link's already, and may overtake what is waited for.
        let mut fds = [PollFd::new(first.as_fd(), PollFlags::POLLIN), PollFd::new(second.as_fd(), CLOSED)];
        wait(&mut fds, deadline)?;
        if fds[0].any() == Some(true) {
            let mut found = [0; 8];
            deadline.read_exact(first, &mut found)?;
            return match purpose_of(found)? {
                Purpose::Ready => Ok(()),
                _ => Err(SetupError::Preamble(found)),
            };
        }
        // None: an event that nix has no name for, which can only be the one asked for.
        if fds[1].any() != Some(false) {
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
