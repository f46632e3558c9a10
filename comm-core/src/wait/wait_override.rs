//! The wait override: a policy for the waits for one peer, which an operator configures while the program runs.

use pronto_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::executor::WaitPolicy;
use crate::time::Nanos;

/// The policy for all waits for a peer, regardless of the requests of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOverride {
    /// The policy.
    pub policy: WaitPolicy,
    /// The polling limit of an adaptive wait; `None` for about the cost of a wake-up here.
    pub bound: Option<Nanos>,
}

/// The override of one peer, if there is one.
#[derive(Debug, Default)]
pub(crate) struct OverrideCell {
    /// A policy, or [`NO_OVERRIDE`].
    policy: AtomicU8,
    /// The polling limit, nanoseconds; zero for none.
    bound: AtomicU64,
}

const NO_OVERRIDE: u8 = 0;

impl OverrideCell {
    /// Sets the override for every wait that begins afterwards. `None` removes it.
    pub(crate) fn set(&self, configured: Option<WaitOverride>) {
        let policy = match configured.map(|configured| configured.policy) {
            None => NO_OVERRIDE,
            Some(WaitPolicy::Spin) => 1,
            Some(WaitPolicy::Block) => 2,
            Some(WaitPolicy::Adaptive) => 3,
        };
        let bound = configured.and_then(|configured| configured.bound).unwrap_or(Nanos::ZERO);
        self.bound.store(bound.0, Ordering::Relaxed);
        self.policy.store(policy, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn read(&self) -> Option<WaitOverride> {
        // SYNC: orders nothing; a wait that reads one of the two words before it changes could have begun before the change.
        let policy = match self.policy.load(Ordering::Relaxed) {
            NO_OVERRIDE => return None,
            1 => WaitPolicy::Spin,
            2 => WaitPolicy::Block,
            _ => WaitPolicy::Adaptive,
        };
        let bound = Some(Nanos(self.bound.load(Ordering::Relaxed))).filter(|bound| *bound != Nanos::ZERO);
        Some(WaitOverride { policy, bound })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_read_as_it_was_set_and_removed() {
        let cell = OverrideCell::default();
        assert_eq!(cell.read(), None);
        for policy in [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::Adaptive] {
            for bound in [None, Some(Nanos(20_000))] {
                let configured = Some(WaitOverride { policy, bound });
                cell.set(configured);
                assert_eq!(cell.read(), configured);
            }
        }
        cell.set(None);
        assert_eq!(cell.read(), None);
    }
}
