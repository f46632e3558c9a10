//! The errors of sends and receives.

use core::fmt;

use pronto_core::fabric::{GrantError, QueuePair};
use pronto_core::session::{End, NotReceived, SendError};
use pronto_wire::FailureCode;
use thiserror::Error;

use crate::awaiting::Refusal;
use crate::error::{CallError, CallRejection};
use crate::host::Host;

/// The reason why a send failed. `Debug` prints the same text as `Display`.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// This node or the peer rejected the send. No bytes were transferred.
    #[error(transparent)]
    Rejected(#[from] CallRejection),
    /// The region cannot be granted to the peer.
    #[error(transparent)]
    NotGranted(#[from] GrantError),
    /// The matching receive has a shorter buffer.
    #[error("the receiver's buffer is shorter than the message")]
    TooLong,
    /// The receiver cancelled the matching receive.
    #[error("the receiver cancelled its receive")]
    ReceiveCancelled,
    /// The receiver's connection cannot read granted memory.
    #[error("the receiver's provider does not support one-sided operations")]
    Unsupported,
    /// The memory from which the message was sent has lost its bytes.
    #[error("the message's memory cannot be read: it was unmapped, or its file is shorter now")]
    Unreadable,
    /// The deadline passed: the peer posted no matching receive, or the transfer did not complete in time.
    #[error(
        "the deadline passed before the message was received: check that the peer posts a receive with this tag"
    )]
    Deadline,
    /// The send was cancelled.
    #[error("the send was cancelled; the peer may or may not have received the message")]
    Cancelled,
    /// The peer went down. It may or may not have received the message.
    #[error("the peer is down; it may or may not have received the message")]
    PeerDown,
}

/// The reason why a receive failed. `Debug` prints the same text as `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// This node rejected the receive.
    #[error(transparent)]
    Rejected(#[from] CallRejection),
    /// The matching message is longer than the buffer.
    #[error("a message of {len} bytes is longer than the buffer")]
    TooLong {
        /// Length of the message, bytes.
        len: u64,
    },
    /// The receive was cancelled.
    #[error("the receive was cancelled")]
    Cancelled,
    /// This connection cannot read granted memory.
    #[error("this provider does not support one-sided operations")]
    Unsupported,
    /// The memory from which the peer sent has lost its bytes. A part of the message may be in the buffer.
    #[error("the sender's memory cannot be read: it was unmapped, or its file is shorter now")]
    Unreadable,
    /// The peer went down. A part of the message may be in the buffer.
    #[error("the peer is down")]
    PeerDown,
    /// No message arrived in time. The receive is still posted.
    #[error("no message arrived in time; the receive is still posted")]
    TimedOut,
    /// An earlier `wait` or `poll` returned the end of this receive.
    #[error("the result of this receive was already returned")]
    Taken,
}

impl fmt::Debug for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Refusal for TransferError {
    fn refusal(&self) -> Option<SendError> {
        match self {
            Self::Rejected(CallRejection::Here(refused)) => Some(*refused),
            _ => None,
        }
    }

    fn not_sent() -> Self {
        Self::Deadline
    }
}

/// Converts the end of a receive to the result that its caller gets.
pub(super) fn received<H: Host>(end: End<<H::Qp as QueuePair>::Lease>) -> Result<u64, ReceiveError> {
    match end {
        End::Done(len) => Ok(len),
        End::Failure { code: FailureCode::ReplyTooLarge, payload } => {
            let mut len = [0; 8];
            // The local session wrote these eight bytes.
            let _there = payload.copy_to(0, &mut len);
            Err(ReceiveError::TooLong { len: u64::from_le_bytes(len) })
        }
        End::Failure { .. } => Err(ReceiveError::Cancelled),
        End::Unsupported => Err(ReceiveError::Unsupported),
        End::Unreadable => Err(ReceiveError::Unreadable),
        _ => Err(ReceiveError::PeerDown),
    }
}

/// Converts the end of a send to the result that its caller gets.
pub(super) fn sent<H: Host>(end: End<<H::Qp as QueuePair>::Lease>) -> Result<(), TransferError> {
    match end {
        End::Reply(_) => Ok(()),
        End::Failure { code: FailureCode::HandlerError, payload } => {
            let mut why = [0];
            // A missing or unknown reason counts as a cancelled receive.
            let _there = payload.copy_to(0, &mut why);
            Err(not_received(why[0]))
        }
        End::Failure { code, .. } => Err(match CallError::from_failure(code, &[]) {
            CallError::Deadline { .. } => TransferError::Deadline,
            CallError::Rejected(rejection) => rejection.into(),
            _ => TransferError::Cancelled,
        }),
        End::Deadline { .. } => Err(TransferError::Deadline),
        _ => Err(TransferError::PeerDown),
    }
}

/// Returns the error of a send that its receiver has not accepted, for the reason in the receiver's response.
fn not_received(why: u8) -> TransferError {
    match NotReceived::from_wire(why) {
        Some(NotReceived::TooLong) => TransferError::TooLong,
        Some(NotReceived::Unsupported) => TransferError::Unsupported,
        Some(NotReceived::Unreadable) => TransferError::Unreadable,
        Some(NotReceived::Cancelled) | None => TransferError::ReceiveCancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_fails_for_the_reason_that_its_receiver_gives() {
        let error = |why: NotReceived| not_received(why as u8);
        assert_eq!(error(NotReceived::Cancelled), TransferError::ReceiveCancelled);
        assert_eq!(error(NotReceived::TooLong), TransferError::TooLong);
        assert_eq!(error(NotReceived::Unsupported), TransferError::Unsupported);
        assert_eq!(error(NotReceived::Unreadable), TransferError::Unreadable);
        for unknown in [0, 5, u8::MAX] {
            assert_eq!(not_received(unknown), TransferError::ReceiveCancelled);
        }
    }
}
