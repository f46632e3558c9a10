//! Detection of a peer whose kernel no longer acknowledges what this side sends.
//!
//! TCP_USER_TIMEOUT of tcp(7) does not fit: it also counts the time during which the peer's window is closed, so it
//! ends connections to peers that read slowly, whose kernels answer every window probe. RFC 9293, section 3.8.6.1,
//! keeps such connections open. Without that option the kernel gives up after tcp_retries2 retransmissions, about a
//! quarter of an hour. So the queue pair itself queries the kernel from time to time for unacknowledged data.
//!
//! # Invariants
//! 1. `unanswered_since` is set while every check since then found something unanswered, and no two checks were further
//!    apart than the limit: after a process was stopped, the measurement starts again.
//! 2. A peer is lost only if several retransmissions or probes were unanswered, too: while a window is closed for long,
//!    probes are up to two minutes apart.
//! 3. A check is made at most every eighth of the limit, and none while nothing was sent since a check that found
//!    everything answered. An idle connection costs no system call.

use core::time::Duration;
use std::os::fd::AsFd;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use nix::time::{ClockId, clock_gettime};
use pronto_core::fabric::FabricError;

/// Checks per limit: a peer is reported as lost at most this fraction of the limit too late.
const CHECKS: u32 = 8;
/// Retransmissions or probes without an answer that count as silence. One or two may be lost in the network, or fall
/// into the half second in which the peer's kernel answers no further probe (tcp_invalid_ratelimit, tcp(7)).
const ATTEMPTS: u8 = 3;
/// Polls without a message between two checks, for a thread that polls and never sleeps.
const POLLS: u8 = 64;

/// Start of `struct tcp_info` of linux/tcp.h, up to the fields of Linux 4.9, which would truncate a longer one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionInfo {
    _state: [u8; 2],
    /// Retransmissions since an acknowledgement of new data.
    pub(crate) retransmits: u8,
    /// Probes of a closed window since the last acknowledgement.
    pub(crate) probes: u8,
    /// Number of times that the interval between two retransmissions or probes was doubled.
    pub(crate) backoff: u8,
    _options: [u8; 3],
    _timeouts_and_sizes: [u32; 4],
    /// Segments that were sent and not acknowledged.
    pub(crate) unacked: u32,
    _losses: [u32; 4],
    /// Milliseconds since data was last sent, new or again.
    pub(crate) last_data_sent: u32,
    _last_sent_and_received: [u32; 2],
    /// Milliseconds since the last acknowledgement arrived.
    pub(crate) last_ack_recv: u32,
    _path: [u32; 11],
    _rates_and_bytes: [u64; 4],
    _segments: [u32; 2],
    /// Bytes that the kernel accepted and has not sent yet.
    pub(crate) notsent_bytes: u32,
    _min_rtt: u32,
}
const _: () = assert!(size_of::<ConnectionInfo>() == 152);

/// TCP_INFO of tcp(7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfo;
nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, ConnectionInfo, GetStruct<ConnectionInfo>);

/// State of the detection for one connection.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    /// Time of the last check.
    checked: Duration,
    unanswered_since: Option<Duration>,
    /// Number of sends at the last check, if it found all of them answered.
    answered: Option<u64>,
    /// Polls without a message until the next check.
    polls_left: u8,
}

