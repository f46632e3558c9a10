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
    use std::collections::BTreeSet;

    use minidos::account::Lengths;
    use minidos::demo::Sizes;
    use minidos::messages::{
        ExitOrigin, ExitRemote, Flush, FutexRequest, Invalidate, Kind, Migrate, MigrateBack, NodeInfo,
        PageRequest, Release, Signal, Stamp, VmaInfoRequest, VmaOpRequest,
    };
    use pronto::Request;

    use super::super::made::{Made, PAGES, address_of};
    use super::*;

    /// Type and payload length of a message.
    type Message = (Kind, u64);

    fn one<M: Made>(address: u64) -> Message {
        (M::kind_about(address), M::made(Stamp::default(), address).encoded_len() as u64)
    }

    fn two<M: Request<Reply: Made> + Made>(address: u64) -> Vec<Message> {
        vec![one::<M>(address), one::<M::Reply>(address)]
    }

    /// Returns the messages of an operation.
    fn messages(operation: Operation) -> Vec<Message> {
        match operation {
            Operation::Page => two::<PageRequest>(0),
            Operation::Short => two::<PageRequest>(address_of(PAGES / 2)),
            Operation::Invalidate => two::<Invalidate>(0),
            Operation::Flush => two::<Flush>(0),
            Operation::Release => two::<Release>(0),
            Operation::Futex => two::<FutexRequest>(0),
            Operation::VmaInfo => two::<VmaInfoRequest>(0),
            Operation::VmaOp => two::<VmaOpRequest>(0),
            Operation::Migrate => two::<Migrate>(0),
            Operation::MigrateBack => vec![one::<MigrateBack>(0)],
            Operation::ExitOrigin => vec![one::<ExitOrigin>(0)],
            Operation::ExitRemote => vec![one::<ExitRemote>(0)],
            Operation::NodeInfo => vec![one::<NodeInfo>(0)],
            Operation::Signal => vec![one::<Signal>(0)],
        }
    }

    #[test]
    fn a_deck_is_a_thousand_messages_and_shuffling_keeps_them() {
        let mut deck = Deck::new();
        let fresh = deck.clone();
        let dealt = deck.shuffled(&mut Random::new(1));
        assert_eq!(dealt.iter().map(|operation| messages(*operation).len()).sum::<usize>(), 1000);
        assert_ne!(dealt, fresh.0);
        for (operation, times) in PROPORTIONS {
            assert_eq!(dealt.iter().filter(|dealt| **dealt == operation).count(), times);
        }
    }
    #[test]
    fn a_deck_has_the_sizes_of_the_paper() {
        let dealt = Deck::new().0.into_iter().flat_map(messages);
        let sizes: Lengths = dealt.map(|(_, length)| (length, 1)).collect();
        let paper = Sizes::PUBLISHED;
        assert!(
            (sizes.small_messages() - paper.messages_under_100).abs() < 0.01,
            "{}",
            sizes.small_messages()
        );
        assert!((sizes.large_bytes() - paper.bytes_over_1k).abs() < 0.01, "{}", sizes.large_bytes());
    }

    #[test]
    fn a_deck_has_every_message_type() {
        let dealt: BTreeSet<Kind> =
            Deck::new().0.into_iter().flat_map(messages).map(|(kind, _)| kind).collect();
        assert_eq!(dealt, BTreeSet::from(Kind::ALL));
    }
}
