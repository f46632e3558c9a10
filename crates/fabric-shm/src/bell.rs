//! Waking a sleeping peer, and being woken.
//!
//! Each queue pair has one Unix socket pair, used only when a side sleeps. A byte is a wake-up. The end of the stream
//! is the peer's end, so that its death wakes a sleeper, too. An eventfd would be slightly cheaper, but both ends would
//! share one file description: a peer that filled its counter and made it blocking could block this side in `write`
//! forever. A socket call passes its own flag not to block.
//!
//! Only `disarm` removes bytes. A wake-up is therefore never lost between arming and sleeping.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use pronto_sync::atomic::{AtomicU32, Ordering, fence};
use pronto_sync::{Event, WakeWordRef};

use crate::fds;
use crate::map::{OwnArray, PeerArray};
use crate::passed::PeerSocket;

/// Words of the sleep line: armed word, arming count.
pub(crate) const SLEEP_WORDS: usize = 2;
/// Maximum number of wake-ups received in one call; a correct peer sends one per arming.
const MAX_EVENTS: usize = 256;

/// This side's sleep line.
#[derive(Debug)]
pub(crate) struct Sleep(pub(crate) OwnArray<AtomicU32>);

impl Sleep {
    /// Requests a wake-up for events of at least the level `least`.
    pub(crate) fn arm(&self, least: Event) {
        let [armed, count] = &self.0[..] else { unreachable!("two words") };
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // SYNC: the count before the armed word; pairs with the fence in Bell::ring.
        fence(Ordering::Release);
        match least {
            Event::Unsolicited => WakeWordRef(armed).arm(),
            Event::Solicited => WakeWordRef(armed).arm_solicited(),
        }
    }

    pub(crate) fn is_armed(&self) -> bool {
        WakeWordRef(&self.0[0]).is_armed()
    }

    pub(crate) fn disarm(&self) {
        WakeWordRef(&self.0[0]).disarm();
    }
}

/// This side's end of the socket, and the peer's sleep line. Any thread may wake the peer.
#[derive(Debug)]
pub(crate) struct Bell {
    socket: Mutex<Option<PeerSocket>>,
    raw: RawFd,
    /// The peer's sleep line.
    sleep: PeerArray<AtomicU32>,
    /// Arming count of the peer at its last wake-up.
    woken: AtomicU32,
}

/// Result of reading the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// Number of wake-ups.
    Times(u32),
    /// The peer has passed this number of descriptors with its wake-ups.
    Descriptors(usize),
    /// The peer's end is closed.
    Ended,
}

impl Bell {
    pub(crate) fn new(socket: PeerSocket, sleep: PeerArray<AtomicU32>) -> Self {
        let raw = socket.as_fd().as_raw_fd();
        Self { socket: Mutex::new(Some(socket)), raw, sleep, woken: AtomicU32::new(0) }
    }

    /// Returns the descriptor that becomes readable. The caller must know that it is still open.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.raw
    }

    /// Wakes the peer if it is armed for `what`, at most once per arming. Call this after publishing. Makes no system
    /// call if the peer is not armed.
    #[inline]
    pub(crate) fn wake_if_armed(&self, what: Event) {
        if self.sleep.is_armed(0, what) {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        // SYNC: the count was stored before the armed word that was just read; pairs with the fence in Sleep::arm.
        fence(Ordering::Acquire);
        let arming = self.sleep.load(1, Ordering::Relaxed);
        if self.woken.swap(arming, Ordering::Relaxed) != arming {
            // A full socket is readable, and so is one whose other end is closed: no wake-up is lost in either case.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = self.with(|socket| send(socket.as_raw_fd(), &[1], flags));
        }
    }

    /// Receives pending wake-ups. Receives their descriptors, too, as the kernel would close them on this thread.
    pub(crate) fn take(&self) -> Rung {
        let mut bytes = [0; MAX_EVENTS];
        match self.with(|socket| fds::receive(socket, &mut bytes)) {
            Ok(packet) if !packet.fds.is_empty() => Rung::Descriptors(packet.fds.len()),
            Ok(packet) if packet.len == 0 => Rung::Ended,
            Ok(packet) => Rung::Times(u32::try_from(packet.len).expect("no more than the buffer")),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => Rung::Times(0),
            Err(_) => Rung::Ended,
        }
    }

    /// Closes this end, including all copies in forked children. The peer's end stays readable from then on.
    pub(crate) fn close(&self) {
        let socket = self.lock().take();
        drop(socket);
    }

    fn with<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        call(self.lock().as_ref().ok_or(Errno::EBADF)?.as_fd())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<PeerSocket>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
