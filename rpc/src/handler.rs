//! Handlers: typed functions, type-erased to functions from bytes to a response.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::fabric::{Arrived, QueuePair, Withdrawn};
use pronto_core::session::{
    Callee, DetachedToken, OutgoingPayload, RequestToken, Response, Session, TypeKey,
};
use pronto_wire::{CallId, Class, FailureCode, NodeId, ServiceId};

use crate::async_handler::ResponseFuture;
use crate::codec::{Malformed, Payload, decode_message};
use crate::decoding::{Decoded, Decoding};
use crate::encode::{NotEncoded, encode};
use crate::error::CallError;
use crate::host::Host;
use crate::in_place::InPlace;
use crate::message::{Message, Order, Request};
use crate::peer::{LeaseOf, Peer};
use crate::rendezvous::{ByReference, Eager, Form, Regrant};

/// The place where a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMode {
    /// On the thread that receives the message; must not block.
    Inline,
    /// On any worker of the pool.
    Unordered,
    /// In the lane of its type, one after another.
    Ordered,
    /// In the lane of its key, one after another.
    ByKey,
    /// An internal rendezvous message: processed by the polling thread.
    Rendezvous(Form),
}

impl From<Order> for RouteMode {
    fn from(order: Order) -> Self {
        match order {
            Order::Unordered => Self::Unordered,
            Order::Ordered => Self::Ordered,
            Order::ByKey => Self::ByKey,
        }
    }
}

