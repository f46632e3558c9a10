//! The operations and their proportions: a deck that is dealt repeatedly, shuffled each time.
//!
//! The proportions are those of Fig. 2 of the comm-layer paper: 74.4 % of all messages under 100 bytes, and 97.1 % of all bytes
//! in large ones. Most are pages and page requests; the rest is chosen so that every message type of DEX occurs.

use minidos::random::Random;

/// An operation of one node on another: a request with its reply, or a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Request of a page with its contents.
    Page,
    /// Request of a page whose contents the requester has.
    Short,
    Invalidate,
    Flush,
    Release,
    Futex,
    VmaInfo,
    VmaOp,
    Migrate,
    MigrateBack,
    ExitOrigin,
    ExitRemote,
    NodeInfo,
    Signal,
}

/// Number of each operation in a deck. With the replies, these are 1,000 messages.
const PROPORTIONS: [(Operation, usize); 14] = [
    (Operation::Page, 233),
    (Operation::Short, 60),
    (Operation::Invalidate, 70),
    (Operation::Flush, 6),
    (Operation::Release, 20),
    (Operation::Futex, 80),
    (Operation::VmaInfo, 6),
    (Operation::VmaOp, 6),
    (Operation::Migrate, 3),
    (Operation::MigrateBack, 2),
    (Operation::ExitOrigin, 5),
    (Operation::ExitRemote, 5),
    (Operation::NodeInfo, 10),
    (Operation::Signal, 10),
];

/// All operations of one deal.
#[derive(Clone, Debug)]
pub(super) struct Deck(Vec<Operation>);

impl Deck {
    pub(super) fn new() -> Self {
        Self(
            PROPORTIONS
                .iter()
                .flat_map(|(operation, times)| core::iter::repeat_n(*operation, *times))
                .collect(),
        )
    }

    /// Returns the operations in an order from `random`.
    pub(super) fn shuffled(&mut self, random: &mut Random) -> &[Operation] {
        for last in (1..self.0.len()).rev() {
            self.0.swap(last, random.below(last + 1));
        }
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_is_a_thousand_messages_and_shuffling_keeps_them() {
        let messages = |operation: &Operation| {
            let alone = [
                Operation::MigrateBack,
                Operation::ExitOrigin,
                Operation::ExitRemote,
                Operation::NodeInfo,
                Operation::Signal,
            ];
            if alone.contains(operation) { 1 } else { 2 }
        };
        let mut deck = Deck::new();
        let fresh = deck.clone();
        let dealt = deck.shuffled(&mut Random::new(1));
        assert_eq!(dealt.iter().map(messages).sum::<u32>(), 1000);
        assert_ne!(dealt, fresh.0);
        for (operation, times) in PROPORTIONS {
            assert_eq!(dealt.iter().filter(|dealt| **dealt == operation).count(), times);
        }
    }
}
