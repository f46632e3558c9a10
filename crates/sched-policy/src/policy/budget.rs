// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nanosecond budget: boosted time is earned by the epoch, and half of what is unused carries over.
//!
//! Expedite grants its boost to threads whose tick counter is nearly full (sections 3.2, 3.3). Every epoch the counter
//! becomes half of the rest plus a quantum (6 ticks; 6, 9, 10, 11, 11, ...), and 10 ticks are needed. That counter is
//! imprecise, because a tick is charged to the thread that runs when the clock ticks. Here the same recurrence counts
//! nanoseconds, and every one of them is charged.
//!
//! # Invariants
//! 1. Not both `left` and `debt` are above zero; neither wraps.
//! 2. `left` is at most twice the grant, the fixpoint of the recurrence.
//! 3. Grants equal charges, plus `left`, minus `debt`, plus the time that was not carried over.
//! 4. A holder that never charges more than `left` is charged at most `cap` within any half-open window.

use super::share::Share;
use super::time::Nanos;

/// Epochs in a window: ten, so that a window of 100 ms has epochs of one tick of the paper's clock (10 ms, section 3.2).
pub const EPOCHS: u64 = 10;

/// Half of what is left carries over (Expedite, section 3.2: "half of these ticks are carried over to the next epoch").
const CARRY_OVER: u64 = 2;

/// Most grants that count in a window: a full budget at its begin, and a grant for every epoch that begins within.
const GRANTS_PER_WINDOW: u64 = EPOCHS + CARRY_OVER;

/// Number of epochs after which the recurrence has reached its fixpoint from any 64-bit value.
const SETTLED: u64 = 64;

/// Terms by which a budget is refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    epoch: Nanos,
    grant: Nanos,
    floor: Nanos,
}

/// A cap: at most `share` of a CPU within any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Share of one CPU's time.
    pub share: Share,
    /// Length of the window, which may begin at any time.
    pub window: Nanos,
}

/// A quantum per epoch and a threshold: the paper's form, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// Length of an epoch.
    pub epoch: Nanos,
    /// Time earned per epoch.
    pub grant: Nanos,
    /// Time needed for a boost.
    pub floor: Nanos,
}

impl Terms {
    /// Returns terms that keep a cap, with boosts of at least `floor`.
    ///
    /// A window includes the budget at its begin, at most two grants, and [`EPOCHS`] more grants. So the grant is the
    /// cap divided by 12, and a thread that spends everything gets ten twelfths of the cap: 8.3 % of a CPU for a cap of
    /// 10 %. This is the price of a cap that holds for every window, not only for aligned ones.
    pub fn capped(cap: Cap, floor: Nanos) -> Self {
        let most = cap.share.of(cap.window.0);
        let grant = Nanos(most / GRANTS_PER_WINDOW);
        Self::quantum(Quantum { epoch: Nanos(cap.window.0.div_ceil(EPOCHS)), grant, floor })
    }

    /// Returns terms in the paper's form, with grant and threshold given separately.
    pub fn quantum(quantum: Quantum) -> Self {
        let Quantum { epoch, grant, floor } = quantum;
        Self { epoch: epoch.max(Nanos(1)), grant, floor }
    }

    /// Returns the length of an epoch.
    pub const fn epoch(&self) -> Nanos {
        self.epoch
    }

    /// Returns the time earned per epoch.
    pub const fn grant(&self) -> Nanos {
        self.grant
    }

    /// Returns the most that a budget can hold.
    pub const fn most(&self) -> Nanos {
        self.grant.times(CARRY_OVER)
    }
}

/// Boosted time that the holder has left, as of the last epoch that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: Nanos,
    debt: Nanos,
    begun: Nanos,
}

impl Budget {
    /// Returns the budget of a holder that begins at `now`: one grant, as a process has in its first epoch.
    pub const fn new(terms: &Terms, now: Nanos) -> Self {
        Self { left: terms.grant, debt: Nanos::ZERO, begun: now }
    }

