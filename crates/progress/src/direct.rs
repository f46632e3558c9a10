//! Direct sources, which are polled without an epoll: hot ones in every round, cold ones in turn.
//!
//! A node has a source for each peer, and few of them are active at a time. An empty poll takes a considerable part of the time of a
//! call, so sources that had no event for long become *cold*. Each round polls every hot source, several times if there are few,
//! and a share of the cold sources in turn. An event of a cold source is found within [`COLD_SHARE`] rounds. Before a sleep, and on
//! every trigger but [`Trigger::Idle`], all sources are polled.
//!
//! # Invariants
//! 1. A source is in one of the two lists. The hot one is ordered by priority, then by registration.
//! 2. Only sources of [`Cost::MemoryOfMany`] become cold, and the last hot source never does.
//! 3. While a source is called, `at` is its position, so that a source that panics can be found.

use crate::poller::Slot;
use crate::source::{Cost, Trigger};

/// Number of consecutive empty polls after which a source becomes cold: about a millisecond of polling.
pub(crate) const COLD_AFTER: u32 = 4_096;
/// Maximum number of rounds between two polls of a cold source.
pub(crate) const COLD_SHARE: usize = 16;
/// Number of polls of hot sources, all together, for each share of cold ones.
const HOT_POLLS: u32 = 4;

/// The direct sources.
#[derive(Default)]
pub(crate) struct Direct {
    hot: Vec<Slot>,
    cold: Vec<Slot>,
    /// Index of the cold source that is polled next.
    turn: usize,
    /// Position of the source that is being called: an index in `hot`, or the length of `hot` plus an index in `cold`.
    at: usize,
}

impl Direct {
    pub(crate) fn len(&self) -> usize {
        self.hot.len() + self.cold.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.hot.iter().chain(&self.cold)
    }

    pub(crate) fn add(&mut self, mut slot: Slot) {
        slot.empty_polls = 0;
        slot.announcement.withdraw();
        let place = (slot.spec.priority, slot.id);
        let place = self.hot.partition_point(|other| (other.spec.priority, other.id) <= place);
        self.hot.insert(place, slot);
    }

