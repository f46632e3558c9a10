//! The rules of Linux 2.2 and 2.4, called by hand and over time.

use super::*;
use crate::cluster::{Cluster, Options};
use crate::task::TaskOptions;
use crate::workload::compute::Compute;

/// Runs tasks that only compute, all from the start, on one node; returns the time that each had after `ms`
/// milliseconds.
fn shares(version: Version, cores: u32, nice: &[i8], ms: u64) -> Vec<u64> {
    let mut cluster = Cluster::new(Options { drift_ppm: 0, ..Options::standard(3) });
    let node = cluster.add_node(cores, Box::new(Linux2::new(version)));
    let spawn = |nice: &i8| {
        let options = TaskOptions { nice: *nice, ..TaskOptions::default() };
        cluster.spawn(node, options, Box::new(Compute::for_ever()))
    };
    let tasks: Vec<_> = nice.iter().map(spawn).collect();
    cluster.run_until(Nanos::from_millis(ms));
    tasks.iter().map(|task| cluster.task(*task).usage().ran.0 / 1_000_000).collect()
}

#[test]
fn a_slice_is_210_ms_under_2_2_and_60_under_2_4() {
    for (version, slice) in [(Version::V2_2, 210), (Version::V2_4, 60)] {
        let mut cluster = Cluster::new(Options { drift_ppm: 0, ..Options::standard(3) });
        let node = cluster.add_node(1, Box::new(Linux2::new(version)));
        let mut spawn = || cluster.spawn(node, TaskOptions::default(), Box::new(Compute::for_ever()));
        let tasks = [spawn(), spawn()];
        let mut switches = Vec::new();
        let mut on = None;
        for ms in 1..1_000 {
            cluster.run_until(Nanos::from_millis(ms));
            let running = tasks.iter().position(|task| cluster.task(*task).is_running());
            if on != running {
                (on, _) = (running, switches.push((ms, running)));
            }
        }
        let spans: Vec<_> = switches.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(
            spans[0].abs_diff(slice) <= 10,
            "{version:?}: the first slice begins within a tick: {spans:?}"
        );
        // A task that spends the last ticks of an epoch may continue in the next: it is first, or shares memory with
        // itself.
        let slices = |span: &u64| [slice, 2 * slice].contains(span);
        assert!(spans[1..].iter().all(slices), "{version:?}: {spans:?}");
    }
}

#[test]
fn equals_share_equally_and_nice_counts() {
    for version in [Version::V2_2, Version::V2_4] {
        let equal = shares(version, 1, &[0, 0, 0], 63_000);
        assert!(equal.iter().all(|ms| ms.abs_diff(21_000) < 300), "{version:?}: {equal:?}");
        let nice = shares(version, 1, &[0, 19], 63_000);
        assert!(nice[0] > 5 * nice[1], "{version:?}: {nice:?}");
    }
}

#[test]
fn two_cpus_do_twice_as_much() {
    for version in [Version::V2_2, Version::V2_4] {
        let ran = shares(version, 2, &[0, 0, 0, 0], 21_000);
        assert_eq!(ran.iter().sum::<u64>().div_ceil(100), 420, "{version:?}: {ran:?}");
    }
}

#[test]
fn sleeps_are_whole_ticks_and_one_more() {
    let scheduler = Linux2::new(Version::V2_4);
    let clock = Clock::new(Nanos::ZERO, TICK, 0);
    let ends = |now, span| {
        scheduler.sleep_ends(&clock, Nanos::from_millis(now), Nanos::from_millis(span)).0 / 1_000_000
    };
    assert_eq!([ends(0, 45), ends(9, 45), ends(5, 50), ends(5, 51)], [60, 60, 60, 70]);
}

/// A scheduler called by hand: one CPU, tasks in processes of their own.
struct Hand {
    scheduler: Linux2,
    current: Option<Slot>,
}

impl Hand {
    fn new(version: Version, tasks: u32) -> Self {
        let mut scheduler = Linux2::new(version);
        for task in 0..tasks {
            let terms = Terms { process: ProcessId(task), nice: 0, slice: None };
            scheduler.admit(Slot(task), &terms);
        }
        Self { scheduler, current: None }
    }

