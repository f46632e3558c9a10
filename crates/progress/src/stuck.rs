//! Descriptors that say ready again and again, and have nothing: they are left out for a while.
//!
//! A level-triggered descriptor stays readable after its other end has gone, or when its poll function does not take what is
//! there. Whoever sleeps on it sleeps no more. After [`IN_VAIN`] wake-ups in a row for nothing it is muted, at first for
//! [`FIRST`], then for twice as long each time, up to [`LONGEST`]; one event that it does have makes it trusted again.

use std::collections::HashMap;

use pronto_core::Nanos;

/// Wake-ups in a row that found nothing. A wake-up for an event that another thread took is no rarity.
pub(crate) const IN_VAIN: u32 = 64;
/// The first time without it.
pub(crate) const FIRST: Nanos = Nanos::from_millis(1);
/// The longest: one wake-up in so long is no burden.
pub(crate) const LONGEST: Nanos = Nanos::from_secs(8);

/// What is known of descriptors that had nothing lately, by token. Empty where all is well.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    vain: HashMap<u64, Vain>,
}

#[derive(Debug, Default)]
struct Vain {
    times: u32,
    /// How long it was muted last.
    last: Nanos,
    muted_until: Option<Nanos>,
}

impl Stuck {
    /// A descriptor was ready, and so much was taken. Returns whether it is muted from now on.
    pub(crate) fn was_ready(&mut self, token: u64, taken: usize, now: Nanos) -> bool {
        if taken != 0 {
            self.forget(token);
            return false;
        }
        let vain = self.vain.entry(token).or_default();
        vain.times += 1;
        // After the first time, one wake-up for nothing is enough.
        if vain.times < IN_VAIN && vain.last == Nanos::ZERO {
            return false;
        }
        vain.last = if vain.last == Nanos::ZERO { FIRST } else { Nanos(vain.last.0 * 2).min(LONGEST) };
        vain.muted_until = Some(now + vain.last);
        true
    }

    /// Nothing is known of it any more.
    pub(crate) fn forget(&mut self, token: u64) {
        if !self.vain.is_empty() {
            self.vain.remove(&token);
        }
    }

    /// Whether it is left out.
    pub(crate) fn is_muted(&self, token: u64) -> bool {
        self.vain.get(&token).is_some_and(|vain| vain.muted_until.is_some())
    }

    /// When the next one is tried again.
    pub(crate) fn next(&self) -> Nanos {
        self.vain.values().filter_map(|vain| vain.muted_until).min().unwrap_or(Nanos::NEVER)
    }

    /// Its events go to others, who take them before whoever is woken has looked: it is muted for [`FIRST`], and no longer. What comes
    /// meanwhile may be for nobody else.
    pub(crate) fn is_taken_from(&mut self, token: u64, now: Nanos) {
        let rests = Vain { muted_until: Some(now + FIRST), ..Vain::default() };
        self.vain.insert(token, rests);
    }

    /// Those whose time is over are tried again.
    pub(crate) fn due(&mut self, now: Nanos, mut each: impl FnMut(u64)) {
        for (token, vain) in &mut self.vain {
            if vain.muted_until.is_some_and(|until| now >= until) {
                vain.muted_until = None;
                each(*token);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn due(stuck: &mut Stuck, now: Nanos) -> Vec<u64> {
        let mut due = Vec::new();
        stuck.due(now, |token| due.push(token));
        due
    }

    #[test]
    fn who_has_nothing_is_muted_for_longer_each_time_and_trusted_again_at_once() {
        let mut stuck = Stuck::default();
        let muted = (1..=IN_VAIN).position(|_| stuck.was_ready(7, 0, Nanos::ZERO));
        assert_eq!(muted, Some(IN_VAIN as usize - 1));
        assert!(stuck.is_muted(7) && !stuck.is_muted(8));
        assert_eq!(stuck.next(), FIRST);
        assert_eq!(due(&mut stuck, Nanos(FIRST.0 - 1)), []);
        assert_eq!(due(&mut stuck, FIRST), [7]);
        assert!(!stuck.is_muted(7));
        assert!(stuck.was_ready(7, 0, FIRST), "it has not changed");
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
        let mut stuck = Stuck::default();
        assert!((0..IN_VAIN).any(|_| stuck.was_ready(1, 0, Nanos::ZERO)));
        assert_eq!(due(&mut stuck, Nanos::from_secs(86_400)), [1]);
    }

    #[test]
    fn what_others_take_from_rests_as_long_each_time() {
        let mut stuck = Stuck::default();
        for at in (0..3 * u64::from(IN_VAIN)).map(|times| Nanos(times * FIRST.0)) {
            stuck.is_taken_from(7, at);
            assert_eq!(stuck.next(), at + FIRST);
            assert_eq!(due(&mut stuck, at + FIRST), [7]);
        }
        assert!(!stuck.was_ready(7, 0, Nanos::ZERO), "it was not in vain");
    }
}
