//! EEVDF as of Linux 7.2: of the tasks that are owed time, the one with the earliest virtual deadline runs.
//!
//! Source: `kernel/sched/fair.c`, `core.c` and `features.h` of 7.2.12, with the stock features: PLACE_LAG,
//! RUN_TO_PARITY, PREEMPT_SHORT, DELAY_DEQUEUE, DELAY_ZERO, HRTICK; no NEXT_BUDDY. Groups are not modelled: autogroup
//! is off, all tasks are siblings. Load balancing is modelled as far as it keeps CPUs busy: tasks begin on the CPU with
//! the fewest, wake on an idle CPU if theirs is busy, and a CPU that would idle takes a waiting task from the longest
//! queue.
//!
//! A woken task that should run preempts *lazily* on a stock kernel: the CPU notices at its next interrupt, tick or
//! virtual deadline. A raised task (`SCHED_FIFO`) preempts immediately, with an interrupt if necessary.

mod entity;
mod fair;

use pronto_sched_policy::policy::time::Nanos;

use super::{Class, Last, Reschedule, Scene, Scheduler, Terms, Then, Waker, When};
use crate::clock::Clock;
use crate::id::{Core, Slot};
use entity::{Entity, weight};
use fair::Fair;

/// The preemption mode among fair tasks (`preempt=` at boot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// At the next interrupt: `lazy`, the stock setting.
    #[default]
    Lazy,
    /// Immediately: `full`.
    Full,
}

/// Base slice on one CPU (`sysctl_sched_base_slice`); it grows with the logarithm of the number of CPUs, up to eight.
const BASE_SLICE: i64 = 700_000;

/// Shortest timer for a virtual deadline (`hrtick_start`).
const SHORTEST_TIMER: i64 = 10_000;

/// Time by which a sleep may be prolonged so that timers coincide (`timer_slack_ns` of ordinary tasks).
const TIMER_SLACK: Nanos = Nanos::from_micros(50);

/// The scheduler of one node.
#[derive(Clone, Debug)]
pub struct Eevdf {
    preemption: Preemption,
    base: i64,
    entities: Vec<Entity>,
    queues: Vec<Queue>,
}

/// State of one CPU.
#[derive(Clone, Debug, Default)]
struct Queue {
    fair: Fair,
    /// Raised tasks in the order in which they became ready; the current one stays where it is.
    raised: Vec<Slot>,
    running: Option<Slot>,
    /// Whether the timer for the current task's deadline is set. It is not set again if that task is picked once more.
    timer: bool,
}

impl Eevdf {
    /// Returns a scheduler for `cores` CPUs (at least one).
    #[must_use]
    pub fn new(cores: u32, preemption: Preemption) -> Self {
        let cores = cores.max(1);
        let base = BASE_SLICE * (1 + i64::from(cores.min(8).ilog2()));
        Self { preemption, base, entities: Vec::new(), queues: vec![Queue::default(); cores as usize] }
    }

    fn preempts(&self, core: Core) -> Reschedule {
        let when = match self.preemption {
            Preemption::Lazy => When::AtInterrupt,
            Preemption::Full => When::Now,
        };
        Reschedule { core, when }
    }

    /// Adds the task to the queue of its class. A sleeper that was never removed only wakes (`requeue_delayed_entity`).
    fn enqueue(&mut self, slot: Slot) {
        let Entity { class, core, delayed, .. } = self.entities[slot.index()];
        let queue = &mut self.queues[core.index()];
        if class == Class::Raised {
            queue.raised.push(slot);
            return;
        }
        let fair = &mut queue.fair;
        if delayed {
            if fair.update_lag(&mut self.entities, slot) {
                fair.members.retain(|member| *member != slot);
                fair.place(&mut self.entities, slot, self.base);
                fair.members.push(slot);
            }
            self.entities[slot.index()].delayed = false;
            return;
        }
        fair.place(&mut self.entities, slot, self.base);
        fair.enter(&mut self.entities, slot);
    }

    /// Removes the task from the queue of its class.
    fn dequeue(&mut self, slot: Slot, then: Then) {
        let Entity { class, core, queued, .. } = self.entities[slot.index()];
        let queue = &mut self.queues[core.index()];
        queue.raised.retain(|raised| *raised != slot);
        if class == Class::Raised || !queued {
            return;
        }
        let fair = &mut queue.fair;
        if then == Then::Sleeps && fair.members.len() > 1 && !fair.eligible(&self.entities, slot) {
            // DELAY_DEQUEUE: it stays until its negative lag is used up.
            fair.update_lag(&mut self.entities, slot);
            self.entities[slot.index()].delayed = true;
            fair.current = fair.current.filter(|current| *current != slot);
            fair.put_back(slot);
            return;
        }
        fair.leave(&mut self.entities, slot, then == Then::Sleeps);
    }

