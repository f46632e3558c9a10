//! The budget of the BPF program (`kernel/scx/budget.h`) is that of `pronto-sched-policy`: both get the same events, and have the same state
//! after each.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![forbid(unsafe_code)]

mod compiled;

use std::sync::LazyLock;

use pronto_sched_policy::policy::budget::{Budget, Quantum, Terms};
use pronto_sched_policy::policy::time::Nanos;
use proptest::prelude::*;

use compiled::Compiled;

/// A program that applies events from its standard input to a budget.
const PROGRAM: &str = r#"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef uint32_t u32;
typedef uint64_t u64;
#include "budget.h"
int main(int count, char **words)
{
	struct terms terms = { strtoull(words[1], 0, 10), strtoull(words[2], 0, 10), strtoull(words[3], 0, 10) };
	struct budget budget;
	char event;
	unsigned long long value;

	(void)count;
	budget_begin(&budget, &terms, 0);
	while (scanf(" %c %llu", &event, &value) == 2) {
		if (event == 'c')
			budget_charge(&budget, value);
		else
			budget_refill(&budget, &terms, value);
		printf("%llu %llu %llu\n", (unsigned long long)budget.left, (unsigned long long)budget.debt,
		       (unsigned long long)budget_allowance(&budget, &terms, 0));
	}
	return 0;
}
"#;

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| Compiled::new("budget", PROGRAM));

#[derive(Clone, Copy, Debug)]
enum Event {
    Charge(u64),
    /// Time since the last refill.
    Refill(u64),
}

/// Applies the events to the budget of the policy. Returns what the program prints for them.
fn expected(quantum: Quantum, events: &[Event]) -> (String, String) {
    let terms = Terms::quantum(quantum);
    let (mut budget, mut now) = (Budget::new(&terms, Nanos::ZERO), 0);
    let (mut input, mut output) = (String::new(), String::new());
    for event in events {
        match event {
            Event::Charge(spent) => {
                budget = budget.charged(Nanos(*spent));
                input += &format!("c {spent}\n");
            }
            Event::Refill(later) => {
                now += later;
                budget = budget.refilled(&terms, Nanos(now));
                input += &format!("r {now}\n");
            }
        }
        let allowance = budget.allowance(&terms).unwrap_or(Nanos::ZERO);
        output += &format!("{} {} {}\n", budget.left().0, budget.debt().0, allowance.0);
    }
    (input, output)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..5_000_000_u64).prop_map(Event::Charge),
        (0..100_000_000_u64).prop_map(Event::Charge),
        (0..30_000_000_u64).prop_map(Event::Refill),
        (0..10_000_000_000_u64).prop_map(Event::Refill),
    ];
    prop::collection::vec(event, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_budgets_are_the_same(
        grant in prop_oneof![Just(0), Just(833_333), 0..10_000_000_u64],
        floor in 0..1_000_000_u64,
        epoch in 1_000_000..20_000_000_u64,
        events in events(),
    ) {
        let quantum = Quantum { epoch: Nanos(epoch), grant: Nanos(grant), floor: Nanos(floor) };
        let (input, output) = expected(quantum, &events);
        prop_assert_eq!(COMPILED.output([epoch, grant, floor], &input), output);
    }
}
