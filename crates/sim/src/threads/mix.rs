//! The steps of the callers of a story, and the policies by which they wait.

use pronto_core::executor::WaitPolicy;

use crate::random::{Random, Span};

/// One step of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Calls and waits.
    Call,
    /// Calls on the fast path.
    Fast,
    /// Starts several calls and waits for each.
    Several,
    /// Awaits a call as a future.
    Future,
    Notify,
    /// Sends a notification and waits until its buffer is free.
    NotifySync,
    /// Starts a call and leaves it.
    Abandon,
    /// Waits for nothing.
    Pause,
}

/// The steps of the callers of a story, and their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Weights of calls, fast calls, several calls, futures, notifications, synchronous ones, abandoned calls, pauses.
    pub steps: [u32; 8],
    /// Weights of the policies spin, block and adaptive.
    pub policies: [u32; 3],
    /// Number of notifications that a caller sends in a row.
    pub notices: u32,
    /// One message in `long_one_in` is longer than an inline message.
    pub long_one_in: u32,
    /// One call in `laned_one_in` runs on the worker.
    pub laned_one_in: u32,
    /// One call in `deadline_one_in` has a deadline.
    pub deadline_one_in: u32,
    /// Time until such a deadline.
    pub deadline: Span,
    /// Timeout of a wait that has one.
    pub timeout: Span,
    /// Length of a pause.
    pub pause: Span,
    /// Time for which the worker runs a handler.
    pub work: Span,
}

impl Mix {
    /// Returns a mix of all steps and policies.
    pub const fn all() -> Self {
        Self {
            steps: [6, 4, 3, 2, 2, 2, 1, 2],
            policies: [1, 2, 2],
            notices: 1,
            long_one_in: 5,
            laned_one_in: 4,
            deadline_one_in: 8,
            deadline: Span::micros(20, 9_000),
            timeout: Span::micros(1, 6_000),
            pause: Span::micros(1, 2_000),
            work: Span::micros(0, 300),
        }
    }

    pub(super) fn choose(&self, random: &mut Random) -> Step {
        use Step::{Abandon, Call, Fast, Future, Notify, NotifySync, Pause, Several};
        [Call, Fast, Several, Future, Notify, NotifySync, Abandon, Pause][weighted(&self.steps, random)]
    }

    pub(super) fn policy(&self, random: &mut Random) -> WaitPolicy {
        [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::Adaptive][weighted(&self.policies, random)]
    }
}

/// Returns a random index, by weight.
fn weighted(weights: &[u32], random: &mut Random) -> usize {
    let mut left = random.below(weights.iter().map(|weight| u64::from(*weight)).sum());
    for (index, weight) in weights.iter().enumerate() {
        match left.checked_sub(u64::from(*weight)) {
            Some(less) => left = less,
            None => return index,
        }
    }
    0
}
