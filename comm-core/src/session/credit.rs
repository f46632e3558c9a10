//! Request credits, which limit the requests and notifications in flight on one connection.
//!
//! One word has the link's generation, the count of taken credits and the limit of that count. Therefore a new link resets all
//! three atomically, and a credit of an earlier link can be recognized.

#![expect(
    clippy::cast_possible_truncation,
    reason = "fields are packed into words, and counters wrap at their width"
)]

use pronto_sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::calls::max_reserve;

const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

const _: () = assert!(16 + 2 * COUNT_BITS == u64::BITS, "the link and both counts fill the word");
const _: () =
    assert!(u16::MAX as u32 <= 1 << (COUNT_BITS - 2), "the widest window differs from a negative count");

/// The limit of a closed link. It is as far below any count of taken credits as possible, so that a credit which a sender puts back after
/// the link was closed does not become available.
const CLOSED: u32 = 1 << (COUNT_BITS - 1);

/// The credits for one connection, shared by all senders.
#[derive(Debug, Default)]
pub struct Credits {
    /// generation 16 bits | taken 24 | limit 24, the counts wrapping.
    word: AtomicU64,
    /// Engine reserve: credits set apart for the holder of the engine, which alone writes this field. It avoids the atomic change of the
    /// word, which drains the store buffer.
    reserve: AtomicU32,
    /// Maximum of the engine reserve.
    max_reserve: AtomicU32,
}

/// A credit that was taken on one link.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The link's generation.
    pub link: u16,
}

impl Credits {
    /// Takes a credit, if one is available.
    pub fn try_take(&self) -> Option<Credit> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (link, taken, limit) = unpack(word);
            if available(taken, limit) == 0 {
                return None;
            }
            let next = pack(link, taken.wrapping_add(1), limit);
            // Relaxed: a credit orders nothing; the message that uses it is published elsewhere.
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Credit { link }),
                Err(now) => word = now,
            }
        }
    }

    /// Returns the generation of the link to which the credits belong.
    pub fn link(&self) -> u16 {
        unpack(self.word.load(Ordering::Relaxed)).0
    }

    /// Engine only: takes a credit of the engine reserve, or else any.
    #[inline(always)]
    pub(super) fn take_in_engine(&self) -> Option<Credit> {
        let reserve = self.reserve.load(Ordering::Relaxed);
        if reserve == 0 {
            return self.take_several();
        }
        debug_assert!(
            reserve <= self.max_reserve.load(Ordering::Relaxed),
            "the number of credits that are set aside has a limit"
        );
        self.reserve.store(reserve - 1, Ordering::Relaxed);
        Some(Credit { link: self.link() })
    }

    /// Engine only: takes a credit, and moves up to half of the remaining ones to the engine reserve for the next calls, at most the
    /// reserve's maximum. The other half stays available to senders without the engine.
    fn take_several(&self) -> Option<Credit> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (link, taken, limit) = unpack(word);
            let available = available(taken, limit);
            if available == 0 {
                return None;
            }
            let more = ((available - 1) / 2).min(self.max_reserve.load(Ordering::Relaxed));
            let next = pack(link, taken.wrapping_add(1 + more), limit);
            // Relaxed: a credit orders nothing, as in try_take.
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    debug_assert!(more < available, "the engine sets aside credits that are available");
                    debug_assert!(
                        self.reserve.load(Ordering::Relaxed) == 0,
                        "credits that are set aside are taken first"
                    );
                    self.reserve.store(more, Ordering::Relaxed);
                    return Some(Credit { link });
                }
                Err(now) => word = now,
            }
        }
    }

    /// Returns the number of available credits, including the engine reserve.
    pub fn available(&self) -> u32 {
        let (_, taken, limit) = unpack(self.word.load(Ordering::Relaxed));
        available(taken, limit) + self.reserve.load(Ordering::Relaxed)
    }

    /// Puts back an unused credit. Ignores a credit of an earlier link; on a closed link the credit stays unavailable.
    pub fn put_back(&self, credit: Credit) {
        self.update(|link, taken, limit| {
            if link == credit.link { (link, taken.wrapping_sub(1), limit) } else { (link, taken, limit) }
        });
    }

    /// Engine only: adds `count` credits that the peer returned, the first of them to the engine reserve up to its maximum.
    #[inline]
    pub(super) fn give(&self, count: u16) {
        let reserve = self.reserve.load(Ordering::Relaxed);
        let max_reserve = self.max_reserve.load(Ordering::Relaxed);
        debug_assert!(reserve <= max_reserve, "the number of credits that are set aside has a limit");
        let taken = u32::from(count).min(max_reserve.saturating_sub(reserve));
        self.reserve.store(reserve + taken, Ordering::Relaxed);
        let count = u32::from(count) - taken;
        if count != 0 {
            self.update(|link, taken, limit| (link, taken, limit.wrapping_add(count)));
        }
    }

    /// Engine only: takes all credits away from the senders of an idle link, if all `window` of them are available. Returns whether it did.
    /// [`Self::reset`] gives them back.
    pub(super) fn close_if_unused(&self, window: u16) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let (link, taken, limit) = unpack(word);
        if available(taken, limit) + self.reserve.load(Ordering::Relaxed) != u32::from(window) {
            return false;
        }
        // A sender may take a credit meanwhile. Relaxed: a credit orders nothing, as in try_take.
        let closed = pack(link, 0, CLOSED);
        let is_closed =
            self.word.compare_exchange(word, closed, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_closed {
            self.reserve.store(0, Ordering::Relaxed);
            self.max_reserve.store(0, Ordering::Relaxed);
        }
        is_closed
    }

    /// Returns whether there is no link, or the link takes no messages because it may be about to end.
    pub(super) fn is_closed(&self) -> bool {
        let (_, taken, limit) = unpack(self.word.load(Ordering::Relaxed));
        is_negative(distance(taken, limit))
    }

    /// Resets the credits for a new link with `window` credits. A window of zero stops all senders.
    pub(super) fn reset(&self, link: u16, window: u16) {
        self.reserve.store(0, Ordering::Relaxed);
        assert!(max_reserve(window) <= window.into(), "the number of credits that are set aside has a limit");
        self.max_reserve.store(max_reserve(window), Ordering::Relaxed);
        let limit = if window == 0 { CLOSED } else { u32::from(window) };
        // A store would do. Loom orders a swap among the changes by other threads, but not a store.
        self.word.swap(pack(link, 0, limit), Ordering::Relaxed);
    }

    fn update(&self, change: impl Fn(u16, u32, u32) -> (u16, u32, u32)) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (link, taken, limit) = unpack(word);
            let (link, taken, limit) = change(link, taken, limit);
            let next = pack(link, taken, limit);
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

