//! Work requests, completions, and what arrives.

use alloc::vec;
use core::fmt;

use pronto_wire::{InlinePayload, RawHeader};
use thiserror::Error;

use super::region::{Region, RemoteRange, SharedBytes};
use super::{FabricError, QueuePair};

/// Names a work request in its completion: a slot and how often it was used, never a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId {
    /// Index in the table of WR slots.
    pub slot: u16,
    /// Use count of that slot, wrapping.
    pub generation: u32,
}

/// A piece of send memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First byte, from the base of the send memory.
    pub offset: u32,
    /// Length, bytes.
    pub len: u32,
}

/// Whether a work request wants a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Completes on the send queue under this name.
    Signalled(WrId),
    /// Never completes by itself. Only for payloads that the provider copies while posting ([`Gather::copied`]).
    Unsignalled,
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWork<'a> {
    /// Whether and under which name it completes.
    pub signal: Signal,
    /// What to do.
    pub operation: Operation<'a>,
}

/// What a work request does.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Two-sided: a message into one of the peer's posted receives.
    Send {
        /// The message's header; its fabric word is the provider's to fill.
        header: &'a RawHeader,
        /// The message's payload.
        payload: Gather<'a>,
    },
    /// One-sided: the peer's memory into a local region.
    Read {
        /// Where to; as long as `remote`.
        local: &'a Region,
        /// Offset in `local`, bytes.
        local_offset: u64,
        /// Where from.
        remote: RemoteRange,
    },
    /// One-sided: a local region into the peer's memory.
    Write {
        /// Where from; as long as `remote`.
        local: &'a Region,
        /// Offset in `local`, bytes.
        local_offset: u64,
        /// Where to.
        remote: RemoteRange,
    },
    /// One-sided: replaces eight aligned bytes if they are as expected. The completion carries what was there.
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// What must be there.
        expected: u64,
        /// What to put there.
        desired: u64,
    },
    /// One-sided: adds to eight aligned bytes, wrapping. The completion carries what was there.
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// What to add.
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
    /// A piece of send memory, composed in place; stays untouched until the completion.
    Ring(Extent),
    /// A piece of a region, by reference; stays registered until the completion.
    Region {
        /// The region.
        region: &'a Region,
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u32,
    },
}

impl<'a> Gather<'a> {
    /// Returns the bytes that the provider copies while posting: they need no completion. None for memory that it refers to.
    #[inline(always)]
    pub fn copied(&self) -> Option<&'a [u8]> {
        match self {
            Self::Inline(payload) => Some(payload.as_slice()),
            Self::Short(bytes) => Some(bytes),
            Self::Ring(_) | Self::Region { .. } => None,
        }
    }

    /// Payload length, bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(payload) => payload.len().into(),
            Self::Short(bytes) => bytes.len(),
            Self::Ring(Extent { len, .. }) | Self::Region { len, .. } => *len as usize,
        }
    }

    /// Whether there is no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A work completion of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which work request.
    pub wr: WrId,
    /// How it ended.
    pub status: Status,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done: the buffer may be used again, and a one-sided operation has been carried out at the target. For atomics, the
    /// value that was there before; else 0.
    Done(u64),
    /// Not done, or not known: the queue pair failed or was closed.
    Flushed,
    /// The peer refused a one-sided access: no grant, or out of its bounds.
    AccessRefused,
}

/// Caller-provided memory that [`poll`](super::QueuePair::poll) fills, so that a message is written once, where its reader wants it.
#[derive(Debug)]
pub struct MessageSlot<'a> {
    /// Receives an inline message.
    pub inline: &'a mut InlineMessage,
    /// Receives a short message.
    pub short: &'a mut ShortMessage,
}

/// What one poll of a queue pair has found.
#[derive(Debug)]
pub enum PollOutcome<L> {
    /// No message.
    Nothing,
    /// An inline message, which is in the slot.
    Inline,
    /// A short message, which is in the slot.
    Short,
    /// A message by value: its payload lies in a receive buffer, or the provider does not fill slots with such messages.
    Leased(Received<L>),
    /// No message, but polls have carried out one-sided work of the peer since the last poll with this outcome. That takes as long
    /// as a message of the same size, so the engine lets other threads in.
    OneSided,
}

