//! Times of the attempts to make a link to a peer.

use crate::time::Nanos;

/// Pause after the first attempt, doubled after each one.
const FIRST_PAUSE: Nanos = Nanos::from_millis(5);

/// Longest pause. A link that lasted for less is a failed attempt: where memory is exhausted, for example, links end as soon as they are made.
const LAST_PAUSE: Nanos = Nanos::from_millis(500);

/// The attempts since a link was wanted or lost. The first one is due immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redial {
    since: Nanos,
    due: Nanos,
    pause: Nanos,
    /// When the present link was first seen.
    linked: Option<Nanos>,
}

impl Redial {
    /// Returns the state at the time when a link is wanted.
    pub const fn new(now: Nanos) -> Self {
        Self { since: now, due: now, pause: FIRST_PAUSE, linked: None }
    }

    /// Called while there is a link.
    pub fn linked(&mut self, now: Nanos) {
        self.linked.get_or_insert(now);
    }

    /// Called while there is none. After a link that lasted, the attempts begin anew.
    pub fn unlinked(&mut self, now: Nanos) {
        if self.linked.take().is_some_and(|linked| now.since(linked) >= LAST_PAUSE) {
            *self = Self::new(now);
        }
    }

    /// Called when an attempt begins.
    pub fn attempted(&mut self, now: Nanos) {
        self.due = now + self.pause;
        self.pause = Nanos((self.pause.0 * 2).min(LAST_PAUSE.0));
    }

    /// Returns the time of the next attempt.
    pub const fn due(&self) -> Nanos {
        self.due
    }

    /// Returns the time since which a link has been wanted.
    pub const fn since(&self) -> Nanos {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut redial = Redial::new(ms(100));
        for pause in [5, 10, 20, 40, 80, 160, 320, 500, 500] {
            let now = redial.due();
            redial.attempted(now);
            assert_eq!(redial.due().since(now), ms(pause));
        }
        assert_eq!(redial.since(), ms(100));
    }

    #[test]
    fn a_link_that_lasted_begins_anew() {
        let mut redial = Redial::new(ms(0));
        redial.attempted(ms(0));
        redial.linked(ms(3));
        redial.linked(ms(400));
        redial.unlinked(ms(503));
        assert_eq!(redial, Redial::new(ms(503)));
    }

    #[test]
    fn a_link_that_ended_soon_is_a_failed_attempt() {
        let mut redial = Redial::new(ms(0));
        redial.attempted(ms(0));
        redial.attempted(ms(5));
        redial.linked(ms(6));
        redial.unlinked(ms(8));
        assert_eq!((redial.due(), redial.since()), (ms(15), ms(0)));
        // The next link is another one.
        redial.linked(ms(20));
        redial.unlinked(ms(519));
        assert_eq!(redial.due(), ms(15));
    }
}
