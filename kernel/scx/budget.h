/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The nanosecond budget of crates/sched-policy/src/policy/budget.rs, for BPF. The test crates/scx/tests/budget.rs compiles this
 * file for user space and compares it with that one.
 *
 * The file that includes this one defines u32, u64 and bool.
 */
#ifndef PRONTO_SCX_BUDGET_H
#define PRONTO_SCX_BUDGET_H

/* Number of epochs after which the recurrence has reached its fixpoint from any value. */
#define BUDGET_SETTLED 64

/* Terms by which a budget is refilled, in nanoseconds. */
struct terms {
	u64 epoch;
	u64 grant;
	u64 floor;
};

/* Boosted time that the holder has left, as of the last epoch that began. */
struct budget {
	u64 left;
	u64 debt;
	u64 begun;
};

static __attribute__((always_inline)) inline u64 budget_difference(u64 more, u64 less)
{
	return more > less ? more - less : 0;
}

static __attribute__((always_inline)) inline u64 budget_whole(u64 span, u64 unit)
{
	return unit ? span / unit : 0;
}

/* Sets the budget of a holder that begins at `now`: one grant. */
static __attribute__((always_inline)) inline void budget_begin(struct budget *budget, const struct terms *terms, u64 now)
{
	budget->left = terms->grant;
	budget->debt = 0;
	budget->begun = now;
}

/* Every epoch that has ended since the last call halves the rest and adds a grant. Grants pay debts first. */
static __attribute__((always_inline)) inline void budget_refill(struct budget *budget, const struct terms *terms, u64 now)
{
	u64 epochs = budget_whole(budget_difference(now, budget->begun), terms->epoch);
	u64 in_debt = budget_whole(budget->debt, terms->grant);

	budget->begun += terms->epoch * epochs;
	if (budget->debt && (epochs <= in_debt || !terms->grant)) {
		budget->debt = budget_difference(budget->debt, terms->grant * epochs);
		return;
	}
	if (budget->debt) {
		budget->left = terms->grant - (budget->debt - terms->grant * in_debt);
		budget->debt = 0;
		epochs -= in_debt + 1;
	}
	for (u32 step = 0; step < BUDGET_SETTLED && step < epochs; step++)
		budget->left = budget->left / 2 + terms->grant;
}

/* Charges time. The excess over what is left is debt. */
static __attribute__((always_inline)) inline void budget_charge(struct budget *budget, u64 spent)
{
	budget->debt += budget_difference(spent, budget->left);
	budget->left = budget_difference(budget->left, spent);
}

/* Returns the time that may be spent, of which `reserved` is promised already; 0 if it is not enough for a boost. */
static __attribute__((always_inline)) inline u64 budget_allowance(const struct budget *budget, const struct terms *terms, u64 reserved)
{
	u64 free = budget_difference(budget->left, reserved);

	return free >= terms->floor ? free : 0;
}

#endif
