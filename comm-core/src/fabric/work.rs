//! Work requests, completions, and received messages.

use alloc::vec;
use core::fmt;

use pronto_wire::{InlinePayload, RawHeader};
use thiserror::Error;

use super::region::{Region, RemoteRange, SharedBytes};
use super::{FabricError, QueuePair};

/// Id of a work request in its completion: a slot and its use count, never a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId {
    /// Index in the table of WR slots.
    pub slot: u16,
    /// Use count of that slot, wrapping.
    pub generation: u32,
}

/// A range of send memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Offset of the first byte from the base of the send memory.
    pub offset: u32,
    /// Length, bytes.
    pub len: u32,
}

/// A choice whether a work request has a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The work request completes on the send queue with this id.
    Signalled(WrId),
    /// The work request has no completion. Only for payloads that the provider copies while posting ([`Gather::copied`]).
    Unsignalled,
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWork<'a> {
    /// Its completion.
    pub signal: Signal,
    /// Its operation.
    pub operation: Operation<'a>,
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Two-sided: a message into one of the peer's posted receives.
    Send {
        /// The message's header, in which the provider sets the fabric word.
        header: &'a RawHeader,
        /// The message's payload.
        payload: Gather<'a>,
    },
    /// One-sided: copies the peer's memory into a local region.
    Read {
        /// Destination.
        local: &'a Region,
        /// Offset in `local`, bytes.
        local_offset: u64,
        /// Source, which determines the length.
        remote: RemoteRange,
    },
    /// One-sided: copies a local region into the peer's memory.
    Write {
        /// Source.
        local: &'a Region,
        /// Offset in `local`, bytes.
        local_offset: u64,
        /// Destination, which determines the length.
        remote: RemoteRange,
    },
    /// One-sided: replaces eight aligned bytes if they equal `expected`. The completion carries the previous value.
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// The value that is replaced.
        expected: u64,
        /// The new value.
        desired: u64,
    },
    /// One-sided: adds to eight aligned bytes, wrapping. The completion carries the previous value.
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// The summand.
        add: u64,
    },
}

/// The gather entry behind the header.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// The payload of an inline message: up to 40 bytes that travel in the message's own slot. The provider copies them while
    /// posting.
    Inline(&'a InlinePayload),
    /// Up to [`super::Capabilities::copies`] bytes that the provider copies while posting. Bytes that fit an inline message
    /// arrive as one.
    Short(&'a [u8]),
    /// A range of send memory, composed in place, which must not change until the completion.
    Ring(Extent),
    /// A range of a region, by reference. The region stays registered until the completion.
    Region {
        /// The region.
        region: &'a Region,
        /// Offset of the first byte.
        offset: u64,
        /// Length, bytes.
        len: u32,
    },
}

impl<'a> Gather<'a> {
    /// Returns the bytes that the provider copies while posting, which need no completion. Returns `None` for memory that the provider
    /// only refers to.
    #[inline(always)]
    pub fn copied(&self) -> Option<&'a [u8]> {
        match self {
            Self::Inline(payload) => Some(payload.as_slice()),
            Self::Short(bytes) => Some(bytes),
            Self::Ring(_) | Self::Region { .. } => None,
        }
    }

    /// Returns the payload length, bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(payload) => payload.len().into(),
            Self::Short(bytes) => bytes.len(),
            Self::Ring(Extent { len, .. }) | Self::Region { len, .. } => *len as usize,
        }
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A work completion of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The completed work request.
    pub wr: WrId,
    /// Its status.
    pub status: Status,
}

/// The status of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The work request succeeded: the buffer may be reused, and a one-sided operation was executed at the target. The value is the
    /// previous one for an atomic operation, and 0 for others.
    Done(u64),
    /// The queue pair failed or was closed. The work request may or may not have been executed.
    Flushed,
    /// The peer refused a one-sided access, as no grant covers it.
    AccessRefused,
    /// The peer's memory has lost the bytes of a granted range: see [`PostError::Unreadable`](super::PostError::Unreadable).
    Unreadable,
}

