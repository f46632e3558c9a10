//! The token for the duties of a request outside of the engine's turn, which any thread may hold. See [`token`](crate::session::token).

use core::fmt;

use pronto_wire::{CallId, Class, FailureCode};

use super::Session;
use crate::executor::Executor;
use crate::fabric::QueuePair;
use crate::session::outgoing::{Carrier, Outgoing};
use crate::session::response::Response;
use crate::session::token::{Duties, RequestToken, TokenSlot};
use crate::time::Nanos;

impl Duties {
    /// Returns the credit and sends the response. The credit comes first, so that the response carries it.
    fn settle<C: Callee>(self, response: Response, callee: &C) {
        let Self { call, link, class } = self;
        let (session, executor) = (callee.session(), callee.executor());
        session.return_credit(class, link, executor);
        if let Some(call) = call {
            session.respond(call, link, class, response, executor);
        }
    }
}

impl RequestToken<'_> {
    /// Moves the duties out of the engine's turn into a token, which does them later through `callee`.
    #[inline]
    pub fn detach<C: Callee>(self, callee: C) -> DetachedToken<C> {
        DetachedToken { duties: Some(self.take()), callee }
    }
}

/// The session and the executor through which a detached token does its duties.
pub trait Callee {
    /// The type of the session's connections.
    type Qp: QueuePair;
    /// The type of the executor, which wakes threads.
    type Executor: Executor;

    /// Returns the session that received the request.
    fn session(&self) -> &Session<Self::Qp>;

    /// Returns the executor.
    fn executor(&self) -> &Self::Executor;
}

/// The duties of one inbound request or notification, outside of the engine's turn. Any thread may hold it. Consuming it
/// returns the credit and sends the response. Dropping it returns the credit and sends [`FailureCode::NoReply`].
///
/// ```compile_fail
/// use pronto_core::session::{Callee, DetachedToken};
/// use pronto_wire::FailureCode;
///
/// fn answer_twice<C: Callee>(token: DetachedToken<C>) {
///     token.fail(FailureCode::NoHandler);
///     token.fail(FailureCode::NoHandler);
/// }
/// ```
#[must_use = "dropping it fails the call"]
pub struct DetachedToken<C: Callee> {
    /// The duties; `None` only while the token is consumed or dropped.
    duties: Option<Duties>,
    callee: C,
}

impl<C: Callee> DetachedToken<C> {
    /// Returns the call that gets the response; none for a notification.
    pub fn call(&self) -> Option<CallId> {
        self.duties().call
    }

    /// Returns the class in which the request arrived.
    pub fn class(&self) -> Class {
        self.duties().class
    }

    /// Returns the callee through which the duties are done.
    pub const fn callee(&self) -> &C {
        &self.callee
    }

    /// Returns whether the caller has cancelled the call.
    pub fn is_cancelled(&self) -> bool {
        self.call().is_some_and(|call| self.callee.session().is_cancelled(call))
    }

    /// Returns the credit and sends this response. For a notification, only returns the credit.
    pub fn respond(mut self, response: Response) {
        self.take().settle(response, &self.callee);
    }

    /// Returns the credit and sends a failure without payload.
    pub fn fail(self, code: FailureCode) {
        self.respond(Response::failure(code));
    }

    /// Runs a handler with a token that is valid until the handler returns. Then, even if `handle` panics, returns the credit and sends
    /// the response, or [`FailureCode::NoReply`] if the handler has set none; does neither if the handler has detached the token again.
    pub fn handle(mut self, handle: impl FnOnce(&C, RequestToken<'_>)) {
        let mut turn = HandlerTurn { slot: TokenSlot::of(self.take()), callee: &self.callee };
        handle(&self.callee, turn.slot.token());
    }

    fn take(&mut self) -> Duties {
        self.duties.take().expect("a token is not used after its duties were taken")
    }

    fn duties(&self) -> &Duties {
        self.duties.as_ref().expect("a token that is not consumed has its duties")
    }
}

impl<C: Callee> Drop for DetachedToken<C> {
    fn drop(&mut self) {
        if let Some(duties) = self.duties.take() {
            duties.settle(Response::failure(FailureCode::NoReply), &self.callee);
        }
    }
}

impl<C: Callee> fmt::Debug for DetachedToken<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedToken").field("duties", &self.duties).finish_non_exhaustive()
    }
}

/// A guard for a handler that runs outside of the engine's turn. Dropping it, even while a panic unwinds, returns the credit and sends the
/// response, unless the token was detached.
struct HandlerTurn<'c, C: Callee> {
    slot: TokenSlot,
    callee: &'c C,
}

impl<C: Callee> Drop for HandlerTurn<'_, C> {
    fn drop(&mut self) {
        if let Some((duties, response)) = self.slot.settle() {
            duties.settle(response, self.callee);
        }
    }
}

impl<Q: QueuePair> Session<Q> {
    /// Sends the response to a request that arrived on `link` in `class`, outside of the engine's turn.
    pub(super) fn respond(
        &self,
        call: CallId,
        link: u16,
        class: Class,
        response: Response,
        executor: &impl Executor,
    ) {
        let (class, kind, payload) = response.into_message(call, class, &self.max_payload);
        let outgoing = Outgoing {
            class,
            link,
            kind,
            payload,
            carrier: Carrier::AnyLink,
            completes: None,
            timeout: Nanos::NEVER,
        };
        // If the submission queue is full, the response goes to the overflow list, which has room for every open call of a peer. A response
        // is therefore refused only if the peer has cancelled its call.
        if self.send(outgoing, executor).is_err() {
            self.stats.replies_lost.add(1);
        }
    }

    /// Returns the credit of a request or notification that arrived on `link` in `class`, outside of the engine's turn.
    pub(super) fn return_credit(&self, class: Class, link: u16, executor: &impl Executor) {
        if self.credit_returned(class, link) {
            self.wanted.credit();
            self.serve_left(executor);
        }
    }
}
