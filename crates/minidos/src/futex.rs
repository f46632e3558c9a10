//! Queues of sleepers, one per futex word.
//!
//! Whether a task may sleep is decided elsewhere, by a look at the word; see [`crate::home`].

use std::collections::{HashMap, VecDeque};

use crate::page::Address;

/// The sleepers of one home. `T` is the handle by which a sleeper is woken.
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
    /// Lets `sleeper` sleep on the word at `address`, behind those who do already.
    pub fn push(&mut self, address: Address, sleeper: T) {
        self.queues.entry(address).or_default().push_back(sleeper);
    }

    /// Takes out at most `most` sleepers, those first who came first.
    pub fn wake(&mut self, address: Address, most: u32) -> Vec<T> {
        let Some(queue) = self.queues.get_mut(&address) else { return Vec::new() };
        let count = queue.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let woken = queue.drain(..count).collect();
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        woken
    }

    /// How many sleep in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Whether nobody sleeps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_in_the_order_in_which_they_came_and_once() {
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
    fn nobody_is_woken_by_a_wake_for_none() {
        let mut sleepers = Sleepers::default();
        sleepers.push(Address(8), ());
        assert!(sleepers.wake(Address(8), 0).is_empty());
        assert!(!sleepers.is_empty());
    }
}
