//! What can go wrong before a link exists, first branch: whose fault.

use core::net::SocketAddr;
use std::io;

use nix::errno::Errno;
use pronto_core::fabric::FabricError;
use thiserror::Error;

/// Why a link did not come about.
#[derive(Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Whoever is at the other end does not speak this protocol, or another version of it.
    #[error("not a pronto link: it began with {0:02x?}")]
    Preamble([u8; 8]),
    /// The peer announced a message longer than what the receiver takes.
    #[error("a set-up message of {len} bytes where at most {max} are allowed")]
    TooLong {
        /// What the peer says, bytes.
        len: usize,
        /// What is allowed, bytes.
        max: usize,
    },
    /// A second connection with a token that no handshake waits for.
    #[error("a token that no handshake waits for")]
    UnknownToken,
    /// The dialler spoke before it was told that the link is ready.
    #[error("bytes before the link was ready")]
    OutOfTurn,
    /// The peer was too slow or silent.
    #[error("timed out")]
    TimedOut,
    /// The peer closed or reset the connection.
    #[error("connection lost")]
    Lost,
    /// Nobody listens there.
    #[error("nobody listens at this address")]
    NotListening,
    /// Traffic here is not encrypted, and nobody said that this is understood.
    #[error("{0} is not a loopback address, and traffic would not be encrypted")]
    NotLoopback(SocketAddr),
    /// As many handshakes are under way as one listener allows ([`MAX_HALF_OPEN`](crate::MAX_HALF_OPEN)).
    #[error("too many handshakes at once")]
    Crowded,
    /// The listener was closed.
    #[error("listener closed")]
    Closed,
    /// The receive pool's budget does not hold one message of the agreed length.
    #[error("a receive pool of {budget} bytes for messages of {needed}")]
    PoolTooSmall {
        /// The pool's budget, bytes.
        budget: usize,
        /// The longest message, as a buffer, bytes.
        needed: usize,
    },
    /// The operating system refused something.
    #[error("the system refused: {}", Errno::from_raw(*errno).desc())]
    System {
        /// The error number; 0 if there was none.
        errno: i32,
    },
}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::WriteZero
            | io::ErrorKind::NotConnected => Self::Lost,
            io::ErrorKind::ConnectionRefused => Self::NotListening,
            _ => Self::System { errno: error.raw_os_error().unwrap_or(0) },
        }
    }
}

impl From<nix::Error> for SetupError {
    fn from(errno: nix::Error) -> Self {
        Self::System { errno: errno as i32 }
    }
}

impl From<FabricError> for SetupError {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::System { errno } => Self::System { errno },
            _ => Self::Lost,
        }
    }
}
