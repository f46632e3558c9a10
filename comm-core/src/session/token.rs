//! The token of an inbound request: the duties to send its response and to return its credit, which are done once.
//!
//! A request of the peer leaves this side with two duties; a notification leaves it with one, to return the credit. During
//! the engine's turn they belong to the engine, in a [`TokenSlot`] on its stack, and a handler gets a [`RequestToken`], a
//! pointer to that slot. After the turn the engine does both duties, unless the token was detached.
//! [`RequestToken::detach`] moves them into a [`DetachedToken`], which any thread may hold and which does both when it is
//! consumed or dropped. This split keeps the inline path free of references to the session.
//!
//! # Invariants
//! 1. A slot leaves [`State::Pending`] at most once, because a [`RequestToken`] is neither `Clone` nor `Copy`, every
//!    method that changes the state consumes it, and [`RequestToken::lend`] gives it back only while the slot is pending.
//! 2. The holder of the slot does the duties if and only if the slot is not [`State::Detached`].
//! 3. A [`DetachedToken`] has its [`Duties`] until it is consumed or dropped; whichever comes first takes them out.

use pronto_wire::{CallId, Class, FailureCode};

#[cfg(doc)]
use super::DetachedToken;
use super::response::Response;

/// The duties of this side for one inbound request.
#[derive(Debug)]
pub(super) struct Duties {
    /// The call that gets the response; none for a notification.
    pub(super) call: Option<CallId>,
    /// The link on which the request arrived, to which its credit and its response belong.
    pub(super) link: u16,
    /// The class in which the request arrived.
    pub(super) class: Class,
}

/// The state of the duties in a slot.
#[derive(Debug)]
enum State {
    /// There is no response yet. If this stays so, the holder of the slot fails the call with [`FailureCode::NoReply`].
    Pending,
    /// There is a response, which the holder of the slot sends.
    Responded(Response),
    /// A [`DetachedToken`] has the duties.
    Detached,
}

/// A slot with the duties of one request, which its holder does after the handler has returned. The engine has one on its stack for each
/// request.
#[derive(Debug)]
pub struct TokenSlot {
    state: State,
    duties: Duties,
}

impl TokenSlot {
    #[inline(always)]
    pub(super) const fn new(call: Option<CallId>, link: u16, class: Class) -> Self {
        Self { state: State::Pending, duties: Duties { call, link, class } }
    }

    /// Returns a slot for a request that was never received, for tests and measurements of request handling. It names a link that never
    /// exists: a token detached from it returns no credit, and its response is lost.
    pub const fn unowed(call: Option<CallId>, class: Class) -> Self {
        Self::new(call, u16::MAX, class)
    }

    /// Returns a slot for duties that were detached.
    pub(super) const fn of(duties: Duties) -> Self {
        Self { state: State::Pending, duties }
    }

    /// Takes the duties and the response out of the slot, unless the duties have moved into a [`DetachedToken`].
    pub(super) fn settle(&mut self) -> Option<(Duties, Response)> {
        if self.is_detached() {
            return None;
        }
        let Duties { call, link, class } = self.duties;
        let response = self.take_response();
        debug_assert!(self.is_detached(), "a slot owes nothing after it was settled");
        Some((Duties { call, link, class }, response))
    }

    /// Returns the token of the request. The engine passes it to several sinks in turn, until one has used it.
    #[inline(always)]
    pub fn token(&mut self) -> RequestToken<'_> {
        self.assert_pending();
        RequestToken(self)
    }

    /// Asserts that the request's token was not used.
    #[inline(always)]
    fn assert_pending(&self) {
        debug_assert!(matches!(self.state, State::Pending), "a request has one token: {:?}", self.state);
    }

    /// Returns the response, if a handler has set one.
    pub fn into_response(self) -> Option<Response> {
        match self.state {
            State::Responded(response) => Some(response),
            State::Pending | State::Detached => None,
        }
    }

    /// Returns whether the duties have moved into a [`DetachedToken`].
    #[inline(always)]
    pub(super) const fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached)
    }

    /// Returns a reference to the response, if there is one.
    #[inline(always)]
    pub(super) const fn response(&self) -> Option<&Response> {
        match &self.state {
            State::Responded(response) => Some(response),
            State::Pending | State::Detached => None,
        }
    }

    /// Takes the response out. Returns a failure if no handler has set one.
    #[inline]
    pub(super) fn take_response(&mut self) -> Response {
        match core::mem::replace(&mut self.state, State::Detached) {
            State::Responded(response) => response,
            State::Pending => Response::failure(FailureCode::NoReply),
            State::Detached => unreachable!("a detached token has the duties"),
        }
    }
}

/// The token of one inbound request or notification, which a handler holds during the engine's turn. It is consumed once. If it
/// is dropped, a call fails with [`FailureCode::NoReply`]. The credit is returned in any case.
///
/// ```compile_fail
/// use pronto_core::session::{Answer, RequestToken};
/// use pronto_wire::FailureCode;
///
/// fn answer_twice(token: RequestToken<'_>) {
///     token.fail(FailureCode::NoHandler);
///     token.fail(FailureCode::NoHandler);
/// }
/// ```
#[must_use = "dropping it fails the call"]
#[derive(Debug)]
pub struct RequestToken<'turn>(&'turn mut TokenSlot);

