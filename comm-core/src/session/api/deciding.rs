//! How waits for this peer are decided, and the operator's wait override.

use super::Session;
use crate::executor::{Asked, Executor};
use crate::fabric::QueuePair;
use crate::wait::{Decision, WaitHistory, WaitOverride};

impl<Q: QueuePair> Session<Q> {
    /// Applies to every wait for this peer that begins afterwards, those within handlers included; `None` removes the override.
    pub fn set_wait_override(&self, configured: Option<WaitOverride>) {
        self.wait_override.set(configured);
    }

    /// Returns the override, if the operator has configured one.
    pub fn wait_override(&self) -> Option<WaitOverride> {
        self.wait_override.read()
    }

    /// Decides how a wait for a reply of this peer goes that asks for this.
    #[inline(always)]
    pub fn decide(&self, asked: Asked, executor: &impl Executor) -> Decision {
        self.decide_by(&self.reply_waits, asked, executor)
    }

    /// Decides how a wait goes whose kind has this history.
    #[inline(always)]
    pub(super) fn decide_by(
        &self,
        history: &WaitHistory,
        asked: Asked,
        executor: &impl Executor,
    ) -> Decision {
        let as_asked = WaitOverride { policy: asked.preference, bound: None };
        history.decide(self.wait_override.read().unwrap_or(as_asked), asked, executor)
    }

    /// Returns how long replies of the peer have taken.
    pub fn reply_waits(&self) -> &WaitHistory {
        &self.reply_waits
    }
}
