//! Whether the other end is there. A reliable connection says so only when it is used, so each queue pair keeps a socket to
//! its peer that carries nothing: it ends when the peer closes, and when the peer's process ends.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use pronto_core::Class;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// What both whoever drives a queue pair and whoever watches it know of its connection.
#[derive(Debug)]
pub(crate) struct Alive {
    socket: OwnedFd,
    lost: AtomicBool,
}

impl Alive {
    pub(crate) fn new(socket: OwnedFd) -> Arc<Self> {
        Arc::new(Self { socket, lost: AtomicBool::new(false) })
    }

    /// Whether the connection is known to be lost.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Looks at the socket: one system call.
    pub(crate) fn look(&self) {
        // The peer says nothing on it: a byte is as wrong as an end.
        let peeked = recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        if !matches!(peeked, Err(Errno::EAGAIN | Errno::EINTR)) {
            self.lose();
        }
    }

    /// The connection is lost, whatever the socket says.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Tells the peer.
    pub(crate) fn end(&self) {
        self.lose();
        // Fails only if the socket has ended before.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }
}

impl AsFd for Alive {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Notices that a link's peer has ended, for whoever polls without ever sleeping. See [`descriptors`](Self::descriptors).
#[derive(Debug)]
pub struct Lifeline {
    pub(crate) ends: Vec<Arc<Alive>>,
}

impl Lifeline {
    /// What becomes readable when the link ends, or its device has something to say: then call [`look`](Self::look).
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.iter().map(|end| end.as_fd())
    }

    /// Looks whether the link has ended; its queue pairs find it lost at their next poll.
    pub fn look(&self) -> bool {
        for end in &self.ends {
            if !end.is_lost() {
                end.look();
            }
        }
        self.ends.iter().any(|end| end.is_lost())
    }

    /// The line of one class alone, where its queue pair goes on alone.
    #[must_use]
    pub fn of(mut self, class: Class) -> Self {
        self.ends = self.ends.drain(..).skip(class.index()).take(1).collect();
        self
    }

    /// Cuts the link, as if the peer had gone.
    pub fn cut(&self) {
        self.ends.iter().for_each(|end| end.end());
    }
}
