//! Waiting for one's own synchronous send, which has often ended by the time it was posted.

use pronto_wire::CallId;

use super::Session;
use super::wait::Waited;
use crate::executor::{Asked, Executor, WaitPolicy};
use crate::fabric::QueuePair;
use crate::session::inbound::Sink;
use crate::time::Nanos;

impl<Q: QueuePair> Session<Q> {
    /// Waits for the end of a synchronous send, for `timeout` at most, as [`Self::wait`] does; but looks at the send queues first,
    /// where its completion often is already: nothing is received for it, which over a socket is a system call for each class.
    pub fn wait_for_send(
        &self,
        slot: CallId,
        timeout: Nanos,
        policy: WaitPolicy,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> Waited<Q::Lease> {
        self.ring_if_held(executor);
        if self.has_ended(slot) || self.reap_sends(slot, executor) {
            return Waited::Ended(self.take(slot));
        }
        self.wait(slot, timeout, Asked::unlike_others(policy), sink, executor)
    }

    /// Takes in what the send queues have, if the engine is free. Whether the send has ended.
    fn reap_sends(&self, slot: CallId, executor: &impl Executor) -> bool {
        self.reap(executor);
        self.has_ended(slot)
    }
}