    /// Returns the budget at `now`. Every epoch that has ended since halves the rest and adds a grant. Grants pay debts
    /// first.
    ///
    /// The number of steps is bounded, however much time has passed. Time that goes back changes nothing.
    #[must_use]
    pub fn refilled(self, terms: &Terms, now: Nanos) -> Self {
        let epochs = now.since(self.begun).whole(terms.epoch);
        let begun = self.begun.after(terms.epoch.times(epochs));
        let in_debt = self.debt.whole(terms.grant);
        let only_pays = epochs <= in_debt || terms.grant == Nanos::ZERO;
        if self.debt > Nanos::ZERO && only_pays {
            return Self { debt: self.debt.since(terms.grant.times(epochs)), begun, ..self };
        }
        let mut budget = Self { begun, ..self };
        let mut remaining = epochs;
        if self.debt > Nanos::ZERO {
            let rest = self.debt.since(terms.grant.times(in_debt));
            budget = Self { left: terms.grant.since(rest), debt: Nanos::ZERO, begun };
            remaining = remaining.saturating_sub(in_debt.saturating_add(1));
        }
        for _ in 0..remaining.min(SETTLED) {
            budget.left = Nanos(budget.left.0 / CARRY_OVER).after(terms.grant);
        }
        budget
    }

    /// Returns the budget after charging `spent`. The excess is debt, so a late timer costs later boosts.
    #[must_use]
    pub const fn charged(self, spent: Nanos) -> Self {
        let excess = spent.since(self.left);
        Self { left: self.left.since(spent), debt: self.debt.after(excess), begun: self.begun }
    }

    /// Returns the time that may be spent now.
    pub const fn left(&self) -> Nanos {
        self.left
    }

    /// Returns the overdrawn time that is not paid back yet.
    pub const fn debt(&self) -> Nanos {
        self.debt
    }

    /// Returns the time that may be spent, if it is enough for a boost (Expedite, section 3.3: `counter >= 10`).
    pub fn allowance(&self, terms: &Terms) -> Option<Nanos> {
        (self.left >= terms.floor && self.left > Nanos::ZERO).then_some(self.left)
    }

    /// Returns the earliest time at which there may be an [`allowance`]; further charges delay it. The result is zero
    /// if there is one now, and [`Nanos::NEVER`] if the floor is more than a budget ever holds.
    ///
    /// Until then the caller can repeat a refusal without a new decision.
    ///
    /// [`allowance`]: Self::allowance
    pub fn not_before(self, terms: &Terms) -> Nanos {
        if self.allowance(terms).is_some() {
            return Nanos::ZERO;
        }
        if terms.grant == Nanos::ZERO || terms.floor > terms.most() {
            return Nanos::NEVER;
        }
        let only_pays = self.debt.whole(terms.grant);
        let mut budget = self.refilled(terms, self.begun.after(terms.epoch.times(only_pays)));
        for _ in 0..SETTLED {
            budget = budget.refilled(terms, budget.next_epoch(terms));
            if budget.allowance(terms).is_some() {
                return budget.begun;
            }
        }
        Nanos::NEVER
    }