type OfMessage<H> = Box<dyn Decoding<H>>;
type OfPlace<H> = Box<dyn Fn(&Incoming<'_, H>, &InPlace<'_>, RequestToken<'_>) + Send + Sync>;

/// A handler, by the form in which it takes the message.
pub(crate) enum Run<H: Host> {
    /// Takes the decoded message.
    Decoded(OfMessage<H>),
    /// Takes the encoded message in the memory where it arrived.
    InPlace(OfPlace<H>),
    /// Takes the decoded message and returns a future.
    Async(OfFuture<H>),
}
type OfFuture<H> =
    Box<dyn Fn(&Incoming<'_, H>, Arrived<LeaseOf<H>>) -> Result<ResponseFuture, FailureCode> + Send + Sync>;
type KeyOf = fn(&[u8]) -> Result<u64, Malformed>;

/// A registered message type, with its handler and the place where the handler runs.
pub struct Route<H: Host> {
    /// The type, as peers identify it.
    pub key: TypeKey,
    /// The type's human-readable name.
    pub name: &'static str,
    /// The place where the handler runs.
    pub mode: RouteMode,
    key_of: KeyOf,
    pub(crate) run: Run<H>,
}

/// The context of a received message, as its handler gets it.
pub struct Incoming<'a, H: Host> {
    /// The session that received the message.
    pub session: &'a Arc<Session<H::Qp>>,
    /// The node that received the message.
    pub host: &'a Arc<H>,
    /// The call; none for a notification.
    pub call: Option<CallId>,
    /// The time when the caller stops waiting, by the host's clock. `NEVER` if there is none, and for inline handlers, which do not use it.
    pub deadline: Nanos,
}

impl<H: Host> Route<H> {
    /// Returns the route of a handler that runs on the receiving thread. Its context has no operation that waits.
    pub fn inline<M: Request, A: IntoResponse<M::Reply>>(
        handler: impl Fn(&InlineContext<'_, H>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, message, token| {
            let result = handler(&InlineContext { incoming }, message);
            token.respond(result.into_response(incoming.session, &|_| {}));
        })
    }

    /// Returns the route of a handler that runs on the pool, in the order that its type declares.
    pub fn pooled<M: Request, A: IntoResponse<M::Reply>>(
        handler: impl Fn(&Context<'_, H>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(M::ORDER.into(), move |incoming, message, token| {
            let result = handler(&Context { incoming }, message);
            let retry_wait = |attempt: &mut dyn FnMut() -> bool| incoming.try_with_retries(attempt);
            token.respond(result.into_response(incoming.session, &retry_wait));
        })
    }

    /// Returns the route of a handler that may reply later: it gets a responder, which it can pass to another thread. The handler runs
    /// inline and must not block. If it panics while it still owns the responder, the responder is dropped.
    pub fn deferred<M: Request>(
        handler: impl Fn(&InlineContext<'_, H>, M, Responder<M::Reply, H>) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, message, token| {
            if token.call().is_none() {
                return token.finish();
            }
            let responder = Responder::new(token.detach(incoming.origin()));
            handler(&InlineContext { incoming }, message, responder);
        })
    }

    /// Returns the route of a notification handler that runs on the receiving thread.
    pub fn inline_notification<M: Message>(
        handler: impl Fn(&InlineContext<'_, H>, M) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, message, token| {
            handler(&InlineContext { incoming }, message);
            token.finish();
        })
    }

    /// Returns the route of a notification handler that runs on the pool, in the order that its type declares.
    pub fn pooled_notification<M: Message>(
        handler: impl Fn(&Context<'_, H>, M) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(M::ORDER.into(), move |incoming, message, token| {
            handler(&Context { incoming }, message);
            token.finish();
        })
    }

    /// Returns the route of a handler that gets the request encoded, in the memory where it arrived. It is for long payloads, of which a
    /// copy costs more than the call. Only the length of the payload was checked. The handler runs on the receiving thread.
    pub fn inline_in_place<M: Request, A: IntoResponse<M::Reply>>(
        handler: impl Fn(&InlineContext<'_, H>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::in_place::<M>(RouteMode::Inline, move |incoming, place, token| {
            let result = handler(&InlineContext { incoming }, place);
            token.respond(result.into_response(incoming.session, &|_| {}));
        })
    }

    /// Returns the route of a handler that gets a notification encoded, in the memory where it arrived. It runs on the receiving thread.
    pub fn inline_notification_in_place<M: Message>(
        handler: impl Fn(&InlineContext<'_, H>, &InPlace<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::in_place::<M>(RouteMode::Inline, move |incoming, place, token| {
            handler(&InlineContext { incoming }, place);
            token.finish();
        })
    }

    /// Returns the route of a handler that gets the request encoded, in the memory where it arrived. It runs on the pool, in the order
    /// that its type declares. If the type has a key, the whole message is decoded to get it.
    pub fn pooled_in_place<M: Request, A: IntoResponse<M::Reply>>(
        handler: impl Fn(&Context<'_, H>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::in_place::<M>(M::ORDER.into(), move |incoming, place, token| {
            let result = handler(&Context { incoming }, place);
            let retry_wait = |attempt: &mut dyn FnMut() -> bool| incoming.try_with_retries(attempt);
            token.respond(result.into_response(incoming.session, &retry_wait));
        })
    }

    /// Returns the routes of the internal rendezvous messages, which every node has.
    pub fn rendezvous() -> [Self; 3] {
        // Sinks process these messages themselves and never run a handler.
        fn no_handler<H: Host, M: Message>(_: &Incoming<'_, H>, _: M, token: RequestToken<'_>) {
            token.fail(FailureCode::NoHandler);
        }
        [
            Self::new(RouteMode::Rendezvous(Form::ByReference), no_handler::<H, ByReference>),
            Self::new(RouteMode::Rendezvous(Form::Eager), no_handler::<H, Eager>),
            Self::new(RouteMode::Rendezvous(Form::Regrant), no_handler::<H, Regrant>),
        ]
    }

    /// Returns this route for another service.
    #[must_use]
    pub fn in_service(mut self, service: ServiceId) -> Self {
        self.key.service = service;
        self
    }

    fn new<M: Message + 'static>(
        mode: RouteMode,
        handle: impl Fn(&Incoming<'_, H>, M, RequestToken<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::of::<M>(mode, Run::Decoded(Box::new(Decoded::new(handle))))
    }

    fn in_place<M: Message>(
        mode: RouteMode,
        run: impl Fn(&Incoming<'_, H>, &InPlace<'_>, RequestToken<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::of::<M>(mode, Run::InPlace(Box::new(run)))
    }

    pub(crate) fn of<M: Message>(mode: RouteMode, run: Run<H>) -> Self {
        let (name, layout) = M::type_key();
        let key = TypeKey { service: ServiceId(0), name, layout };
        let key_of = |bytes: &[u8]| decode_message::<M>(bytes).map(|message| message.key());
        Self { key, name: M::NAME, mode, key_of, run }
    }

    /// Returns the lane of a message, if the mode is [`RouteMode::ByKey`].
    pub fn lane_of(&self, bytes: &[u8]) -> Result<u64, Malformed> {
        (self.key_of)(bytes)
    }

    /// Runs the handler, which consumes the token, unless the payload was withdrawn. An async handler is not run: see [`Route::begin`].
    pub fn run(&self, incoming: &Incoming<'_, H>, payload: Arrived<LeaseOf<H>>, token: RequestToken<'_>) {
        let (ran, unused) = token.lend(|token| match &self.run {
            Run::Decoded(decoding) => decoding.run(incoming, payload, token),
            Run::InPlace(run) => {
                payload.validate().map(|()| run(incoming, &InPlace::arrived(&payload), token))
            }
            Run::Async(_) => {
                token.fail(FailureCode::NoHandler);
                Ok(())
            }
        });
        if let (Err(Withdrawn), Some(token)) = (ran, unused) {
            // The caller has ended the link, which ended the call, too.
            token.fail(FailureCode::Cancelled);
        }
    }

    /// Runs the handler on a payload that no other process can write to.
    #[inline]
    pub fn run_on(&self, incoming: &Incoming<'_, H>, payload: &[u8], token: RequestToken<'_>) {
        match &self.run {
            Run::Decoded(decoding) => decoding.run_on(incoming, payload, token),
            Run::InPlace(run) => run(incoming, &InPlace::from(payload), token),
            Run::Async(_) => token.fail(FailureCode::NoHandler),
        }
    }
}

