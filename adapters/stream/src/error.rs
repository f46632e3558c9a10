//! The reasons why a stream is not opened, or ends.

use std::io;

use pronto::{CallError, NodeId, Payload};
use thiserror::Error;

/// The reason why the other node refused to open a stream.
#[derive(Payload, Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No listener has this name, or it was dropped.
    #[error("no listener for this service: check the name, and that the listener is not dropped")]
    NoListener,
    /// The program accepts connections more slowly than they come.
    #[error("the backlog of the listener is full: connect again later")]
    BacklogFull,
    /// The two nodes have too many streams.
    #[error("the peer has too many streams: close some, or raise `StreamLimits::streams_per_peer`")]
    TooManyStreams,
    /// The opener has cancelled the stream meanwhile.
    #[error("the opener has cancelled the stream")]
    Cancelled,
    /// The opener broke the protocol.
    #[error("the number of the stream is in use")]
    NumberInUse,
}

/// The reason why [`crate::Streams::connect`] failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// `Streams::attach` was not called, or the node has ended.
    #[error("the streams belong to no running node: call `Streams::attach` after the node has started")]
    NotAttached,
    /// This node has too many streams to the peer.
    #[error("too many streams to node {0}: close some, or raise `StreamLimits::streams_per_peer`")]
    TooManyStreams(NodeId),
    /// The peer refused the stream.
    #[error("refused by the peer: {0}")]
    Refused(#[from] Refusal),
    /// The call that opens the stream failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The stream ended before it was open.
    #[error(transparent)]
    Ended(#[from] StreamError),
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::NotAttached => io::ErrorKind::NotConnected,
            ConnectError::TooManyStreams(_) => io::ErrorKind::QuotaExceeded,
            ConnectError::Refused(_) | ConnectError::Call(CallError::Rejected(_)) => {
                io::ErrorKind::ConnectionRefused
            }
            ConnectError::Call(CallError::Deadline { .. }) => io::ErrorKind::TimedOut,
            ConnectError::Call(_) => io::ErrorKind::ConnectionReset,
            ConnectError::Ended(ended) => ended.kind(),
        };
        Self::new(kind, error)
    }
}

/// The reason why a stream ended, in the `io::Error` of a read or write.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The other side dropped its stream.
    #[error("the peer has dropped the stream")]
    Reset,
    /// The peer went down.
    #[error("node {0} is down")]
    PeerDown(NodeId),
    /// The link to the peer was lost, and messages of the stream may be lost with it.
    #[error("the link to node {0} was lost: connect again")]
    LinkLost(NodeId),
    /// The peer sent more bytes than it was permitted to.
    #[error("the peer has sent up to byte {sent}, and may send {granted}")]
    WindowExceeded {
        /// The offset after the last byte.
        sent: u64,
        /// The offset that the peer may send up to.
        granted: u64,
    },
    /// A piece is missing, empty or after the end.
    #[error("the peer has sent a piece at byte {offset}, and byte {expected} is next")]
    OutOfSequence {
        /// The offset of the piece.
        offset: u64,
        /// The offset that was due.
        expected: u64,
    },
    /// The bytes of a piece could not be read.
    #[error("a piece could not be read")]
    Unreadable,
    /// The node has ended.
    #[error("the node has ended")]
    NodeEnded,
    /// A message could not be sent.
    #[error("cannot send: {0}")]
    Send(CallError),
}

impl StreamError {
    /// Returns the kind that a socket would report.
    pub const fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Reset | Self::PeerDown(_) | Self::LinkLost(_) => io::ErrorKind::ConnectionReset,
            Self::WindowExceeded { .. } | Self::OutOfSequence { .. } | Self::Unreadable => {
                io::ErrorKind::InvalidData
            }
            Self::NodeEnded => io::ErrorKind::ConnectionAborted,
            Self::Send(CallError::PeerDown { .. } | CallError::Rejected(_)) => io::ErrorKind::ConnectionReset,
            Self::Send(_) => io::ErrorKind::TimedOut,
        }
    }
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(error.kind(), error)
    }
}
