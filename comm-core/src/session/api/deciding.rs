//! The decision about each wait for this peer, and the operator's wait override.

use super::Session;
use crate::executor::{Executor, WaitRequest};
use crate::fabric::QueuePair;
use crate::wait::{Decision, WaitHistory, WaitOverride};

impl<Q: QueuePair> Session<Q> {
    /// Sets the override for every later wait for this peer, including those within handlers. `None` removes it.
    pub fn set_wait_override(&self, configured: Option<WaitOverride>) {
        self.wait_override.set(configured);
    }

    /// Returns the override, if the operator has configured one.
    pub fn wait_override(&self) -> Option<WaitOverride> {
        self.wait_override.read()
    }

    /// Decides about a wait for a reply of this peer, for this wait request.
    #[inline(always)]
    pub fn decide(&self, request: WaitRequest, executor: &impl Executor) -> Decision {
        self.decide_by(&self.reply_waits, request, executor)
    }

    /// Decides about a wait of the kind that has this history.
    #[inline(always)]
    pub(super) fn decide_by(
        &self,
        history: &WaitHistory,
        request: WaitRequest,
        executor: &impl Executor,
    ) -> Decision {
        let as_requested = WaitOverride { policy: request.preference, bound: None };
        history.decide(self.wait_override.read().unwrap_or(as_requested), request, executor)
    }

    /// Returns the history of waits for replies of the peer.
    pub fn reply_waits(&self) -> &WaitHistory {
        &self.reply_waits
    }
}
