//! The budget compared with a naive model, exhaustively over small domains and at random over the whole range.

use std::collections::BTreeMap;

use pronto_sched_policy::policy::budget::{Budget, Cap, Quantum, Terms, EPOCHS};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::time::Nanos;
use proptest::prelude::*;

/// The naive model: integers that cannot overflow, one epoch after another.
#[derive(Clone, Copy, Debug)]
struct Model {
    /// Negative in debt.
    balance: i128,
    granted: i128,
    charged: i128,
    forfeited: i128,
}

impl Model {
    fn new(grant: u64) -> Self {
        let grant = i128::from(grant);
        Self { balance: grant, granted: grant, charged: 0, forfeited: 0 }
    }

    fn epoch(&mut self, grant: u64) {
        let carried = if self.balance > 0 { self.balance / 2 } else { self.balance };
        self.forfeited += self.balance - carried;
        self.balance = carried + i128::from(grant);
        self.granted += i128::from(grant);
    }

    fn charge(&mut self, spent: u64) {
        self.balance -= i128::from(spent);
        self.charged += i128::from(spent);
    }

    fn check(&self, budget: &Budget) {
        let (left, debt) = (i128::from(budget.left().0), i128::from(budget.debt().0));
        assert_eq!(left - debt, self.balance, "{budget:?}");
        assert!(left == 0 || debt == 0, "{budget:?}");
        assert_eq!(self.granted, self.charged + left - debt + self.forfeited, "conservation: {budget:?}");
    }
}

fn terms(epoch: u64, grant: u64, floor: u64) -> Terms {
    Terms::quantum(Quantum { epoch: Nanos(epoch), grant: Nanos(grant), floor: Nanos(floor) })
}

/// Every sequence of four steps; a step waits 0 to 4 and then spends 0 to 3.
#[test]
fn every_short_history_agrees_with_the_model() {
    fn histories(depth: u32, now: u64, epoch: u64, grant: u64, budget: Budget, model: Model) {
        if depth == 0 {
            return;
        }
        let terms = terms(epoch, grant, 1);
        for wait in 0..=4 {
            let later = now + wait;
            let mut model = model;
            for _ in now / epoch..later / epoch {
                model.epoch(grant);
            }
            let budget = budget.refilled(&terms, Nanos(later));
            model.check(&budget);
            assert!(budget.left() <= terms.most());
            for spent in 0..=3 {
                let (mut model, budget) = (model, budget.charged(Nanos(spent)));
                model.charge(spent);
                model.check(&budget);
                assert_eq!(budget.allowance(&terms).is_some(), budget.left() >= Nanos(1));
                histories(depth - 1, later, epoch, grant, budget, model);
            }
        }
    }
    for epoch in 1..=3 {
        for grant in 0..=3 {
            let budget = Budget::new(&terms(epoch, grant, 1), Nanos::ZERO);
            histories(4, 0, epoch, grant, budget, Model::new(grant));
        }
    }
}

/// From every budget, at every point of an epoch, for the spender that gets the most out of the next window: the cap
/// holds.
#[test]
fn no_spender_gets_more_than_the_cap_out_of_any_window() {
    for window in 10..=31 {
        for percent in [0, 25, 60, 85, 100] {
            let cap = Cap { share: Share::percent(percent), window: Nanos(window) };
            let terms = scaled(cap);
            let full = Budget::new(&terms, Nanos::ZERO).refilled(&terms, begin(&terms));
            let mut best = BTreeMap::new();
            for offset in 0..terms.epoch().0 {
                for kept in 0..=full.left().0 {
                    let start = full.charged(full.left().since(Nanos(kept)));
                    let now = begin(&terms).0 + offset;
                    let spent = most_spent(&terms, start, now, now + window, &mut best);
                    assert!(
                        spent <= cap.share.of(window * FINER),
                        "{cap:?} from {kept} at {offset}: {spent}"
                    );
                }
            }
        }
    }
}

