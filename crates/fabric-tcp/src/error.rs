//! Errors before a link exists, grouped by cause.

use core::net::SocketAddr;
use std::io;

use nix::errno::Errno;
use pronto_core::fabric::FabricError;
use thiserror::Error;

/// Reason why no link was established.
#[derive(Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The other end speaks another protocol, or another version of this one.
    #[error("not a pronto link, or another version: the connection began with \"{}\"", .0.escape_ascii())]
    Preamble([u8; 8]),
    /// The peer announced a message longer than this side accepts.
    #[error("set-up message of {len} bytes is too long: at most {max} are accepted")]
    TooLong {
        /// Announced length in bytes.
        len: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// A second connection presented a token for which no handshake waits.
    #[error("unknown token: no handshake waits for this second connection")]
    UnknownToken,
    /// The dialler sent bytes before the link was ready.
    #[error("the dialler sent bytes before the link was ready")]
    OutOfTurn,
    /// The peer did not respond in time.
    #[error("no answer in time: check that a Pronto node listens at this address")]
    TimedOut,
    /// The peer closed or reset the connection.
    #[error("connection lost")]
    Lost,
    /// Nobody listens there.
    #[error("nobody listens at this address")]
    NotListening,
    /// The address is not a loopback address, and the caller has not permitted unencrypted traffic.
    #[error("{0} is not a loopback address, and unencrypted traffic to it is not permitted")]
    NotLoopback(SocketAddr),
    /// This side requires TLS, and the other one does not use it.
    #[error(
        "the other side does not use TLS, which this node requires: both nodes need the same [trust] mode"
    )]
    PeerWithoutTls,
    /// The other side requires TLS, and this one does not use it.
    #[error(
        "the other side requires TLS, which this node does not use: both nodes need the same [trust] mode"
    )]
    PeerRequiresTls,
    /// The second connection of a link authenticated itself with another certificate or key than the first one.
    #[error("the second connection of the link has another identity than the first one")]
    OtherIdentity,
    /// The TLS handshake failed: one side does not trust the other one, or the bytes were changed on their way.
    #[error("TLS handshake failed: {0}")]
    Tls(#[from] rustls::Error),
    /// The listener has its maximum number of unfinished handshakes ([`MAX_HALF_OPEN`](crate::MAX_HALF_OPEN)).
    #[error("too many unfinished handshakes")]
    Crowded,
    /// The listener was closed.
    #[error("listener closed")]
    Closed,
    /// The budget of the receive pool is smaller than one message of the agreed length.
    #[error("receive pool of {budget} bytes is too small: one message needs {needed}")]
    PoolTooSmall {
        /// Budget of the pool, bytes.
        budget: usize,
        /// Buffer size for the longest message, bytes.
        needed: usize,
    },
    /// A system call failed.
    #[error("system call failed: {}", Errno::from_raw(*errno).desc())]
    System {
        /// Error number; 0 if there was none.
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