    /// Returns the begin of the next epoch, when the next grant is earned.
    pub const fn next_epoch(&self, terms: &Terms) -> Nanos {
        self.begun.after(terms.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terms with the paper's own numbers, a tick being a nanosecond here: 6 ticks per epoch, 10 needed.
    fn ticks() -> Terms {
        Terms::quantum(Quantum { epoch: Nanos(1), grant: Nanos(6), floor: Nanos(10) })
    }

    #[test]
    fn a_sleeper_converges_to_eleven_ticks() {
        let mut budget = Budget::new(&ticks(), Nanos::ZERO);
        let mut series = [budget.left().0; 6];
        for (epoch, left) in series.iter_mut().enumerate().skip(1) {
            budget = budget.refilled(&ticks(), Nanos(epoch as u64));
            *left = budget.left().0;
        }
        assert_eq!(series, [6, 9, 10, 11, 11, 11], "Expedite, section 3.2");
    }

    #[test]
    fn ten_or_eleven_ticks_are_needed() {
        let full = Budget::new(&ticks(), Nanos::ZERO).refilled(&ticks(), Nanos(9));
        assert_eq!(full.allowance(&ticks()), Some(Nanos(11)));
        assert_eq!(full.charged(Nanos(1)).allowance(&ticks()), Some(Nanos(10)));
        assert_eq!(full.charged(Nanos(2)).allowance(&ticks()), None, "Expedite, section 3.3");
    }

    #[test]
    fn one_tick_an_epoch_keeps_the_boost_and_two_lose_it() {
        let after = |spent| {
            (1..20).fold(Budget::new(&ticks(), Nanos::ZERO).refilled(&ticks(), Nanos(9)), |budget, epoch| {
                budget.charged(Nanos(spent)).refilled(&ticks(), Nanos(9 + epoch))
            })
        };
        assert_eq!(after(1).left(), Nanos(11));
        assert_eq!(after(2).left(), Nanos(10));
        assert_eq!(after(3).left(), Nanos(9));
        assert!(after(3).allowance(&ticks()).is_none());
    }

    #[test]
    fn debts_are_paid_before_anything_is_earned() {
        let budget = Budget::new(&ticks(), Nanos::ZERO).charged(Nanos(6 + 13));
        assert_eq!((budget.left(), budget.debt()), (Nanos::ZERO, Nanos(13)));
        let later = |epochs| {
            let budget = budget.refilled(&ticks(), Nanos(epochs));
            (budget.left().0, budget.debt().0)
        };
        assert_eq!((later(1), later(2), later(3), later(4)), ((0, 7), (0, 1), (5, 0), (8, 0)));
    }

    #[test]
    fn a_cap_of_ten_per_cent_over_100_ms_grants_its_twelfth_every_10_ms() {
        let cap = Cap { share: Share::percent(10), window: Nanos::from_millis(100) };
        let terms = Terms::capped(cap, Nanos::ZERO);
        assert_eq!((terms.epoch(), terms.grant()), (Nanos::from_millis(10), Nanos(833_333)));
        assert_eq!(terms.most(), Nanos(1_666_666));
    }

    #[test]
    fn a_refusal_lasts_until_the_reported_time() {
        for (begun, floor) in [(0, 1), (7, 1), (0, 4), (0, 10), (7, 10)] {
            let terms = Terms::quantum(Quantum { epoch: Nanos(1), grant: Nanos(6), floor: Nanos(floor) });
            for spent in 0..40 {
                let budget = Budget::new(&terms, Nanos(begun)).charged(Nanos(spent));
                let pays = |now: &u64| budget.refilled(&terms, Nanos(*now)).allowance(&terms).is_some();
                let first = (begun..200).find(pays).unwrap();
                let now = if first == begun { Nanos::ZERO } else { Nanos(first) };
                assert_eq!(budget.not_before(&terms), now, "{budget:?} {floor}");
            }
        }
    }

    #[test]
    fn a_floor_that_is_never_reached_is_never_reached() {
        // The recurrence stays one below twice the grant.
        for floor in [12, 13, 1_000] {
            let terms = Terms::quantum(Quantum { epoch: Nanos(1), grant: Nanos(6), floor: Nanos(floor) });
            let budget = Budget::new(&terms, Nanos::ZERO);
            assert_eq!(budget.not_before(&terms), Nanos::NEVER);
            assert_eq!(budget.refilled(&terms, Nanos(1_000)).allowance(&terms), None);
        }
    }

    #[test]
    fn without_a_grant_there_is_never_anything() {
        let terms = Terms::quantum(Quantum { epoch: Nanos::ZERO, grant: Nanos::ZERO, floor: Nanos::ZERO });
        let budget = Budget::new(&terms, Nanos::ZERO).refilled(&terms, Nanos::NEVER);
        assert_eq!((budget.allowance(&terms), budget.not_before(&terms)), (None, Nanos::NEVER));
        assert_eq!(budget.charged(Nanos(5)).refilled(&terms, Nanos::NEVER).debt(), Nanos(5));
    }
}
