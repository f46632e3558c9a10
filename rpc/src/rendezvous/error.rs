//! How sends and receives end, as their callers see it.

use pronto_core::fabric::{GrantError, QueuePair};
use pronto_core::session::{End, NotReceived};
use pronto_wire::FailureCode;
use thiserror::Error;

use crate::error::{CallError, Rejection};
use crate::host::Host;

/// Why a message did not get into a buffer of its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Not taken, here or there. Nothing was sent.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The region cannot be granted to the peer.
    #[error(transparent)]
    NotGranted(#[from] GrantError),
    /// The receive that it met has a shorter buffer.
    #[error("the receiver's buffer is shorter than the message")]
    TooLong,
    /// The receive that it met was cancelled.
    #[error("the receiver cancelled its receive")]
    ReceiveCancelled,
    /// The receiver's connection cannot read granted memory.
    #[error("this provider has no one-sided operations")]
    Unsupported,
    /// The deadline passed: no receive was posted, or it was not done in time.
    #[error(
        "the deadline passed before the message was received: has the peer posted a receive, of this tag and long enough?"
    )]
    Deadline,
    /// The send was cancelled.
    #[error("cancelled; whether the message was received is not known")]
    Cancelled,
    /// The peer went away; it may or may not have received the message.
    #[error("peer down; it may or may not have received the message")]
    PeerDown,
}

/// Why a receive has no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Not taken.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The message that it met is longer than its buffer.
    #[error("a message of {len} bytes is longer than the buffer")]
    TooLong {
        /// Length of the message, bytes.
        len: u64,
    },
    /// It was cancelled.
    #[error("the receive was cancelled")]
    Cancelled,
    /// This connection cannot read granted memory.
    #[error("this provider has no one-sided operations")]
    Unsupported,
    /// The peer went away. A part of the message may be in the buffer.
    #[error("peer down")]
    PeerDown,
    /// Nothing in time. The receive is still posted.
    #[error("no message in time; the receive is still posted")]
    TimedOut,
    /// Its end was taken before.
    #[error("the end of this receive was taken before")]
    Taken,
}

/// The end of a receive.
pub(super) fn received<H: Host>(end: End<<H::Qp as QueuePair>::Lease>) -> Result<u64, ReceiveError> {
    match end {
        End::Done(len) => Ok(len),
        End::Failure { code: FailureCode::ReplyTooLarge, payload } => {
            let mut len = [0; 8];
            // The session put it there itself.
            let _there = payload.copy_to(0, &mut len);
            Err(ReceiveError::TooLong { len: u64::from_le_bytes(len) })
        }
        End::Failure { .. } => Err(ReceiveError::Cancelled),
        End::Unsupported => Err(ReceiveError::Unsupported),
        _ => Err(ReceiveError::PeerDown),
    }
}

/// The end of a send.
pub(super) fn sent<H: Host>(end: End<<H::Qp as QueuePair>::Lease>) -> Result<(), SendError> {
    match end {
        End::Reply(_) => Ok(()),
        End::Failure { code: FailureCode::HandlerError, payload } => {
            let mut why = [0];
            // A peer that gives no reason, or none that we know, has cancelled it for all we can tell.
            let _there = payload.copy_to(0, &mut why);
            Err(match NotReceived::from_wire(why[0]) {
                Some(NotReceived::TooLong) => SendError::TooLong,
                Some(NotReceived::Unsupported) => SendError::Unsupported,
                _ => SendError::ReceiveCancelled,
            })
        }
        End::Failure { code, .. } => Err(match CallError::from_failure(code, &[]) {
            CallError::Deadline { .. } => SendError::Deadline,
            CallError::Rejected(rejection) => rejection.into(),
            _ => SendError::Cancelled,
        }),
        End::Deadline { .. } => Err(SendError::Deadline),
        _ => Err(SendError::PeerDown),
    }
}
