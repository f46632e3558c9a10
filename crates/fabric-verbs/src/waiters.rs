//! The list of waiters that found no buffer in the pool, and the eventfds that wake them.
//!
//! # Invariants
//! 1. Each entry is in the list at most once, so the list is never longer than the number of waiters.
//! 2. An entry is in the list only while its waiter exists and its last attempt to take a buffer has failed.

use std::sync::Arc;

use nix::sys::eventfd::EventFd;

/// Entry of one waiter, which is its identity: a queue pair has one for each purpose, and one bell for all of them.
#[derive(Debug)]
pub(crate) struct Entry {
    bell: Arc<EventFd>,
}

impl Entry {
    /// Makes an entry, which is not in a list yet.
    pub(crate) fn new(bell: &Arc<EventFd>) -> Self {
        Self { bell: Arc::clone(bell) }
    }
}

/// Waiters to wake when a buffer returns.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Vec<Arc<Entry>>,
}

impl Waiters {
    /// Adds a waiter whose attempt has failed, unless it is in the list.
    pub(crate) fn add(&mut self, entry: &Arc<Entry>) {
        if self.find(entry).is_none() {
            self.waiting.push(Arc::clone(entry));
        }
    }

    /// Removes a waiter that was served or no longer waits, if it is in the list.
    pub(crate) fn remove(&mut self, entry: &Arc<Entry>) {
        if let Some(at) = self.find(entry) {
            self.waiting.swap_remove(at);
        }
    }

    fn find(&self, entry: &Arc<Entry>) -> Option<usize> {
        self.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, entry))
    }

    /// Wakes all waiters and empties the list: each of them adds itself again if its next attempt fails.
    pub(crate) fn wake(&mut self) {
        for entry in self.waiting.drain(..) {
            // An error means that the counter is full, and then the descriptor is readable anyway.
            let _full = entry.bell.write(1);
        }
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
