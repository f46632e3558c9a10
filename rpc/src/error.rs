//! The errors of a call. Each tells whether the handler ran.

use alloc::boxed::Box;

use core::fmt;

use pronto_core::session::{DownCause, Executed, MessageName, SendError};
use pronto_wire::{FailureCode, NodeId};
use thiserror::Error;

use crate::codec::{Full, Malformed, Payload, decode_message};
use crate::message::Message;

/// The reason why a call has no reply. `Debug` prints the same human-readable text as `Display`, because that is the form that is
/// printed when `main` returns the error.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The handler returned an error of its own.
    #[error("the handler returned {0}")]
    Handler(HandlerError),
    /// The handler ran, but gave no reply: it panicked, dropped its responder, or its reply could not be sent.
    #[error("no reply: {0}")]
    NoReply(FailureCode),
    /// The deadline passed. The call keeps its slot, one of `limits.calls`, until a late response arrives or the peer disconnects.
    #[error(
        "the deadline passed, and {executed}: give it more time (`call_within`), or check what delays the peer (`pronto status`)"
    )]
    Deadline {
        /// Whether the handler ran.
        executed: Executed,
    },
    /// The call was cancelled.
    #[error("the call was cancelled, and {executed}")]
    Cancelled {
        /// Whether the handler ran.
        executed: Executed,
    },
    /// The peer disconnected or its process ended.
    #[error("node {peer} is down{}, and {executed}: once it is back, repeat the call if that does no harm", Because(*cause))]
    PeerDown {
        /// The peer.
        peer: NodeId,
        /// The cause. `None` if the connection ended before this node had read a response that arrived.
        cause: Option<DownCause>,
        /// Whether the handler ran.
        executed: Executed,
    },
    /// This node or the peer rejected the call; the handler did not run.
    #[error("rejected: {0}")]
    Rejected(CallRejection),
    /// The reply is not a valid value of its type.
    #[error("the reply is malformed: {0}")]
    MalformedReply(Malformed),
}

/// The reason why a call was rejected. The handler did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallRejection {
    /// This node refused the call before it sent anything.
    #[error(transparent)]
    Here(#[from] SendError),
    /// The peer refused the call.
    #[error("by the peer: {0}")]
    There(FailureCode),
    /// An inline handler must not wait for a call.
    #[error("an inline handler must not wait: register the handler with an order instead")]
    InlineHandler,
    /// This process is a forked child of the node's process. The connections stay with the parent.
    #[error("this process is a forked child of the node's process: create a node in this process")]
    Forked,
    /// All spare workers wait in nested calls already.
    #[error(
        "no spare worker is left for a call within a handler: use `handle_async` for handlers that make calls"
    )]
    NoWorker,
    /// The value encodes to more bytes than its announced length.
    #[error("encoding failed: {0}")]
    Encoding(Full),
}

/// An error value that a handler returned, in encoded form until [`HandlerError::decode`] is called with its type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("an error value of {} bytes: decode it with `HandlerError::decode` as the handler's error type", bytes.len())]
pub struct HandlerError {
    bytes: Box<[u8]>,
}

impl HandlerError {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into() }
    }

    /// Decodes the error as `E`, the handler's error type.
    pub fn decode<E: Payload>(&self) -> Result<E, Malformed> {
        decode_message(&self.bytes)
    }
}

impl CallError {
    /// Returns whether the handler ran: no, maybe, yes.
    pub const fn executed(&self) -> Executed {
        match self {
            Self::Handler(_) | Self::NoReply(_) | Self::MalformedReply(_) => Executed::Yes,
            Self::Rejected(_) => Executed::No,
            Self::Deadline { executed } | Self::Cancelled { executed } | Self::PeerDown { executed, .. } => {
                *executed
            }
        }
    }

    /// Returns whether a repeated call may succeed and cannot execute the request twice.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Rejected(CallRejection::Here(refused)) => refused.is_retryable(),
            Self::Rejected(CallRejection::There(FailureCode::NoWorker)) => true,
            Self::PeerDown { executed, .. } => matches!(executed, Executed::No),
            _ => false,
        }
    }

    pub(crate) fn from_failure(code: FailureCode, payload: &[u8]) -> Self {
        match code {
            FailureCode::HandlerError => Self::Handler(HandlerError::new(payload)),
            FailureCode::Expired => Self::Deadline { executed: Executed::No },
            FailureCode::Cancelled => Self::Cancelled { executed: Executed::No },
            code if code.executed() => Self::NoReply(code),
            code => Self::Rejected(CallRejection::There(code)),
        }
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A cause in brackets, if there is one.
struct Because(Option<DownCause>);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

impl From<CallRejection> for CallError {
    fn from(rejection: CallRejection) -> Self {
        Self::Rejected(rejection)
    }
}

/// Returns the error of a refused message of type `M`, which names the type.
#[cold]
pub(crate) fn refused<M: Message>(refused: SendError) -> CallError {
    let message = MessageName::Text(M::NAME);
    CallError::from(match refused {
        SendError::NoHandler { service, .. } => SendError::NoHandler { name: message, service },
        SendError::OtherLayout { .. } => SendError::OtherLayout { name: message },
        other => other,
    })
}

impl From<SendError> for CallError {
    fn from(refused: SendError) -> Self {
        Self::Rejected(CallRejection::Here(refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repeatable_if_its_peer_went_down_before_it_ran() {
        let down = |executed| CallError::PeerDown { peer: NodeId(2), cause: None, executed };
        assert!(down(Executed::No).is_retryable());
        for executed in [Executed::Maybe, Executed::Yes] {
            assert!(!down(executed).is_retryable(), "{executed:?}");
        }
    }
}
