//! Lanes: ordered streams of handler executions, one at a time each.
//!
//! # Invariants
//! 1. A lane has an entry exactly while one of its items runs; the entry holds those that wait.
//! 2. Items of a lane run in the order in which they were pushed, the next one only after [`Lanes::finish`].

use alloc::collections::{BTreeMap, VecDeque};

/// Items by lane. A lane exists only while it has something to do, so keys cost nothing.
#[derive(Debug)]
pub struct Lanes<K, T> {
    waiting: BTreeMap<K, VecDeque<T>>,
}

impl<K: Ord, T> Lanes<K, T> {
    /// No lane has anything to do.
    pub const fn new() -> Self {
        Self { waiting: BTreeMap::new() }
    }

    /// An item for a lane. Given back if its turn is now; then the lane runs until [`Lanes::finish`].
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

    /// The lane's item that ran is done: the next one, whose turn is now.
    pub fn finish(&mut self, lane: &K) -> Option<T> {
        let next = self.waiting.get_mut(lane)?.pop_front();
        if next.is_none() {
            self.waiting.remove(lane);
        }
        next
    }

    /// Lanes with something running.
    pub fn running(&self) -> usize {
        self.waiting.len()
    }

    /// Items that wait for their turn.
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
        assert_eq!(lanes.push(1, 'd'), Some('d'), "an idle lane starts afresh");
    }
}