impl<'a, H: Host> Incoming<'a, H> {
    /// Repeats `attempt` until it returns true, the caller's deadline passes, or [`REPLY_RETRY_LIMIT`] ends. Another worker takes this
    /// worker's place in the pool meanwhile, so that a peer that receives no replies does not delay the calls of other peers.
    fn try_with_retries(&self, attempt: &mut dyn FnMut() -> bool) {
        let until = self.deadline.min(self.host.now() + REPLY_RETRY_LIMIT);
        let retry_wait = || {
            while !attempt() && self.host.now() < until {
                self.host.pause();
            }
        };
        // Without a spare worker to take over, the reply is not tried again.
        let _no_spare = self.host.while_waiting(retry_wait);
    }

    /// Returns the context of a handler for one message.
    pub const fn new(
        call: Option<CallId>,
        session: &'a Arc<Session<H::Qp>>,
        host: &'a Arc<H>,
        deadline: Nanos,
    ) -> Self {
        Self { session, host, call, deadline }
    }

    fn origin(&self) -> Origin<H> {
        Origin { session: Arc::clone(self.session), host: Arc::clone(self.host) }
    }
}

/// The session and the node that received a request, for a token that outlives the engine's turn.
pub struct Origin<H: Host> {
    /// The session.
    pub session: Arc<Session<H::Qp>>,
    /// The node.
    pub host: Arc<H>,
}

impl<H: Host> Callee for Origin<H> {
    type Qp = H::Qp;
    type Executor = H;

    fn session(&self) -> &Session<H::Qp> {
        &self.session
    }

    fn executor(&self) -> &H {
        &self.host
    }
}

/// The context of an inline handler, for sending without waiting. It has no operation that waits.
pub struct InlineContext<'a, H: Host> {
    incoming: &'a Incoming<'a, H>,
}

