//! The event queue, in order of time. At the same time, timer interrupts come first; otherwise the order of entry
//! decides.
//!
//! # Invariants
//! 1. Events come out in order of `(time, interrupt before others, entry)`: the same entries give the same order.
//! 2. No event is removed. An owner that no longer wants an event counts generations, and ignores the event when it
//!    comes.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use pronto_sched_policy::policy::time::Nanos;

use crate::id::{CpuId, TaskId};

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Timer interrupt of a CPU.
    Tick { cpu: CpuId },
    /// Timer of the scheduler.
    Slice { cpu: CpuId, generation: u32 },
    /// End of the current task's activity on a CPU, unless something came between.
    Done { cpu: CpuId, generation: u32 },
    /// End of a task's sleep.
    Wake { task: TaskId, generation: u32 },
    /// Arrival of a fragment at its receiver's node; `fragment` is its index in the table of those in transit.
    Arrive { fragment: u32 },
    /// Acknowledgement of a fragment: it has reached the receiver, and its sender knows.
    Acknowledged { fragment: u32 },
    /// Timer of the policy.
    Policy { key: u64 },
    /// Control message of the policy; `letter` is its index in the table of those in transit.
    Control { letter: u32 },
}

/// An event with its position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Nanos,
    /// Class in the highest bit, number of the entry below.
    order: u64,
    event: Event,
}

impl Ord for Entry {
    /// Compares in reverse, because the heap returns its greatest element.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The queue. Events of the present time slot are in order; events of one of the next slots are sorted by slot only;
/// later events are in a heap of their own. So a cluster of thousands of nodes, with as many pending ticks, handles its
/// events in a heap that fits into a cache.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    present: BinaryHeap<Entry>,
    /// Number of the present slot; entries of earlier ones are in `present`, too.
    slot: u64,
    /// Next slots, by the lowest bits of their numbers; `filled` has a bit for each slot that is not empty.
    next: Vec<Vec<Entry>>,
    filled: [u64; SLOTS / 64],
    later: BinaryHeap<Entry>,
    entered: u64,
}

/// Set for everything but timer interrupts.
const NOT_A_TICK: u64 = 1 << 63;

/// A slot is 2^17 ns, 131 us: some hundred events of 10,000 busy nodes.
const SLOT_BITS: u32 = 17;

/// Number of slots that are kept separately: 134 ms, beyond the next tick and most sleeps.
const SLOTS: usize = 1024;

/// Returns the number of the slot of a time.
const fn slot_of(at: Nanos) -> u64 {
    at.0 >> SLOT_BITS
}

/// Returns the index at which a slot is kept.
#[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
const fn place(slot: u64) -> usize {
    slot as usize % SLOTS
}

impl Default for EventQueue {
    fn default() -> Self {
        Self {
            present: BinaryHeap::new(),
            slot: 0,
            next: vec![Vec::new(); SLOTS],
            filled: [0; SLOTS / 64],
            later: BinaryHeap::new(),
            entered: 0,
        }
    }
}

impl EventQueue {
    /// Enters an event.
    pub(crate) fn enter(&mut self, at: Nanos, event: Event) {
        let class = if matches!(event, Event::Tick { .. }) { 0 } else { NOT_A_TICK };
        self.entered += 1;
        self.sort_in(Entry { at, order: class | self.entered, event });
    }

    fn sort_in(&mut self, entry: Entry) {
        let slot = slot_of(entry.at);
        if slot <= self.slot {
            self.present.push(entry);
        } else if slot - self.slot < SLOTS as u64 {
            let place = place(slot);
            self.next[place].push(entry);
            self.filled[place / 64] |= 1 << (place % 64);
        } else {
            self.later.push(entry);
        }
    }

    /// Returns the next event, if it is due by `until`.
    pub(crate) fn due(&mut self, until: Nanos) -> Option<(Nanos, Event)> {
        while self.present.is_empty() {
            self.begin_slot()?;
        }
        if self.present.peek()?.at > until {
            return None;
        }
        self.present.pop().map(|entry| (entry.at, entry.event))
    }

    /// Advances to the next slot that has events; returns `None` if there are no events.
    fn begin_slot(&mut self) -> Option<()> {
        let later = self.later.peek().map(|entry| slot_of(entry.at));
        self.slot = match (self.next_filled(), later) {
            (Some(next), Some(later)) => next.min(later),
            (next, later) => next.or(later)?,
        };
        while self.later.peek().is_some_and(|entry| slot_of(entry.at) - self.slot < SLOTS as u64) {
            if let Some(entry) = self.later.pop() {
                self.sort_in(entry);
            }
        }
        let place = place(self.slot);
        self.filled[place / 64] &= !(1 << (place % 64));
        self.present.extend(self.next[place].drain(..));
        Some(())
    }

    /// Returns the first slot after the present one that has events.
    fn next_filled(&self) -> Option<u64> {
        let first = place(self.slot + 1);
        let words = SLOTS / 64;
        // The first word is visited again at the end, for its lower bits, which are the last slots.
        (0..=words).find_map(|step| {
            let word = (first / 64 + step) % words;
            let mask = match step {
                0 => u64::MAX << (first % 64),
                _ if step == words => !(u64::MAX << (first % 64)),
                _ => u64::MAX,
            };
            let bits = self.filled[word] & mask;
            (bits != 0).then(|| {
                let place = word * 64 + bits.trailing_zeros() as usize;
                self.slot + 1 + ((place + SLOTS - first) % SLOTS) as u64
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_before_class_and_class_before_entry() {
        let mut queue = EventQueue::default();
        let tick = Event::Tick { cpu: CpuId(0) };
        queue.enter(Nanos(2), Event::Policy { key: 1 });
        queue.enter(Nanos(2), Event::Policy { key: 2 });
        queue.enter(Nanos(2), tick);
        queue.enter(Nanos(1), Event::Policy { key: 3 });
        queue.enter(Nanos(3), Event::Policy { key: 4 });
        let order: Vec<_> = core::iter::from_fn(|| queue.due(Nanos(2))).map(|(_, event)| event).collect();
        let key = |key| Event::Policy { key };
        assert_eq!(order, [key(3), tick, key(1), key(2)]);
    }

    #[test]
    fn slots_near_and_far_come_out_in_order_of_time() {
        let mut random = crate::random::Random::stream(1, 1);
        let mut queue = EventQueue::default();
        let mut now = Nanos::ZERO;
        let mut waiting = Vec::new();
        for key in 0..20_000 {
            // From the same slot to far beyond those kept separately.
            let span = 1 << random.below(32);
            let at = now.after(random.time_below(Nanos(span)));
            queue.enter(at, Event::Policy { key });
            waiting.push((at, key));
            if random.below(3) > 0 {
                let first = waiting.iter().copied().min();
                let until = now.after(random.time_below(Nanos(span)));
                let expected = first.filter(|(at, _)| *at <= until);
                let found = queue.due(until).map(|(at, event)| match event {
                    Event::Policy { key } => (at, key),
                    other => panic!("{other:?} was not entered"),
                });
                assert_eq!(found, expected, "by {until:?}");
                waiting.retain(|entry| Some(*entry) != found);
                now = found.map_or(until, |(at, _)| at);
            }
        }
        assert!(waiting.len() > 100);
        waiting.sort_unstable();
        let rest: Vec<_> = core::iter::from_fn(|| queue.due(Nanos::NEVER)).map(|(at, _)| at).collect();
        assert_eq!(rest, waiting.iter().map(|(at, _)| *at).collect::<Vec<_>>());
    }
}
