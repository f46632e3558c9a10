//! Spurious events: descriptors that report readiness again and again without an event are left out of sleeps for a while.
//!
//! A level-triggered descriptor stays readable after its other end was closed, or if its source does not consume the data. Sleeps on
//! it then end immediately. After [`SPURIOUS_LIMIT`] consecutive spurious wake-ups the descriptor is muted, at first for [`FIRST`],
//! then for twice as long each time, up to [`LONGEST`]. A single real event resets this.

use std::collections::HashMap;

use pronto_core::Nanos;

/// Consecutive spurious wake-ups before a descriptor is muted. Single ones are normal: another thread may have taken the event.
pub(crate) const SPURIOUS_LIMIT: u32 = 64;
/// First time for which a descriptor is muted.
pub(crate) const FIRST: Nanos = Nanos::from_millis(1);
/// Longest time for which a descriptor is muted; one spurious wake-up per 8 s is harmless.
pub(crate) const LONGEST: Nanos = Nanos::from_secs(8);

/// History of descriptors that recently had spurious events, by token. Empty in normal operation.
#[derive(Debug, Default)]
pub(crate) struct SpuriousEvents {
    histories: HashMap<u64, History>,
}

#[derive(Debug, Default)]
struct History {
    times: u32,
    /// Length of the last muting.
    last: Nanos,
    muted_until: Option<Nanos>,
}

impl SpuriousEvents {
    /// Records that a descriptor was ready and `taken` events were found. Returns whether the descriptor is muted from now on.
    pub(crate) fn was_ready(&mut self, token: u64, taken: usize, now: Nanos) -> bool {
        if taken != 0 {
            self.forget(token);
            return false;
        }
        let history = self.histories.entry(token).or_default();
        history.times += 1;
        // Once it was muted, a single spurious wake-up mutes it again.
        if history.times < SPURIOUS_LIMIT && history.last == Nanos::ZERO {
            return false;
        }
        history.last =
            if history.last == Nanos::ZERO { FIRST } else { Nanos(history.last.0 * 2).min(LONGEST) };
        history.muted_until = Some(now + history.last);
        true
    }

    /// Discards the history of a descriptor.
    pub(crate) fn forget(&mut self, token: u64) {
        if !self.histories.is_empty() {
            self.histories.remove(&token);
        }
    }

    /// Returns whether the descriptor is muted.
    pub(crate) fn is_muted(&self, token: u64) -> bool {
        self.histories.get(&token).is_some_and(|history| history.muted_until.is_some())
    }

    /// Returns the time at which the next muting ends.
    pub(crate) fn next(&self) -> Nanos {
        self.histories.values().filter_map(|history| history.muted_until).min().unwrap_or(Nanos::NEVER)
    }

    /// Records that another thread took the events of a descriptor before the woken thread polled. Mutes the descriptor for [`FIRST`]
    /// and never longer, because its next event may need the woken thread.
    pub(crate) fn taken_by_other(&mut self, token: u64, now: Nanos) {
        let history = History { muted_until: Some(now + FIRST), ..History::default() };
        self.histories.insert(token, history);
    }

    /// Ends the mutings that are over and calls `each` with their descriptors.
    pub(crate) fn due(&mut self, now: Nanos, mut each: impl FnMut(u64)) {
        for (token, history) in &mut self.histories {
            if history.muted_until.is_some_and(|until| now >= until) {
                history.muted_until = None;
                each(*token);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn due(stuck: &mut SpuriousEvents, now: Nanos) -> Vec<u64> {
        let mut due = Vec::new();
        stuck.due(now, |token| due.push(token));
        due
    }

    /// Shows: sources.muted
    #[test]
    fn spurious_events_mute_for_longer_each_time_and_a_real_event_resets_that() {
        let mut stuck = SpuriousEvents::default();
        let muted = (1..=SPURIOUS_LIMIT).position(|_| stuck.was_ready(7, 0, Nanos::ZERO));
        assert_eq!(muted, Some(SPURIOUS_LIMIT as usize - 1));
        assert!(stuck.is_muted(7) && !stuck.is_muted(8));
        assert_eq!(stuck.next(), FIRST);
        assert_eq!(due(&mut stuck, Nanos(FIRST.0 - 1)), []);
        assert_eq!(due(&mut stuck, FIRST), [7]);
        assert!(!stuck.is_muted(7));
        assert!(stuck.was_ready(7, 0, FIRST), "it is still spurious");
        assert_eq!(stuck.next(), FIRST + Nanos(2 * FIRST.0));
        for _ in 0..40 {
            stuck.was_ready(7, 0, Nanos::ZERO);
        }
        assert_eq!(stuck.next(), LONGEST);
        assert!(!stuck.was_ready(7, 1, Nanos::ZERO));
        assert_eq!(stuck.next(), Nanos::NEVER);
    }

    #[test]
    fn a_clock_that_was_suspended_ends_every_muting() {
        let mut stuck = SpuriousEvents::default();
        assert!((0..SPURIOUS_LIMIT).any(|_| stuck.was_ready(1, 0, Nanos::ZERO)));
        assert_eq!(due(&mut stuck, Nanos::from_secs(86_400)), [1]);
    }

    /// Shows: sources.attended
    #[test]
    fn events_taken_by_other_threads_mute_equally_long_each_time() {
        let mut stuck = SpuriousEvents::default();
        for at in (0..3 * u64::from(SPURIOUS_LIMIT)).map(|times| Nanos(times * FIRST.0)) {
            stuck.taken_by_other(7, at);
            assert_eq!(stuck.next(), at + FIRST);
            assert_eq!(due(&mut stuck, at + FIRST), [7]);
        }
        assert!(!stuck.was_ready(7, 0, Nanos::ZERO), "none of these was spurious");
    }
}
