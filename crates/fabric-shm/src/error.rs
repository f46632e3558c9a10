//! What goes wrong before there is a connection, first branch: whose fault.

use nix::errno::Errno;
use thiserror::Error;

/// Why no link came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The peer broke the rules of the handshake.
    #[error("the peer broke the rules of the handshake: {0}")]
    Peer(#[from] SetupFault),
    /// The peer went away.
    #[error("the peer closed the connection")]
    Closed,
    /// The time for the handshake is over.
    #[error("the time for the handshake is over")]
    TimedOut,
    /// Nobody listens at this address.
    #[error("nobody listens at this address")]
    NotListening,
    /// The process that listens at this address runs as another user: it has taken a name that is not its own.
    #[error(
        "the socket at this address belongs to user {found}, and this process runs as user {expected}: only processes of one user \
         share memory"
    )]
    OtherUser {
        /// The listener's effective user.
        found: u32,
        /// This process's.
        expected: u32,
    },
    /// Somebody listens at this address already.
    #[error("somebody listens at this address already")]
    InUse,
    /// The address is no path or name of a socket: empty, or longer than 107 bytes.
    #[error("no address of a socket")]
    Address,
    /// Limits beyond what a link can have.
    #[error("{what} of {value}, at most {max} are possible")]
    Limits {
        /// Which limit.
        what: &'static str,
        /// What was asked for.
        value: u32,
        /// What is possible.
        max: u32,
    },
    /// The operating system refused something.
    #[error("the system refused {call}: {}", Errno::from_raw(*errno).desc())]
    System {
        /// What was asked for.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
}

impl SetupError {
    /// Makes the error of a system call that failed.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { call, errno: errno as i32 }
    }
}

/// What a peer did in the handshake that no correct one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetupFault {
    /// A message longer than this side takes.
    #[error("a message of {len} bytes, at most {max} are taken")]
    Oversized {
        /// What the peer announced.
        len: u64,
        /// What is taken.
        max: u64,
    },
    /// A packet that is no part of the handshake.
    #[error("a packet that is no part of the handshake")]
    Malformed,
    /// Another version of the shared-memory link.
    #[error("version {found} of the link, this side speaks {spoken}")]
    Version {
        /// The peer's.
        found: u16,
        /// Ours.
        spoken: u16,
    },
    /// Too few or too many descriptors.
    #[error("{found} descriptors where {expected} belong")]
    Descriptors {
        /// How many came.
        found: usize,
        /// How many belong there.
        expected: usize,
    },
    /// The peer counts with other limits.
    #[error("the peer counts with {found} where this side has {expected}")]
    Disagreement {
        /// The peer's.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// Memory that cannot be used safely.
    #[error("unusable memory: {0}")]
    Segment(#[from] SegmentFault),
}

/// What is wrong with a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentFault {
    /// It is no memory file, or its seals are missing: it could be truncated under our feet.
    #[error("not a sealed memory file")]
    NotSealed,
    /// It is not on ordinary memory: on huge pages its owner could take pages away for which there is no replacement.
    #[error(
        "a memory file of an unknown kind of memory (file system {magic:#x}); ordinary memory is needed, without huge pages"
    )]
    NotPlain {
        /// What kind of file system it is on (`f_type` of `statfs`).
        magic: i64,
    },
    /// It has another size than agreed.
    #[error("{found} bytes where {expected} belong")]
    Size {
        /// How long it is.
        found: u64,
        /// How long it has to be.
        expected: u64,
    },
}