impl<H: Host> InlineContext<'_, H> {
    /// Returns the node that sent the message.
    pub fn source(&self) -> NodeId {
        self.incoming.session.peer()
    }

    /// Returns the node that the handler runs on.
    pub fn host(&self) -> &Arc<H> {
        self.incoming.host
    }

    /// Sends a notification back to the sender, if there is room.
    pub fn try_notify<M: Message>(&self, message: &M) -> Result<(), CallError> {
        self.peer().notify(message)
    }

    fn peer(&self) -> Peer<H> {
        Peer::new(Arc::clone(self.incoming.session), Arc::clone(self.incoming.host))
    }
}

/// The context of a handler on the pool. It allows everything, including calls to the sender.
pub struct Context<'a, H: Host> {
    incoming: &'a Incoming<'a, H>,
}

impl<H: Host> Context<'_, H> {
    /// Returns the node that sent the message.
    pub fn source(&self) -> NodeId {
        self.incoming.session.peer()
    }

    /// Returns the node that the handler runs on.
    pub fn host(&self) -> &Arc<H> {
        self.incoming.host
    }

    /// Returns the sender as a peer that can be called.
    pub fn peer(&self) -> Peer<H> {
        Peer::new(Arc::clone(self.incoming.session), Arc::clone(self.incoming.host))
    }

    /// Returns whether the caller has given up, so that the handler can stop working.
    pub fn is_cancelled(&self) -> bool {
        self.incoming.call.is_some_and(|call| self.incoming.session.is_cancelled(call))
    }

    /// Returns how much longer the caller waits, or `None` if there is no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.incoming.deadline;
        (deadline != Nanos::NEVER).then(|| Duration::from_nanos(deadline.since(self.incoming.host.now()).0))
    }
}

/// The right and the duty to respond to one call. Any thread may hold it. If it is dropped without a response, the call fails with
/// [`FailureCode::NoReply`].
#[must_use = "dropping it ends the call without a reply"]
pub struct Responder<R: Message, H: Host> {
    token: DetachedToken<Origin<H>>,
    reply: PhantomData<fn(R)>,
}

impl<R: Message, H: Host> Responder<R, H> {
    const fn new(token: DetachedToken<Origin<H>>) -> Self {
        Self { token, reply: PhantomData }
    }

    /// Returns the node that waits for the response.
    pub fn source(&self) -> NodeId {
        self.token.callee().session.peer()
    }

    /// Sends the reply.
    pub fn reply(self, reply: &R) {
        let response = reply_of(reply, &self.token.callee().session, &|_| {});
        self.token.respond(response);
    }

    /// Sends an error value of the handler in place of a reply.
    pub fn fail<E: Payload>(self, error: &E) {
        let response = error_of(error, self.token.class(), &self.token.callee().session, &|_| {});
        self.token.respond(response);
    }

    /// Returns whether the caller has given up.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// A function that repeats an attempt until it succeeds or a time limit passes. It may not try at all.
pub type RetryWait<'a> = &'a dyn Fn(&mut dyn FnMut() -> bool);

/// A value that a handler may return: a reply, or a `Result` of a reply and an error value.
pub trait IntoResponse<R: Message> {
    /// Encodes the response. If there is no room for it, `retry_wait` may try again.
    fn into_response<Q: QueuePair>(self, session: &Session<Q>, retry_wait: RetryWait<'_>) -> Response;

    /// Encodes the response. Returns `None` if there is no room for it now.
    fn try_response<Q: QueuePair>(&self, session: &Session<Q>) -> Option<Response>;
}

impl<R: Message> IntoResponse<R> for R {
    fn into_response<Q: QueuePair>(self, session: &Session<Q>, retry_wait: RetryWait<'_>) -> Response {
        reply_of(&self, session, retry_wait)
    }

