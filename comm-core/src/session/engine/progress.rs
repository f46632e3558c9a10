//! The result of a turn, and the count of messages that carry only credits.

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages received, completions taken in, submissions posted, one-sided operations of the peer carried out.
    pub moved: usize,
    /// Of these, what a sleeper would have been woken for.
    pub arrived: usize,
    /// Answers to calls whose callers look for them themselves, none while a future waits for one; and credits where nothing else comes,
    /// which senders look for.
    pub responses: usize,
}

impl Progress {
    /// What two turns did.
    pub(in crate::session) const fn and(self, other: Self) -> Self {
        let Self { moved, arrived, responses } = other;
        Self {
            moved: self.moved + moved,
            arrived: self.arrived + arrived,
            responses: self.responses + responses,
        }
    }
}

/// Messages with credits alone, in a row, from which on the serving thread has no business with them. They come to a side that sends, and
/// takes them in itself; where requests come in between, whoever is not woken for the one misses the other.
const CREDITS_ALONE: u32 = 8;

/// The present row of messages that carry nothing but credits.
#[derive(Debug, Default)]
pub(in crate::session) struct CreditsAlone {
    row: u32,
    /// How many solicited messages had come when the last one came.
    at: usize,
}

impl CreditsAlone {
    /// One has come, as the last of so many solicited messages. Whether it is one of many without anything else in between.
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
