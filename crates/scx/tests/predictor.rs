//! The predictor of the BPF program (`kernel/scx/predictor.h`) is that of `pronto-sched-policy`: both get the same samples, and have the same
//! frequency and weight after each.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![forbid(unsafe_code)]

mod compiled;

use std::sync::LazyLock;

use pronto_sched_policy::policy::frequency::Frequency;
use pronto_sched_policy::policy::level::Level;
use pronto_sched_policy::policy::occupancy::{Measure, Queue};
use pronto_sched_policy::policy::share::Share;
use pronto_sched_policy::policy::weight::{Steps, Weight};
use proptest::prelude::*;

use compiled::Compiled;

/// A program that gives samples from its standard input to a predictor.
const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef uint32_t u32;
typedef uint64_t u64;
#include "predictor.h"
int main(int count, char **words)
{
	u32 past = strtoul(words[1], 0, 10), most = strtoul(words[2], 0, 10);
	struct predictor predictor = PREDICTOR_NEW;
	unsigned bytes, messages;

	(void)count;
	while (scanf("%u %u", &bytes, &messages) == 2) {
		predictor_advance(&predictor, level_of(bytes, messages), past);
		predictor_weigh(&predictor, most);
		printf("%llu %u\n", (unsigned long long)predictor.level, predictor.weight);
	}
	return 0;
}
"#;

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| Compiled::new("predictor", PROGRAM));

/// Gives the samples to the predictor of the policy. Returns the input of the program, and what it prints.
fn expected(past: Share, most: Weight, samples: &[(u32, u32)]) -> (String, String) {
    let (mut frequency, mut weight) = (Frequency::NEW, Weight::ORDINARY);
    let (mut input, mut output) = (String::new(), String::new());
    for (bytes, messages) in samples {
        let queue = Queue { bytes: (*bytes).into(), messages: (*messages).into() };
        frequency = frequency.advanced(Measure::BytesAndMessages.of(queue), past);
        weight = weight.next(frequency.level(), most, Steps::Fine);
        input += &format!("{bytes} {messages}\n");
        output += &format!("{} {}\n", frequency.level().as_fixed(), weight.as_hundredths());
    }
    (input, output)
}

/// Returns what the program prints for this input.
fn found(past: Share, most: Weight, input: &str) -> String {
    COMPILED.output([past.as_millionths(), most.as_hundredths()].map(u64::from), input)
}

/// Contents of queues: mostly of the sizes that occur.
fn sample() -> impl Strategy<Value = (u32, u32)> {
    prop_oneof![
        4 => Just((0, 0)),
        4 => (0..100_000_u32, 0..40_u32),
        1 => (any::<u32>(), any::<u32>()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Shows: operations.coschedule-in-kernel
    #[test]
    fn both_predictors_are_the_same(
        past in prop_oneof![Just(900_000), 0..=1_000_000_u32],
        most in 100..=1_000_u32,
        samples in prop::collection::vec(sample(), 1..200),
    ) {
        let (past, most) = (Share::millionths(past), Weight::hundredths(most));
        let (input, output) = expected(past, most, &samples);
        prop_assert_eq!(found(past, most, &input), output);
    }
}

#[test]
fn levels_that_saturate_are_the_same() {
    let most = (u32::MAX, u32::MAX);
    let (input, output) = expected(Share::percent(90), Weight::LIMIT, &[most, most, (0, 0)]);
    assert!(output.starts_with(&format!("{} 1000\n", Level::MOST.as_fixed())), "{output}");
    assert_eq!(found(Share::percent(90), Weight::LIMIT, &input), output);
}
