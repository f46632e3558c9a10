//! Detection of the peer's end. A reliable connection reports it only when it is used, so each queue pair keeps a
//! socket to its peer that carries no data. The socket ends when the peer closes, and when the peer's process ends.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use pronto_core::Class;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// State of a connection, shared by the user of its queue pair and by its lifeline.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    socket: OnceLock<OwnedFd>,
    lost: AtomicBool,
}

impl Alive {
    /// Sets the socket, once.
    pub(crate) fn attach(&self, socket: OwnedFd) -> BorrowedFd<'_> {
        self.socket.get_or_init(|| socket).as_fd()
    }

    /// Returns the socket, once there is one.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.get().map(|socket| socket.as_fd())
    }

    /// Returns whether the connection is known to be lost.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Checks the socket, with one system call.
    pub(crate) fn check(&self) {
        let Some(socket) = self.socket() else { return };
        // The peer sends nothing on it: a byte is an error, as is the end.
        let peeked = recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        if !matches!(peeked, Err(Errno::EAGAIN | Errno::EINTR)) {
            self.lose();
        }
    }

    /// Marks the connection as lost, whatever the state of the socket.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Marks the connection as lost and notifies the peer.
    pub(crate) fn end(&self) {
        self.lose();
        if let Some(socket) = self.socket() {
            // Fails only if the socket has ended before.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

/// Detects that a link's peer has ended, for threads that poll and never sleep. See [`descriptors`](Self::descriptors).
#[derive(Debug)]
pub struct Lifeline {
    pub(crate) ends: Vec<Arc<Alive>>,
}

impl Lifeline {
    /// Returns the descriptors that become readable when the link ends: then call [`check`](Self::check).
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.iter().filter_map(|end| end.socket())
    }

    /// Returns whether the link has ended. In that case, its queue pairs report the loss at their next poll.
    pub fn check(&self) -> bool {
        for end in &self.ends {
            if !end.is_lost() {
                end.check();
            }
        }
        self.ends.iter().any(|end| end.is_lost())
    }

    /// Returns a lifeline for one class only, for a queue pair that is used alone.
    #[must_use]
    pub fn of(mut self, class: Class) -> Self {
        self.ends = self.ends.drain(..).skip(class.index()).take(1).collect();
        self
    }

    /// Cuts the link, as if the peer were gone.
    pub fn cut(&self) {
        self.ends.iter().for_each(|end| end.end());
    }
}
