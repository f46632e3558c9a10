//! Descriptors that a peer has passed, and sockets whose other end a peer has.
//!
//! # Invariants
//! 1. A passed descriptor is used only after its kind was checked. A descriptor of another kind is closed by the closer
//!    thread (see [`closer`]).
//! 2. A socket is closed when its queue is empty and cannot be filled again. The kernel would close the descriptors in
//!    the queue together with the socket, on the thread that closes the socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{Shutdown, SockType, setsockopt, shutdown};

use crate::closer;
use crate::error::{SegmentFault, SetupFault};
use crate::fds;
use crate::map::forked;
use crate::memfd::{self, Demand};

/// Maximum number of packets that are taken out of the queue of a socket that is being closed. The kernel's default
/// limit of a queue, 208 KiB, is less than 300 packets.
const MAX_QUEUE: usize = 1024;

/// A descriptor that a peer has passed, of any kind.
#[derive(Debug)]
pub(crate) struct Passed {
    /// `None` once it was taken out.
    fd: Option<OwnedFd>,
}

impl Passed {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Some(fd) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("only taken out when it is consumed").as_fd()
    }

    fn into_fd(mut self) -> OwnedFd {
        self.fd.take().expect("only taken out when it is consumed")
    }

    /// Returns a memory file that meets `demand`.
    pub(crate) fn into_memory(self, demand: Demand) -> Result<OwnedFd, SegmentFault> {
        memfd::check(self.fd(), demand)?;
        Ok(self.into_fd())
    }

    /// Returns a Unix socket of the type `kind`.
    pub(crate) fn into_socket(self, kind: SockType) -> Result<PeerSocket, SetupFault> {
        let option = |name| fds::socket_option(self.fd(), name);
        let expected =
            [(libc::SO_DOMAIN, libc::AF_UNIX), (libc::SO_TYPE, kind as i32), (libc::SO_ACCEPTCONN, 0)];
        match expected.into_iter().all(|(name, value)| option(name) == Ok(value)) {
            true => Ok(PeerSocket::new(self.into_fd())),
            false => Err(SetupFault::NoSocket),
        }
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        // Memory can be closed anywhere.
        if memfd::check(fd.as_fd(), Demand::FixedSize).is_err() {
            closer::close(fd);
        }
    }
}

/// A connected Unix socket whose other end a peer has, and through which the peer may pass descriptors at any time.
#[derive(Debug)]
pub(crate) struct PeerSocket {
    /// `None` while this is dropped.
    fd: Option<OwnedFd>,
}

impl PeerSocket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Some(fd) }
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("only taken out when it is dropped").as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        // In a forked child, the socket belongs to the parent.
        if !forked() && !is_drained(fd.as_fd()) {
            closer::close(fd);
        }
    }
}

/// Ends the connection and empties the queue. Returns false if more packets are in it than a correct kernel keeps.
fn is_drained(socket: BorrowedFd<'_>) -> bool {
    // Both fail only if there is no connection any more. From here on, the peer cannot send.
    let _ended = shutdown(socket.as_raw_fd(), Shutdown::Both);
    // A stream has no empty packets. In other queues, credentials come with every packet, so that an empty one differs from the end.
    let is_stream = fds::socket_option(socket, libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
    if !is_stream {
        let _ended = setsockopt(&socket, PassCred, &true);
    }
    let mut bytes = [0; 4096];
    for _ in 0..MAX_QUEUE {
        match fds::receive(socket, &mut bytes) {
            // The kernel reports once that the peer has left packets unread.
            Err(Errno::EINTR | Errno::ECONNRESET) => {}
            Ok(packet) if !(packet.is_end || is_stream && packet.len == 0) => {}
            Ok(_) | Err(_) => return true,
        }
    }
    false
}
