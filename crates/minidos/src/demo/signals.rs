//! Interrupts of the supervisor, as something to look at instead of something that ends it.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Holds back SIGINT and SIGTERM while it lives, so that nodes are reaped and files removed first. They are held back
/// for this thread and those that it starts from now on; processes that it starts begin without.
#[derive(Debug)]
pub(super) struct Interrupts {
    signals: SignalFd,
    before: SigSet,
}

impl Interrupts {
    pub(super) fn hold_back() -> Result<Self, Errno> {
        let mut wanted = SigSet::empty();
        wanted.add(Signal::SIGINT);
        wanted.add(Signal::SIGTERM);
        let before = SigSet::thread_get_mask()?;
        wanted.thread_block()?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, before })
    }

    /// Whether one has come.
    pub(super) fn came(&mut self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // It was this thread's mask before, so it is one.
        let _ = self.before.thread_set_mask();
    }
}