fn pack(link: u16, taken: u32, limit: u32) -> u64 {
    u64::from(link) << (2 * COUNT_BITS)
        | (u64::from(taken) & COUNT_MASK) << COUNT_BITS
        | u64::from(limit) & COUNT_MASK
}

fn unpack(word: u64) -> (u16, u32, u32) {
    ((word >> (2 * COUNT_BITS)) as u16, (word >> COUNT_BITS & COUNT_MASK) as u32, (word & COUNT_MASK) as u32)
}

/// Returns `limit - taken`, wrapping in 24 bits, or 0 if it is negative.
fn available(taken: u32, limit: u32) -> u32 {
    let distance = distance(taken, limit);
    if is_negative(distance) { 0 } else { distance }
}

/// Returns `limit - taken`, wrapping in 24 bits.
const fn distance(taken: u32, limit: u32) -> u32 {
    limit.wrapping_sub(taken) & ((1 << COUNT_BITS) - 1)
}

const fn is_negative(distance: u32) -> bool {
    distance >= 1 << (COUNT_BITS - 1)
}

/// The count of requests of one connection that this side has finished on the current link. Shared by all threads that handle them.
#[derive(Debug, Default)]
pub struct Returned {
    /// generation 16 bits | count 32, wrapping.
    word: AtomicU64,
}

