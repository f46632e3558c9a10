//! What goes wrong on a fabric, first branch: whose fault.

use pronto_wire::HeaderFault;
use thiserror::Error;

use super::work::OutOfBounds;

/// Why a queue pair failed. It is dead from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The peer broke the transport's rules.
    #[error("the peer broke the transport's rules: {0}")]
    Peer(#[from] PeerFault),
    /// The connection is gone: closed, reset or cut.
    #[error("connection lost")]
    Lost,
    /// The operating system refused something that the provider needs.
    #[error("the system refused: errno {errno}")]
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
        /// What was to be pinned, bytes.
        wanted: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// A message found no receive at the peer, which credits rule out.
    #[error("the peer had no receive posted")]
    ReceiverNotReady,
    /// The device gave a work request up.
    #[error("a work request failed with verbs completion status {status}")]
    WorkFailed {
        /// `ibv_wc_status`.
        status: u32,
    },
}

/// What a peer did that no correct one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// More messages than the agreed depth, or one written over another.
    #[error("messages beyond the agreed depth")]
    Overrun,
    /// A length outside what was agreed.
    #[error("length {len} where at most {max} is allowed")]
    Length {
        /// What the peer says.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// An offset outside the peer's memory.
    #[error("offset {offset} outside {len} bytes")]
    Offset {
        /// What the peer says.
        offset: u64,
        /// How much there is.
        len: u64,
    },
    /// A frame or line of no known form.
    #[error("unknown form {0} of a frame")]
    UnknownForm(u8),
    /// A header that no session can act on.
    #[error("{0}")]
    Header(HeaderFault),
    /// A one-sided access without a grant that allows it.
    #[error("access without a grant")]
    Access,
    /// Memory that the peer could take away while it is used here: its size is not sealed, or it is on huge pages.
    #[error("memory that the peer could take away: its size is not sealed, or it is on huge pages")]
    Unsealed,
    /// A flood of wake-ups without messages.
    #[error("{0} wake-ups without a message")]
    WakeFlood(u32),
    /// A completion or answer that belongs to no work request.
    #[error("an answer that nobody asked for")]
    Unasked,
    /// Messages that the peer must have received, and goes on as if it had not.
    #[error("no acknowledgement of what was received")]
    Unacknowledged,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The send queue is full: poll completions and ring the doorbell, then try again.
    #[error("send queue full")]
    Full,
    /// The payload is longer than the connection carries.
    #[error("payload of {len} bytes, at most {max} are possible")]
    TooLong {
        /// Payload, bytes.
        len: usize,
        /// Limit, bytes.
        max: usize,
    },
    /// This connection has no such operation.
    #[error("not supported by this provider")]
    Unsupported,
    /// The grant was never made to this peer, is revoked, or does not cover the access.
    #[error("no grant covers this access")]
    NotGranted,
    /// The payload or local buffer lies outside its memory, or an atomic's eight bytes are not aligned to eight.
    #[error("outside its memory: {0}")]
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

/// Why a region could not be registered, or a grant could not be made or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrantError {
    /// This connection has no one-sided operations.
    #[error("not supported by this provider")]
    Unsupported,
    /// The range lies outside the region.
    #[error("range {start}..{end} outside a region of {len} bytes")]
    Range {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The region's length, bytes.
        len: u64,
    },
    /// No more grants fit.
    #[error("no more than {0} grants at a time")]
    TooMany(usize),
    /// No such grant.
    #[error("no such grant")]
    Unknown,
    /// This region's memory cannot be shared by this provider.
    #[error("the region's memory cannot be shared by this provider")]
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
