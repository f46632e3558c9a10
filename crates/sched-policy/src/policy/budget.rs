//! The nanosecond budget: boosted time is earned by the epoch, and half of what is unused carries over.
//!
//! Expedite grants its boost to threads whose tick counter is nearly full (sections 3.2, 3.3): every epoch the counter
//! becomes half of what is left plus a quantum (6 ticks; 6, 9, 10, 11, 11, ...), and 10 ticks are needed. The counter is
//! leaky, as ticks are charged to whoever runs when the clock ticks. Here the same recurrence counts nanoseconds, and
//! every one of them is charged.
//!
//! # Invariants
//! 1. Not both `left` and `debt` are above zero; neither wraps.
//! 2. `left` is at most twice the grant, the fixpoint of the recurrence.
//! 3. What was granted is what was charged, plus what is left, minus the debt, plus what was not carried over.
//! 4. Who never charges more than is left is charged at most `cap` within any half-open window.

use super::share::Share;
use super::time::Nanos;

/// Epochs in a window: ten, so that a window of 100 ms has epochs of one tick of the paper's clock (10 ms, section 3.2).
pub const EPOCHS: u64 = 10;

/// Half of what is left carries over (Expedite, section 3.2: "half of these ticks are carried over to the next epoch").
const CARRY_OVER: u64 = 2;

/// What a window sees at most: a full budget at its begin, and a grant for every epoch that begins within.
const GRANTS_PER_WINDOW: u64 = EPOCHS + CARRY_OVER;

/// After so many epochs the recurrence has reached its fixpoint from any 64-bit value.
const SETTLED: u64 = 64;

/// What a budget is refilled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    epoch: Nanos,
    grant: Nanos,
    floor: Nanos,
}

/// At most `share` of a processor within any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Of one processor's time.
    pub share: Share,
    /// The window may begin anywhere.
    pub window: Nanos,
}

/// A quantum per epoch, and how much one must have: the paper's form, in whatever unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// Length of an epoch.
    pub epoch: Nanos,
    /// Earned per epoch.
    pub grant: Nanos,
    /// Needed for a boost.
    pub floor: Nanos,
}

impl Terms {
    /// Terms that keep a cap, with boosts of at least `floor`.
    ///
    /// A window sees what was held at its begin, at most two grants, and [`EPOCHS`] grants more. So the grant is the
    /// cap divided by 12, and a thread that spends all it gets has ten twelfths of the cap, 8.3 % of a processor for a cap of 10 %: the price of a cap that holds for every window, not for aligned ones only.
    pub fn capped(cap: Cap, floor: Nanos) -> Self {
        let most = cap.share.of(cap.window.0);
        let grant = Nanos(most / GRANTS_PER_WINDOW);
        Self::quantum(Quantum { epoch: Nanos(cap.window.0.div_ceil(EPOCHS)), grant, floor })
    }

    /// Terms as the paper states its own: grant and threshold apart.
    pub fn quantum(quantum: Quantum) -> Self {
        let Quantum { epoch, grant, floor } = quantum;
        Self { epoch: epoch.max(Nanos(1)), grant, floor }
    }

    /// Length of an epoch.
    pub const fn epoch(&self) -> Nanos {
        self.epoch
    }

    /// Earned per epoch.
    pub const fn grant(&self) -> Nanos {
        self.grant
    }

    /// The most that a budget can hold.
    pub const fn most(&self) -> Nanos {
        self.grant.times(CARRY_OVER)
    }
}

/// Boosted time that its holder has left, as of the last epoch begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: Nanos,
    debt: Nanos,
    begun: Nanos,
}

impl Budget {
    /// The budget of who begins at `now`: one grant, as a process has in its first epoch.
    pub const fn new(terms: &Terms, now: Nanos) -> Self {
        Self { left: terms.grant, debt: Nanos::ZERO, begun: now }
    }

    /// The budget at `now`: every epoch that has ended since halves what is left, and grants. Grants pay debts first.
    ///
    /// Takes the same few steps after a nanosecond and after a century. Time that goes back changes nothing.
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

    /// The budget after `spent` more was used. What exceeds it is debt: a timer that came late costs later boosts.
    #[must_use]
    pub const fn charged(self, spent: Nanos) -> Self {
        let excess = spent.since(self.left);
        Self { left: self.left.since(spent), debt: self.debt.after(excess), begun: self.begun }
    }

    /// What may be spent at once.
    pub const fn left(&self) -> Nanos {
        self.left
    }

    /// What was spent beyond the budget and is not paid back yet.
    pub const fn debt(&self) -> Nanos {
        self.debt
    }

    /// What may be spent, if that is enough for a boost at all (Expedite, section 3.3: `counter >= 10`).
    pub fn allowance(&self, terms: &Terms) -> Option<Nanos> {
        (self.left >= terms.floor && self.left > Nanos::ZERO).then_some(self.left)
    }

    /// Before when nothing can be had from this budget, as the earliest time at which there is an [`allowance`]; charges
    /// put it off. Zero if there is one now, [`Nanos::NEVER`] if the floor is more than a budget ever holds.
    ///
    /// Who was refused needs no other answer until then, so that a refusal is decided about once.
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

    /// When more is earned for the first time after the last refill.
    pub const fn next_epoch(&self, terms: &Terms) -> Nanos {
        self.begun.after(terms.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own numbers, a tick being a nanosecond here: 6 ticks an epoch, 10 needed.
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
    fn who_is_refused_is_refused_until_then_and_not_longer() {
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
