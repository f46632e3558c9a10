//! What a sender hands to the engine: directly, or through the submission queue while another thread holds it.

use pronto_wire::{CallId, Class, InlinePayload, Kind};

use super::one_sided::OneSided;
use crate::buf::Frame;
use crate::fabric::Region;
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
    /// The slot whose waiter waits for the send completion.
    pub completes: Option<CallId>,
    /// How long its caller waits; `NEVER` for ever.
    pub timeout: Nanos,
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

/// A payload that is copied while its message is posted, straight from its caller.
#[derive(Clone, Copy, Debug)]
pub enum Copied<'a> {
    /// Into the message's line.
    Line(&'a InlinePayload),
    /// Into its line and what lies beside it, as far as [`crate::fabric::Capabilities::copies`] goes.
    Short(&'a [u8]),
}

impl Copied<'_> {
    /// Length, bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Line(payload) => payload.len().into(),
            Self::Short(bytes) => bytes.len(),
        }
    }
}

impl OutgoingPayload {
    /// Nothing.
    pub const EMPTY: Self = Self::Inline(InlinePayload::EMPTY);

    /// A payload that fits the line.
    pub fn inline(payload: &[u8]) -> Option<Self> {
        InlinePayload::new(payload).map(Self::Inline)
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
