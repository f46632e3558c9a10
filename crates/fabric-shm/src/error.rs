//! Errors before there is a connection, grouped by cause.

use nix::errno::Errno;
use thiserror::Error;

/// Reason why no link was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The peer violated the handshake protocol.
    #[error("the peer violated the handshake protocol: {0}")]
    Peer(#[from] SetupFault),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The handshake did not finish within its time limit.
    #[error("no answer in time: check that a Pronto node listens at this address")]
    TimedOut,
    /// Nobody listens at this address.
    #[error("nobody listens at this address")]
    NotListening,
    /// The process that listens at this address runs as another user: it uses an address that does not belong to it.
    #[error(
        "the socket at this address belongs to user {found}, and not to user {expected}: a node shares memory with processes of its own \
         user, and with a peer of the `user` in its [[peer]]"
    )]
    OtherUser {
        /// Effective user of the listener.
        found: u32,
        /// User that was expected: that of this process, or of the peer.
        expected: u32,
    },
    /// Another process listens at this address.
    #[error("another process already listens at this address")]
    InUse,
    /// Another process keeps the directory of the address locked.
    #[error(
        "another process keeps the folder of the socket locked (flock): end it, or use a folder that only this user can open"
    )]
    Locked,
    /// The address is empty, or longer than a Unix socket address can be (107 bytes).
    #[error("not a valid Unix socket address")]
    Address,
    /// A limit exceeds the possible maximum of a link.
    #[error("invalid {what} {value}: at most {max} is possible")]
    Limits {
        /// Name of the limit.
        what: &'static str,
        /// Requested value.
        value: u32,
        /// Maximum value.
        max: u32,
    },
    /// A system call failed.
    #[error("system call {call} failed: {}", Errno::from_raw(*errno).desc())]
    System {
        /// Name of the system call.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
}

impl SetupError {
    /// Returns a function that makes the error of the failed system call `call`.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { call, errno: errno as i32 }
    }
}

/// Protocol violation by the peer during the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetupFault {
    /// A message is longer than this side accepts.
    #[error("message of {len} bytes is too long: at most {max} are accepted")]
    Oversized {
        /// Length that the peer announced.
        len: u64,
        /// Maximum length.
        max: u64,
    },
    /// A packet does not belong to the handshake.
    #[error("malformed handshake packet")]
    Malformed,
    /// The peer uses another version of the shared-memory link.
    #[error("unsupported link version {found}: this side supports only {spoken}")]
    Version {
        /// Version of the peer.
        found: u16,
        /// Version of this side.
        spoken: u16,
    },
    /// The peer sent too few or too many descriptors.
    #[error("received {found} descriptors, expected {expected}")]
    Descriptors {
        /// Number of received descriptors.
        found: usize,
        /// Expected number.
        expected: usize,
    },
    /// A passed descriptor is not a connected Unix socket of the type that the link needs.
    #[error("received a descriptor that is not a Unix socket of the agreed type")]
    NoSocket,
    /// The peer has other limits.
    #[error(
        "the peer has a limit of {found} where this side has {expected}: configure the same limits on both sides"
    )]
    Disagreement {
        /// Limit of the peer.
        found: u32,
        /// Limit of this side.
        expected: u32,
    },
    /// The peer's memory cannot be used safely.
    #[error("cannot use the peer's memory: {0}")]
    Segment(#[from] SegmentFault),
}

/// Defect of memory that the peer passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentFault {
    /// It is not a memory file, or its seals are missing: the peer could truncate it while it is mapped.
    #[error("not a sealed memory file")]
    NotSealed,
    /// It is not ordinary memory. If the owner of huge pages frees some, the kernel may have no pages to replace them.
    #[error("unsupported memory file (file system type {magic:#x}): pass ordinary memory without huge pages")]
    NotPlain {
        /// File system type (`f_type` of `statfs`).
        magic: i64,
    },
    /// Its size differs from the agreed size.
    #[error("size of {found} bytes, expected {expected}")]
    Size {
        /// Actual size.
        found: u64,
        /// Expected size.
        expected: u64,
    },
}
