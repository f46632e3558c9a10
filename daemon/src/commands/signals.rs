//! Signals that end a command, received instead of being handled.

use core::time::Duration;

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd as _;

/// SIGINT, SIGTERM and SIGHUP, which no longer end this process, nor programs that it starts while this exists.
pub(super) struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals.
    pub(super) fn block() -> anyhow::Result<Self> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        set.thread_block().context("blocking signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags).context("receiving signals")?))
    }

    /// Waits for a signal for at most `limit`.
    pub(super) fn next_within(&mut self, limit: Duration) -> anyhow::Result<Option<Signal>> {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("waiting for signals"),
        }
        let received = self.0.read_signal().context("receiving signals")?;
        let number = received.and_then(|info| i32::try_from(info.ssi_signo).ok());
        Ok(number.and_then(|number| Signal::try_from(number).ok()))
    }
}
