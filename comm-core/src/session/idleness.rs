//! Whether a session has had next to nothing to send for a while, so that memory which it needed once can go back.

use crate::time::Nanos;

/// How long it is looked at before it counts as idle. What it gives back it takes anew when it is busy again, so this is long
/// beside a burst.
const WINDOW: Nanos = Nanos::from_secs(4);
/// Messages that an idle session sends in that time at most: heartbeats, and what they carry along.
const FEW: u64 = 8;

/// What the ticks of a session have seen.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// When the present window began, and what had been sent by then.
    since: Nanos,
    sent: u64,
}

impl Idleness {
    /// A tick, by which so many messages had been sent. Returns whether the session was idle for a whole window that has just
    /// ended.
    pub(super) fn passed(&mut self, now: Nanos, sent: u64) -> bool {
        if now.since(self.since) < WINDOW {
            return false;
        }
        let idle = sent.wrapping_sub(self.sent) <= FEW;
        (self.since, self.sent) = (now, sent);
        idle
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_whole_window_with_few_messages_is_idle() {
        let mut idleness = Idleness::default();
        let at = |windows: u64| Nanos(WINDOW.0 * windows);
        assert!(!idleness.passed(at(1), 1_000));
        assert!(!idleness.passed(Nanos(at(2).0 - 1), 1_000), "the window has not ended");
        assert!(idleness.passed(at(2), 1_000 + FEW));
        assert!(!idleness.passed(at(3), 1_001 + 2 * FEW), "it was busy");
        assert!(idleness.passed(at(4), 1_001 + 2 * FEW));
    }
}
