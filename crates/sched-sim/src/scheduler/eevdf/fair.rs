//! The fair queue of one CPU: virtual time, lag, deadlines, and the choice of the next task (`kernel/sched/fair.c` of
//! 7.2).
//!
//! # Invariants
//! 1. `members` are the entities with `queued` set whose core this is, each once; the current one among them.
//! 2. Sums are exact: virtual times are compared with products of 128 bits, as the kernel does.

use super::entity::{Entity, Virtual};
use crate::id::Slot;

/// `TICK_NSEC` at the stock kernel's `HZ` of 250.
pub(super) const TICK: i64 = 4_000_000;

/// The queue of one CPU. The scheduler holds the entities themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Fair {
    /// Members in the order in which they entered the tree; the first of equal deadlines is picked.
    pub(super) members: Vec<Slot>,
    /// The current task, if it is a fair one.
    pub(super) current: Option<Slot>,
    /// Virtual time as of when the queue was last not empty.
    zero: Virtual,
    /// Whether the current task has used up its request or its protected time.
    pub(super) spent: bool,
}

impl Fair {
    /// Returns the weighted average of virtual times, rounded down (`avg_vruntime`).
    pub(super) fn average(&mut self, entities: &[Entity]) -> Virtual {
        let (sum, weight) = self.sum(entities);
        if weight > 0 {
            let average = sum.div_euclid(weight);
            self.zero += i64::try_from(average).expect("within the members' virtual times");
        }
        self.zero
    }

    /// Returns the sum of weighted virtual times relative to `zero`, and the sum of all weights.
    fn sum(&self, entities: &[Entity]) -> (i128, i128) {
        self.members.iter().fold((0, 0), |(sum, weight), slot| {
            let entity = &entities[slot.index()];
            let own = i128::from(entity.weight);
            (sum + i128::from(entity.vruntime - self.zero) * own, weight + own)
        })
    }

    /// Returns whether the lag is not negative, so that the task is owed time (`entity_eligible`).
    pub(super) fn eligible(&self, entities: &[Entity], slot: Slot) -> bool {
        let (sum, weight) = self.sum(entities);
        self.owed(&entities[slot.index()], sum, weight)
    }

    fn owed(&self, entity: &Entity, sum: i128, weight: i128) -> bool {
        sum >= i128::from(entity.vruntime - self.zero) * weight
    }

    /// Updates the lag (`update_entity_lag`); returns whether the virtual time no longer shows it.
    pub(super) fn update_lag(&mut self, entities: &mut [Entity], slot: Slot) -> bool {
        let average = self.average(entities);
        let longest = self.members.iter().map(|slot| entities[slot.index()].slice).max().unwrap_or(0);
        let entity = &mut entities[slot.index()];
        let limit = entity.virtually(longest + TICK);
        let mut lag = (average - entity.vruntime).clamp(-limit, limit);
        if entity.delayed {
            // DELAY_ZERO: waiting pays debts, and earns nothing.
            lag = lag.max(entity.vlag).min(0);
        }
        entity.vlag = lag;
        average - lag != entity.vruntime
    }

    /// Places an entity that is not a member, so that it has the lag it left with (`place_entity`).
    pub(super) fn place(&mut self, entities: &mut [Entity], slot: Slot, base: i64) {
        let average = self.average(entities);
        let (_, load) = self.sum(entities);
        let entity = &mut entities[slot.index()];
        let mut lag = 0;
        if load > 0 && entity.vlag != 0 {
            // The entity will move the average. Its lag is inflated so that the remainder afterwards equals the lag it
            // had.
            let inflated = i128::from(entity.vlag) * (load + i128::from(entity.weight)) / load;
            lag = i64::try_from(inflated).expect("lag is bounded by slices");
        }
        entity.vruntime = average - lag;
        if core::mem::take(&mut entity.relative) {
            entity.deadline += entity.vruntime;
            return;
        }
        entity.request(base);
        if !core::mem::replace(&mut entity.begun, true) {
            // Other tasks are half-way through their requests, on average (PLACE_DEADLINE_INITIAL).
            entity.deadline = entity.vruntime + entity.virtually(entity.slice) / 2;
        }
    }

    /// Adds a placed entity.
    pub(super) fn enter(&mut self, entities: &mut [Entity], slot: Slot) {
        entities[slot.index()].queued = true;
        self.members.push(slot);
    }

    /// Removes an entity that sleeps, ends, or leaves for elsewhere, with its lag (`dequeue_entity`).
    pub(super) fn leave(&mut self, entities: &mut [Entity], slot: Slot, sleeps: bool) {
        self.update_lag(entities, slot);
        self.members.retain(|member| *member != slot);
        let entity = &mut entities[slot.index()];
        (entity.queued, entity.delayed) = (false, false);
        if !sleeps {
            entity.deadline -= entity.vruntime;
            entity.relative = true;
        }
        if self.current == Some(slot) {
            self.current = None;
        }
    }

    /// Picks the eligible entity with the earliest deadline. With `protect`, picks the current one while it is eligible
    /// and protected (`pick_eevdf`).
    pub(super) fn pick(&self, entities: &[Entity], protect: bool) -> Option<Slot> {
        let (sum, weight) = self.sum(entities);
        let eligible = |slot: &Slot| self.owed(&entities[slot.index()], sum, weight);
        if let [only] = self.members.as_slice() {
            return Some(*only);
        }
        let current = self.current.filter(eligible);
        if let Some(current) = current.filter(|slot| protect && entities[slot.index()].protected()) {
            return Some(current);
        }
        let deadline = |slot: &Slot| entities[slot.index()].deadline;
        let others = self.members.iter().copied().filter(|slot| Some(*slot) != self.current);
        let best = others.filter(eligible).min_by_key(deadline);
        match (current, best) {
            (Some(current), Some(best)) if deadline(&current) < deadline(&best) => Some(current),
            (current, best) => best.or(current),
        }
    }

    /// Returns the shortest request of all members.
    pub(super) fn shortest(&self, entities: &[Entity]) -> i64 {
        self.members.iter().map(|slot| entities[slot.index()].slice).min().unwrap_or(i64::MAX)
    }

    /// Protects the new current task for its request, or the shortest of all (`RUN_TO_PARITY`).
    pub(super) fn protect(&self, entities: &mut [Entity], slot: Slot) {
        let shortest = self.shortest(entities);
        let entity = &mut entities[slot.index()];
        entity.vprot = entity.deadline;
        if shortest < entity.slice {
            entity.vprot = entity.vprot.min(entity.vruntime + entity.virtually(shortest));
        }
    }

    /// Limits the protection of the current task to the shortest request, after a woken task that did not preempt.
    pub(super) fn shrink_protection(&self, entities: &mut [Entity], slot: Slot) {
        let shortest = self.shortest(entities);
        let entity = &mut entities[slot.index()];
        entity.vprot = entity.vprot.min(entity.vruntime + entity.virtually(shortest));
    }

    /// Accounts for the time that the current task ran (`update_curr`).
    pub(super) fn ran(&mut self, entities: &mut [Entity], slot: Slot, time: i64, base: i64) {
        let entity = &mut entities[slot.index()];
        entity.vruntime += entity.virtually(time);
        let over = entity.vruntime >= entity.deadline;
        if over {
            entity.request(base);
        }
        let unprotected = !entity.protected();
        if self.members.len() > 1 && (over || unprotected) {
            self.spent = true;
        }
    }

    /// Puts the current task back into the tree, behind those with its deadline.
    pub(super) fn put_back(&mut self, slot: Slot) {
        self.members.retain(|member| *member != slot);
        self.members.push(slot);
    }
}
