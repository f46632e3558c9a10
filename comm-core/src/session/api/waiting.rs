//! The operator's wait override, and how a wait is decided.

use super::Session;
use crate::executor::{Asked, Executor};
use crate::fabric::QueuePair;
use crate::session::learned::{Decision, Learned};
use crate::session::waiting::Waiting;

impl<Q: QueuePair> Session<Q> {
    /// From now on every wait for this peer is like this, those of handlers included; with `None` as it asks for itself.
    pub fn set_waiting(&self, waiting: Option<Waiting>) {
        self.said.set(waiting);
    }

    /// What was said last.
    pub fn waiting(&self) -> Option<Waiting> {
        self.said.read()
    }

    /// How a wait for an answer of this peer is to go that asks for this.
    #[inline(always)]
    pub fn decide(&self, asked: Asked, executor: &impl Executor) -> Decision {
        self.decide_by(&self.learned, asked, executor)
    }

    /// The same for a wait of which `learned` says what is usual.
    #[inline(always)]
    pub(super) fn decide_by(&self, learned: &Learned, asked: Asked, executor: &impl Executor) -> Decision {
        let waiting = self.said.read().unwrap_or(Waiting { policy: asked.preference, bound: None });
        learned.decide(waiting, asked, executor)
    }

    /// How long this node waits for the peer's answers.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }
}
