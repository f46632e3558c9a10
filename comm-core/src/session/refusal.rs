//! Why a message was not taken. Back-pressure is a value: the sender decides whether to wait.

use pronto_wire::{Class, NameHash, NodeId, ServiceId};
use thiserror::Error;

use crate::buf::Exhausted;

/// Why a message was not taken. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// No link to the peer, now or yet.
    #[error(
        "node {peer} is not connected: wait for it; if it never comes, see that it runs, and that one of the two nodes was \
         given an address of the other, by `Builder::peer` or a [[peer]]"
    )]
    NotConnected {
        /// The node.
        peer: NodeId,
    },
    /// The peer handles no such type.
    #[error("the peer has no handler for this message type in service {service}: register one there")]
    NoHandler {
        /// The type's name, hashed.
        name: NameHash,
        /// The service.
        service: ServiceId,
    },
    /// The peer's declaration of the type differs from ours.
    #[error("the peer's type of this name has another layout: build both from the same declaration")]
    OtherLayout {
        /// The type's name, hashed.
        name: NameHash,
    },
    /// As many requests are under way as the peer can take.
    #[error(
        "as many {class:?} requests are under way as the peer takes: wait for one of them, or raise its limits.requests"
    )]
    NoCredit {
        /// The class.
        class: Class,
    },
    /// As many calls are open as may be. One that was given up, or met its deadline, is open until its answer comes or the peer goes.
    #[error(
        "{capacity} calls to this peer are open, and no more may be: wait for one of them, or raise limits.calls; calls whose \
         deadline passed count until they are answered"
    )]
    NoCallSlot {
        /// How many there may be.
        capacity: u16,
    },
    /// No room in the send ring.
    #[error(transparent)]
    Ring(#[from] Exhausted),
    /// No link, so no send ring either.
    #[error("no send memory, as the peer is not connected: wait for it")]
    NoRing,
    /// Another thread holds the engine and the submission queue is full.
    #[error("the submission queue is full: try again")]
    Busy,
    /// The payload is longer than the peer takes.
    #[error(
        "payload of {len} bytes, the peer takes {max} of this class: declare the message `class = bulk`, or raise the \
         peer's limits.max_payload"
    )]
    TooLong {
        /// Payload, bytes.
        len: usize,
        /// Limit, bytes.
        max: usize,
    },
    /// The payload, or the local side of a one-sided operation, is not a part of its region.
    #[error("beyond the end of the local region")]
    OutOfRegion,
    /// An atomic operation on something else than eight aligned bytes.
    #[error("an atomic operation on {len} bytes: it takes eight, aligned to eight")]
    NoWord {
        /// Bytes.
        len: u64,
    },
    /// As many rendezvous sends or receives of this peer are under way as may be.
    #[error("{max} rendezvous sends or receives are under way already: wait for one of them")]
    TooManyTransfers {
        /// How many there may be.
        max: usize,
    },
    /// The node shuts down.
    #[error("the node is shutting down")]
    Draining,
}

impl Refused {
    /// Whether trying again later can help without anything else being changed.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::NotConnected { .. }
                | Self::NoRing
                | Self::NoCredit { .. }
                | Self::NoCallSlot { .. }
                | Self::TooManyTransfers { .. }
                | Self::Ring(_)
                | Self::Busy
        )
    }

    /// Whether that may change with what the peer sends, which whoever polls takes in. Memory and links are made by other threads.
    pub const fn ends_by_messages(&self) -> bool {
        matches!(self, Self::NoCredit { .. } | Self::NoCallSlot { .. } | Self::Busy)
    }
}
