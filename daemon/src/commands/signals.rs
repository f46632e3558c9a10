//! Signals that end a command, received instead of being handled.

use core::time::Duration;

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd as _;

/// `SI_KERNEL`: the kernel has sent the signal, and no process.
const FROM_KERNEL: i32 = 0x80;

/// Longest wait.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// Signals that end a command.
pub(super) const ENDS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Blocked signals: they no longer end this process. A program that it starts would inherit the mask. Signals that were ignored
/// when this process started, as SIGHUP under `nohup`, are not among them and stay ignored, also by a program that it starts.
pub(super) struct Signals(SignalFd);

/// A signal that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) signal: Signal,
    /// The terminal has sent it, to all processes in the foreground.
    pub(super) is_from_terminal: bool,
}

impl Signals {
    /// Blocks the signals that are not ignored, until the process ends.
    pub(super) fn block(signals: impl IntoIterator<Item = Signal>) -> anyhow::Result<Self> {
        // The kernel keeps a blocked signal for the process even if the process ignores it.
        let status = std::fs::read_to_string(STATUS).with_context(|| format!("reading {STATUS}"))?;
        let ignored = ignored(&status).with_context(|| format!("{STATUS} has no mask of ignored signals"))?;
        let set = SigSet::from_iter(signals.into_iter().filter(|signal| !has(ignored, *signal)));
        set.thread_block().context("blocking signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self(SignalFd::with_flags(&set, flags).context("receiving signals")?))
    }

    /// Waits for a signal for at most `limit`.
    pub(super) fn next_within(&mut self, limit: Duration) -> anyhow::Result<Option<Received>> {
        // Exact: whole milliseconds would end before the limit, and the caller would wait again and again for the rest.
        let limit = TimeSpec::from_duration(limit.min(LONGEST));
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut fds, Some(limit), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("waiting for signals"),
        }
        let received = self.0.read_signal().context("receiving signals")?;
        Ok(received.and_then(|info| {
            let signal = i32::try_from(info.ssi_signo).ok()?;
            let is_from_terminal = info.ssi_code == FROM_KERNEL;
            Some(Received { signal: Signal::try_from(signal).ok()?, is_from_terminal })
        }))
    }
}

/// File of the kernel with the signals that this process ignores.
const STATUS: &str = "/proc/self/status";

/// Returns the mask of ignored signals from the text of `/proc/PID/status`.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Returns whether a mask contains a signal: bit 0 is that of signal 1.
fn has(mask: u64, signal: Signal) -> bool {
    mask >> (signal as u32 - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_those_of_the_mask() {
        let mask = ignored("Name:\tnohup\nSigIgn:\t0000000000001001\n").unwrap_or_default();
        let found = Signal::iterator().filter(|signal| has(mask, *signal));
        assert_eq!(found.collect::<Vec<_>>(), [Signal::SIGHUP, Signal::SIGPIPE]);
        assert_eq!(ignored("Name:\tnohup\n"), None);
    }
}
