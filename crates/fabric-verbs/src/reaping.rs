//! When the completions of sends are looked at. Most sends are copied and say nothing when they are done, so most looks would be in
//! vain: there is something to find while a request is outstanding that was asked to say so; and when a request has failed, which
//! does so in any case.

use core::cell::Cell;

use crate::queue_pair::VerbsQueuePair;

/// Looks at a queue pair after which its sends are looked at whatever is outstanding: a failure is found so late, at most, by one
/// who polls. One who sleeps is told.
const LOOKS: u32 = 32;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reaping {
    /// One beyond the number of the last request that was asked to say when it is done.
    pub(crate) asked_below: u64,
    /// Looks left.
    left: Cell<u32>,
}

impl VerbsQueuePair {
    /// Whether there may be something.
    #[inline]
    pub(crate) fn may_reap(&self) -> bool {
        if self.queue.oldest() < self.reaping.asked_below || self.sends.has_batched() {
            return true;
        }
        let left = self.reaping.left.get();
        self.reaping.left.set(left.checked_sub(1).unwrap_or(LOOKS));
        left == 0
    }

    /// Somebody is about to sleep, or has slept: nothing is left out by the next look.
    pub(crate) fn looks_anew(&mut self) {
        self.reaping.left.set(0);
    }
}
