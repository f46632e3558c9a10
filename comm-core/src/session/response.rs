//! The response to a request: a reply, or a failure with a code.

use pronto_sync::atomic::{AtomicU32, Ordering};
use pronto_wire::{CallId, Class, FailureCode, Kind};

use super::outgoing::OutgoingPayload;

/// The response to a request.
#[derive(Debug)]
pub enum Response {
    /// The handler's reply.
    Reply {
        /// The class that the reply travels in.
        class: Class,
        /// Its payload.
        payload: OutgoingPayload,
    },
    /// A failure.
    Failure {
        /// The reason.
        code: FailureCode,
        /// The handler's encoded error value, or nothing.
        payload: OutgoingPayload,
    },
}

impl Response {
    /// Returns a failure without payload.
    pub const fn failure(code: FailureCode) -> Self {
        Self::Failure { code, payload: OutgoingPayload::EMPTY }
    }

    /// Returns the response message for a call that arrived in `class`. Replaces a response that is longer than the caller receives
    /// (`longest`, by class) by a failure, as a connection fails if it is given a longer message.
    #[inline]
    pub(super) fn into_message(
        self,
        call: CallId,
        class: Class,
        longest: &[AtomicU32; 2],
    ) -> (Class, Kind, OutgoingPayload) {
        let (class, kind, payload) = match self {
            Self::Reply { class, payload } => (class, Kind::Reply { call }, payload),
            Self::Failure { code, payload } => (class, Kind::Failure { call, code }, payload),
        };
        if payload.len() > longest[class.index()].load(Ordering::Relaxed) as usize {
            let kind = Kind::Failure { call, code: FailureCode::ReplyTooLarge };
            return (class, kind, OutgoingPayload::EMPTY);
        }
        (class, kind, payload)
    }
}
