//! Waking a sleeping peer, and being woken.
//!
//! Each queue pair has one Unix socket pair, used only when a side sleeps. A byte is a wake-up. The end of the stream
//! is the peer's end, so that its death wakes a sleeper, too. An eventfd would be slightly cheaper, but both ends would
//! share one file description: a peer that filled its counter and made it blocking could block this side in `write`
//! forever. A socket call passes its own flag not to block.
//!
//! Only `disarm` removes bytes. A wake-up is therefore never lost between arming and sleeping.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use pronto_sync::atomic::{AtomicU32, Ordering, fence};
use pronto_sync::{Event, WakeWordRef};

use crate::map::{OwnArray, PeerArray};

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
    socket: Mutex<Option<OwnedFd>>,
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
    /// The peer's end is closed.
    Ended,
}

impl Bell {
    pub(crate) fn new(socket: OwnedFd, sleep: PeerArray<AtomicU32>) -> Self {
        let raw = socket.as_raw_fd();
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
            let _ = self.with(|socket| send(socket, &[1], flags));
        }
    }

    /// Receives pending wake-ups.
    pub(crate) fn take(&self) -> Rung {
        let mut bytes = [0; MAX_EVENTS];
        match self.with(|socket| recv(socket, &mut bytes, MsgFlags::MSG_DONTWAIT)) {
            Ok(0) => Rung::Ended,
            Ok(count) => Rung::Times(u32::try_from(count).expect("no more than the buffer")),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => Rung::Times(0),
            Err(_) => Rung::Ended,
        }
    }

    /// Closes this end, including all copies in forked children. The peer's end stays readable from then on.
    pub(crate) fn close(&self) {
        if let Some(socket) = self.lock().take() {
            // Fails only if the peer has closed the other end, and then no peer is left to notify.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }

    fn with<T>(&self, call: impl FnOnce(RawFd) -> Result<T, Errno>) -> Result<T, Errno> {
        call(self.lock().as_ref().ok_or(Errno::EBADF)?.as_raw_fd())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
