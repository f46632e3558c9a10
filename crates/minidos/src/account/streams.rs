//! Positions of messages in their streams: given out by the sender, checked by the receiver.
//!
//! A stream is all messages of one type from one node to another, or those with one key. Senders number it; the
//! receiver sees what is doubled, what came after its successor, and, at the end, what is missing.

use std::collections::{BTreeSet, HashMap};

use pronto::{NodeId, Order};
use serde::{Deserialize, Serialize};

use crate::messages::{Kind, Stamp};

/// Which stream of one peer: the type, and the key of those that have one.
type Stream = (Kind, u64);

/// Numbers what a node sends to one peer.
#[derive(Debug, Default)]
pub struct Outgoing(HashMap<Stream, u64>);

impl Outgoing {
    /// The next position in a stream; whoever has posted a message there adds one to it. Ordered streams must be posted
    /// in the order of their positions, so others are kept out meanwhile.
    pub fn next(&mut self, kind: Kind, key: u64) -> &mut u64 {
        self.0.entry((kind, key)).or_default()
    }
}

/// What went wrong on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Messages that came a second time.
    pub duplicated: u64,
    /// Messages of an ordered stream that came after their successor.
    pub out_of_order: u64,
    /// Stamps that no sender of ours gives, and contents that are not what their sum says.
    pub corrupt: u64,
}

/// Checks what a node receives from one peer.
#[derive(Debug, Default)]
pub struct Incoming {
    streams: HashMap<Stream, Position>,
    faults: Faults,
}

#[derive(Debug, Default)]
struct Position {
    next: u64,
    missing: BTreeSet<u64>,
}

impl Incoming {
    /// Notes an arrival; false if it is no message that counts as received (doubled, or impossible).
    pub fn arrived(&mut self, from: NodeId, kind: Kind, key: u64, order: Order, stamp: Stamp) -> bool {
        let position = self.streams.entry((kind, key)).or_default();
        let sequence = stamp.sequence;
        if stamp.from() != from || sequence.saturating_sub(position.next) > MAX_GAP {
            self.faults.corrupt += 1;
            return false;
        }
        if sequence >= position.next {
            position.missing.extend(position.next..sequence);
            position.next = sequence + 1;
            return true;
        }
        if !position.missing.remove(&sequence) {
            self.faults.duplicated += 1;
            return false;
        }
        self.faults.out_of_order += u64::from(order != Order::Unordered);
        true
    }

    /// Notes contents that are not what their sum says.
    pub fn corrupt(&mut self) {
        self.faults.corrupt += 1;
    }

    /// What went wrong so far.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults
    }
}

/// More than can be under way between two nodes; a stamp farther ahead is none.
const MAX_GAP: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    /// Arrivals of one stream, as given; what counted, and what went wrong.
    fn arrive(order: Order, sequences: &[u64]) -> (Vec<bool>, Faults) {
        let mut incoming = Incoming::default();
        let arrived =
            |sequence: &u64| incoming.arrived(ME, Kind::FutexRequest, 7, order, Stamp::new(ME, *sequence));
        (sequences.iter().map(arrived).collect(), incoming.faults())
    }

    #[test]
    fn streams_are_numbered_apart() {
        let mut outgoing = Outgoing::default();
        let mut post = |kind, key| {
            *outgoing.next(kind, key) += 1;
            *outgoing.next(kind, key)
        };
        assert_eq!(post(Kind::FutexRequest, 1), 1);
        assert_eq!(post(Kind::FutexRequest, 1), 2);
        assert_eq!(post(Kind::FutexRequest, 2), 1);
        assert_eq!(post(Kind::FutexResponse, 1), 1);
    }

    #[test]
    fn what_comes_in_order_is_fine() {
        assert_eq!(arrive(Order::ByKey, &[0, 1, 2]), (vec![true; 3], Faults::default()));
    }

    #[test]
    fn what_comes_after_its_successor_is_out_of_order_only_where_order_was_promised() {
        let faults = Faults { out_of_order: 1, ..Faults::default() };
        assert_eq!(arrive(Order::Ordered, &[0, 2, 1, 3]), (vec![true; 4], faults));
        assert_eq!(arrive(Order::Unordered, &[0, 2, 1, 3]), (vec![true; 4], Faults::default()));
    }

    #[test]
    fn what_comes_twice_is_doubled() {
        let faults = Faults { duplicated: 2, ..Faults::default() };
        assert_eq!(arrive(Order::Unordered, &[0, 1, 1, 0]), (vec![true, true, false, false], faults));
    }

    #[test]
    fn a_stamp_that_cannot_be_is_corrupt() {
        let faults = Faults { corrupt: 1, ..Faults::default() };
        assert_eq!(arrive(Order::Unordered, &[MAX_GAP + 1]), (vec![false], faults));
        let mut incoming = Incoming::default();
        assert!(!incoming.arrived(ME, Kind::Signal, 0, Order::Ordered, Stamp::new(NodeId(2), 0)));
        assert_eq!(incoming.faults(), faults);
    }
}