    /// Picks the fair task to run. Delayed sleepers whose lag is used up leave on the way (`pick_next_entity`).
    fn pick_fair(&mut self, core: Core, protect: bool) -> Option<Slot> {
        let fair = &mut self.queues[core.index()].fair;
        loop {
            let picked = fair.pick(&self.entities, protect)?;
            if !self.entities[picked.index()].delayed {
                return Some(picked);
            }
            fair.leave(&mut self.entities, picked, true);
        }
    }

    /// Returns whether a woken fair task preempts the current one (`wakeup_preempt_fair`).
    fn woken_preempts(&mut self, slot: Slot, core: Core) -> bool {
        let Some(current) = self.queues[core.index()].fair.current else { return false };
        let shorter = self.entities[slot.index()].slice < self.entities[current.index()].slice;
        if self.pick_fair(core, !shorter) == Some(slot) {
            if shorter {
                let current = &mut self.entities[current.index()];
                current.vprot = current.vprot.min(current.vruntime);
            }
            return true;
        }
        self.queues[core.index()].fair.shrink_protection(&mut self.entities, current);
        false
    }

    /// Returns the CPU for a woken task: its last one, unless that is busy and another is idle. A task that is still in
    /// a queue stays there.
    fn choose(&self, slot: Slot) -> Core {
        let Entity { core, delayed, begun, .. } = self.entities[slot.index()];
        let idle = |core: Core| {
            let queue = &self.queues[core.index()];
            queue.running.is_none() && queue.raised.is_empty() && queue.fair.members.is_empty()
        };
        if delayed || idle(core) {
            return core;
        }
        let mut cores = (0..self.queues.len()).map(Core::at);
        if !begun {
            let load = |core: &Core| self.queues[core.index()].fair.members.len();
            return cores.min_by_key(load).unwrap_or(core);
        }
        cores.find(|core| idle(*core)).unwrap_or(core)
    }

    /// Moves the last waiting task of the longest queue to a CPU that would idle (`sched_balance_newidle`).
    fn pull(&mut self, to: Core) -> Option<Slot> {
        let waits =
            |queue: &Queue, slot: &Slot| queue.running != Some(*slot) && !self.entities[slot.index()].delayed;
        let longest = self.queues.iter().max_by_key(|queue| queue.fair.members.len())?;
        let slot = longest.fair.members.iter().rev().copied().find(|slot| waits(longest, slot))?;
        let from = self.entities[slot.index()].core;
        self.queues[from.index()].fair.leave(&mut self.entities, slot, false);
        self.entities[slot.index()].core = to;
        self.enqueue(slot);
        Some(slot)
    }
}

impl Scheduler for Eevdf {
    /// Returns the tick: `HZ` is 250 on the stock kernel.
    fn tick_period(&self) -> Nanos {
        Nanos(fair::TICK.cast_unsigned())
    }

    /// Returns the end of a sleep with high-resolution timers and the slack of ordinary tasks.
    fn sleep_ends(&self, _clock: &Clock, now: Nanos, span: Nanos) -> Nanos {
        now.after(span).after(TIMER_SLACK)
    }

    fn admit(&mut self, _slot: Slot, terms: &Terms) {
        self.entities.push(Entity::new(terms.nice, terms.slice, self.base));
    }

    fn wake(&mut self, slot: Slot, _waker: Waker, _scene: &mut Scene<'_>) -> Option<Reschedule> {
        let core = self.choose(slot);
        self.entities[slot.index()].core = core;
        self.enqueue(slot);
        let queue = &mut self.queues[core.index()];
        queue.timer |= queue.fair.current.is_some() && queue.fair.members.len() > 1;
        let at_once = Some(Reschedule { core, when: When::Now });
        let Some(running) = self.queues[core.index()].running else { return at_once };
        let raised = |slot: Slot| self.entities[slot.index()].class == Class::Raised;
        match (raised(slot), raised(running)) {
            (true, false) => at_once,
            (_, true) => None,
            (false, false) => {
                let spent = self.queues[core.index()].fair.spent;
                (self.woken_preempts(slot, core) || spent).then(|| self.preempts(core))
            }
        }
    }

