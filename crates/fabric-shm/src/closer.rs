//! A thread that closes descriptors of unknown kinds.
//!
//! To close a descriptor can take as long as its owner likes: a TCP socket with `SO_LINGER` waits for its unsent bytes,
//! and a file of a user-space file system for the answer of its server. A peer may pass either. The threads that serve
//! or call peers therefore never close such a descriptor. The thread is started with the first one, so that a process
//! whose peers are correct has no such thread.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Linger;

use crate::map::forked;

/// Maximum number of descriptors that wait to be closed: those of some packets with as many as the kernel passes.
const BACKLOG: usize = 1024;

/// Closes a descriptor, without waiting for it. If the thread cannot be started, or very many descriptors wait for it,
/// the descriptor is closed here: otherwise a peer could fill this process's table of descriptors.
pub(crate) fn close(fd: OwnedFd) {
    static QUEUE: OnceLock<Option<SyncSender<OwnedFd>>> = OnceLock::new();
    // A forked child has no such thread, and its parent keeps the descriptor open.
    if forked() {
        return drop(fd);
    }
    let Some(queue) = QUEUE.get_or_init(start) else { return close_here(fd) };
    if let Err(TrySendError::Full(fd) | TrySendError::Disconnected(fd)) = queue.try_send(fd) {
        close_here(fd);
    }
}

fn start() -> Option<SyncSender<OwnedFd>> {
    let (queue, descriptors) = sync_channel(BACKLOG);
    let run = move || run(&descriptors);
    std::thread::Builder::new().name("pronto-closer".into()).spawn(run).ok().map(|_| queue)
}

fn run(descriptors: &Receiver<OwnedFd>) {
    descriptors.iter().for_each(close_here);
}

/// Closes a descriptor. A socket does not wait for its unsent bytes.
fn close_here(fd: OwnedFd) {
    // Fails for other files than sockets.
    let _no_socket = setsockopt(&fd, Linger, &libc::linger { l_onoff: 0, l_linger: 0 });
    drop(fd);
}
