//! Detection of idle sessions, which free memory that they no longer need.

use crate::time::Nanos;

/// Time window after which a session with few messages is idle. A session that becomes busy again must allocate its memory anew, so the
/// window is long compared to a burst.
const WINDOW: Nanos = Nanos::from_secs(4);
/// Maximum number of messages that an idle session sends within [`WINDOW`]: heartbeats and a few others.
const FEW: u64 = 8;

/// Interval of checks for idle send memory. It is longer than a tick, which is a few milliseconds while calls are open, as a stream does
/// not use every chunk again within one tick.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(250);

/// The observations of a session's ticks.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// Time of the last check for idle send memory.
    last_check: Nanos,
    /// Begin of the current window; `sent` is the number of messages sent by then.
    since: Nanos,
    sent: u64,
}

impl Idleness {
    /// Called at each tick. Returns whether a check for idle send memory is due.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        let due = now.since(self.last_check) >= CHECK_INTERVAL;
        if due {
            self.last_check = now;
        }
        due
    }

    /// Called at each tick, with the number of messages sent so far. Returns whether a window has just ended in which the session was idle.
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
    fn checks_for_idle_memory_have_an_interval() {
        let mut idleness = Idleness::default();
        let ticks = [4, 250, 254, 499, 500, 2_500].map(|ms| idleness.is_due(Nanos::from_millis(ms)));
        assert_eq!(ticks, [false, true, false, false, true, true]);
    }

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
