//! Sleepers: compute for a while, sleep for a while, for ever: `sleep-mostly` and `top` of Expedite.

use pronto_sched_policy::policy::time::Nanos;

use crate::program::{Op, Program, Step};
use crate::record::Record;

/// The series in which sleepers record 1 for each cycle completed.
pub const CYCLES: u32 = 0;

/// Parameters of a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// CPU time of a cycle.
    pub busy: Nanos,
    /// Variation of the CPU time, either way.
    pub varies: Nanos,
    /// Requested sleep.
    pub sleep: Nanos,
}

impl Options {
    /// `sleep-mostly`: "repeatedly computes for 5 milliseconds then sleeps for 45 milliseconds" (Expedite, section 4.1).
    pub const SLEEP_MOSTLY: Self =
        Self { busy: Nanos::from_millis(5), varies: Nanos::ZERO, sleep: Nanos::from_millis(45) };

    /// Returns `top -d 1` (Expedite, section 5.1), which needs `busy` to examine all processes. A tenth of that is
    /// assumed to vary, as the number of processes does.
    #[must_use]
    pub const fn top(busy: Nanos) -> Self {
        Self { busy, varies: Nanos(busy.0 / 10), sleep: Nanos::from_millis(1_000) }
    }
}

/// The program of a sleeper. Its task determines when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    options: Options,
    phase: Phase,
}

/// The next step of a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Compute,
    Sleep,
}

impl Sleeper {
    /// Returns a sleeper.
    #[must_use]
    pub const fn new(options: Options) -> Self {
        Self { options, phase: Phase::Compute }
    }
}

impl Program for Sleeper {
    fn next(&mut self, step: &mut Step<'_>) -> Op {
        match self.phase {
            Phase::Compute => {
                self.phase = Phase::Sleep;
                Op::Compute(step.random.about(self.options.busy, self.options.varies))
            }
            Phase::Sleep => {
                step.records.add(Record { at: step.now, task: step.me, series: CYCLES, value: 1 });
                self.phase = Phase::Compute;
                Op::Sleep(self.options.sleep)
            }
        }
    }
}
