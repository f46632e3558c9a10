//! Streams of notifications, whose messages share doorbells without a hint from the program.
//!
//! A stream is a run of notifications of which each is sent sooner after the previous one than a doorbell takes. The first ones of a run
//! leave immediately, so that separate messages are not delayed. The later ones are held, for at most half of the peer's window, or
//! [`MOST_BYTES`].

use crate::time::Nanos;

/// Maximum time from the end of one notification to the begin of the next in a stream. A doorbell over TCP takes some 4 us.
const GAP: Nanos = Nanos(1_000);
/// Number of notifications of a run that leave immediately. At 100,000 per second at random times, two in five are late because of the
/// previous one's doorbell, and nine in a row once in a thousand.
const FIRST: u8 = 8;
/// Maximum number of held bytes: a system call that sends more is no cheaper per byte.
const MOST_BYTES: usize = 32 << 10;

/// The notifications that one connection has sent last.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Time when the previous notification was sent.
    ended: Nanos,
    /// Number of notifications in the present run, at most [`FIRST`].
    run: u8,
    /// True if a notification was refused since, whose sender waits for room, so that the next pause does not end the run.
    was_refused: bool,
    /// Notifications that are held, and the length of their payloads, bytes.
    held: (u16, usize),
}

/// The step after a notification was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Its doorbell is rung, also for held ones. Call [`Stream::ended`] afterwards.
    Ring,
    /// It is held, as the first one since the last doorbell.
    Begin,
    /// It is held.
    Hold,
}

impl Stream {
    /// Returns the step after a notification with a payload of `len` bytes was posted, to a peer with a window of `window` requests.
    pub(super) fn posted(&mut self, now: Nanos, len: usize, window: u16) -> Step {
        let in_run = now.since(self.ended) <= GAP || self.was_refused;
        (self.ended, self.was_refused) = (now, false);
        if !in_run {
            self.run = 0;
        }
        if self.run < FIRST {
            self.run += 1;
            return Step::Ring;
        }
        let (messages, bytes) = self.held;
        self.held = (messages + 1, bytes + len);
        if (messages + 1) * 2 >= window || bytes + len >= MOST_BYTES {
            return Step::Ring;
        }
        if messages == 0 { Step::Begin } else { Step::Hold }
    }

    /// Called when a notification finds no room.
    pub(super) fn refused(&mut self) {
        self.was_refused = true;
    }

    /// Called after the doorbell of [`Step::Ring`].
    pub(super) fn ended(&mut self, now: Nanos) {
        self.ended = now;
    }

    /// Returns whether notifications are held.
    #[inline]
    pub(super) const fn holds(&self) -> bool {
        self.held.0 != 0
    }

    /// Called with each doorbell.
    #[inline]
    pub(super) fn was_rung(&mut self) {
        self.held = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const WINDOW: u16 = 64;

    /// Sends notifications with these pauses, and returns the steps. A doorbell takes 4 us.
    fn steps(stream: &mut Stream, pauses: impl IntoIterator<Item = u64>) -> Vec<Step> {
        let mut now = Nanos::from_millis(1);
        let mut send = |pause| {
            now = now + Nanos(pause);
            let step = stream.posted(now, 32, WINDOW);
            if step == Step::Ring {
                now = now + Nanos::from_micros(4);
                stream.was_rung();
                stream.ended(now);
            }
            step
        };
        pauses.into_iter().map(&mut send).collect()
    }

    #[test]
    fn separate_notifications_leave_immediately() {
        let mut stream = Stream::default();
        let steps = steps(&mut stream, (0..100).map(|n| if n % 8 == 0 { 1_001 } else { 10 }));
        assert!(steps.iter().all(|step| *step == Step::Ring), "{steps:?}");
    }

    #[test]
    fn a_stream_leaves_in_half_windows() {
        let mut stream = Stream::default();
        let steps = steps(&mut stream, [100; 8 + 64]);
        let (first, rest) = steps.split_at(8);
        assert_eq!(first, [Step::Ring; 8]);
        for half in rest.chunks(32) {
            assert_eq!(half[0], Step::Begin);
            assert!(half[1..31].iter().all(|step| *step == Step::Hold), "{half:?}");
            assert_eq!(half[31], Step::Ring);
        }
    }

    #[test]
    fn a_pause_ends_a_stream_and_its_hold() {
        let mut stream = Stream::default();
        let steps = steps(&mut stream, [[100; 10].as_slice(), &[1_001, 100]].concat());
        assert_eq!(steps[8..], [Step::Begin, Step::Hold, Step::Ring, Step::Ring]);
        assert!(!stream.holds());
    }

    #[test]
    fn a_wait_for_room_does_not_end_a_stream() {
        let mut stream = Stream::default();
        assert_eq!(steps(&mut stream, [100; 10])[9], Step::Hold);
        stream.was_rung();
        stream.refused();
        assert_eq!(stream.posted(Nanos::from_millis(9), 32, WINDOW), Step::Begin);
        assert_eq!(stream.posted(Nanos::from_millis(99), 32, WINDOW), Step::Ring);
    }

    #[test]
    fn long_notifications_leave_after_fewer() {
        let mut stream = Stream::default();
        let steps: Vec<_> = (0..16).map(|now| stream.posted(Nanos(now), 4096, WINDOW)).collect();
        let held = steps.iter().filter(|step| **step != Step::Ring).count();
        assert_eq!((held, steps[15]), (7, Step::Ring), "{steps:?}");
    }

    #[test]
    fn a_narrow_window_holds_nothing_that_fills_it() {
        let mut stream = Stream::default();
        for now in 0..20 {
            assert_eq!(stream.posted(Nanos(now), 32, 2), Step::Ring);
            stream.was_rung();
        }
    }
}