    fn try_response<Q: QueuePair>(&self, session: &Session<Q>) -> Option<Response> {
        Some(reply(R::CLASS, try_encode(session, R::CLASS, self)?))
    }
}

impl<R: Message, E: Payload> IntoResponse<R> for Result<R, E> {
    fn into_response<Q: QueuePair>(self, session: &Session<Q>, retry_wait: RetryWait<'_>) -> Response {
        match self {
            Ok(reply) => reply_of(&reply, session, retry_wait),
            Err(error) => error_of(&error, R::CLASS, session, retry_wait),
        }
    }

    fn try_response<Q: QueuePair>(&self, session: &Session<Q>) -> Option<Response> {
        Some(match self {
            Ok(value) => reply(R::CLASS, try_encode(session, R::CLASS, value)?),
            Err(error) => error_value(try_encode(session, R::CLASS, error)?),
        })
    }
}

/// Longest time that a worker, or the future of an async handler, waits for room for a reply.
pub(crate) const REPLY_RETRY_LIMIT: Nanos = Nanos::from_secs(1);

/// Owner number of the ring space of a reply.
const OWNER_REPLY: u32 = 1;

fn reply_of<R: Message, Q: QueuePair>(
    value: &R,
    session: &Session<Q>,
    retry_wait: RetryWait<'_>,
) -> Response {
    reply(R::CLASS, encode_with_retries(session, R::CLASS, value, retry_wait))
}

fn error_of<E: Payload, Q: QueuePair>(
    error: &E,
    class: Class,
    session: &Session<Q>,
    retry_wait: RetryWait<'_>,
) -> Response {
    error_value(encode_with_retries(session, class, error, retry_wait))
}

fn reply(class: Class, encoded: Result<OutgoingPayload, NotEncoded>) -> Response {
    match encoded {
        Ok(payload) => Response::Reply { class, payload },
        Err(error) => Response::failure(code_of(error)),
    }
}

fn error_value(encoded: Result<OutgoingPayload, NotEncoded>) -> Response {
    match encoded {
        Ok(payload) => Response::Failure { code: FailureCode::HandlerError, payload },
        Err(error) => Response::failure(code_of(error)),
    }
}

fn encode_with_retries<P: Payload, Q: QueuePair>(
    session: &Session<Q>,
    class: Class,
    value: &P,
    retry_wait: RetryWait<'_>,
) -> Result<OutgoingPayload, NotEncoded> {
    let encode = || encode(value, |len| session.loan(class, len, OWNER_REPLY));
    let mut outcome = encode();
    if lacks_room(&outcome) {
        retry_wait(&mut || {
            outcome = encode();
            !lacks_room(&outcome)
        });
    }
    outcome
}

/// Encodes a value. Returns `None` if there is no room for it now.
fn try_encode<P: Payload, Q: QueuePair>(
    session: &Session<Q>,
    class: Class,
    value: &P,
) -> Option<Result<OutgoingPayload, NotEncoded>> {
    let outcome = encode(value, |len| session.loan(class, len, OWNER_REPLY));
    (!lacks_room(&outcome)).then_some(outcome)
}

fn lacks_room(outcome: &Result<OutgoingPayload, NotEncoded>) -> bool {
    matches!(outcome, Err(NotEncoded::Send(refused)) if refused.is_retryable())
}

/// Returns the failure code for a reply that could not be encoded. It tells the caller that the handler ran.
const fn code_of(error: NotEncoded) -> FailureCode {
    match error {
        NotEncoded::Send(_) => FailureCode::NoBuffer,
        NotEncoded::Full(_) => FailureCode::ReplyTooLarge,
    }
}

macro_rules! debug_as_name {
    ($($name:ident<$($life:lifetime,)? $($param:ident: $bound:path),*>;)*) => {$(
        impl<$($param: $bound),*> fmt::Debug for $name<$($life,)? $($param),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

debug_as_name! {
    Incoming<'_, H: Host>;
    InlineContext<'_, H: Host>;
    Context<'_, H: Host>;
    Origin<H: Host>;
    Responder<R: Message, H: Host>;
}

impl<H: Host> fmt::Debug for Route<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("mode", &self.mode).finish_non_exhaustive()
    }
}
