//! What a sender hands to the engine: directly, or through the submission queue while another thread holds it.

use pronto_wire::{CallId, Class, InlinePayload, Kind};

use super::one_sided::OneSided;
use crate::buf::Frame;
use crate::fabric::{Gather, Region};
use crate::time::Nanos;

/// A message on its way out.
#[derive(Debug)]
pub struct Outgoing {
    /// The class that it travels in.
    pub class: Class,
    /// The link on which its credit was taken; a message of an earlier link takes a new one.
    pub link: u16,
    /// What it is for.
    pub kind: Kind,
    /// What it carries.
    pub payload: OutgoingPayload,
    /// The links that may carry it.
    pub carrier: Carrier,
    /// The slot whose waiter waits for the send completion.
    pub completes: Option<CallId>,
    /// How long its caller waits; `NEVER` for ever.
    pub timeout: Nanos,
}

/// The links that may carry a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The present link, or a later one of the same session.
    AnyLink,
    /// The link on which its credit was taken, and no other: it names a grant, which ends with its link.
    SameLink,
}

/// What waits in the submission queue, or for room in the fabric.
#[derive(Debug)]
pub(super) enum Submitted {
    /// A message.
    Message(Outgoing),
    /// A one-sided operation.
    OneSided(OneSided),
    /// Nothing by itself: transfers can be moved on.
    Move,
}

/// What a message carries.
#[derive(Debug)]
pub enum OutgoingPayload {
    /// Up to 40 bytes.
    Inline(InlinePayload),
    /// Composed in the send ring.
    Frame(Frame),
    /// By reference; the region is held until the completion.
    Region {
        /// The region.
        region: Region,
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u32,
    },
}

impl OutgoingPayload {
    /// Nothing.
    pub const EMPTY: Self = Self::Inline(InlinePayload::EMPTY);

    /// A payload that fits the line.
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

    /// Whether a payload by reference is a part of its region.
    pub(super) fn is_within(&self) -> bool {
        match self {
            Self::Region { region, offset, len } => {
                offset.checked_add(u64::from(*len)).is_some_and(|end| end <= region.len() as u64)
            }
            Self::Inline(_) | Self::Frame(_) => true,
        }
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(payload) => payload.len().into(),
            Self::Frame(frame) => frame.len(),
            Self::Region { len, .. } => *len as usize,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
