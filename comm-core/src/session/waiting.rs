//! The wait override: how threads wait for one peer, where an operator has said so while the program runs.

use pronto_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::executor::WaitPolicy;
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
    /// From now on every wait is like this; with `None` as it asks for itself.
    pub(super) fn set(&self, waiting: Option<Waiting>) {
        let policy = match waiting.map(|waiting| waiting.policy) {
            None => AS_ASKED,
            Some(WaitPolicy::Spin) => 1,
            Some(WaitPolicy::Block) => 2,
            Some(WaitPolicy::Adaptive) => 3,
        };
        let bound = waiting.and_then(|waiting| waiting.bound).unwrap_or(Nanos::ZERO);
        self.bound.store(bound.0, Ordering::Relaxed);
        self.policy.store(policy, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Option<Waiting> {
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
