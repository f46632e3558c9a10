//! Decision when to poll for completions of sends. Most sends are copied and not signalled, so most such polls would
//! find nothing. There is something to find while a signalled request is outstanding, and when a request has failed,
//! which always completes.

use core::cell::Cell;

use crate::queue_pair::VerbsQueuePair;

/// Number of polls of a queue pair after which its sends are polled in any case. A polling thread detects a failure at
/// most this many polls late; a sleeping one gets an event.
const POLLS: u32 = 32;

/// State of the decision when to poll for completions of sends.
#[derive(Debug, Default)]
pub(crate) struct Reaping {
    /// One more than the number of the last signalled request.
    pub(crate) asked_below: u64,
    /// Polls left.
    left: Cell<u32>,
}

impl VerbsQueuePair {
    /// Returns whether there may be a completion.
    #[inline]
    pub(crate) fn may_reap(&self) -> bool {
        if self.queue.oldest() < self.reaping.asked_below || self.sends.has_batched() {
            return true;
        }
        let left = self.reaping.left.get();
        self.reaping.left.set(left.checked_sub(1).unwrap_or(POLLS));
        left == 0
    }

    /// Makes the next poll include the completions of sends, because a thread is about to sleep or has slept.
    pub(crate) fn reap_at_next_poll(&mut self) {
        self.reaping.left.set(0);
    }
}