    fn withdraw(&mut self, slot: Slot, _scene: &mut Scene<'_>) {
        self.dequeue(slot, Then::Exits);
    }

    fn charge(&mut self, core: Core, slot: Slot, ran: Nanos) {
        let fair = &mut self.queues[core.index()].fair;
        if fair.current == Some(slot) {
            fair.ran(&mut self.entities, slot, ran.0.cast_signed(), self.base);
        }
    }

    fn tick(&mut self, core: Core, _slot: Slot, _scene: &mut Scene<'_>) -> Option<Reschedule> {
        self.queues[core.index()].fair.spent.then(|| self.preempts(core))
    }

    fn pick(&mut self, core: Core, last: Option<Last>, _scene: &mut Scene<'_>) -> Option<Slot> {
        if let Some(Last { slot, then }) = last {
            match then {
                Then::Sleeps | Then::Exits => self.dequeue(slot, then),
                Then::Yields => {
                    let fair = &mut self.queues[core.index()].fair;
                    if fair.current == Some(slot) && fair.eligible(&self.entities, slot) {
                        let entity = &mut self.entities[slot.index()];
                        entity.vruntime = entity.deadline;
                        entity.request(self.base);
                    }
                }
                Then::Ready => {}
            }
        }
        let first_raised = self.queues[core.index()].raised.first().copied();
        let picked = first_raised.or_else(|| self.pick_fair(core, true)).or_else(|| self.pull(core));
        let queue = &mut self.queues[core.index()];
        queue.fair.spent = false;
        if queue.running != picked || queue.fair.current != picked {
            if let Some(before) = queue.fair.current.take() {
                queue.fair.put_back(before);
            }
            if let Some(next) = picked.filter(|_| first_raised.is_none()) {
                queue.fair.current = Some(next);
                queue.fair.protect(&mut self.entities, next);
            }
            queue.timer = queue.fair.current.is_some() && queue.fair.members.len() > 1;
        }
        queue.running = picked;
        picked
    }

    /// Returns the time to the virtual deadline if there are other tasks (`hrtick_start_fair`).
    fn timer_in(&self, core: Core, slot: Slot) -> Option<Nanos> {
        let Queue { fair, timer, .. } = &self.queues[core.index()];
        if fair.current != Some(slot) || !timer {
            return None;
        }
        let entity = &self.entities[slot.index()];
        let left = entity.really(entity.deadline - entity.vruntime);
        Some(Nanos(left.max(SHORTEST_TIMER).cast_unsigned()))
    }

    fn timer(&mut self, core: Core, _slot: Slot, _scene: &mut Scene<'_>) -> Option<Reschedule> {
        self.queues[core.index()].timer = false;
        Some(Reschedule { core, when: When::Now })
    }

    fn classify(&mut self, slot: Slot, class: Class, _scene: &mut Scene<'_>) -> Option<Reschedule> {
        let Entity { class: before, core, queued, delayed, .. } = self.entities[slot.index()];
        if before == class {
            return None;
        }
        let queue = &self.queues[core.index()];
        let ready = queue.raised.contains(&slot) || (queued && !delayed);
        if queued {
            let fair = &mut self.queues[core.index()].fair;
            fair.leave(&mut self.entities, slot, delayed);
        }
        self.queues[core.index()].raised.retain(|raised| *raised != slot);
        self.entities[slot.index()].class = class;
        if !ready {
            return None;
        }
        self.enqueue(slot);
        let queue = &mut self.queues[core.index()];
        if queue.running == Some(slot) && class == Class::Normal {
            queue.fair.current = Some(slot);
            let entity = &mut self.entities[slot.index()];
            entity.vprot = entity.vruntime;
        }
        // A task that is lowered while it runs has its CPU rescheduled (`switched_to_fair`).
        Some(Reschedule { core, when: When::Now })
    }

