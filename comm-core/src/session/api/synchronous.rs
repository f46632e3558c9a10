//! Waiting for the end of a synchronous send, which has often completed by the time it was posted.

use pronto_wire::CallId;

use super::Session;
use super::wait::WaitOutcome;
use crate::executor::{Executor, WaitPolicy, WaitRequest};
use crate::fabric::QueuePair;
use crate::session::inbound::Sink;
use crate::time::Nanos;

impl<Q: QueuePair> Session<Q> {
    /// Waits for the end of a synchronous send, for at most `timeout`, like [`Self::wait`]. First polls only the send queues, where the
    /// completion often is already. This avoids receiving, which over a socket is a system call for each class.
    pub fn wait_for_send(
        &self,
        slot: CallId,
        timeout: Nanos,
        policy: WaitPolicy,
        sink: &mut impl Sink<Q::Lease>,
        executor: &impl Executor,
    ) -> WaitOutcome<Q::Lease> {
        self.ring_if_held(executor);
        if self.has_ended(slot) || self.reap_sends(slot, executor) {
            return WaitOutcome::Ended(self.take(slot, executor));
        }
        self.wait(slot, timeout, WaitRequest::unlike_others(policy), sink, executor)
    }

    /// Processes send completions, if the engine is free. Returns whether the send has ended.
    fn reap_sends(&self, slot: CallId, executor: &impl Executor) -> bool {
        self.reap(executor);
        self.has_ended(slot)
    }
}
