//! How a call ends if it is not answered: five ways, each saying whether the handler ran. The sixth is the reply.

use alloc::boxed::Box;

use pronto_core::session::{Executed, Refused};
use pronto_wire::FailureCode;
use thiserror::Error;

use crate::codec::{Full, Malformed, Payload, decode_message};

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The handler returned an error of its own.
    #[error("the handler returned {0}")]
    Handler(HandlerError),
    /// The handler ran, but not to a reply: it panicked, dropped its responder, or its reply cannot be carried.
    #[error("no reply: {0}")]
    NoReply(FailureCode),
    /// The deadline passed. The call keeps its slot, one of `limits.calls`, until its answer comes after all or the peer goes.
    #[error(
        "the deadline passed, and {executed}: give it more time (`call_within`), or see what keeps the peer (`pronto status`)"
    )]
    Deadline {
        /// Whether the handler ran.
        executed: Executed,
    },
    /// Cancelled.
    #[error("cancelled, and {executed}")]
    Cancelled {
        /// Whether the handler ran.
        executed: Executed,
    },
    /// The peer went away.
    #[error("the peer went away, and {executed}: once it is back, call again if twice does no harm")]
    PeerDown {
        /// Whether the handler ran.
        executed: Executed,
    },
    /// Not taken, here or there; the handler did not run.
    #[error("rejected: {0}")]
    Rejected(Rejection),
    /// There is a reply, but it is no legal value of its type.
    #[error("the reply is malformed: {0}")]
    MalformedReply(Malformed),
}

/// Why a call was not taken. The handler did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Rejection {
    /// By this node, before anything was sent.
    #[error(transparent)]
    Here(#[from] Refused),
    /// By the callee.
    #[error("by the callee: {0}")]
    There(FailureCode),
    /// A handler that runs inline may not wait for a call.
    #[error("an inline handler may not wait: register it with its order instead")]
    InlineHandler,
    /// The process was forked; connections stay with the parent.
    #[error("this process is a fork of the node's: make a node of its own")]
    Forked,
    /// All spare workers wait in nested calls already.
    #[error(
        "no spare worker left for a call within a handler: answer later (`handle_deferred`) where handlers call"
    )]
    NoWorker,
    /// The value encodes to something other than its announced length.
    #[error("encoding failed: {0}")]
    Encoding(Full),
}

/// A handler's own error, as bytes until somebody says which type it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("an error of its own, {} bytes: `HandlerError::decode` reads it as the type that the handler returns", bytes.len())]
pub struct HandlerError {
    bytes: Box<[u8]>,
}

impl HandlerError {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into() }
    }

    /// The error, as the type that the handler returns.
    pub fn decode<E: Payload>(&self) -> Result<E, Malformed> {
        decode_message(&self.bytes)
    }
}

impl CallError {
    /// Whether the handler ran: no, maybe, yes.
    pub const fn executed(&self) -> Executed {
        match self {
            Self::Handler(_) | Self::NoReply(_) | Self::MalformedReply(_) => Executed::Yes,
            Self::Rejected(_) => Executed::No,
            Self::Deadline { executed } | Self::Cancelled { executed } | Self::PeerDown { executed } => {
                *executed
            }
        }
    }

    /// Whether calling again may help and cannot execute anything twice.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Rejected(Rejection::Here(refused)) => refused.is_retryable(),
            Self::Rejected(Rejection::There(FailureCode::NoWorker)) => true,
            Self::PeerDown { executed } => matches!(executed, Executed::No),
            _ => false,
        }
    }

    pub(crate) fn from_failure(code: FailureCode, payload: &[u8]) -> Self {
        match code {
            FailureCode::HandlerError => Self::Handler(HandlerError::new(payload)),
            FailureCode::Expired => Self::Deadline { executed: Executed::No },
            FailureCode::Cancelled => Self::Cancelled { executed: Executed::No },
            code if code.executed() => Self::NoReply(code),
            code => Self::Rejected(Rejection::There(code)),
        }
    }
}

impl From<Rejection> for CallError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<Refused> for CallError {
    fn from(refused: Refused) -> Self {
        Self::Rejected(Rejection::Here(refused))
    }
}
