//! Positions of messages in their streams: assigned by the sender, checked by the receiver.
//!
//! A stream consists of all messages of one type from one node to another, or of those with one key. Senders number it. The
//! receiver detects duplicates, messages that arrive after their successor and, at the end, missing messages.

use std::collections::{BTreeSet, HashMap};

use pronto::{NodeId, Order};
use serde::{Deserialize, Serialize};

use crate::messages::{Kind, Stamp};

/// A stream of one peer: the type, and the key if the type has one.
type Stream = (Kind, u64);

/// Next positions of the streams from a node to one peer.
#[derive(Debug, Default)]
pub struct Outgoing(HashMap<Stream, u64>);

impl Outgoing {
    /// Returns the next position in a stream. The caller adds one after it has posted a message there. Ordered streams must be
    /// posted in the order of their positions, so the caller holds a lock until then.
    pub fn next(&mut self, kind: Kind, key: u64) -> &mut u64 {
        self.0.entry((kind, key)).or_default()
    }
}

/// Transmission faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Messages that arrived a second time.
    pub duplicated: u64,
    /// Messages of an ordered stream that arrived after their successor.
    pub out_of_order: u64,
    /// Stamps that no sender assigns, and contents that do not match their checksum.
    pub corrupt: u64,
}

/// Check of the messages that a node receives from one peer.
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
    /// Records an arrival. Returns `false` if the message does not count as received (a duplicate, or an impossible stamp).
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

    /// Counts contents that do not match their checksum.
    pub fn corrupt(&mut self) {
        self.faults.corrupt += 1;
    }

    /// Returns the faults so far.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults
    }
}

/// More messages than can be in flight between two nodes; a stamp farther ahead is corrupt.
const MAX_GAP: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    /// Feeds arrivals of one stream; returns which of them counted, and the faults.
    fn arrive(order: Order, sequences: &[u64]) -> (Vec<bool>, Faults) {
        let mut incoming = Incoming::default();
        let arrived =
            |sequence: &u64| incoming.arrived(ME, Kind::FutexRequest, 7, order, Stamp::new(ME, *sequence));
        (sequences.iter().map(arrived).collect(), incoming.faults())
    }

    #[test]
    fn streams_are_numbered_separately() {
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
    fn messages_in_order_are_no_fault() {
        assert_eq!(arrive(Order::ByKey, &[0, 1, 2]), (vec![true; 3], Faults::default()));
    }

    #[test]
    fn overtaking_is_a_fault_only_in_ordered_streams() {
        let faults = Faults { out_of_order: 1, ..Faults::default() };
        assert_eq!(arrive(Order::Ordered, &[0, 2, 1, 3]), (vec![true; 4], faults));
        assert_eq!(arrive(Order::Unordered, &[0, 2, 1, 3]), (vec![true; 4], Faults::default()));
    }

    #[test]
    fn a_repeated_message_is_a_duplicate() {
        let faults = Faults { duplicated: 2, ..Faults::default() };
        assert_eq!(arrive(Order::Unordered, &[0, 1, 1, 0]), (vec![true, true, false, false], faults));
    }

    #[test]
    fn an_impossible_stamp_is_corrupt() {
        let faults = Faults { corrupt: 1, ..Faults::default() };
        assert_eq!(arrive(Order::Unordered, &[MAX_GAP + 1]), (vec![false], faults));
        let mut incoming = Incoming::default();
        assert!(!incoming.arrived(ME, Kind::Signal, 0, Order::Ordered, Stamp::new(NodeId(2), 0)));
        assert_eq!(incoming.faults(), faults);
    }
}
