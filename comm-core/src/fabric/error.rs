//! Errors of a fabric. Their first distinction is whose fault it was.

use pronto_wire::HeaderFault;
use thiserror::Error;

use super::work::OutOfBounds;

/// The reason why a queue pair failed. A failed queue pair stays unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The peer broke the transport's rules.
    #[error("the peer broke the transport's rules: {0}")]
    Peer(#[from] PeerFault),
    /// The connection is gone: closed, reset or cut.
    #[error("connection lost")]
    Lost,
    /// A system call of the provider failed.
    #[error("a system call failed: errno {errno}")]
    System {
        /// The error number.
        errno: i32,
    },
    /// Memory could not be locked for a device.
    #[error(
        "cannot pin {wanted} bytes: locked memory is limited to {limit} bytes (RLIMIT_MEMLOCK); raise it (ulimit -l unlimited, \
         or LimitMEMLOCK=infinity for a service) or run with CAP_IPC_LOCK"
    )]
    PinLimit {
        /// Length of the memory to pin, bytes.
        wanted: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// The peer had no posted receive for a message. Credits prevent this in correct peers.
    #[error("the peer had no receive posted")]
    ReceiverNotReady,
    /// The device failed a work request.
    #[error("a work request failed with verbs completion status {status}")]
    WorkFailed {
        /// `ibv_wc_status`.
        status: u32,
    },
}

/// A violation of the transport's rules by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// The peer sent more messages than the agreed depth, or overwrote a message.
    #[error("more messages than the agreed depth")]
    Overrun,
    /// A length exceeds the agreed maximum.
    #[error("length {len} exceeds the maximum of {max}")]
    Length {
        /// Length that the peer sent.
        len: u64,
        /// Maximum length.
        max: u64,
    },
    /// An offset is outside the peer's memory.
    #[error("offset {offset} is outside the memory of {len} bytes")]
    Offset {
        /// Offset that the peer sent.
        offset: u64,
        /// Length of the memory, bytes.
        len: u64,
    },
    /// A frame or message slot has an unknown form.
    #[error("unknown form {0} of a frame")]
    UnknownForm(u8),
    /// A message has an invalid header.
    #[error("{0}")]
    Header(HeaderFault),
    /// A one-sided access has no grant that allows it.
    #[error("one-sided access without a grant")]
    Access,
    /// The peer could remove memory while this node uses it: the memory's size is not sealed, or it is on huge pages.
    #[error("the peer could remove its shared memory: its size is not sealed, or it is on huge pages")]
    Unsealed,
    /// The peer passed descriptors that do not belong to the message.
    #[error("{found} descriptors with a message that carries {expected}")]
    Descriptors {
        /// Number of received descriptors.
        found: usize,
        /// Maximum number.
        expected: usize,
    },
    /// The peer announced more memory than a connection may.
    #[error("{announced} bytes of announced memory exceed the maximum of {max}")]
    TooMuchMemory {
        /// Length of the announced memory together with that which is mapped already, bytes.
        announced: u64,
        /// Maximum length, bytes.
        max: u64,
    },
    /// The peer replaced more regions than this while their messages were in use.
    #[error("more than {0} regions were replaced while their messages were in use")]
    TooManyRegions(usize),
    /// The peer sent too many wake-ups without messages.
    #[error("{0} wake-ups without a message")]
    WakeFlood(u32),
    /// A completion or response belongs to no work request.
    #[error("a completion or response that belongs to no work request")]
    Unasked,
    /// The peer did not acknowledge messages that it must have received.
    #[error("missing acknowledgement of received messages")]
    Unacknowledged,
}

/// The reason why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The send queue is full: poll completions and ring the doorbell, then try again.
    #[error("send queue full")]
    Full,
    /// The payload is longer than the connection allows.
    #[error("the payload of {len} bytes exceeds the connection's limit of {max} bytes")]
    TooLong {
        /// Length of the payload, bytes.
        len: usize,
        /// Limit, bytes.
        max: usize,
    },
    /// This connection does not support the operation.
    #[error("this provider does not support the operation")]
    Unsupported,
    /// No grant of the peer covers the access: it was never made, is revoked, or does not cover the range or the right.
    #[error("no grant covers this access")]
    NotGranted,
    /// The memory that the peer granted has lost its bytes: the peer unmapped it, or truncated the file that it maps.
    #[error("the peer's memory cannot be read: it was unmapped, or its file is shorter now")]
    Unreadable,
    /// The payload or local buffer is outside its memory, or the eight bytes of an atomic operation are not aligned to eight.
    #[error("the buffer is outside its memory: {0}")]
    OutOfBounds(#[from] OutOfBounds),
    /// The queue pair has failed or was closed.
    #[error("queue pair failed: {0}")]
    Failed(#[from] FabricError),
    /// An inline handler runs on this thread, under the engine lock of a session, and must not wait for an engine lock.
    #[error(
        "an inline handler must not wait for the engine lock: register the handler with an order, or do this in another thread"
    )]
    WouldDeadlock,
}

/// The reason why a region could not be registered, or a grant could not be made or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrantError {
    /// This connection does not support one-sided operations.
    #[error("this provider does not support one-sided operations")]
    Unsupported,
    /// The range is not within the region.
    #[error("range {start}..{end} is not within the region of {len} bytes")]
    Range {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The region's length, bytes.
        len: u64,
    },
    /// The maximum number of grants exists.
    #[error("{0} grants exist, which is the limit: revoke one of them")]
    TooMany(usize),
    /// The regions with a grant would be too long together.
    #[error(
        "the granted regions would be longer together than {0} bytes, which is the limit: revoke a grant"
    )]
    TooMuchMemory(u64),
    /// The memory has lost its bytes: see [`PostError::Unreadable`].
    #[error("the memory cannot be read: it was unmapped, or its file is shorter now")]
    Unreadable,
    /// The memory is read-only.
    #[error("memory of the program is only read: grant a region for other accesses")]
    ReadOnly,
    /// The grant does not exist.
    #[error("the grant does not exist")]
    Unknown,
    /// The provider cannot share this region's memory.
    #[error("this provider cannot share the region's memory")]
    Memory,
    /// The queue pair has failed or was closed.
    #[error("queue pair failed: {0}")]
    Failed(#[from] FabricError),
    /// An inline handler runs on this thread, under the engine lock of a session, and must not wait for an engine lock.
    #[error(
        "an inline handler must not wait for the engine lock: register the handler with an order, or do this in another thread"
    )]
    WouldDeadlock,
}
