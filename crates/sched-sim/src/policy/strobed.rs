//! BCS, buffered coscheduling: messages are held until a global strobe and sent then.
//!
//! The overlap paper was a step towards it: if communication is buffered and done at known times, no task needs to wait
//! on a CPU for a single message. Strobes here hold only the messages; each node schedules its tasks by itself.

use pronto_sched_policy::policy::time::Nanos;

use super::{Context, Departure, Policy};
use crate::message::Message;

/// The policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strobed {
    period: Nanos,
}

impl Strobed {
    /// Returns the policy, with strobes at all multiples of `period` (at least a nanosecond).
    #[must_use]
    pub const fn new(period: Nanos) -> Self {
        Self { period: if period.0 == 0 { Nanos(1) } else { period } }
    }
}

impl Policy for Strobed {
    fn sending(&mut self, context: &mut Context<'_>, _message: &mut Message) -> Departure {
        let strobes = context.now().0.div_ceil(self.period.0);
        Departure::At(self.period.times(strobes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, Options};
    use crate::program::Wait;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;
    use crate::workload::ping_pong::{self, Pair, ROUND_TRIP};

    #[test]
    fn a_round_trip_waits_for_a_strobe_on_each_way() {
        let period = Nanos::from_millis(10);
        let mut cluster = Cluster::with_policy(Options::standard(1), Box::new(Strobed::new(period)));
        let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_2))));
        let options = ping_pong::Options {
            bytes: 500,
            pause: Nanos::from_millis(50),
            handling: Nanos::from_micros(10),
            extra: Nanos::ZERO,
            wait: Wait::Block,
            pings: 50,
        };
        let pair = Pair::spawn(&mut cluster, nodes, options, TaskOptions::default());
        cluster.run_until(Nanos::from_millis(10_000));
        let trips: Vec<_> = cluster.records().of(pair.pinger, ROUND_TRIP).collect();
        assert_eq!(trips.len(), 50);
        assert!(trips.iter().all(|trip| (10_000_000..20_500_000).contains(trip)), "{trips:?}");
    }
}
