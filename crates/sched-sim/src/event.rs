//! The event queue: what will happen, in order of time; at one time, timer interrupts first, then in order of entry.
//!
//! # Invariants
//! 1. Events come out in order of `(time, interrupt before others, entry)`: the same entries give the same order.
//! 2. Nothing is removed. Who no longer wants an event counts generations, and ignores it when it comes.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use pronto_sched_policy::policy::time::Nanos;

use crate::id::{CpuId, TaskId};

/// Something that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The timer interrupt of a processor.
    Tick { cpu: CpuId },
    /// A timer that the scheduler asked for.
    Slice { cpu: CpuId, generation: u32 },
    /// What the current task of a processor was doing is over, if nothing came between.
    Done { cpu: CpuId, generation: u32 },
    /// A sleeping task's time is over.
    Wake { task: TaskId, generation: u32 },
    /// A fragment of a message is at its receiver's node: its place in the table of those on their way.
    Arrive { fragment: u32 },
    /// So many bytes of the message at this place have reached the receiver, and its sender knows.
    Acknowledged { fragment: u32 },
    /// A timer of the policy.
    Policy { key: u64 },
    /// A control message of the policy: its place in the table of those on their way.
    Control { letter: u32 },
}

/// An event with its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Nanos,
    /// Class in the highest bit, number of entry below.
    order: u64,
    event: Event,
}

impl Ord for Entry {
    /// Reversed, as the heap hands out its greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    entered: u64,
}

/// Set for everything but timer interrupts.
const NOT_A_TICK: u64 = 1 << 63;

impl EventQueue {
    /// Enters an event.
    pub(crate) fn enter(&mut self, at: Nanos, event: Event) {
        let class = if matches!(event, Event::Tick { .. }) { 0 } else { NOT_A_TICK };
        self.entered += 1;
        self.heap.push(Entry { at, order: class | self.entered, event });
    }

    /// The next event, if it is due by `until`.
    pub(crate) fn due(&mut self, until: Nanos) -> Option<(Nanos, Event)> {
        if self.heap.peek()?.at > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
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
}
