//! How threads wait for one peer, where somebody has said so while the program runs.

use pronto_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::Session;
use super::learned::{Decision, Learned};
use crate::executor::{Asked, Executor, WaitPolicy};
use crate::fabric::QueuePair;
use crate::time::Nanos;

/// How to wait for a peer, whatever a wait asks for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The policy.
    pub policy: WaitPolicy,
    /// For how long an adaptive wait polls; `None` for about what a wake-up costs here.
    pub bound: Option<Nanos>,
}

/// What was said.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// [`AS_ASKED`], or a policy.
    policy: AtomicU8,
    /// Nanoseconds; zero for none.
    bound: AtomicU64,
}

/// Each wait does as it was asked to.
const AS_ASKED: u8 = 0;

impl Said {
    fn read(&self) -> Option<Waiting> {
        // SYNC: a wait that reads one of the two before it is changed is as good as one that began sooner.
        let policy = match self.policy.load(Ordering::Relaxed) {
            AS_ASKED => return None,
            1 => WaitPolicy::Spin,
            2 => WaitPolicy::Block,
            _ => WaitPolicy::Adaptive,
        };
        let bound = Some(Nanos(self.bound.load(Ordering::Relaxed))).filter(|bound| *bound != Nanos::ZERO);
        Some(Waiting { policy, bound })
    }
}

impl<Q: QueuePair> Session<Q> {
    /// From now on every wait for this peer is like this, those of handlers included; with `None` as it asks for itself.
    pub fn set_waiting(&self, waiting: Option<Waiting>) {
        let policy = match waiting.map(|waiting| waiting.policy) {
            None => AS_ASKED,
            Some(WaitPolicy::Spin) => 1,
            Some(WaitPolicy::Block) => 2,
            Some(WaitPolicy::Adaptive) => 3,
        };
        let bound = waiting.and_then(|waiting| waiting.bound).unwrap_or(Nanos::ZERO);
        self.said.bound.store(bound.0, Ordering::Relaxed);
        self.said.policy.store(policy, Ordering::Relaxed);
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
    pub const fn learned(&self) -> &Learned {
        &self.learned
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_read_and_taken_back() {
        let said = Said::default();
        assert_eq!(said.read(), None);
        said.bound.store(20_000, Ordering::Relaxed);
        for (number, policy) in [(1, WaitPolicy::Spin), (2, WaitPolicy::Block), (3, WaitPolicy::Adaptive)] {
            said.policy.store(number, Ordering::Relaxed);
            assert_eq!(said.read(), Some(Waiting { policy, bound: Some(Nanos(20_000)) }));
        }
        said.bound.store(0, Ordering::Relaxed);
        assert_eq!(said.read(), Some(Waiting { policy: WaitPolicy::Adaptive, bound: None }));
    }
}
