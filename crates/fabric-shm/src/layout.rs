//! Layout of a segment. Both sides compute it from the limits that they agreed on.
//!
//! ```text
//!  line 0   armed word, arming count                     written when going to sleep
//!  line 1   state word: closed, announcements           written rarely; read by a peer whose poll finds no message
//!           witness of reads by address                 written when the link is made
//!           ability to read by address                  written when the peer first asks
//!  line 2   releases, then one done word per tag        written when a lease is dropped
//!  ...      one word per grant                          written by grant and revoke
//!  ...      message lines                               written by post
//!  ...      one slot of three lines per message line    written by post, if the payload is longer than its line
//! ```
//!
//! A segment has one writer, its creator; the peer maps it for reading.

use pronto_core::fabric::ConnectionLimits;

use crate::error::SetupError;
use crate::map::{Slot, round_up};

const LINE: usize = 64;
const WORD: usize = size_of::<u32>();

/// Maximum depth of a connection, messages: 2 MiB of lines.
pub(crate) const MAX_DEPTH: u32 = 1 << 15;
/// Maximum number of simultaneous grants of one connection.
pub const MAX_GRANTS: usize = 128;
/// Tags per message that can be in flight. They cover the messages in flight and as many leases as the receiver may
/// hold, with slack for a receiver that holds more.
const TAGS_PER_MESSAGE: usize = 4;

/// Offset of the armed word and the arming count.
pub(crate) const SLEEP: usize = 0;
/// Offset of the state word.
pub(crate) const STATE: usize = LINE;
/// Offset of the release count, followed by the done words.
pub(crate) const DONE: usize = 2 * LINE;

/// Offset of the words for reads by address.
pub(crate) const BY_ADDRESS: usize = STATE + size_of::<u64>();

const _: () =
    assert!(SLEEP + 2 * WORD <= STATE && BY_ADDRESS + crate::by_address::WORDS * size_of::<u64>() <= DONE);

/// Bit 0 of the state word: this side will send nothing more. The other bits count announcements.
pub(crate) const CLOSED: u64 = 1;
/// Increment of the state word per announcement.
pub(crate) const ANNOUNCEMENT: u64 = 2;

/// Sizes of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of message lines; a power of two.
    pub(crate) lines: usize,
    /// Number of done words: the maximum number of payloads of the other side that can be held here.
    pub(crate) tags: usize,
}

impl Layout {
    /// Returns the layout of this side's segment.
    pub(crate) fn own(limits: &ConnectionLimits) -> Result<Self, SetupError> {
        Self::new(limits.send_depth, limits.receive_depth)
    }

    /// Returns the layout of the peer's segment.
    pub(crate) fn peer(limits: &ConnectionLimits) -> Result<Self, SetupError> {
        Self::new(limits.receive_depth, limits.send_depth)
    }

    fn new(sends: u32, receives: u32) -> Result<Self, SetupError> {
        let size = |depth: u32| match depth {
            ..=MAX_DEPTH => Ok(depth.max(2).next_power_of_two() as usize),
            _ => Err(SetupError::Limits { what: "queue depth", value: depth, max: MAX_DEPTH }),
        };
        Ok(Self { lines: size(sends)?, tags: size(receives)? * TAGS_PER_MESSAGE })
    }

    /// Returns the offset of the grant words.
    pub(crate) fn grants(&self) -> usize {
        (DONE + (1 + self.tags) * WORD).next_multiple_of(LINE)
    }

    /// Returns the offset of the message lines.
    pub(crate) fn first_line(&self) -> usize {
        (self.grants() + MAX_GRANTS * WORD).next_multiple_of(LINE)
    }

    /// Returns the offset of the slots for payloads that exceed their lines.
    pub(crate) fn first_slot(&self) -> usize {
        self.first_line() + self.lines * LINE
    }

    /// Returns the length of the segment in bytes, a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        round_up(self.first_slot() + self.lines * size_of::<Slot>())
    }
}

#[cfg(test)]
mod tests {
    use super::{DONE, Layout, MAX_DEPTH, MAX_GRANTS};
    use crate::error::SetupError;
    use pronto_core::fabric::ConnectionLimits;

    fn limits(send_depth: u32, receive_depth: u32) -> ConnectionLimits {
        ConnectionLimits {
            send_depth,
            receive_depth,
            max_send_payload: 1,
            max_receive_payload: 1,
            send_memory: 1,
        }
    }

    #[test]
    fn both_sides_compute_the_same_and_nothing_overlaps() {
        for (sends, receives) in [(1, 1), (2, 60), (64, 3), (1000, 1000), (MAX_DEPTH, MAX_DEPTH)] {
            let own = Layout::own(&limits(sends, receives)).unwrap();
            assert_eq!(own, Layout::peer(&limits(receives, sends)).unwrap());
            assert!(own.lines >= sends as usize && own.lines.is_power_of_two());
            assert!(own.tags > receives as usize);
            assert!(DONE + 4 + 4 * own.tags <= own.grants());
            assert!(own.grants() + 4 * MAX_GRANTS <= own.first_line());
            assert!(own.first_line() + 64 * own.lines <= own.first_slot());
            assert!(own.first_slot() + 192 * own.lines <= own.len());
            assert!(own.first_line().is_multiple_of(64));
        }
    }

    #[test]
    fn a_depth_beyond_the_limit_is_refused() {
        let refused = Layout::own(&limits(MAX_DEPTH + 1, 1));
        assert!(matches!(refused, Err(SetupError::Limits { max: MAX_DEPTH, .. })));
    }
}
