//! Waking a peer that sleeps, and being woken.
//!
//! One Unix socket pair per queue pair, used only when somebody sleeps: a byte is a wake-up, the end is the peer's end, so
//! that a sleeper is woken by a death as well. An eventfd would be a little cheaper, but both ends would share one file
//! description, and a peer that filled its counter and made it blocking could keep us waiting in `write` for ever; every
//! call on a socket says for itself that it does not wait.
//!
//! Nobody takes bytes out but `disarm`. What wakes a sleeper is never taken between its arming and its sleep.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use pronto_sync::atomic::{AtomicU32, Ordering, fence};
use pronto_sync::{Event, WakeWordRef};

use crate::map::{OwnArray, PeerArray};

/// Words of the sleep line: armed word, count of armings.
pub(crate) const SLEEP_WORDS: usize = 2;
/// Wake-ups taken in one go; a correct peer sends one per arming.
const TAKEN_AT_ONCE: usize = 256;

/// Our words for sleeping.
#[derive(Debug)]
pub(crate) struct Sleep(pub(crate) OwnArray<AtomicU32>);

impl Sleep {
    /// Asks to be woken by `least` and by what is more than it.
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

/// This side's end of the socket, and what it has to know of the peer. Any thread may wake the peer.
#[derive(Debug)]
pub(crate) struct Bell {
    socket: Mutex<Option<OwnedFd>>,
    raw: RawFd,
    /// The peer's sleep line.
    sleep: PeerArray<AtomicU32>,
    /// The peer's arming that it was woken from already.
    woken: AtomicU32,
}

/// What was found in the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// So many wake-ups.
    Times(u32),
    /// The peer's end is closed.
    Ended,
}

impl Bell {
    pub(crate) fn new(socket: OwnedFd, sleep: PeerArray<AtomicU32>) -> Self {
        let raw = socket.as_raw_fd();
        Self { socket: Mutex::new(Some(socket)), raw, sleep, woken: AtomicU32::new(0) }
    }

    /// The descriptor that becomes readable; whether it is still open is the caller's to know.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.raw
    }

    /// After publishing: wakes the peer if it asked for that, once per arming. No system call otherwise.
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
            // A full socket is readable, and so is one whose other end is closed: in neither case is a wake-up lost.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = self.with(|socket| send(socket, &[1], flags));
        }
    }

    /// Takes the wake-ups that have come.
    pub(crate) fn take(&self) -> Rung {
        let mut bytes = [0; TAKEN_AT_ONCE];
        match self.with(|socket| recv(socket, &mut bytes, MsgFlags::MSG_DONTWAIT)) {
            Ok(0) => Rung::Ended,
            Ok(count) => Rung::Times(u32::try_from(count).expect("no more than the buffer")),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM) => Rung::Times(0),
            Err(_) => Rung::Ended,
        }
    }

    /// Closes this end, with all copies that a forked child may have; the peer's becomes readable for ever.
    pub(crate) fn close(&self) {
        if let Some(socket) = self.lock().take() {
            // It fails only if the peer has closed the other end, and then there is nobody to tell.
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