/// Caller-provided memory that [`poll`](super::QueuePair::poll) fills, so that a message is written once, directly to its destination.
#[derive(Debug)]
pub struct MessageSlot<'a> {
    /// Receives an inline message.
    pub inline: &'a mut InlineMessage,
    /// Receives a short message.
    pub short: &'a mut ShortMessage,
}

/// The outcome of one poll of a queue pair.
#[derive(Debug)]
pub enum PollOutcome<L> {
    /// No message.
    Nothing,
    /// An inline message, which is in the slot.
    Inline,
    /// A short message, which is in the slot.
    Short,
    /// A message by value: its payload is in a receive buffer, or the provider does not fill slots with such messages.
    Leased(Received<L>),
    /// No message, but polls have executed one-sided work of the peer since the last poll with this outcome. As this takes as long as a
    /// message of the same size, the engine lets other threads in.
    OneSided,
}

/// Polls a queue pair once and returns the message by value. For tests, examples and tools, where the cost of a copy does not matter.
///
/// # Errors
/// The queue pair has failed.
pub fn poll_by_value<Q: QueuePair>(qp: &mut Q) -> Result<Option<Received<Q::Lease>>, FabricError> {
    let (mut inline, mut short) = (InlineMessage::default(), ShortMessage::default());
    Ok(match qp.poll(MessageSlot { inline: &mut inline, short: &mut short })? {
        PollOutcome::Nothing | PollOutcome::OneSided => None,
        PollOutcome::Inline => {
            Some(Received { header: inline.header, payload: Arrived::Inline(inline.payload) })
        }
        PollOutcome::Short => {
            let payload = Arrived::Buffer(qp.lease_copy(short.payload()));
            Some(Received { header: short.header, payload })
        }
        PollOutcome::Leased(message) => Some(message),
    })
}

/// A message whose payload of up to 40 bytes travels in the same slot as its header.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineMessage {
    /// Its header, unchecked.
    pub header: RawHeader,
    /// Its payload.
    pub payload: InlinePayload,
}

/// A message with a payload that is too long for an inline message, and that the sender's provider copied.
#[derive(Clone, Copy, Debug)]
pub struct ShortMessage {
    /// Its header, unchecked.
    pub header: RawHeader,
    bytes: ShortBytes,
    len: u8,
}

/// Bytes with the alignment of a message slot's words.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
struct ShortBytes([u8; SHORT_PAYLOAD]);

/// The longest payload of a [`ShortMessage`], bytes. Together with its header it takes four cache lines.
pub const SHORT_PAYLOAD: usize = 232;

impl ShortMessage {
    /// Stores a message with a payload of `len` bytes, at most 232, which `fill` copies.
    #[inline]
    pub fn put(&mut self, header: RawHeader, len: u8, fill: impl FnOnce(&mut [u8])) {
        self.header = header;
        self.len = len;
        let len = usize::from(len).min(SHORT_PAYLOAD);
        fill(&mut self.bytes.0[..len]);
    }

    /// Returns its payload.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.0[..usize::from(self.len).min(SHORT_PAYLOAD)]
    }
}

impl Default for ShortMessage {
    fn default() -> Self {
        Self { header: RawHeader::default(), bytes: ShortBytes([0; SHORT_PAYLOAD]), len: 0 }
    }
}

/// A received message.
#[derive(Debug)]
pub struct Received<L> {
    /// Its header, unchecked.
    pub header: RawHeader,
    /// Its payload.
    pub payload: Arrived<L>,
}

impl<L> Received<L> {
    /// Returns the message with its lease as another type.
    #[inline(always)]
    pub fn map_lease<M>(self, map: impl FnOnce(L) -> M) -> Received<M> {
        let payload = match self.payload {
            Arrived::Inline(payload) => Arrived::Inline(payload),
            Arrived::Buffer(lease) => Arrived::Buffer(map(lease)),
        };
        Received { header: self.header, payload }
    }
}

