// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sensing: the contents of a socket's queues, as the coscheduling paper counts them and as we do.

use super::level::{Level, PACKET};

/// One queue of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Bytes in the queue. The paper reads `rmem_alloc` and `wmem_alloc`; today `SIOCINQ` and `SIOCOUTQ` report them.
    pub bytes: u64,
    /// Messages in the queue, if known; otherwise 0.
    pub messages: u64,
}

/// Both queues of one socket or connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Data that has arrived and is not yet read.
    pub received: Queue,
    /// Data that is written and not yet sent.
    pub sent: Queue,
}

/// The unit in which a queue is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Whole packets of 4096 bytes, each queue rounded down by itself (coscheduling paper, algorithm 3, lines 8 and 9).
    /// Control messages, which matter most, count nothing. For reproduction.
    ///
    /// The printed algorithm sets `rs` to zero and then adds to `sq`; that is one name for two, and read as `sq`.
    Packets,
    /// Bytes as fractions of a packet, plus [`PER_MESSAGE`] for every message.
    #[default]
    BytesAndMessages,
}

/// Weight of a message in addition to its bytes: one packet, as if it travelled alone, as control messages do. Chosen
/// by us; no source.
pub const PER_MESSAGE: Level = Level::PACKET;

impl Measure {
    /// Returns the contents of one queue.
    pub fn of(self, queue: Queue) -> Level {
        match self {
            Self::Packets => Level::packets(queue.bytes / PACKET),
            Self::BytesAndMessages => Level::bytes(queue.bytes).plus(PER_MESSAGE.times(queue.messages)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_count_in_our_measure_only() {
        let three_small = Queue { bytes: 3 * 64, messages: 3 };
        assert_eq!(Measure::Packets.of(three_small), Level::ZERO);
        assert_eq!(Measure::BytesAndMessages.of(three_small), Level::packets(3).plus(Level::bytes(192)));
    }

    #[test]
    fn packets_are_rounded_down() {
        let packets = |bytes| Measure::Packets.of(Queue { bytes, messages: 1 }).whole();
        assert_eq!([0, 4095, 4096, 8191, 40_960].map(packets), [0, 0, 1, 1, 10]);
    }
}
