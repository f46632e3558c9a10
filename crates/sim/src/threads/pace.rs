//! The pace of simulated threads: how often they are switched, how fast they are, and how long they are kept from running.

use pronto_core::Nanos;

use crate::random::{Random, Span};

/// The pace of the threads of one world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Maximum number of operations between two decisions of the scheduler.
    pub(super) gap: u32,
    /// Time of one operation.
    pub(super) operation: Nanos,
    /// At one decision in `hold_one_in` the running thread is kept from running, as if it were preempted; 0 means never.
    pub(super) hold_one_in: u32,
    /// Time for which it is kept from running.
    pub(super) hold: Span,
}

impl Pace {
    /// Chooses a pace by the seed: from a switch at every operation to rare ones.
    pub(super) fn random(random: &mut Random) -> Self {
        let mut one_of = || usize::try_from(random.below(4)).expect("below four");
        let gap = [3, 12, 48, 200][one_of()];
        // Longer holds are rarer: a step of another thread takes at most a few milliseconds, as the code under test expects.
        let (hold_one_in, longest) = [(0, 0), (40, 100), (400, 1_000), (4_000, 6_000)][one_of()];
        let operation = Nanos([40, 100, 200, 400][one_of()]);
        Self { gap, operation, hold_one_in, hold: Span::micros(1, longest) }
    }
}
