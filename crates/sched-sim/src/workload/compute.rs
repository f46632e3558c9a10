//! Compute-only: uses the CPU whenever it gets it (`compute-only` of Expedite, `calcula` of the coscheduling paper).

use pronto_sched_policy::policy::time::Nanos;

use crate::program::{Op, Program, Step};

/// Computes for a given time, or for ever; never waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    left: Nanos,
}

/// Time of one operation of an endless computation.
const PIECE: Nanos = Nanos(u64::MAX / 4);

impl Compute {
    /// Returns a program that computes for `time` of CPU time.
    #[must_use]
    pub const fn of(time: Nanos) -> Self {
        Self { left: time }
    }

    /// Returns a program that computes for ever.
    #[must_use]
    pub const fn for_ever() -> Self {
        Self { left: Nanos::NEVER }
    }
}

impl Program for Compute {
    fn next(&mut self, _step: &mut Step<'_>) -> Op {
        if self.left == Nanos::NEVER {
            return Op::Compute(PIECE);
        }
        match core::mem::take(&mut self.left) {
            Nanos::ZERO => Op::Exit,
            time => Op::Compute(time),
        }
    }
}