    /// Changes the weight and keeps the lag in real time (`reweight_entity`).
    fn renice(&mut self, slot: Slot, nice: i8, _scene: &mut Scene<'_>) {
        let Entity { core, queued, .. } = self.entities[slot.index()];
        let fair = &mut self.queues[core.index()].fair;
        let average = if queued {
            fair.update_lag(&mut self.entities, slot);
            fair.average(&self.entities)
        } else {
            0
        };
        let entity = &mut self.entities[slot.index()];
        let (old, new) = (entity.weight, weight(nice));
        let scaled = |time: i64| time.saturating_mul(old) / new;
        entity.weight = new;
        entity.vlag = scaled(entity.vlag);
        if queued {
            entity.deadline = average + scaled(entity.deadline - average);
            entity.vprot = average + scaled(entity.vprot - average);
            entity.vruntime = average - entity.vlag;
        } else if entity.relative {
            entity.deadline = scaled(entity.deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, Options};
    use crate::id::TaskId;
    use crate::program::Wait;
    use crate::random::Random;
    use crate::task::TaskOptions;
    use crate::workload::compute::Compute;
    use crate::workload::ping_pong::{self, Pair, ROUND_TRIP};
    use crate::workload::sleeper::{self, Sleeper};

    fn ran(cluster: &Cluster, task: TaskId) -> u64 {
        cluster.task(task).usage().ran.0 / 1_000_000
    }

    #[test]
    fn equals_share_equally_weights_count_and_all_cpus_are_used() {
        let shares = |cores, nice: &[i8]| {
            let mut cluster = Cluster::new(Options::standard(1));
            let node = cluster.add_node(cores, Box::new(Eevdf::new(cores, Preemption::Lazy)));
            let spawn = |nice: &i8| {
                let options = TaskOptions { nice: *nice, ..TaskOptions::default() };
                cluster.spawn(node, options, Box::new(Compute::for_ever()))
            };
            let tasks: Vec<_> = nice.iter().map(spawn).collect();
            cluster.run_until(Nanos::from_millis(10_000));
            tasks.iter().map(|task| ran(&cluster, *task)).collect::<Vec<_>>()
        };
        assert!(
            shares(1, &[0, 0, 0]).iter().all(|ms| ms.abs_diff(3_333) < 10),
            "{:?}",
            shares(1, &[0, 0, 0])
        );
        let nice = shares(1, &[0, 5]);
        assert!((nice[0] * 100 / nice[1]).abs_diff(305) < 10, "1.25 to the fifth is 3.05: {nice:?}");
        assert!(shares(2, &[0; 4]).iter().all(|ms| ms.abs_diff(5_000) < 20), "{:?}", shares(2, &[0; 4]));
    }

    #[test]
    fn a_sleeping_task_gets_no_more_than_a_computing_one() {
        let mut cluster = Cluster::new(Options::standard(1));
        let node = cluster.add_node(1, Box::new(Eevdf::new(1, Preemption::Lazy)));
        let hog = cluster.spawn(node, TaskOptions::default(), Box::new(Compute::for_ever()));
        let ms = Nanos::from_millis;
        let options = sleeper::Options { busy: ms(20), varies: Nanos::ZERO, sleep: ms(2) };
        let sleeper = cluster.spawn(node, TaskOptions::default(), Box::new(Sleeper::new(options)));
        cluster.run_until(ms(20_000));
        let (hog, sleeper) = (ran(&cluster, hog), ran(&cluster, sleeper));
        assert!(
            sleeper <= hog && sleeper > hog * 85 / 100,
            "{sleeper} of {hog} ms: it loses the time it sleeps"
        );
    }

    /// Returns the longest round trip with or without a computing task, in microseconds. It covers many periods,
    /// because waits pull pings into step with deadlines.
    fn longest(slice: Option<Nanos>, preemption: Preemption, compute: bool) -> u64 {
        let trips = (0..20).flat_map(|period| {
            let mut cluster = Cluster::new(Options::standard(1));
            let nodes = [0, 1].map(|_| cluster.add_node(1, Box::new(Eevdf::new(1, preemption))));
            let options = ping_pong::Options {
                bytes: 500,
                pause: Nanos::from_micros(7_000 + 37 * period),
                handling: Nanos::from_micros(30),
                extra: Nanos::ZERO,
                wait: Wait::Block,
                pings: 50,
            };
            let tasks = TaskOptions { slice, ..TaskOptions::default() };
            let pair = Pair::spawn(&mut cluster, nodes, options, tasks);
            if compute {
                cluster.spawn(nodes[1], TaskOptions::default(), Box::new(Compute::for_ever()));
            }
            cluster.run_until(Nanos::from_millis(1_000));
            let trips: Vec<u64> = cluster.records().of(pair.pinger, ROUND_TRIP).collect();
            assert_eq!(trips.len(), 50);
            trips
        });
        trips.max().unwrap_or(0) / 1_000
    }

    #[test]
    fn a_handler_waits_for_the_current_deadline_unless_its_own_slice_is_shorter() {
        for preemption in [Preemption::Lazy, Preemption::Full] {
            let alone = longest(None, preemption, false);
            let standard = longest(None, preemption, true) - alone;
            assert!((500..=750).contains(&standard), "up to a slice of 700 us: {standard} us");
            let short = longest(Some(Nanos::from_micros(100)), preemption, true) - alone;
            assert!(short < standard / 2, "{short} us");
        }
    }

    /// Weighted lags add up to zero, whichever tasks come and go, and at least one task is always owed time.
    #[test]
    fn lags_cancel_out() {
        let mut random = Random::stream(5, 0);
        let mut entities: Vec<Entity> = (-3..4).map(|nice| Entity::new(nice, None, BASE_SLICE)).collect();
        let mut fair = Fair::default();
        for _ in 0..3_000 {
            let slot = Slot::at(usize::try_from(random.below(7)).unwrap());
            if entities[slot.index()].queued {
                if fair.members.len() > 1 {
                    fair.leave(&mut entities, slot, true);
                }
            } else {
                fair.place(&mut entities, slot, BASE_SLICE);
                fair.enter(&mut entities, slot);
            }
            let picked = fair.pick(&entities, false).expect("a task is eligible");
            assert!(fair.eligible(&entities, picked) || fair.members.len() == 1);
            let time = random.below(2_000_000).cast_signed();
            fair.ran(&mut entities, picked, time, BASE_SLICE);
            let average = fair.average(&entities);
            let lag = |slot: &Slot| {
                let entity = &entities[slot.index()];
                i128::from(average - entity.vruntime) * i128::from(entity.weight)
            };
            let weight: i64 = fair.members.iter().map(|slot| entities[slot.index()].weight).sum();
            let sum: i128 = fair.members.iter().map(lag).sum();
            assert!(sum <= 0 && sum > -i128::from(weight), "rounded down by less than one: {sum}");
        }
    }

    #[test]
    fn an_entity_is_placed_so_that_it_has_the_lag_it_left_with() {
        for vlag in [-3_000_000, -40_000, 0, 70_000, 2_000_000] {
            let mut entities: Vec<Entity> =
                [0, 0, -5].map(|nice| Entity::new(nice, None, BASE_SLICE)).to_vec();
            let mut fair = Fair::default();
            for slot in [0, 1].map(Slot) {
                fair.place(&mut entities, slot, BASE_SLICE);
                fair.enter(&mut entities, slot);
            }
            fair.ran(&mut entities, Slot(0), 1_000_000, BASE_SLICE);
            entities[2].vlag = vlag;
            fair.place(&mut entities, Slot(2), BASE_SLICE);
            fair.enter(&mut entities, Slot(2));
            let lag = fair.average(&entities) - entities[2].vruntime;
            assert!((lag - vlag).abs() <= 3, "{lag} instead of {vlag}");
        }
    }

    #[test]
    fn sleeps_end_on_time_but_for_the_slack() {
        let scheduler = Eevdf::new(1, Preemption::Lazy);
        let clock = Clock::new(Nanos::ZERO, scheduler.tick_period(), 0);
        let (now, span) = (Nanos::from_micros(123), Nanos::from_millis(45));
        assert_eq!(scheduler.sleep_ends(&clock, now, span), Nanos::from_micros(123 + 45_000 + 50));
        assert_eq!(scheduler.tick_period(), Nanos::from_millis(4));
    }

    #[test]
    fn only_a_shorter_slice_ends_the_protection_of_the_current_task() {
        let preempts = |slice| {
            let mut scheduler = Eevdf::new(1, Preemption::Lazy);
            let mut policy = crate::policy::Plain;
            let view = crate::policy::View { now: Nanos::ZERO, tasks: &[], nodes: 1 };
            let mut scene = Scene {
                now: Nanos::ZERO,
                policy: &mut policy,
                view,
                tasks: &[TaskId(0), TaskId(1)],
                current: &[Some(Slot(0))],
            };
            for (slot, slice) in [(0, None), (1, slice)] {
                let terms = Terms { process: crate::id::ProcessId(slot), nice: 0, slice };
                scheduler.admit(Slot(slot), &terms);
            }
            let waker = Waker::Interrupt(Core(0));
            scheduler.wake(Slot(0), waker, &mut scene);
            assert_eq!(scheduler.pick(Core(0), None, &mut scene), Some(Slot(0)));
            scheduler.charge(Core(0), Slot(0), Nanos::from_micros(100));
            scheduler.wake(Slot(1), waker, &mut scene)
        };
        let lazily = Some(Reschedule { core: Core(0), when: When::AtInterrupt });
        assert_eq!(preempts(Some(Nanos::from_micros(100))), lazily);
        assert_eq!(preempts(None), None);
    }
}
