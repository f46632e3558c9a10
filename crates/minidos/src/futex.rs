//! Queues of sleeping tasks, one per futex word.
//!
//! [`crate::home`] compares the futex word and decides whether a task may sleep.

use std::collections::{HashMap, VecDeque};

use crate::page::Address;

/// The sleeping tasks of one home. `T` is the handle by which a sleeper is woken.
#[derive(Debug)]
pub struct Sleepers<T> {
    queues: HashMap<Address, VecDeque<T>>,
}

impl<T> Default for Sleepers<T> {
    fn default() -> Self {
        Self { queues: HashMap::new() }
    }
}

impl<T> Sleepers<T> {
    /// Appends `sleeper` to the queue of the word at `address`.
    pub fn push(&mut self, address: Address, sleeper: T) {
        self.queues.entry(address).or_default().push_back(sleeper);
    }

    /// Removes and returns up to `most` sleepers, in the order in which they arrived.
    pub fn wake(&mut self, address: Address, most: u32) -> Vec<T> {
        let Some(queue) = self.queues.get_mut(&address) else { return Vec::new() };
        let count = queue.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let woken = queue.drain(..count).collect();
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        woken
    }

    /// Returns the number of all sleepers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Returns whether there are no sleepers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_once_and_in_the_order_of_arrival() {
        let mut sleepers = Sleepers::default();
        for name in ["a", "b", "c"] {
            sleepers.push(Address(8), name);
        }
        sleepers.push(Address(12), "other");
        assert_eq!(sleepers.wake(Address(8), 2), ["a", "b"]);
        assert_eq!(sleepers.wake(Address(8), u32::MAX), ["c"]);
        assert_eq!(sleepers.wake(Address(8), u32::MAX), Vec::<&str>::new());
        assert_eq!(sleepers.len(), 1);
    }

    #[test]
    fn a_wake_for_zero_wakes_no_sleeper() {
        let mut sleepers = Sleepers::default();
        sleepers.push(Address(8), ());
        assert!(sleepers.wake(Address(8), 0).is_empty());
        assert!(!sleepers.is_empty());
    }
}
