// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coscheduling: the weight that a task's communication adds under LINUX, DYN and PRED.
//!
//! Coscheduling paper, algorithm 2, inside `goodness()` of Linux 2.2, whose counters and priorities are ticks of 10 ms.
//! A spent counter keeps a task from running however much it communicates, so nothing starves (section 3).
//!
//! Two statements of the paper are slips, and both readings are here: algorithm 2 adds priority and frequency `if (!
//! weight)`, to tasks whose counter is spent, while the text says the opposite and the kernel does (`if (weight)`); and
//! the text resets counters to the priority, while the kernel (2.2, `kernel/sched.c`) adds half of what is left.

use super::frequency::Frequency;
use super::level::Level;
use super::occupancy::{Measure, Occupancy};
use super::share::Share;

/// The communication that counts (section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// LINUX: no communication, the plain scheduler.
    #[default]
    Linux,
    /// DYN, dynamic coscheduling: received data. "Line 9 in Algorithm 3 is not executed."
    Dynamic,
    /// PRED, predictive coscheduling: received data and data to be sent.
    Predictive,
}

/// A reading of the paper's slips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reading {
    /// As the kernel does and the text explains, for reproductions.
    #[default]
    Corrected,
    /// As printed: tasks with time left compete by their counter alone, and spent ones by priority and frequency.
    Printed,
}

/// Parameters of the frequency of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Queues that count.
    pub policy: Policy,
    /// Unit of the queues' contents.
    pub measure: Measure,
    /// P, the weight of the past.
    pub past: Share,
    /// Reading of algorithm 2.
    pub reading: Reading,
}

/// The fields of a task that `goodness()` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A task with a real-time policy.
    RealTime {
        /// `rt_priority`, 1 to 99.
        priority: u32,
    },
    /// A task with the normal policy.
    Normal {
        /// Ticks left in this epoch.
        counter: u32,
        /// Static priority, 1 to 40, by default 20.
        priority: u32,
    },
}

/// Weight that lifts real-time tasks above all normal ones (algorithm 2, line 1).
const REAL_TIME: u64 = 1_000;

impl Policy {
    /// Returns `cur_freq` of a task, over all its sockets (formula 2 and algorithm 3).
    pub fn current(self, measure: Measure, sockets: &[Occupancy]) -> Level {
        let of = |socket: &Occupancy| match self {
            Self::Linux => Level::ZERO,
            Self::Dynamic => measure.of(socket.received),
            Self::Predictive => measure.of(socket.received).plus(measure.of(socket.sent)),
        };
        sockets.iter().map(of).fold(Level::ZERO, Level::plus)
    }
}

/// Returns a task's frequency and weight after one decision of the scheduler (algorithm 2). The task with the highest
/// weight runs. If all weights are zero, all counters are recharged.
///
/// The frequency advances only where the algorithm evaluates it: not for real-time tasks, and not for tasks whose
/// counter is spent (or, as printed, only for those).
pub fn goodness(
    task: Task,
    frequency: Frequency,
    sockets: &[Occupancy],
    prediction: &Prediction,
) -> (Frequency, Level) {
    let (counter, priority) = match task {
        Task::RealTime { priority } => {
            return (frequency, Level::packets(u64::from(priority).saturating_add(REAL_TIME)));
        }
        Task::Normal { counter, priority } => {
            (Level::packets(u64::from(counter)), Level::packets(u64::from(priority)))
        }
    };
    let communicates = match prediction.reading {
        Reading::Corrected => counter != Level::ZERO,
        Reading::Printed => counter == Level::ZERO,
    };
    if !communicates {
        return (frequency, counter);
    }
    let frequency = match prediction.policy {
        Policy::Linux => frequency,
        Policy::Dynamic | Policy::Predictive => {
            let current = prediction.policy.current(prediction.measure, sockets);
            frequency.advanced(current, prediction.past)
        }
    };
    let predicted = if prediction.policy == Policy::Linux { Level::ZERO } else { frequency.level() };
    (frequency, counter.plus(priority).plus(predicted))
}

/// Returns a normal task's counter, in ticks, when the counters of all runnable tasks are spent.
pub const fn recharged(counter: u32, priority: u32, reading: Reading) -> u32 {
    match reading {
        Reading::Corrected => (counter / 2).saturating_add(priority),
        Reading::Printed => priority,
    }
}

#[cfg(test)]
mod tests {
    use super::super::occupancy::Queue;
    use super::*;

    /// Two packets received and three to be sent, over two sockets.
    const SOCKETS: [Occupancy; 2] = [
        Occupancy {
            received: Queue { bytes: 2 * 4096 + 100, messages: 3 },
            sent: Queue { bytes: 4096, messages: 1 },
        },
        Occupancy {
            received: Queue { bytes: 100, messages: 1 },
            sent: Queue { bytes: 2 * 4096, messages: 1 },
        },
    ];
    const TASK: Task = Task::Normal { counter: 5, priority: 20 };
    const SPENT: Task = Task::Normal { counter: 0, priority: 20 };

    fn prediction(policy: Policy, reading: Reading) -> Prediction {
        Prediction { policy, measure: Measure::Packets, past: Share::HALF, reading }
    }

    fn weight(task: Task, policy: Policy, reading: Reading) -> u64 {
        goodness(task, Frequency::NEW, &SOCKETS, &prediction(policy, reading)).1.whole()
    }

    #[test]
    fn dyn_counts_received_data_and_pred_also_data_to_be_sent() {
        let weight = |policy| weight(TASK, policy, Reading::Corrected);
        assert_eq!([Policy::Linux, Policy::Dynamic, Policy::Predictive].map(weight), [25, 27, 30]);
    }

    #[test]
    fn linux_ignores_the_measured_frequency() {
        let learned = Frequency::NEW.advanced(Level::packets(9), Share::HALF);
        let linux = prediction(Policy::Linux, Reading::Corrected);
        assert_eq!(goodness(TASK, learned, &SOCKETS, &linux), (learned, Level::packets(25)));
    }

    #[test]
    fn a_spent_counter_keeps_a_task_from_running_however_much_it_communicates() {
        assert_eq!(weight(SPENT, Policy::Predictive, Reading::Corrected), 0);
        let pred = prediction(Policy::Predictive, Reading::Corrected);
        assert_eq!(
            goodness(SPENT, Frequency::NEW, &SOCKETS, &pred).0,
            Frequency::NEW,
            "nor does the frequency advance"
        );
    }

    #[test]
    fn as_printed_spent_tasks_pass_those_with_time_left() {
        assert_eq!(weight(TASK, Policy::Predictive, Reading::Printed), 5);
        assert_eq!(weight(SPENT, Policy::Predictive, Reading::Printed), 25);
    }

    #[test]
    fn real_time_is_above_all_and_predicts_nothing() {
        let pred = prediction(Policy::Predictive, Reading::Corrected);
        let real_time = Task::RealTime { priority: 7 };
        assert_eq!(
            goodness(real_time, Frequency::NEW, &SOCKETS, &pred),
            (Frequency::NEW, Level::packets(1_007))
        );
    }

    #[test]
    fn counters_of_sleepers_grow_in_the_kernel_and_not_in_print() {
        let sleep = |reading| (0..20).fold(20, |counter, _| recharged(counter, 20, reading));
        assert_eq!((sleep(Reading::Corrected), sleep(Reading::Printed)), (39, 20));
        assert_eq!(recharged(u32::MAX, u32::MAX, Reading::Corrected), u32::MAX);
    }
}
