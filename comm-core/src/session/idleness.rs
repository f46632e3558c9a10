//! Whether a session has had next to nothing to send for a while, so that memory which it needed once can go back.

use crate::time::Nanos;

/// How long it is looked at before it counts as idle. What it gives back it takes anew when it is busy again, so this is long
/// beside a burst.
const WINDOW: Nanos = Nanos::from_secs(4);
/// Messages that an idle session sends in that time at most: heartbeats, and what they carry along.
const FEW: u64 = 8;

/// How far two looks for idle send memory are apart: while calls are open there is a tick every few milliseconds, within which a
/// stream does not come back to every chunk.
const LOOK: Nanos = Nanos::from_millis(250);

/// What the ticks of a session have seen.
#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// When it was last looked for idle send memory.
    looked: Nanos,
    /// When the present window began, and what had been sent by then.
    since: Nanos,
    sent: u64,
}

impl Idleness {
    /// A tick. Returns whether it is time to look for idle send memory.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        let due = now.since(self.looked) >= LOOK;
        if due {
            self.looked = now;
        }
        due
    }

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
    fn looks_for_idle_memory_are_apart() {
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