impl<'turn> RequestToken<'turn> {
    /// Returns the call that gets the response; none for a notification.
    #[inline(always)]
    pub const fn call(&self) -> Option<CallId> {
        self.0.duties.call
    }

    /// Returns the class in which the request arrived.
    #[inline(always)]
    pub const fn class(&self) -> Class {
        self.0.duties.class
    }

    /// Returns the link on which the request arrived. A grant that the request names ends with that link.
    #[inline(always)]
    pub const fn link(&self) -> u16 {
        self.0.duties.link
    }

    /// Sets the response, which is sent with the credit after the handler has returned. For a notification, only the credit is
    /// returned.
    #[inline(always)]
    pub fn respond(self, response: Response) {
        self.0.assert_pending();
        self.0.state = State::Responded(response);
    }

    /// Sets a failure without payload as the response.
    #[inline]
    pub fn fail(self, code: FailureCode) {
        self.respond(Response::failure(code));
    }

    /// Returns the credit of a notification. A request finished by this method fails with [`FailureCode::NoReply`].
    #[inline(always)]
    pub fn finish(self) {
        self.0.assert_pending();
    }

    /// Passes this token to `run`. Returns the result of `run`, and the token again if no response was set and it was not detached, so
    /// that the lender can set a failure if the handler panicked or did not run.
    #[inline(always)]
    pub fn lend<R>(self, run: impl FnOnce(RequestToken<'_>) -> R) -> (R, Option<Self>) {
        let result = run(RequestToken(self.0));
        let is_unused = matches!(self.0.state, State::Pending);
        (result, is_unused.then_some(self))
    }

    /// Takes the duties out of the slot. The caller does them.
    #[inline]
    pub(super) fn take(self) -> Duties {
        self.0.assert_pending();
        self.0.state = State::Detached;
        let Duties { call, link, class } = self.0.duties;
        Duties { call, link, class }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: CallId = CallId { slot: 3, generation: 7 };

    fn slot() -> TokenSlot {
        TokenSlot::new(Some(CALL), 2, Class::Bulk)
    }

    fn code(response: &Response) -> Option<FailureCode> {
        match response {
            Response::Failure { code, .. } => Some(*code),
            Response::Reply { .. } => None,
        }
    }

    #[test]
    fn a_token_that_is_dropped_fails_its_call() {
        let mut slot = slot();
        drop(slot.token());
        assert!(!slot.is_detached() && slot.response().is_none());
        assert_eq!(code(&slot.take_response()), Some(FailureCode::NoReply));
        assert!(slot.is_detached(), "the duties were taken out");
    }

    #[test]
    fn a_lent_token_is_returned_only_if_it_was_not_used() {
        let mut unused = slot();
        let ((), token) = unused.token().lend(|token| drop(token));
        token.expect("the token was not used").fail(FailureCode::HandlerPanicked);
        assert_eq!(unused.into_response().as_ref().and_then(code), Some(FailureCode::HandlerPanicked));

        let mut responded = slot();
        let ((), token) = responded.token().lend(|token| token.fail(FailureCode::Draining));
        assert!(token.is_none());
        assert_eq!(code(&responded.take_response()), Some(FailureCode::Draining));

        let mut moved = slot();
        let (duties, token) = moved.token().lend(|token| token.take());
        assert!(token.is_none() && moved.is_detached() && moved.into_response().is_none());
        assert_eq!((duties.call, duties.link, duties.class), (Some(CALL), 2, Class::Bulk));
    }

    #[test]
    fn a_token_returns_its_call_class_and_link() {
        let mut slot = slot();
        let token = slot.token();
        assert_eq!((token.call(), token.class(), token.link()), (Some(CALL), Class::Bulk, 2));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a request has one token")]
    fn a_slot_whose_token_was_used_gives_no_other() {
        let mut slot = slot();
        slot.token().fail(FailureCode::Draining);
        drop(slot.token());
    }

    #[test]
    fn a_slot_is_settled_once_and_not_after_its_token_was_detached() {
        let mut dropped = slot();
        let (duties, response) = dropped.settle().expect("the slot has the duties");
        assert_eq!((duties.call, duties.link, duties.class), (Some(CALL), 2, Class::Bulk));
        assert_eq!(code(&response), Some(FailureCode::NoReply));
        assert!(dropped.settle().is_none(), "the duties were taken out");

        let mut again = TokenSlot::of(slot().token().take());
        again.token().fail(FailureCode::Draining);
        let (duties, response) = again.settle().expect("the slot has the duties again");
        assert_eq!((duties.call, code(&response)), (Some(CALL), Some(FailureCode::Draining)));

        let mut moved = slot();
        let _duties = moved.token().take();
        assert!(moved.settle().is_none(), "another token has the duties");
    }
}
