//! How the serving thread waits, for all peers at once: by how long nothing has come lately before something did.
//!
//! After traffic it polls for as long as a wake-up costs, or for a spin-down that somebody has asked for, and sleeps at once where that is
//! in vain again and again: [`pronto_sched_policy::policy::spin`] decides, for it as for callers.

use core::cell::Cell;

use pronto_core::executor::Asked;
use pronto_core::session::{Decision, Learned, Sleep, Waiting};
use pronto_core::{Nanos, WaitPolicy};

use crate::host::{NodeHost, NodeSession};

/// See the module.
#[derive(Debug)]
pub(crate) struct Arrivals {
    learned: Learned,
    /// For how long it polls after traffic, if not for what a wake-up costs.
    spin_down: Option<Nanos>,
}

/// How the thread waits at present.
#[derive(Debug, Default)]
pub(crate) struct Present(Cell<Option<Decision>>);

impl Arrivals {
    pub(crate) fn new(spin_down: Option<Nanos>) -> Self {
        Self { learned: Learned::default(), spin_down }
    }

    pub(crate) const fn learned(&self) -> &Learned {
        &self.learned
    }

    /// How it waits where nobody has said anything for a peer.
    pub(crate) const fn unsaid(&self, policy: WaitPolicy) -> Waiting {
        Waiting { policy, bound: self.spin_down }
    }
}

impl Present {
    /// For how long the thread polls now that waits for all of these, of which `said` something was said for some. One thread polls for all:
    /// as long as for the peer that wants it longest.
    #[inline]
    pub(crate) fn spin_time<'a>(
        &self,
        host: &NodeHost,
        said: impl Iterator<Item = &'a NodeSession>,
    ) -> Nanos {
        let arrivals = &host.arrivals;
        let unsaid = arrivals.unsaid(host.policy);
        let decide = |waiting| arrivals.learned.decide(waiting, Asked::default(), host);
        let of_peers = said.map(|session| decide(session.waiting().unwrap_or(unsaid)));
        let decision = of_peers.max_by_key(Decision::polls_for).unwrap_or_else(|| decide(unsaid));
        self.0.set(Some(decision));
        decision.polls_for()
    }

    /// Something has come, so long after the thread had begun to find nothing.
    pub(crate) fn idle_ended(&self, host: &NodeHost, took: Nanos, sleep: Sleep) {
        if let Some(decision) = self.0.get() {
            host.arrivals.learned.ended(decision, took, sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::Node;

    const DOWN: Duration = Duration::from_millis(10);

    #[test]
    fn after_traffic_it_polls_for_its_spin_down_and_sleeps_at_once_where_that_is_in_vain() {
        let node = Node::builder(1).spin_down(DOWN).start().expect("it listens nowhere");
        let (host, present) = (&node.host, Present::default());
        if host.waits.crowded().is_some() {
            // Whoever shares these processors has it sleep: the tests of the policy say the rest.
            return;
        }
        let spin = || present.spin_time(host, core::iter::empty());
        let down = Nanos::from_millis(10);
        // The node's own thread may find only now that it shares its processors.
        let polls = || spin() == down || host.waits.crowded().is_some();
        assert!(polls());
        for _ in 0..32 {
            present.idle_ended(host, Nanos::from_millis(500), Sleep::Slept);
        }
        assert_eq!(spin(), Nanos::ZERO);
        for _ in 0..32 {
            spin();
            present.idle_ended(host, Nanos::from_micros(100), Sleep::Awake);
        }
        assert!(polls());
    }
}
