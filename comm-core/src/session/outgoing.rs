//! Outgoing messages, which a sender passes to the engine directly, or through the submission queue while another thread holds the
//! engine.

use pronto_wire::{CallId, Class, InlinePayload, Kind};

use super::one_sided::OneSided;
use crate::buf::Frame;
use crate::fabric::{Gather, Region};
use crate::time::Nanos;

/// An outgoing message.
#[derive(Debug)]
pub struct Outgoing {
    /// Its class.
    pub class: Class,
    /// The link on which its credit was taken. A message of an earlier link takes a new credit.
    pub link: u16,
    /// Its kind.
    pub kind: Kind,
    /// Its payload.
    pub payload: OutgoingPayload,
    /// The links that may carry it.
    pub carrier: Carrier,
    /// The slot whose waiter waits for the send completion.
    pub completes: Option<CallId>,
    /// Time that its caller waits; `NEVER` if it has no deadline.
    pub timeout: Nanos,
}

/// The links that may carry a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The current link, or a later one of the same session.
    AnyLink,
    /// Only the link on which its credit was taken: the notification names a grant, which ends with its link.
    SameLink,
}

/// An entry of the submission queue.
#[derive(Debug)]
pub(super) enum Submitted {
    /// A message.
    Message(Outgoing),
    /// A one-sided operation.
    OneSided(OneSided),
    /// A hint without content that rendezvous transfers can make progress.
    Move,
}

/// The payload of an outgoing message.
#[derive(Debug)]
pub enum OutgoingPayload {
    /// A payload of up to 40 bytes, by value.
    Inline(InlinePayload),
    /// A payload that was composed in the send ring.
    Frame(Frame),
    /// A payload by reference. The region is held until the completion.
    Region {
        /// The region.
        region: Region,
        /// Offset of the first byte.
        offset: u64,
        /// Length, bytes.
        len: u32,
    },
}

impl OutgoingPayload {
    /// The empty payload.
    pub const EMPTY: Self = Self::Inline(InlinePayload::EMPTY);

    /// Returns an inline payload, or `None` if it has more than 40 bytes.
    pub fn inline(payload: &[u8]) -> Option<Self> {
        InlinePayload::new(payload).map(Self::Inline)
    }

    /// Returns the gather entry on a connection whose provider copies up to `copies` bytes.
    #[inline(always)]
    pub(super) fn gather(&self, copies: usize) -> Gather<'_> {
        match self {
            Self::Inline(payload) => Gather::Inline(payload),
            Self::Frame(frame) if frame.len() <= copies => Gather::Short(frame.bytes()),
            Self::Frame(frame) => Gather::Ring(frame.extent()),
            Self::Region { region, offset, len } => Gather::Region { region, offset: *offset, len: *len },
        }
    }

    /// Returns whether a payload by reference is within its region.
    pub(super) fn is_within(&self) -> bool {
        match self {
            Self::Region { region, offset, len } => {
                offset.checked_add(u64::from(*len)).is_some_and(|end| end <= region.len() as u64)
            }
            Self::Inline(_) | Self::Frame(_) => true,
        }
    }

    /// Returns the length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(payload) => payload.len().into(),
            Self::Frame(frame) => frame.len(),
            Self::Region { len, .. } => *len as usize,
        }
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
