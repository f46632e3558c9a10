//! Whether the other end is there. A reliable connection says so only when it is used, so each queue pair keeps a socket to
//! its peer that carries nothing: it ends when the peer closes, and when the peer's process ends.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use pronto_core::Class;
use pronto_sync::atomic::{AtomicBool, Ordering};

/// What both whoever drives a queue pair and whoever watches it know of its connection.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    socket: OnceLock<OwnedFd>,
    lost: AtomicBool,
}

impl Alive {
    /// Gives it its socket, once.
    pub(crate) fn attach(&self, socket: OwnedFd) -> BorrowedFd<'_> {
        self.socket.get_or_init(|| socket).as_fd()
    }

    /// Its socket, once it has one.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.get().map(|socket| socket.as_fd())
    }

    /// Whether the connection is known to be lost.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Looks at the socket: one system call.
    pub(crate) fn look(&self) {
        let Some(socket) = self.socket() else { return };
        // The peer says nothing on it: a byte is as wrong as an end.
        let peeked = recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
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
        if let Some(socket) = self.socket() {
            // Fails only if the socket has ended before.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
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
        self.ends.iter().filter_map(|end| end.socket())
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
