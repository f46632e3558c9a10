//! The waits of a serving thread, which waits for all its peers together.
//!
//! After traffic the thread polls for about the cost of a wake-up, or for the spin-down time that the program configured. It sleeps
//! immediately if polling has repeatedly been unsuccessful.

use super::history::{Decision, WaitHistory};
use super::wait_override::WaitOverride;
use crate::executor::{Executor, WaitPolicy, WaitRequest};
use crate::time::Nanos;

/// The waits of one serving thread.
#[derive(Debug)]
pub struct ServingWaits {
    history: WaitHistory,
    /// The polling time after traffic, if it is not the cost of a wake-up.
    spin_down: Option<Nanos>,
}

impl ServingWaits {
    /// Returns a value without past waits.
    pub fn new(spin_down: Option<Nanos>) -> Self {
        Self { history: WaitHistory::default(), spin_down }
    }

    /// Returns the history of times without messages.
    pub const fn history(&self) -> &WaitHistory {
        &self.history
    }

    /// Returns the policy and limit for a peer without an override.
    pub const fn configured(&self, policy: WaitPolicy) -> WaitOverride {
        WaitOverride { policy, bound: self.spin_down }
    }

    /// Decides how the thread waits for all its peers. `configured` has their overrides; an empty list stands for peers without one. The
    /// thread uses the longest polling time of any peer.
    #[inline]
    pub fn decide(
        &self,
        policy: WaitPolicy,
        overrides: impl Iterator<Item = Option<WaitOverride>>,
        executor: &impl Executor,
    ) -> Decision {
        let configured = self.configured(policy);
        let decide = |wait| self.history.decide(wait, WaitRequest::default(), executor);
        let of_peers = overrides.map(|peer| decide(peer.unwrap_or(configured)));
        of_peers.max_by_key(Decision::polls_for).unwrap_or_else(|| decide(configured))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wait::history::tests::{Alone, BOUND};
    use crate::wait::{Slept, Wait};

    const SPIN_DOWN: Nanos = Nanos::from_millis(10);

    fn polls_for(waits: &ServingWaits, policy: WaitPolicy, overrides: &[Option<WaitOverride>]) -> Nanos {
        waits.decide(policy, overrides.iter().copied(), &Alone).polls_for()
    }

    /// Shows: operations.longest
    #[test]
    fn the_peer_with_the_longest_polling_time_decides() {
        let waits = ServingWaits::new(None);
        assert_eq!(polls_for(&waits, WaitPolicy::Adaptive, &[]), BOUND);
        let to = |policy, bound| Some(WaitOverride { policy, bound });
        let block = to(WaitPolicy::Block, None);
        assert_eq!(polls_for(&waits, WaitPolicy::Adaptive, &[block]), Nanos::ZERO);
        assert_eq!(polls_for(&waits, WaitPolicy::Adaptive, &[block, None]), BOUND);
        let longer = to(WaitPolicy::Adaptive, Some(SPIN_DOWN));
        assert_eq!(polls_for(&waits, WaitPolicy::Block, &[None, longer]), SPIN_DOWN);
        let spin = to(WaitPolicy::Spin, None);
        assert_eq!(polls_for(&waits, WaitPolicy::Block, &[spin, longer]), Nanos::NEVER);
    }

    #[test]
    fn a_serving_thread_polls_for_its_spin_down_and_sleeps_immediately_if_that_is_too_short() {
        let waits = ServingWaits::new(Some(SPIN_DOWN));
        let waits_for = |span: Nanos, slept| {
            for _ in 0..32 {
                let decision = waits.decide(WaitPolicy::Adaptive, core::iter::empty(), &Alone);
                let mut wait = Wait::new(decision, Nanos::NEVER);
                wait.next(Nanos::ZERO);
                if slept == Slept::Yes {
                    wait.sleeps();
                }
                wait.ended(span, waits.history());
            }
            polls_for(&waits, WaitPolicy::Adaptive, &[])
        };
        assert_eq!(polls_for(&waits, WaitPolicy::Adaptive, &[]), SPIN_DOWN);
        assert_eq!(waits_for(Nanos::from_millis(500), Slept::Yes), Nanos::ZERO);
        assert_eq!(waits_for(Nanos::from_micros(100), Slept::No), SPIN_DOWN);
    }
}
