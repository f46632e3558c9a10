//! The result of a turn, and the count of messages that carry only credits.

/// The progress of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of messages received, completions processed, submissions posted, and one-sided operations of the peer executed.
    pub moved: usize,
    /// Number of these that would have woken a sleeping thread.
    pub arrived: usize,
    /// Number of messages for which the serving thread need not go on polling: responses and credit-only messages, as waiting callers and
    /// senders poll for them themselves, and heartbeats. Responses do not count while a future waits for one.
    pub responses: usize,
}

impl Progress {
    /// Returns the progress of two turns together.
    pub(in crate::session) const fn and(self, other: Self) -> Self {
        let Self { moved, arrived, responses } = other;
        Self {
            moved: self.moved + moved,
            arrived: self.arrived + arrived,
            responses: self.responses + responses,
        }
    }
}

/// After this many consecutive credit-only messages, the serving thread is no longer woken for further ones. They arrive at a side that
/// sends messages, and the sender processes them itself. Any other message resets the count, because skipping a wake-up could then delay a
/// request.
const CREDITS_ALONE: u32 = 8;

/// The current series of credit-only messages.
#[derive(Debug, Default)]
pub(in crate::session) struct CreditsAlone {
    row: u32,
    /// Number of solicited messages received when the last credit-only message arrived.
    at: usize,
}

impl CreditsAlone {
    /// Counts a credit-only message. `solicited` is the number of solicited messages received so far, including this one. Returns whether
    /// at least [`CREDITS_ALONE`] others preceded it without any other message in between.
    pub(in crate::session) fn came(&mut self, solicited: usize) -> bool {
        let follows = self.at.wrapping_add(1) == solicited;
        self.row = if follows { self.row.saturating_add(1) } else { 0 };
        self.at = solicited;
        self.row >= CREDITS_ALONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn credits_are_alone_after_many_with_nothing_else_in_between() {
        let mut credits = CreditsAlone::default();
        let mut solicited = usize::MAX - 3;
        let mut comes = |others: usize| {
            solicited = solicited.wrapping_add(others + 1);
            credits.came(solicited)
        };
        assert!(!comes(5));
        let told = (0..CREDITS_ALONE + 3).map(|_| comes(0));
        assert_eq!(told.filter(|&alone| alone).count(), 4, "all after the first eight");
        assert!(!comes(1), "a request came in between");
        assert!(!comes(0));
    }
}