    /// Adds several sources, which are sorted once.
    pub(crate) fn add_all(&mut self, slots: &mut Vec<Slot>) {
        for slot in &mut *slots {
            slot.announcement.withdraw();
        }
        self.hot.append(slots);
        self.hot.sort_unstable_by_key(|slot| (slot.spec.priority, slot.id));
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Slot> {
        let place = self.iter().position(|slot| slot.id == id)?;
        Some(self.take(place))
    }

    /// Returns the source that was being called.
    pub(crate) fn called_slot(&mut self) -> &mut Slot {
        match self.at.checked_sub(self.hot.len()) {
            None => &mut self.hot[self.at],
            Some(place) => &mut self.cold[place],
        }
    }

    /// Removes the source that was being called.
    pub(crate) fn take_called(&mut self) -> Slot {
        self.take(self.at)
    }

    fn take(&mut self, place: usize) -> Slot {
        match place.checked_sub(self.hot.len()) {
            None => self.hot.remove(place),
            Some(place) => self.cold.remove(place),
        }
    }

    /// Takes out the sources that have announced that they rest, in their order. All are hot.
    pub(crate) fn take_announced(&mut self) -> Vec<Slot> {
        self.hot.extract_if(.., |slot| slot.announcement.is_made()).collect()
    }

    /// Makes every source hot.
    pub(crate) fn warm(&mut self) {
        if !self.cold.is_empty() {
            let mut cold = core::mem::take(&mut self.cold);
            for slot in &mut cold {
                slot.empty_polls = 0;
            }
            self.add_all(&mut cold);
            // Empty, with its memory.
            self.cold = cold;
        }
    }

    /// Polls the sources of this trigger until there is an event, with about `polls` polls in total but at least one of each hot source.
    /// Returns the number of events.
    #[inline]
    pub(crate) fn poll(&mut self, trigger: Trigger, polls: u32) -> usize {
        if let ([only], []) = (&mut self.hot[..], &self.cold[..]) {
            self.at = 0;
            return if only.spec.triggers.contains(trigger) { only.source.poll_often(polls) } else { 0 };
        }
        if trigger != Trigger::Idle {
            self.warm();
        }
        let count = u32::try_from(self.hot.len()).unwrap_or(u32::MAX).max(1);
        let each = if self.cold.is_empty() { 1 } else { (HOT_POLLS.min(polls) / count).max(1) };
        for _ in 0..(polls / count / each).max(1) {
            let taken = self.poll_hot(trigger, each) + self.poll_cold(trigger);
            if taken != 0 {
                return taken;
            }
        }
        0
    }

    #[inline]
    fn poll_hot(&mut self, trigger: Trigger, each: u32) -> usize {
        let (mut taken, mut cools) = (0, false);
        for (place, slot) in self.hot.iter_mut().enumerate() {
            if !slot.spec.triggers.contains(trigger) {
                continue;
            }
            self.at = place;
            let more = slot.source.poll_often(each);
            taken += more;
            slot.count_poll(more);
            cools |= slot.empty_polls >= COLD_AFTER;
        }
        if cools {
            self.cool();
        }
        taken
    }

    /// Moves sources that had no event for long to the cold list.
    #[cold]
    fn cool(&mut self) {
        let mut place = 0;
        while place < self.hot.len() {
            let last = self.hot.len() == 1;
            let slot = &mut self.hot[place];
            if slot.empty_polls < COLD_AFTER {
                place += 1;
            } else if slot.spec.cost == Cost::MemoryOfMany && !last {
                let slot = self.hot.remove(place);
                self.cold.push(slot);
            } else {
                slot.empty_polls = 0;
                place += 1;
            }
        }
    }

    #[inline]
    fn poll_cold(&mut self, trigger: Trigger) -> usize {
        let mut taken = 0;
        for _ in 0..self.cold.len().div_ceil(COLD_SHARE) {
            if self.turn >= self.cold.len() {
                self.turn = 0;
            }
            let place = self.turn;
            let Some(slot) = self.cold.get_mut(place).filter(|slot| slot.spec.triggers.contains(trigger))
            else {
                self.turn += 1;
                continue;
            };
            self.at = self.hot.len() + place;
            let more = slot.source.poll();
            if more == 0 {
                self.turn += 1;
            } else {
                let slot = self.cold.remove(place);
                self.add(slot);
                taken += more;
            }
        }
        taken
    }

    /// Calls `with` for every hot source of a trigger, from index `begin` on.
    #[inline]
    pub(crate) fn each_hot(&mut self, begin: usize, trigger: Trigger, with: &mut impl FnMut(&mut Slot)) {
        for (place, slot) in self.hot.iter_mut().enumerate().skip(begin) {
            self.at = place;
            if slot.spec.triggers.contains(trigger) {
                with(slot);
            }
        }
    }

    /// Returns the position of the source that was called last.
    pub(crate) const fn called(&self) -> usize {
        self.at
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use pronto_sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::resting::Announcement;
    use crate::source::{Sleep, Source, Spec};

    /// A source with `events` events, which counts its polls.
    struct Word {
        events: Arc<AtomicU32>,
        polls: Arc<AtomicU32>,
    }

    impl Source for Word {
        fn poll(&mut self) -> usize {
            self.polls.fetch_add(1, Ordering::Relaxed);
            self.events.swap(0, Ordering::Relaxed) as usize
        }
    }

    #[derive(Clone, Default)]
    struct Ends {
        events: Arc<AtomicU32>,
        polls: Arc<AtomicU32>,
    }

    impl Ends {
        fn polls(&self) -> u32 {
            self.polls.swap(0, Ordering::Relaxed)
        }
    }

    fn direct(costs: &[Cost]) -> (Direct, Vec<Ends>) {
        let mut direct = Direct::default();
        let ends = costs.iter().map(|_| Ends::default()).collect::<Vec<_>>();
        for ((id, cost), end) in (0..).zip(costs).zip(&ends) {
            let word = Word { events: Arc::clone(&end.events), polls: Arc::clone(&end.polls) };
            let spec = Spec { cost: *cost, ..Spec::memory("word", Sleep::Notified) };
            let announcement = Announcement::default();
            direct.add(Slot { id, spec, source: Box::new(word), empty_polls: 0, announcement });
        }
        (direct, ends)
    }

    /// Polls until every source that can become cold is cold, while the first source has an event in each round.
    fn cooled(costs: &[Cost]) -> (Direct, Vec<Ends>) {
        let (mut direct, ends) = direct(costs);
        for _ in 0..COLD_AFTER {
            ends[0].events.store(1, Ordering::Relaxed);
            assert_eq!(direct.poll(Trigger::Idle, 1), 1);
        }
        for end in &ends {
            end.polls();
        }
        (direct, ends)
    }

    /// Shows: sources.cold
    #[test]
    fn sources_without_events_for_long_are_polled_in_turn() {
        let (mut direct, ends) = cooled(&[Cost::MemoryOfMany; 16]);
        assert_eq!((direct.hot.len(), direct.cold.len()), (1, 15));
        assert_eq!(direct.poll(Trigger::Idle, 15 * HOT_POLLS), 0);
        assert_eq!(ends[0].polls(), 15 * HOT_POLLS);
        assert!(ends[1..].iter().all(|end| end.polls() == 1));
    }

    /// Shows: sources.cold
    #[test]
    fn an_event_of_a_cold_source_is_found_within_its_share_though_another_is_busy() {
        for many in [2, 16, 40] {
            let (mut direct, ends) = cooled(&vec![Cost::MemoryOfMany; many]);
            let last = ends.last().expect("there are some");
            last.events.store(7, Ordering::Relaxed);
            let mut taken = 0;
            for _ in 0..COLD_SHARE {
                ends[0].events.store(1, Ordering::Relaxed);
                taken += direct.poll(Trigger::Idle, 64);
            }
            assert_eq!(taken, COLD_SHARE + 7);
            assert_eq!(direct.hot.len(), 2, "it is hot again");
        }
    }

    /// Shows: sources.cold
    #[test]
    fn cheap_sources_and_the_last_one_stay_hot() {
        let (direct, _) = cooled(&[Cost::MemoryOfMany, Cost::Memory, Cost::SystemCall, Cost::MemoryOfMany]);
        assert_eq!((direct.hot.len(), direct.cold.len()), (3, 1));
        let (mut direct, ends) = cooled(&[Cost::MemoryOfMany; 3]);
        for _ in 0..2 * COLD_AFTER {
            direct.poll(Trigger::Idle, 1);
        }
        assert_eq!((direct.hot.len(), direct.cold.len()), (1, 2));
        assert!(ends.iter().all(|end| end.polls() != 0));
    }

    #[test]
    fn before_a_sleep_and_for_other_triggers_all_are_polled() {
        let (mut direct, ends) = cooled(&[Cost::MemoryOfMany; 16]);
        assert_eq!(direct.poll(Trigger::Yield, 1), 0);
        assert!(ends.iter().all(|end| end.polls() == 1));
        let (mut direct, ends) = cooled(&[Cost::MemoryOfMany; 16]);
        direct.warm();
        assert!(direct.hot.iter().map(|slot| slot.id).eq(0..16), "in the order of registration");
        assert_eq!(direct.poll(Trigger::Idle, 1), 0);
        assert!(ends.iter().all(|end| end.polls() == 1));
    }

    #[test]
    fn a_cold_source_can_be_removed() {
        let (mut direct, ends) = cooled(&[Cost::MemoryOfMany; 3]);
        assert_eq!(direct.remove(2).map(|slot| slot.id), Some(2));
        assert!(direct.remove(2).is_none());
        direct.poll(Trigger::Idle, 64);
        assert_eq!((direct.len(), ends[2].polls()), (2, 0));
        direct.poll(Trigger::Idle, 1);
        assert!(direct.called() < 2);
    }
}
