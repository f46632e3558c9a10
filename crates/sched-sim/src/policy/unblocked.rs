//! BOOST-ON-UNBLOCK: a task that unblocks precedes all that did not, and loses that as it runs.
//!
//! Expedite, section 2: "or to give a priority boost upon unblocking as employed by Windows". All kinds of waits are
//! treated alike; that is the paper's point. Only for schedulers that count ticks.

use pronto_sched_policy::policy::coschedule::{self, Prediction};
use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;

use super::{Cause, Context, Policy, View};
use crate::id::{CpuId, TaskId};

/// Levels gained by unblocking: two, as in Windows for the completion of network I/O (`IO_NETWORK_INCREMENT` of
/// `wdm.h`); here for every wait.
const LEVELS: u8 = 2;

/// Ticks of running after which a level is lost: a quantum of Windows workstations is two ticks of the clock.
const TICKS_PER_LEVEL: u8 = 2;

/// One level in goodness: more than counter, nice value and shared memory can add up to, because levels are strict.
const LEVEL: Level = Level::packets(100);

/// The policy: for each task, ticks of boost left.
#[derive(Clone, Debug, Default)]
pub struct BoostOnUnblock {
    left: Vec<u8>,
}

impl Policy for BoostOnUnblock {
    fn start(&mut self, context: &mut Context<'_>) {
        self.left.resize(context.view.tasks().count(), 0);
    }

    fn woken(&mut self, _context: &mut Context<'_>, task: TaskId, cause: Cause) {
        if matches!(cause, Cause::Timer | Cause::Message | Cause::Room) {
            self.left[task.index()] = LEVELS * TICKS_PER_LEVEL;
        }
    }

    /// Reschedules after a level is lost, because another task may now precede.
    fn ticked(&mut self, context: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let left = &mut self.left[task.index()];
        if *left > 0 {
            *left -= 1;
            if left.is_multiple_of(TICKS_PER_LEVEL) {
                context.reschedule(cpu);
            }
        }
    }

    fn goodness(&mut self, _view: &View<'_>, task: TaskId, fields: coschedule::Task) -> Level {
        let weight = coschedule::goodness(fields, Frequency::NEW, &[], &Prediction::default()).1;
        let spent = matches!(fields, coschedule::Task::Normal { counter: 0, .. });
        let levels = self.left[task.index()].div_ceil(TICKS_PER_LEVEL);
        if spent { weight } else { weight.plus(LEVEL.times(levels.into())) }
    }
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::time::Nanos;

    use super::*;
    use crate::cluster::{Cluster, Options};
    use crate::program::Wait;
    use crate::scheduler::linux2::{Linux2, Version};
    use crate::task::TaskOptions;
    use crate::workload::compute::Compute;
    use crate::workload::ping_pong::{self, Pair, ROUND_TRIP};

    /// Returns the mean round trip with a computing task of nice -20, which has more ticks and weight than any sleeper.
    fn mean(policy: Box<dyn Policy>) -> u64 {
        let mut cluster = Cluster::with_policy(Options::standard(1), policy);
        let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Linux2::new(Version::V2_4))));
        let options = ping_pong::Options {
            bytes: 500,
            pause: Nanos::from_millis(50),
            handling: Nanos::from_micros(30),
            extra: Nanos::ZERO,
            wait: Wait::Block,
            pings: 100,
        };
        let pair = Pair::spawn(&mut cluster, nodes, options, TaskOptions::default());
        let favoured = TaskOptions { nice: -20, ..TaskOptions::default() };
        cluster.spawn(nodes[1], favoured, Box::new(Compute::for_ever()));
        cluster.run_until(Nanos::from_millis(60_000));
        let trips: Vec<u64> = cluster.records().of(pair.pinger, ROUND_TRIP).collect();
        assert_eq!(trips.len(), 100);
        trips.iter().sum::<u64>() / 100
    }

    #[test]
    fn a_task_that_unblocks_precedes_computing_ones() {
        let (plain, boosted) = (mean(Box::new(super::super::Plain)), mean(Box::<BoostOnUnblock>::default()));
        assert!(plain > 10_000_000 && boosted < 2_000_000, "{plain} {boosted} ns");
    }
}
