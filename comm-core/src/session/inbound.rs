//! A request or notification as a sink gets it, and what the duplicate filter keeps of each call.

use pronto_wire::{Class, Kind, ServiceId, TypeId};

use super::link::Event;
use super::outgoing::OutgoingPayload;
use super::token::RequestToken;
use crate::fabric::Arrived;
use crate::time::Nanos;

/// A request or notification that passed all checks of the session.
#[derive(Debug)]
pub struct Inbound<'turn, P> {
    /// The duties that it leaves this side with: its response, and its credit.
    pub token: RequestToken<'turn>,
    /// This node's number for its type.
    pub type_id: TypeId,
    /// Addressed service.
    pub service: ServiceId,
    /// It was sent before, on an earlier link: what it says of that link's grants is over.
    pub resent: bool,
    /// How long the caller goes on waiting from now; `NEVER` for ever.
    pub timeout: Nanos,
    /// What it carries.
    pub payload: P,
}

/// Where a session's engine hands what arrives.
pub trait Sink<L> {
    /// Takes a request or notification. The sink decides whether its handler runs here: the sink of a waiting caller
    /// queues everything. A sink that does not answer here detaches the token.
    fn request(&mut self, inbound: Inbound<'_, Arrived<L>>);

    /// Like [`Self::request`], for a payload in an engine-owned buffer, valid only during this call. Returns `false`, and
    /// leaves the token alone, if the handler does not run here; the sink then gets an owned payload through
    /// [`Self::request`].
    #[inline]
    fn request_here(&mut self, inbound: Inbound<'_, &[u8]>) -> bool {
        let _ = inbound;
        false
    }

    /// Something happened to the peer.
    fn event(&mut self, event: Event);
}

/// What this side knows of the last call in one of the peer's slots: the duplicate filter, and the reply cache.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) generation: u32,
    pub(super) state: SeenState,
}

#[derive(Debug, Default)]
pub(super) enum SeenState {
    /// No call yet.
    #[default]
    Never,
    /// Its handler has not responded yet. The response goes out if this link, on which the request came last, is still there.
    Executing {
        /// The link's generation.
        link: u16,
    },
    /// Answered. The answer is kept on links that a session outlives, until the peer has acknowledged it.
    Answered(Option<KeptAnswer>),
}

/// An answer that the peer may not have.
#[derive(Debug)]
pub(super) struct KeptAnswer {
    pub(super) class: Class,
    pub(super) kind: Kind,
    pub(super) payload: OutgoingPayload,
    /// The link on which it went out last: there it need not go out again, and there is no room for a second one.
    pub(super) posted_on: Option<u16>,
}