/// The bound is tight: a full budget and a grant for each of the ten epochs can be spent.
#[test]
fn the_bound_on_a_window_is_reached() {
    let cap = Cap { share: Share::ALL, window: Nanos(20) };
    let terms = scaled(cap);
    let full = Budget::new(&terms, Nanos::ZERO).refilled(&terms, begin(&terms));
    let now = begin(&terms).0;
    let spent = most_spent(&terms, full, now + 1, now + 1 + 20, &mut BTreeMap::new());
    assert_eq!(spent, full.left().0 + EPOCHS * terms.grant().0);
}

/// Amounts are scaled up here, because grants would otherwise be zero in such small windows.
const FINER: u64 = 6;

fn scaled(cap: Cap) -> Terms {
    let fine = Terms::capped(Cap { window: cap.window.times(FINER), ..cap }, Nanos::ZERO);
    terms(Terms::capped(cap, Nanos::ZERO).epoch().0, fine.grant().0, 0)
}

/// A time by which an untouched budget is full.
fn begin(terms: &Terms) -> Nanos {
    terms.epoch().times(64)
}

/// Returns the most that can be spent from `now` until before `end`, by exhaustive search.
fn most_spent(
    terms: &Terms,
    budget: Budget,
    now: u64,
    end: u64,
    best: &mut BTreeMap<(u64, u64, u64), u64>,
) -> u64 {
    if now == end {
        return 0;
    }
    let budget = budget.refilled(terms, Nanos(now));
    let key = (budget.left().0, now, end);
    if let Some(&known) = best.get(&key) {
        return known;
    }
    let most = (0..=budget.left().0)
        .map(|spent| spent + most_spent(terms, budget.charged(Nanos(spent)), now + 1, end, best))
        .max()
        .unwrap_or(0);
    best.insert(key, most);
    most
}

proptest! {
    #[test]
    fn any_history_agrees_with_the_model(
        epoch in 1..1_000_000_000_u64,
        grant in 0..u64::MAX / 4,
        steps in prop::collection::vec((0..5_000_000_000_u64, any::<u64>(), 0..64_u32), 1..60),
    ) {
        let terms = terms(epoch, grant, 1);
        let (mut budget, mut model, mut now) = (Budget::new(&terms, Nanos::ZERO), Model::new(grant), 0);
        for (wait, spent, shift) in steps {
            // Few epochs, because the model steps through them one by one.
            let later = now + wait.min(epoch.saturating_mul(100));
            for _ in now / epoch..later / epoch {
                model.epoch(grant);
            }
            now = later;
            let spent = (spent >> shift) / 64;
            model.charge(spent);
            // Charged after the refill: the budget is as of the last epoch begun.
            budget = budget.refilled(&terms, Nanos(now)).charged(Nanos(spent));
            model.check(&budget);
        }
    }

    #[test]
    fn no_number_is_too_large(
        (epoch, grant, floor) in (any::<u64>(), any::<u64>(), any::<u64>()),
        (begun, now, spent, again) in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
        (share, window) in (any::<u32>(), any::<u64>()),
    ) {
        let capped = Terms::capped(Cap { share: Share::millionths(share), window: Nanos(window) }, Nanos(floor));
        for terms in [terms(epoch, grant, floor), capped] {
            let fresh = Budget::new(&terms, Nanos(begun));
            let used = fresh.charged(Nanos(spent)).refilled(&terms, Nanos(now)).charged(Nanos(again));
            let later = used.refilled(&terms, Nanos::NEVER);
            for budget in [fresh, used, later] {
                prop_assert!(budget.left() <= terms.most());
                prop_assert!(budget.left() == Nanos::ZERO || budget.debt() == Nanos::ZERO);
            }
            prop_assert!(later.debt() <= used.debt(), "debts only shrink with time");
            prop_assert_eq!(later, used.refilled(&terms, Nanos::NEVER));
            prop_assert_eq!(used.refilled(&terms, Nanos::ZERO), used, "time that goes back changes nothing");
        }
    }
}
