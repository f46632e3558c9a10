//! Held doorbells: a thread that starts several calls rings one doorbell for all of them. Over TCP a doorbell is a write, over verbs
//! the posting of a list, over shared memory a check whether the peer sleeps.

use super::Session;
use crate::executor::Executor;
use crate::fabric::QueuePair;

impl<Q: QueuePair> Session<Q> {
    /// Holds the doorbells of posted messages until [`Self::release_doorbells`]. They are rung earlier in three cases: a thread waits for a
    /// held message, another message to the peer rings its doorbell, or the next tick comes.
    pub fn hold_doorbells(&self) {
        self.holds.add();
    }

    /// Ends a hold, and rings the doorbell of all messages posted meanwhile.
    pub fn release_doorbells(&self, executor: &impl Executor) {
        self.holds.remove();
        self.ring_held(executor);
    }

    /// Rings all held doorbells. Called before a wait that may be long, and by a sender that must wait for a response first.
    #[inline]
    pub fn ring_if_held(&self, executor: &impl Executor) {
        if self.holds.any() {
            self.ring_held(executor);
        }
    }

    #[cold]
    fn ring_held(&self, executor: &impl Executor) {
        // The holder of the engine drains the submissions and then rings the doorbells.
        self.wanted.credit();
        self.serve_left(executor);
    }
}
