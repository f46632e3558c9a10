// SPDX-License-Identifier: MIT OR Apache-2.0
//! PRED+: the prediction of PRED, corrected by the latency of messages, page faults and the cost of a switch.
//!
//! The coscheduling paper names these inputs as future work and gives no rule (section 5). The rules are ours:
//!
//! 1. Data to be sent predict an answer, which comes a round trip later at the earliest. They count with the part of a
//!    tick and a round trip that the tick is: on a slow network the sender need not be on a CPU yet.
//! 2. A task for which pages were read continues work that its correspondents wait for. Pages of 4096 bytes count as
//!    packets until it is on a CPU, but only for a task that communicates.
//! 3. A task that is not on a CPU gains only what exceeds two switches, to it and back, in the ticks of the counters.
//!
//! # Invariants
//! 1. A task never weighs less than without any prediction, and a task whose counter is spent weighs nothing, so PRED+
//!    starves nothing that PRED does not.

use super::coschedule::{self, Policy, Prediction, Task};
use super::frequency::Frequency;
use super::level::Level;
use super::occupancy::Occupancy;
use super::share::Share;
use super::time::Nanos;

/// Costs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Costs {
    /// Time from a message to the earliest answer.
    pub round_trip: Nanos,
    /// CPU time of a switch to another task.
    pub switch: Nanos,
    /// Length of a tick, the unit of counters.
    pub tick: Nanos,
}

/// State of a task other than its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It is on a CPU.
    #[default]
    Running,
    /// It is ready.
    Ready {
        /// Pages that were read from a disk for it since it was last on a CPU.
        pages: u64,
    },
}

impl Costs {
    /// Returns `cur_freq` of a task, over all its sockets: received data, and data to be sent by rule 1.
    pub fn current(&self, prediction: &Prediction, sockets: &[Occupancy]) -> Level {
        let received = Policy::Dynamic.current(prediction.measure, sockets);
        let all = prediction.policy.current(prediction.measure, sockets);
        let sent = all.minus(received);
        let soon = Share::ratio(self.tick.0, self.tick.after(self.round_trip).0);
        all.minus(sent).plus(Level::fixed(soon.of(sent.as_fixed())))
    }

    /// Returns the part of a task's weight that its frequency and its pages add, by rules 2 and 3.
    pub fn bonus(&self, frequency: Level, standing: Standing) -> Level {
        match standing {
            Standing::Running => frequency,
            Standing::Ready { .. } if frequency == Level::ZERO => Level::ZERO,
            Standing::Ready { pages } => frequency.plus(Level::packets(pages)).minus(self.two_switches()),
        }
    }

    /// Returns the CPU time of two switches in ticks.
    fn two_switches(&self) -> Level {
        Level::packets(self.switch.times(2).0).part_of(self.tick.0)
    }
}

/// Returns a task's frequency and weight after one decision of the scheduler, as [`coschedule::goodness`] does, in the
/// corrected reading.
pub fn goodness(
    task: Task,
    frequency: Frequency,
    sockets: &[Occupancy],
    standing: Standing,
    (prediction, costs): (&Prediction, &Costs),
) -> (Frequency, Level) {
    let (_, plain) = coschedule::goodness(task, frequency, &[], &Prediction::default());
    if plain == Level::ZERO || matches!(task, Task::RealTime { .. }) {
        return (frequency, plain);
    }
    let frequency = frequency.advanced(costs.current(prediction, sockets), prediction.past);
    (frequency, plain.plus(costs.bonus(frequency.level(), standing)))
}

#[cfg(test)]
mod tests {
    use super::super::occupancy::{Measure, Queue};
    use super::*;

    const COSTS: Costs = Costs {
        round_trip: Nanos::from_millis(10),
        switch: Nanos::from_millis(1),
        tick: Nanos::from_millis(10),
    };
    const PRED: Prediction = Prediction {
        policy: Policy::Predictive,
        measure: Measure::Packets,
        past: Share::HALF,
        reading: coschedule::Reading::Corrected,
    };
    /// Two packets received and four to be sent.
    const SOCKETS: [Occupancy; 1] = [Occupancy {
        received: Queue { bytes: 2 * 4096, messages: 1 },
        sent: Queue { bytes: 4 * 4096, messages: 1 },
    }];
    const TASK: Task = Task::Normal { counter: 5, priority: 20 };

    fn weight(task: Task, sockets: &[Occupancy], standing: Standing) -> Level {
        goodness(task, Frequency::NEW, sockets, standing, (&PRED, &COSTS)).1
    }

    #[test]
    fn data_to_be_sent_count_less_the_longer_a_round_trip_is() {
        let at = |round_trip| Costs { round_trip, ..COSTS }.current(&PRED, &SOCKETS);
        assert_eq!(at(Nanos::ZERO), Level::packets(6));
        assert_eq!(at(Nanos::from_millis(10)), Level::packets(4), "half of four, and two received");
        assert_eq!(at(Nanos::from_millis(30)), Level::packets(3));
        let dynamic = Prediction { policy: Policy::Dynamic, ..PRED };
        assert_eq!(COSTS.current(&dynamic, &SOCKETS), Level::packets(2));
    }

    #[test]
    fn pages_count_as_packets_for_a_task_that_communicates() {
        let ready = |pages| Standing::Ready { pages };
        let switches = Level::fixed(Level::PACKET.as_fixed() / 5);
        assert_eq!(weight(TASK, &SOCKETS, Standing::Running), Level::packets(25 + 4));
        assert_eq!(weight(TASK, &SOCKETS, ready(0)).plus(switches), Level::packets(25 + 4));
        assert_eq!(weight(TASK, &SOCKETS, ready(16)).plus(switches), Level::packets(25 + 4 + 16));
        assert_eq!(weight(TASK, &[], ready(16)), Level::packets(25), "a local task");
    }

    #[test]
    fn no_cost_takes_more_than_the_bonus() {
        let dear = Costs { switch: Nanos::from_millis(1_000), ..COSTS };
        assert_eq!(dear.bonus(Level::packets(3), Standing::Ready { pages: 0 }), Level::ZERO);
        assert_eq!(
            dear.bonus(Level::packets(3), Standing::Running),
            Level::packets(3),
            "nothing is switched"
        );
        let free = Costs { tick: Nanos::ZERO, ..COSTS };
        assert_eq!(free.bonus(Level::packets(3), Standing::Ready { pages: 1 }), Level::packets(4));
    }

    #[test]
    fn a_spent_counter_keeps_a_task_from_running_and_real_time_predicts_nothing() {
        let spent = Task::Normal { counter: 0, priority: 20 };
        assert_eq!(weight(spent, &SOCKETS, Standing::Ready { pages: 16 }), Level::ZERO);
        let real_time = Task::RealTime { priority: 7 };
        assert_eq!(weight(real_time, &SOCKETS, Standing::Ready { pages: 16 }), Level::packets(1_007));
    }
}
