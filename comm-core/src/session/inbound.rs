//! Requests and notifications as a sink gets them, and the duplicate filter's entry for each of the peer's call slots.

use pronto_wire::{CallId, Class, Kind, ServiceId, TypeId};

use super::link::Event;
use super::outgoing::OutgoingPayload;
use super::token::RequestToken;
use crate::fabric::Arrived;
use crate::time::Nanos;

/// A request or notification that passed all checks of the session.
#[derive(Debug)]
pub struct Inbound<'turn, P> {
    /// The duties of this side: to send the response, and to return the credit.
    pub token: RequestToken<'turn>,
    /// This node's number for its type.
    pub type_id: TypeId,
    /// Addressed service.
    pub service: ServiceId,
    /// True if the request was sent or composed on an earlier link. Grants that it names ended with that link.
    pub resent: bool,
    /// Time from now until the caller stops waiting; `NEVER` if it has no deadline.
    pub timeout: Nanos,
    /// Its payload.
    pub payload: P,
}

/// The receiver of a session's requests, notifications and events.
pub trait Sink<L> {
    /// Takes a request or notification. The sink decides whether its handler runs here; the sink of a waiting caller
    /// queues every message. A sink that does not respond here detaches the token.
    fn request(&mut self, inbound: Inbound<'_, Arrived<L>>);

    /// Takes a request like [`Self::request`], with a payload in an engine-owned buffer that is valid only during this call.
    /// Returns `false`, without using the token, if the handler does not run here; the sink then gets an owned payload
    /// through [`Self::request`].
    #[inline]
    fn request_here(&mut self, inbound: Inbound<'_, &[u8]>) -> bool {
        let _ = inbound;
        false
    }

    /// Takes an event of the peer.
    fn event(&mut self, event: Event);

    /// Called when the peer has cancelled a call, which it also does at the call's deadline. The request may not have arrived, or may have
    /// been answered.
    #[inline]
    fn cancelled(&mut self, call: CallId) {
        let _ = call;
    }
}

/// The duplicate filter's entry for the last call in one of the peer's slots, with the cached response.
#[derive(Debug, Default)]
pub(super) struct LastCall {
    pub(super) generation: u32,
    pub(super) state: LastCallState,
}

#[derive(Debug, Default)]
pub(super) enum LastCallState {
    /// No call yet.
    #[default]
    Never,
    /// The handler has not responded yet. The response is sent if the link on which the request last arrived still exists.
    Executing {
        /// The generation of that link.
        link: u16,
    },
    /// The handler has responded. If the session survives the loss of a link, the response is kept until the peer has acknowledged it.
    Responded(Option<CachedResponse>),
}

/// A cached response that the peer may not have received.
#[derive(Debug)]
pub(super) struct CachedResponse {
    pub(super) class: Class,
    pub(super) kind: Kind,
    pub(super) payload: OutgoingPayload,
    /// The link on which the response was last posted. It need not be posted again on that link, where the peer has no room for a second
    /// response.
    pub(super) posted_on: Option<u16>,
}
