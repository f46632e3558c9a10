//! Doorbells that a thread holds back while it starts several calls: one for all of them. Over TCP a doorbell is a write, over verbs
//! the posting of a list, over shared memory a look whether the peer sleeps.

use pronto_sync::atomic::Ordering;

use super::Session;
use crate::executor::Executor;
use crate::fabric::QueuePair;

impl<Q: QueuePair> Session<Q> {
    /// From now on no doorbell is rung for messages that are posted, until [`Self::release_doorbells`]. What is held back leaves all the
    /// same before a thread waits for it, together with what else has to leave, and when time passes.
    pub fn hold_doorbells(&self) {
        self.held_doorbells.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a hold, and rings for all that was posted meanwhile.
    pub fn release_doorbells(&self, executor: &impl Executor) {
        self.held_doorbells.fetch_sub(1, Ordering::Relaxed);
        self.ring_held(executor);
    }

    /// Lets everything leave that is held back: before a wait that may be long, and where nothing can be done before something has
    /// been answered.
    #[inline]
    pub fn ring_if_held(&self, executor: &impl Executor) {
        if self.holds_doorbells() {
            self.ring_held(executor);
        }
    }

    #[cold]
    fn ring_held(&self, executor: &impl Executor) {
        // Whoever has the engine drains it, which ends with the doorbells.
        self.wanted.credit();
        self.serve_left(executor);
    }
}
