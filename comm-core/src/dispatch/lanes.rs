//! Lanes: ordered streams of handler executions. Each lane runs one item at a time.
//!
//! # Invariants
//! 1. A lane has an entry if and only if one of its items runs. The entry holds the items that wait.
//! 2. The items of a lane run in the order in which they were pushed. Each starts only after [`Lanes::finish`] of the previous one.

use alloc::collections::{BTreeMap, VecDeque};

/// Items by lane. A lane exists only while one of its items runs, so that an idle key takes no memory.
#[derive(Debug)]
pub struct Lanes<K, T> {
    waiting: BTreeMap<K, VecDeque<T>>,
}

impl<K: Ord, T> Lanes<K, T> {
    /// Returns a value without lanes.
    pub const fn new() -> Self {
        Self { waiting: BTreeMap::new() }
    }

    /// Adds an item to a lane. Returns the item if it runs immediately, because the lane was idle. Call [`Lanes::finish`] after it has run.
    pub fn push(&mut self, lane: K, item: T) -> Option<T> {
        match self.waiting.get_mut(&lane) {
            Some(waiting) => {
                waiting.push_back(item);
                None
            }
            None => {
                self.waiting.insert(lane, VecDeque::new());
                Some(item)
            }
        }
    }

    /// Ends the run of a lane's item. Returns the next item, which runs now, or `None` if the lane is idle.
    pub fn finish(&mut self, lane: &K) -> Option<T> {
        let next = self.waiting.get_mut(lane)?.pop_front();
        if next.is_none() {
            self.waiting.remove(lane);
        }
        next
    }

    /// Returns the number of lanes with a running item.
    pub fn running(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of items that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }
}

impl<K: Ord, T> Default for Lanes<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: calls.lane-order, protocol.order-ordered, protocol.order-key, messages.ordered
    #[test]
    fn one_at_a_time_and_in_order() {
        let mut lanes = Lanes::new();
        assert_eq!(lanes.push(1, 'a'), Some('a'));
        assert_eq!(lanes.push(1, 'b'), None);
        assert_eq!(lanes.push(1, 'c'), None);
        assert_eq!(lanes.push(2, 'x'), Some('x'), "another lane does not wait");
        assert_eq!(lanes.finish(&1), Some('b'));
        assert_eq!(lanes.finish(&2), None);
        assert_eq!(lanes.finish(&1), Some('c'));
        assert_eq!(lanes.finish(&1), None);
        assert_eq!((lanes.running(), lanes.waiting()), (0, 0));
        assert_eq!(lanes.push(1, 'd'), Some('d'), "an idle lane runs an item immediately");
    }
}