/// Polls a queue pair once and returns the message by value: for tests, examples and tools, to which a copy does not matter.
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

/// A message whose sender's provider copied its payload, which is too long for an inline message.
#[derive(Clone, Copy, Debug)]
pub struct ShortMessage {
    /// Its header, unchecked.
    pub header: RawHeader,
    bytes: ShortBytes,
    len: u8,
}

/// Aligned as the words of a line are.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
struct ShortBytes([u8; SHORT_PAYLOAD]);

/// The longest payload of a [`ShortMessage`], bytes: with its header, four lines.
pub const SHORT_PAYLOAD: usize = 232;

impl ShortMessage {
    /// Takes a message with a payload of `len` bytes, 232 at most; `fill` copies them.
    #[inline]
    pub fn put(&mut self, header: RawHeader, len: u8, fill: impl FnOnce(&mut [u8])) {
        self.header = header;
        self.len = len;
        let len = usize::from(len).min(SHORT_PAYLOAD);
        fill(&mut self.bytes.0[..len]);
    }

    /// Its payload.
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

/// A message as it came in.
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

/// Where a received payload lies.
pub enum Arrived<L> {
    /// In these bytes; the receive is posted again already.
    Inline(InlinePayload),
    /// In a receive buffer.
    Buffer(L),
}

impl<L: Payload> Arrived<L> {
    /// Payload length, bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(payload) => payload.len().into(),
            Self::Buffer(lease) => lease.len(),
        }
    }

    /// Whether there is no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload, where nobody else can write to it.
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

    /// Checks that the bytes that were read until now are the message that was sent; see [`Payload::validate`].
    pub fn validate(&self) -> Result<(), Withdrawn> {
        match self {
            Self::Inline(_) => Ok(()),
            Self::Buffer(lease) => lease.validate(),
        }
    }

    /// See [`Payload::read_copy`].
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

/// A received payload. What a peer can still write to is reached by copying only.
pub trait Payload: Send + 'static {
    /// Length, bytes.
    fn len(&self) -> usize;

    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes from `offset` of the payload.
    fn copy_to(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds>;

    /// The bytes themselves, if no peer can write to them any more.
    fn as_private(&self) -> Option<&[u8]>;

    /// The bytes to be read where they lie, if a peer may be writing to them; none if they can only be copied.
    fn as_shared(&self) -> Option<SharedBytes<'_>> {
        None
    }

    /// Checks that the bytes that were read until now are the message that was sent. To be called after reading, and before
    /// anything is done with the bytes, where [`as_private`](Self::as_private) has none: a sender whose connection has ended may
    /// write to the memory of its messages again.
    fn validate(&self) -> Result<(), Withdrawn> {
        Ok(())
    }

    /// Hands a valid copy of all bytes to `read`, once; or nothing, if there is none. A provider whose payloads are long overrides it
    /// with memory that it keeps: each page of fresh memory is a fault, and all of them take several times as long as the copy.
    fn read_copy(&self, read: &mut dyn FnMut(&[u8])) {
        let mut bytes = vec![0; self.len()];
        if self.copy_to(0, &mut bytes).is_ok() && self.validate().is_ok() {
            read(&bytes);
        }
    }
}

/// The bytes of a payload cannot be trusted: its sender has ended the connection and may have written to its memory since, or this
/// process is a forked child, which has no such memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the payload was withdrawn: its sender ended the connection before the payload was read")]
pub struct Withdrawn;

/// A copy from beyond a payload's end was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{wanted} bytes at {offset} of a payload of {len}")]
pub struct OutOfBounds {
    /// Where to begin.
    pub offset: usize,
    /// How many bytes.
    pub wanted: usize,
    /// How many there are in all.
    pub len: usize,
}