/// A received payload, by value or in a receive buffer.
pub enum Arrived<L> {
    /// The bytes by value. Their receive is already posted again.
    Inline(InlinePayload),
    /// A lease on a receive buffer.
    Buffer(L),
}

impl<L: Payload> Arrived<L> {
    /// Returns the payload length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(payload) => payload.len().into(),
            Self::Buffer(lease) => lease.len(),
        }
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the payload, if no other process can write to it.
    pub fn as_private(&self) -> Option<&[u8]> {
        match self {
            Self::Inline(payload) => Some(payload.as_slice()),
            Self::Buffer(lease) => lease.as_private(),
        }
    }

    /// Copies `out.len()` bytes from `offset` of the payload.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        match self {
            Self::Inline(payload) => {
                let bytes = payload.as_slice();
                let end = offset.checked_add(out.len()).filter(|end| *end <= bytes.len());
                let end = end.ok_or(OutOfBounds { offset, wanted: out.len(), len: bytes.len() })?;
                out.copy_from_slice(&bytes[offset..end]);
                Ok(())
            }
            Self::Buffer(lease) => lease.copy_to(offset, out),
        }
    }

    /// Checks that the bytes read so far are those that the peer sent; see [`Payload::validate`].
    pub fn validate(&self) -> Result<(), Withdrawn> {
        match self {
            Self::Inline(_) => Ok(()),
            Self::Buffer(lease) => lease.validate(),
        }
    }

    /// Passes a valid copy of all bytes to `read`; see [`Payload::read_copy`].
    pub fn read_copy(&self, read: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Inline(payload) => read(payload.as_slice()),
            Self::Buffer(lease) => lease.read_copy(read),
        }
    }
}

impl<L> fmt::Debug for Arrived<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(payload) => payload.fmt(f),
            Self::Buffer(_) => f.write_str("Buffer"),
        }
    }
}

/// A received payload. Bytes that a peer can still write to can only be copied.
pub trait Payload: Send + Sync + 'static {
    /// Returns the length, bytes.
    fn len(&self) -> usize;

    /// Returns whether the payload is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes from `offset` of the payload.
    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds>;

    /// Returns the bytes, if no peer can write to them any more.
    fn as_private(&self) -> Option<&[u8]>;

    /// Returns the bytes for reading in place while a peer may write to them, or `None` if they can only be copied.
    fn as_shared(&self) -> Option<SharedBytes<'_>> {
        None
    }

    /// Checks that the bytes read so far are those that the peer sent. If [`as_private`](Self::as_private) returns `None`, call this
    /// after reading the bytes and before using them: a sender whose connection has ended may write to the memory of its messages
    /// again.
    fn validate(&self) -> Result<(), Withdrawn> {
        Ok(())
    }

    /// Passes a valid copy of all bytes to `read`, once. Does not call `read` if the payload was withdrawn. A provider with long payloads
    /// overrides this to copy into memory that it keeps: the page faults of fresh memory take several times as long as the copy.
    fn read_copy(&self, read: &mut dyn FnMut(&[u8])) {
        let mut bytes = vec![0; self.len()];
        if self.copy_to(0, &mut bytes).is_ok() && self.validate().is_ok() {
            read(&bytes);
        }
    }
}

/// An error of a payload whose bytes are not valid any more: its sender has ended the connection and may have written to its memory
/// since, or this process is a forked child, which does not have this memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the payload was withdrawn: its sender ended the connection before the payload was read")]
pub struct Withdrawn;

/// An error of an access that is not within a payload or region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{wanted} bytes at offset {offset} are not within a length of {len} bytes")]
pub struct OutOfBounds {
    /// Offset of the first byte.
    pub offset: usize,
    /// Number of bytes.
    pub wanted: usize,
    /// Length of the payload or region, bytes.
    pub len: usize,
}