impl Silence {
    /// Creates the detection with the time limit `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, checked: Duration::ZERO, unanswered_since: None, answered: Some(0), polls_left: POLLS }
    }

    /// Counts a poll without a message; returns whether it is time to [`check`](Self::check).
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.polls_left -= 1;
        self.polls_left == 0
    }

    /// Returns [`FabricError::Lost`] if data of this side was unanswered for longer than the limit. `sends` is the
    /// number of sends so far.
    pub(crate) fn check(&mut self, socket: &impl AsFd, sends: u64) -> Result<(), FabricError> {
        self.polls_left = POLLS;
        if self.answered == Some(sends) {
            return Ok(());
        }
        // The coarse clock is some milliseconds off, and never a system call.
        let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map(Duration::from) else {
            return Ok(());
        };
        if now.saturating_sub(self.checked) < self.limit / CHECKS {
            return Ok(());
        }
        let info =
            getsockopt(socket, TcpInfo).map_err(|errno| FabricError::System { errno: errno as i32 })?;
        if self.judge(now, sends, &info) { Err(FabricError::Lost) } else { Ok(()) }
    }

    /// Returns whether the peer counts as lost.
    fn judge(&mut self, now: Duration, sends: u64, info: &ConnectionInfo) -> bool {
        let gap = now.saturating_sub(core::mem::replace(&mut self.checked, now));
        // The peer's kernel may answer and yet accept nothing for lack of memory.
        let unacked = info.unacked != 0 && info.last_ack_recv > info.last_data_sent;
        let unanswered = unacked || info.probes != 0;
        // Bytes that wait for the window to open are not unanswered, but the next probe may be.
        self.answered = (!unanswered && info.unacked == 0 && info.notsent_bytes == 0).then_some(sends);
        if !unanswered {
            self.unanswered_since = None;
            return false;
        }
        if gap > self.limit {
            self.unanswered_since = None;
        }
        let since = *self.unanswered_since.get_or_insert(now);
        let silent_for = Duration::from_millis(info.last_ack_recv.into());
        let attempts = info.retransmits.max(info.probes);
        attempts >= ATTEMPTS && now.saturating_sub(since) >= self.limit && silent_for >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    fn info(unacked: u32, probes: u8, last_ack_recv: u32) -> ConnectionInfo {
        let retransmits = if unacked == 0 { 0 } else { ATTEMPTS };
        ConnectionInfo { unacked, retransmits, probes, last_ack_recv, ..ConnectionInfo::default() }
    }

    /// Returns the second at which one of `seconds` checks, one per second, finds the peer lost.
    fn gone_after(seconds: u64, found: impl Fn(u64) -> ConnectionInfo) -> Option<u64> {
        let mut silence = Silence::new(LIMIT);
        (0..seconds)
            .find(|second| silence.judge(Duration::from_secs(1000 + second), *second + 1, &found(*second)))
    }

    #[test]
    fn a_peer_that_answers_nothing_is_gone_after_the_limit() {
        // Before that, nothing was sent for an hour.
        let since = |second| u32::try_from(3_600_000 + second * 1000).unwrap();
        assert_eq!(gone_after(100, |second| info(3, 0, since(second))), Some(8));
        assert_eq!(gone_after(100, |second| info(0, ATTEMPTS, since(second))), Some(8));
    }

    #[test]
    fn a_peer_that_acknowledges_something_is_not_lost() {
        assert_eq!(gone_after(100, |_| info(3, 0, 7_999)), None);
        assert_eq!(gone_after(100, |second| info(u32::from(second % 8 != 0), 0, 3_600_000)), None);
        // Sent a minute ago, answered immediately, and to be retransmitted in a minute.
        let refused = ConnectionInfo { last_data_sent: 60_000, ..info(1, 0, 60_000) };
        assert_eq!(gone_after(100, |_| refused), None);
    }

    #[test]
    fn a_closed_window_with_rare_probes_is_not_silence() {
        // A probe is in flight at some checks, and answered at the next.
        assert_eq!(gone_after(300, |second| info(0, u8::from(second % 60 == 0), 60_000)), None);
        // Two consecutive probes were lost.
        assert_eq!(gone_after(100, |_| info(0, ATTEMPTS - 1, 60_000)), None);
    }

    #[test]
    fn after_a_stop_of_the_process_the_measurement_starts_again() {
        let mut silence = Silence::new(LIMIT);
        let mut gone = |second| silence.judge(Duration::from_secs(second), 1, &info(1, 0, 3_600_000));
        assert!(!gone(100));
        assert!(!gone(200));
        assert!(!gone(207));
        assert!(gone(208));
    }

    #[test]
    fn the_kernel_is_not_queried_while_everything_is_answered() {
        let mut silence = Silence::new(LIMIT);
        assert!(!silence.judge(LIMIT, 5, &info(0, 0, 0)));
        assert_eq!(silence.answered, Some(5));
        let waiting = ConnectionInfo { notsent_bytes: 1, ..info(0, 0, 0) };
        assert!(!silence.judge(LIMIT * 2, 5, &waiting));
        assert_eq!(silence.answered, None);
    }
}
