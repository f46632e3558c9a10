//! Errors of messages that were not taken. Back-pressure is a value: the sender decides whether to wait.

use core::fmt;

use pronto_wire::{Class, NameHash, NodeId, ServiceId};
use thiserror::Error;

use crate::buf::Exhausted;

/// The name of a message type in an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MessageName {
    /// The name, as the sender's program declares it.
    Text(&'static str),
    /// The hash of a name that is not known.
    Hash(NameHash),
}

impl fmt::Display for MessageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(name) => write!(f, "`{name}`"),
            Self::Hash(hash) => write!(f, "with hash {:016x}", hash.0),
        }
    }
}

impl fmt::Debug for MessageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(name) => write!(f, "{name:?}"),
            Self::Hash(hash) => write!(f, "{hash:?}"),
        }
    }
}

/// The reason why a message was not taken. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no link to the peer.
    #[error(
        "node {peer} is not connected: wait for it; if it stays disconnected, check that it runs, and that one of the two nodes \
         has the address of the other, from `Builder::peer` or a [[peer]] entry"
    )]
    NotConnected {
        /// The node.
        peer: NodeId,
    },
    /// The node makes links to this peer on demand, and is making one now.
    #[error(
        "the link to node {peer} is made on demand, and is not there yet: try again, or use a call that waits for room"
    )]
    Connecting {
        /// The node.
        peer: NodeId,
        /// The class.
        class: Class,
    },
    /// The peer has no handler for the type.
    #[error(
        "the peer has no handler for messages of type {name} in service {service}: register one on the peer"
    )]
    NoHandler {
        /// The type's name.
        name: MessageName,
        /// The service.
        service: ServiceId,
    },
    /// The peer's declaration of the type differs from ours.
    #[error("the peer's type {name} has another layout: build both nodes from the same declaration")]
    OtherLayout {
        /// The type's name.
        name: MessageName,
    },
    /// The peer has granted no more requests in flight. It was asked for more, unless its limit is reached.
    #[error(
        "as many {class:?} requests are in flight as the peer has granted: wait for one of them, or raise the peer's limits.requests \
         or limits.first_requests"
    )]
    NoCredit {
        /// The class.
        class: Class,
    },
    /// The maximum number of calls is open. A call that was cancelled or met its deadline stays open until its response arrives or the
    /// peer disconnects.
    #[error(
        "{capacity} calls to this peer are open, which is the limit: wait for one of them, or raise limits.calls; a call whose \
         deadline has passed counts until its response arrives"
    )]
    NoCallSlot {
        /// Maximum number of open calls.
        capacity: u16,
    },
    /// The send ring has no room.
    #[error(transparent)]
    Ring(#[from] Exhausted),
    /// There is no link, and therefore no send ring.
    #[error("no send memory, as the peer is not connected: wait for it")]
    NoRing,
    /// Another thread holds the engine and the submission queue is full.
    #[error("the submission queue is full: try again")]
    Busy,
    /// The payload is longer than the peer can receive.
    #[error(
        "the payload of {len} bytes exceeds the peer's limit of {max} bytes for this class: declare the message `class = bulk`, \
         or raise the peer's limits.max_payload"
    )]
    TooLong {
        /// Length of the payload, bytes.
        len: usize,
        /// Limit, bytes.
        max: usize,
    },
    /// A message has too many pieces.
    #[error("a message has {pieces} pieces, and may have {max}: copy short ones into one region")]
    TooManyPieces {
        /// Number of its pieces.
        pieces: usize,
        /// The limit.
        max: usize,
    },
    /// The payload, or the local side of a one-sided operation, is not within its region, or the memory is read-only.
    #[error("the range is not within the local region, or the memory is read-only")]
    OutOfRegion,
    /// The range of an atomic operation is not eight aligned bytes.
    #[error("an atomic operation needs eight bytes, aligned to eight; its range has {len} bytes")]
    NoWord {
        /// Length of the range, bytes.
        len: u64,
    },
    /// The maximum number of rendezvous sends or receives of this peer is in progress.
    #[error("{max} rendezvous sends or receives are in progress, which is the limit: wait for one of them")]
    TooManyTransfers {
        /// Maximum number.
        max: usize,
    },
    /// The node is shutting down.
    #[error("the node is shutting down")]
    Draining,
}

impl SendError {
    /// Returns whether the same attempt can succeed later without any other change.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::NotConnected { .. }
                | Self::Connecting { .. }
                | Self::NoRing
                | Self::NoCredit { .. }
                | Self::NoCallSlot { .. }
                | Self::TooManyTransfers { .. }
                | Self::Ring(_)
                | Self::Busy
        )
    }

    /// Returns whether only another link ends the refusal.
    pub const fn is_for_link(&self) -> bool {
        matches!(self, Self::NotConnected { .. } | Self::Connecting { .. })
    }

    /// Returns whether a message of the peer, which a polling thread receives, can end the refusal. Memory and links come from other
    /// threads.
    pub const fn ends_by_messages(&self) -> bool {
        matches!(self, Self::NoCredit { .. } | Self::NoCallSlot { .. } | Self::Busy)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sender_polls_only_for_room_that_a_message_of_the_peer_can_make() {
        let (peer, class) = (NodeId(2), Class::Bulk);
        for refused in [SendError::NoCredit { class }, SendError::NoCallSlot { capacity: 1 }, SendError::Busy]
        {
            assert!(refused.ends_by_messages(), "{refused}");
        }
        for refused in [
            SendError::NotConnected { peer },
            SendError::Connecting { peer, class },
            SendError::Ring(Exhausted::Ring),
            SendError::NoRing,
            SendError::Draining,
        ] {
            assert!(!refused.ends_by_messages(), "{refused}");
        }
    }
}