    fn ask<R>(&mut self, question: impl FnOnce(&mut Linux2, &mut Scene<'_>) -> R) -> R {
        let mut policy = crate::policy::Plain;
        let current = [self.current];
        let view = crate::policy::View { now: Nanos::ZERO, tasks: &[], nodes: 1 };
        let ids: Vec<_> = (0..10).map(crate::id::TaskId).collect();
        let mut scene = Scene { now: Nanos::ZERO, policy: &mut policy, view, tasks: &ids, current: &current };
        question(&mut self.scheduler, &mut scene)
    }

    /// Wakes a task; returns whether the CPU is rescheduled.
    fn wake(&mut self, slot: u32) -> bool {
        self.ask(|s, scene| s.wake(Slot(slot), Waker::Interrupt(Core(0)), scene)).is_some()
    }

    fn pick(&mut self, then: Then) -> Option<u32> {
        let last = self.current.map(|slot| Last { slot, then });
        self.current = self.ask(|s, scene| s.pick(Core(0), last, scene));
        self.current.map(|slot| slot.0)
    }

    /// Ticks; returns whether the current task loses the CPU.
    fn tick(&mut self) -> bool {
        let slot = self.current.expect("a task runs");
        self.ask(|s, scene| s.tick(Core(0), slot, scene)).is_some()
    }

    fn counter(&self, slot: u32) -> u32 {
        self.scheduler.counter(Slot(slot)).expect("it counts")
    }

    fn set(&mut self, counters: &[u32]) {
        for (entry, counter) in self.scheduler.tasks.iter_mut().zip(counters) {
            entry.counter = *counter;
        }
    }
}

/// Expedite, section 3.2: "*counter* of a process that continues to block or run only occasionally will converge to 11".
#[test]
fn the_counter_of_a_sleeper_converges() {
    for (version, expected, slice) in
        [(Version::V2_4, [6, 9, 10, 11, 11], 6), (Version::V2_2, [20, 30, 35, 37, 38], 21)]
    {
        let mut hand = Hand::new(version, 2);
        hand.wake(0);
        hand.pick(Then::Ready);
        let mut seen = vec![hand.counter(1)];
        let mut ticks = 0;
        while seen.len() < expected.len() {
            ticks += 1;
            if hand.tick() {
                assert_eq!(ticks % slice, 0, "{version:?}: the slice");
                assert_eq!(hand.pick(Then::Ready), Some(0));
                seen.push(hand.counter(1));
            }
        }
        assert_eq!(seen, expected, "{version:?}");
    }
}

#[test]
fn a_woken_task_preempts_with_more_than_three_ticks_more_or_with_more_goodness() {
    let preempts = |version, current, woken| {
        let mut hand = Hand::new(version, 2);
        hand.wake(0);
        hand.pick(Then::Ready);
        hand.set(&[current, woken]);
        hand.wake(1)
    };
    assert_eq!([10, 13, 14].map(|woken| preempts(Version::V2_2, 10, woken)), [false, false, true]);
    // The current task has one more for sharing memory with itself.
    assert_eq!([10, 11, 12].map(|woken| preempts(Version::V2_4, 10, woken)), [false, false, true]);
    assert!(!preempts(Version::V2_4, 0, 0) && preempts(Version::V2_4, 0, 1));
}

#[test]
fn the_queue_is_entered_at_the_front_in_2_2_and_at_the_tail_in_2_4() {
    for (version, first) in [(Version::V2_2, 2), (Version::V2_4, 1)] {
        let mut hand = Hand::new(version, 3);
        hand.wake(0);
        hand.pick(Then::Ready);
        hand.set(&[5, 8, 8]);
        hand.wake(1);
        hand.wake(2);
        assert_eq!(hand.pick(Then::Ready), Some(first), "{version:?}: equals, so the first of the queue");
    }
}

#[test]
fn when_all_is_spent_all_are_recharged_and_2_2_runs_the_first() {
    for (version, counters, next) in [(Version::V2_2, [20, 20, 25], 1), (Version::V2_4, [6, 6, 11], 0)] {
        let mut hand = Hand::new(version, 3);
        hand.wake(0);
        hand.pick(Then::Ready);
        hand.wake(1);
        hand.set(&[0, 0, 10]);
        // In 2.4 the choice is repeated, and the current task shares memory with itself.
        assert_eq!(hand.pick(Then::Ready), Some(next), "{version:?}");
        assert_eq!([0, 1, 2].map(|slot| hand.counter(slot)), counters, "{version:?}: sleepers too");
    }
}

#[test]
fn a_yielding_task_lets_others_run_and_recharges_none_in_2_4() {
    for version in [Version::V2_2, Version::V2_4] {
        let mut hand = Hand::new(version, 2);
        hand.wake(0);
        hand.pick(Then::Ready);
        hand.wake(1);
        hand.set(&[5, 3]);
        assert_eq!(hand.pick(Then::Yields), Some(1), "{version:?}");
        assert_eq!(hand.pick(Then::Ready), Some(0), "{version:?}: more ticks, and yielded only once");
        hand.set(&[4, 3]);
        assert_eq!(hand.pick(Then::Sleeps), Some(1));
        assert_eq!(hand.pick(Then::Yields), Some(1), "{version:?}: no other task");
        let recharged = [hand.counter(0), hand.counter(1)];
        assert_eq!(recharged, if version == Version::V2_2 { [22, 21] } else { [4, 3] }, "{version:?}");
    }
}

#[test]
fn raised_tasks_go_before_all_others_and_preempt() {
    for version in [Version::V2_2, Version::V2_4] {
        let mut hand = Hand::new(version, 2);
        hand.wake(0);
        hand.pick(Then::Ready);
        hand.set(&[40, 0]);
        hand.ask(|s, scene| s.classify(Slot(1), Class::Raised, scene));
        assert!(hand.wake(1), "{version:?}");
        assert_eq!(hand.pick(Then::Ready), Some(1));
        assert!(hand.ask(|s, scene| s.classify(Slot(1), Class::Normal, scene)).is_some());
        assert_eq!(hand.pick(Then::Ready), Some(0));
    }
}