impl Returned {
    /// Counts one request. Ignores a request of an earlier link, whose credit ended with that link.
    pub fn add(&self, link: u16) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >> 32 == u64::from(link) {
            let next = word & !u64::from(u32::MAX) | u64::from((word as u32).wrapping_add(1));
            // Relaxed: the count only goes into a header and publishes nothing that the handler did.
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Returns the count as in headers, wrapping at 16 bits.
    pub(super) fn count(&self) -> u16 {
        self.word.load(Ordering::Relaxed) as u16
    }

    /// Resets the count to 0 for a new link.
    pub(super) fn reset(&self, link: u16) {
        // A swap for loom, as in `Credits::reset`.
        self.word.swap(u64::from(link) << 32, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::calls::MAX_RESERVE;
    use super::*;

    #[test]
    fn a_window_can_be_taken_once() {
        let credits = Credits::default();
        assert_eq!(credits.try_take(), None);
        credits.reset(1, 2);
        assert_eq!(credits.try_take(), Some(Credit { link: 1 }));
        assert_eq!(credits.try_take(), Some(Credit { link: 1 }));
        assert_eq!(credits.try_take(), None);
        credits.give(1);
        assert_eq!(credits.available(), 1);
    }

    #[test]
    fn the_engine_reserve_counts_and_is_taken_first_in_the_engine() {
        let credits = Credits::default();
        credits.reset(1, 1);
        let _paid = credits.try_take().expect("a credit is available");
        credits.give(2);
        assert_eq!(credits.available(), 2);
        // Threads without the engine can take one of them, the engine both.
        assert_eq!(credits.try_take(), Some(Credit { link: 1 }));
        assert_eq!(credits.try_take(), None);
        assert_eq!(credits.take_in_engine(), Some(Credit { link: 1 }));
        assert_eq!((credits.take_in_engine(), credits.available()), (None, 0));
        credits.give(1);
        credits.reset(2, 0);
        assert_eq!((credits.take_in_engine(), credits.available()), (None, 0), "they ended with their link");
    }

    #[test]
    fn the_engine_takes_several_and_leaves_at_least_as_many() {
        let credits = Credits::default();
        credits.reset(1, 100);
        assert_eq!(credits.take_in_engine(), Some(Credit { link: 1 }));
        assert_eq!(credits.available(), 99, "the engine reserve counts");
        assert_eq!(core::iter::from_fn(|| credits.try_take()).count(), 99 - usize::from(MAX_RESERVE));
        assert_eq!(core::iter::from_fn(|| credits.take_in_engine()).count(), usize::from(MAX_RESERVE));
        for few in 1..=4 {
            credits.reset(2, few);
            assert_eq!(credits.take_in_engine(), Some(Credit { link: 2 }));
            let left = core::iter::from_fn(|| credits.try_take()).count();
            assert!(
                left >= usize::from(few - 1).div_ceil(2),
                "{left} of {few} are left to senders without the engine"
            );
        }
    }

    #[test]
    fn the_reserve_of_credits_has_a_limit() {
        let credits = Credits::default();
        credits.reset(1, 100);
        while credits.try_take().is_some() {}
        credits.give(100);
        assert_eq!(core::iter::from_fn(|| credits.try_take()).count(), 100 - usize::from(MAX_RESERVE));
        assert_eq!(core::iter::from_fn(|| credits.take_in_engine()).count(), usize::from(MAX_RESERVE));
    }

    #[test]
    fn a_new_link_forgets_the_old_one() {
        let credits = Credits::default();
        credits.reset(1, 1);
        let old = credits.try_take().expect("a credit is available");
        credits.reset(2, 1);
        credits.put_back(old);
        assert_eq!(credits.available(), 1);
    }

    #[test]
    fn a_closed_link_has_no_credits_even_if_some_are_put_back() {
        let credits = Credits::default();
        credits.reset(1, 4);
        let taken = [(); 4].map(|()| credits.try_take().expect("the window has four"));
        credits.reset(1, 0);
        taken.into_iter().for_each(|credit| credits.put_back(credit));
        assert_eq!((credits.available(), credits.try_take()), (0, None));
        credits.give(2);
        assert_eq!((credits.take_in_engine(), credits.available()), (None, 0));
        credits.reset(2, 3);
        assert_eq!(credits.available(), 3);
    }

    #[test]
    fn returns_count_for_their_own_link() {
        let returned = Returned::default();
        returned.reset(3);
        returned.add(3);
        returned.add(2);
        assert_eq!(returned.count(), 1);
        returned.reset(4);
        returned.add(3);
        assert_eq!(returned.count(), 0);
    }

    /// Shows: protocol.returned
    #[test]
    fn counts_wrap() {
        let credits = Credits::default();
        credits.reset(0, 3);
        for _ in 0..(1 << COUNT_BITS) + 5 {
            let _paid = credits.take_in_engine().expect("each credit is returned immediately");
            credits.give(1);
        }
        assert_eq!(credits.available(), 3);
    }
}
