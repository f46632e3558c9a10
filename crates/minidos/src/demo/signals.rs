//! SIGINT and SIGTERM to the supervisor, polled instead of ending the process.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Guard that blocks SIGINT and SIGTERM while it exists, so that the supervisor can reap its nodes and remove its files
/// first. It affects this thread and threads that it starts from now on. Child processes start with the signals unblocked.
#[derive(Debug)]
pub(super) struct Interrupts {
    signals: SignalFd,
    before: SigSet,
}

impl Interrupts {
    pub(super) fn block() -> Result<Self, Errno> {
        let mut wanted = SigSet::empty();
        wanted.add(Signal::SIGINT);
        wanted.add(Signal::SIGTERM);
        let before = SigSet::thread_get_mask()?;
        wanted.thread_block()?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, before })
    }

    /// Returns whether a signal has arrived.
    pub(super) fn arrived(&mut self) -> bool {
        matches!(self.signals.read_signal(), Ok(Some(_)))
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // Restoring the thread's earlier mask cannot fail, because it was valid.
        let _ = self.before.thread_set_mask();
    }
}
