//! Handlers: typed functions, erased to bytes in and an answer out.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::fabric::{self, Arrived, QueuePair, Withdrawn};
use pronto_core::session::{Answer, Callee, DetachedToken, OutgoingPayload, RequestToken, Session, TypeKey};
use pronto_wire::{CallId, Class, FailureCode, NodeId, ServiceId};

use crate::codec::{Malformed, Payload, decode_message};
use crate::encode::{NotEncoded, encode};
use crate::error::CallError;
use crate::host::Host;
use crate::in_place::InPlace;
use crate::message::{Message, Order, Request};
use crate::peer::Peer;
use crate::pending::with_bytes;
use crate::rendezvous::{ByReference, Carried, Form, Regrant};

/// Where a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMode {
    /// Right where the message is taken in; must not block.
    Inline,
    /// On any worker of the pool.
    Unordered,
    /// In the lane of its type, one after another.
    Ordered,
    /// In the lane of its key, one after another.
    ByKey,
    /// A rendezvous' own message: taken in by whoever polls.
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

type OfBytes<H> = Box<dyn Fn(&Incoming<'_, H>, &[u8], RequestToken<'_>) + Send + Sync>;
type OfPlace<H> = Box<dyn Fn(&Incoming<'_, H>, &InPlace<'_>, RequestToken<'_>) + Send + Sync>;

/// A handler, by what it wants of a message.
enum Run<H: Host> {
    /// Its bytes, to be decoded.
    Bytes(OfBytes<H>),
    /// The place that they lie in.
    InPlace(OfPlace<H>),
}
type KeyOf = fn(&[u8]) -> Result<u64, Malformed>;

/// A registered message type: what it is, where its handler runs, and the handler.
pub struct Route<H: Host> {
    /// The type, as peers name it.
    pub key: TypeKey,
    /// The type's name, for people.
    pub name: &'static str,
    /// Where the handler runs.
    pub mode: RouteMode,
    key_of: KeyOf,
    run: Run<H>,
}

/// A request as it is handed to a handler.
pub struct Incoming<'a, H: Host> {
    /// The session that it came through.
    pub session: &'a Arc<Session<H::Qp>>,
    /// The node.
    pub host: &'a Arc<H>,
    /// The call; none for a notification.
    pub call: Option<CallId>,
    /// When its caller stops waiting, by the host's clock; `NEVER` for never, and for inline handlers, which do not ask.
    pub deadline: Nanos,
}

impl<H: Host> Route<H> {
    /// A handler that runs where the message is taken in. It gets a context that offers nothing to wait with.
    pub fn inline<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&InlineContext<'_, H>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, bytes, token| {
            decoded(bytes, token, |message, token| {
                let result = handler(&InlineContext { incoming }, message);
                token.answer(result.into_answer(incoming.session, &|_| {}));
            });
        })
    }

    /// A handler that runs on the pool, in the order that its type asks for.
    pub fn pooled<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&Context<'_, H>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(M::ORDER.into(), move |incoming, bytes, token| {
            decoded(bytes, token, |message, token| {
                let result = handler(&Context { incoming }, message);
                let patience = |attempt: &mut dyn FnMut() -> bool| incoming.try_patiently(attempt);
                token.answer(result.into_answer(incoming.session, &patience));
            });
        })
    }

    /// A handler that answers later, from wherever it gives its responder to. It runs inline and must not block. A handler
    /// that panics before it has parted with its responder drops it.
    pub fn deferred<M: Request>(
        handler: impl Fn(&InlineContext<'_, H>, M, Responder<M::Reply, H>) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, bytes, token| {
            decoded(bytes, token, |message, token| {
                if token.call().is_none() {
                    return token.finish();
                }
                let responder = Responder::new(token.detach(incoming.origin()));
                handler(&InlineContext { incoming }, message, responder);
            });
        })
    }

    /// A handler of notifications that runs where the message is taken in.
    pub fn inline_notification<M: Message>(
        handler: impl Fn(&InlineContext<'_, H>, M) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, bytes, token| {
            decoded(bytes, token, |message, token| {
                handler(&InlineContext { incoming }, message);
                token.finish();
            });
        })
    }

    /// A handler of notifications that runs on the pool, in the order that its type asks for.
    pub fn pooled_notification<M: Message>(
        handler: impl Fn(&Context<'_, H>, M) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(M::ORDER.into(), move |incoming, bytes, token| {
            decoded(bytes, token, |message, token| {
                handler(&Context { incoming }, message);
                token.finish();
            });
        })
    }

    /// A handler that gets a request as it was encoded, in the place that it lies in; for long payloads, of which a copy costs more
    /// than the call. Nothing but its length was checked. It runs where the message is taken in.
    pub fn inline_in_place<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&InlineContext<'_, H>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::in_place::<M>(RouteMode::Inline, move |incoming, place, token| {
            let result = handler(&InlineContext { incoming }, place);
            token.answer(result.into_answer(incoming.session, &|_| {}));
        })
    }

    /// The same for a notification.
    pub fn inline_notification_in_place<M: Message>(
        handler: impl Fn(&InlineContext<'_, H>, &InPlace<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::in_place::<M>(RouteMode::Inline, move |incoming, place, token| {
            handler(&InlineContext { incoming }, place);
            token.finish();
        })
    }

    /// The same on the pool, in the order that the type asks for; a key is decoded from the whole message.
    pub fn pooled_in_place<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&Context<'_, H>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::in_place::<M>(M::ORDER.into(), move |incoming, place, token| {
            let result = handler(&Context { incoming }, place);
            let patience = |attempt: &mut dyn FnMut() -> bool| incoming.try_patiently(attempt);
            token.answer(result.into_answer(incoming.session, &patience));
        })
    }

    /// The routes of the rendezvous' own messages, which every node has.
    pub fn rendezvous() -> [Self; 3] {
        // Sinks take these in themselves, and never run a handler.
        let no_handler =
            |_: &Incoming<'_, H>, _: &[u8], token: RequestToken<'_>| token.fail(FailureCode::NoHandler);
        [
            Self::new::<ByReference>(RouteMode::Rendezvous(Form::ByReference), no_handler),
            Self::new::<Carried>(RouteMode::Rendezvous(Form::Carried), no_handler),
            Self::new::<Regrant>(RouteMode::Rendezvous(Form::Regrant), no_handler),
        ]
    }

    /// The same route in another service.
    #[must_use]
    pub fn in_service(mut self, service: ServiceId) -> Self {
        self.key.service = service;
        self
    }

    fn new<M: Message>(
        mode: RouteMode,
        run: impl Fn(&Incoming<'_, H>, &[u8], RequestToken<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::of::<M>(mode, Run::Bytes(Box::new(run)))
    }

    fn in_place<M: Message>(
        mode: RouteMode,
        run: impl Fn(&Incoming<'_, H>, &InPlace<'_>, RequestToken<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::of::<M>(mode, Run::InPlace(Box::new(run)))
    }

    fn of<M: Message>(mode: RouteMode, run: Run<H>) -> Self {
        let (name, layout) = M::type_key();
        let key = TypeKey { service: ServiceId(0), name, layout };
        let key_of = |bytes: &[u8]| decode_message::<M>(bytes).map(|message| message.key());
        Self { key, name: M::NAME, mode, key_of, run }
    }

    /// The lane of a message, if the mode is [`RouteMode::ByKey`].
    pub fn lane_of(&self, bytes: &[u8]) -> Result<u64, Malformed> {
        (self.key_of)(bytes)
    }

    /// Runs the handler, which consumes the token, unless the payload was withdrawn.
    pub fn run<L: fabric::Payload>(
        &self,
        incoming: &Incoming<'_, H>,
        payload: &Arrived<L>,
        token: RequestToken<'_>,
    ) {
        let (ran, unused) = token.lend(|token| match &self.run {
            Run::Bytes(run) => with_bytes(payload, |bytes| run(incoming, bytes, token)),
            Run::InPlace(run) => {
                payload.validate().map(|()| run(incoming, &InPlace::arrived(payload), token))
            }
        });
        if let (Err(Withdrawn), Some(token)) = (ran, unused) {
            // The caller has ended the link, and with it the call.
            token.fail(FailureCode::Cancelled);
        }
    }

    /// Runs the handler on a payload that nobody else can write to.
    #[inline]
    pub fn run_on(&self, incoming: &Incoming<'_, H>, payload: &[u8], token: RequestToken<'_>) {
        match &self.run {
            Run::Bytes(run) => run(incoming, payload, token),
            Run::InPlace(run) => run(incoming, &InPlace::from(payload), token),
        }
    }
}

#[inline(always)]
fn decoded<'turn, M: Message>(
    bytes: &[u8],
    token: RequestToken<'turn>,
    run: impl FnOnce(M, RequestToken<'turn>),
) {
    match decode_message(bytes) {
        Ok(message) => run(message, token),
        Err(_) => token.fail(FailureCode::Malformed),
    }
}

impl<'a, H: Host> Incoming<'a, H> {
    /// Tries for as long as the caller waits for the reply, and not for ever. The worker's place is another's meanwhile: a
    /// peer that takes no replies holds up nobody else's calls.
    fn try_patiently(&self, attempt: &mut dyn FnMut() -> bool) {
        let until = self.deadline.min(self.host.now() + REPLY_PATIENCE);
        let patience = || {
            while !attempt() && self.host.now() < until {
                self.host.pause();
            }
        };
        // Without a spare worker to take over, what there is no room for now is refused now.
        let _no_spare = self.host.while_waiting(patience);
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

/// The session that a request came through and the node that received it, for a token outside of the engine's turn.
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

/// What an inline handler may do: look around, send without waiting. There is no call to wait for here.
pub struct InlineContext<'a, H: Host> {
    incoming: &'a Incoming<'a, H>,
}

impl<H: Host> InlineContext<'_, H> {
    /// The node that sent the message.
    pub fn source(&self) -> NodeId {
        self.incoming.session.peer()
    }

    /// The node that the handler runs on.
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

/// What a handler on the pool may do: everything, also call back.
pub struct Context<'a, H: Host> {
    incoming: &'a Incoming<'a, H>,
}

impl<H: Host> Context<'_, H> {
    /// The node that sent the message.
    pub fn source(&self) -> NodeId {
        self.incoming.session.peer()
    }

    /// The node that the handler runs on.
    pub fn host(&self) -> &Arc<H> {
        self.incoming.host
    }

    /// The sender, to be called back.
    pub fn peer(&self) -> Peer<H> {
        Peer::new(Arc::clone(self.incoming.session), Arc::clone(self.incoming.host))
    }

    /// Whether the caller has given up: what is not done yet need not be.
    pub fn is_cancelled(&self) -> bool {
        self.incoming.call.is_some_and(|call| self.incoming.session.is_cancelled(call))
    }

    /// How long the caller goes on waiting; none if for ever.
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.incoming.deadline;
        (deadline != Nanos::NEVER).then(|| Duration::from_nanos(deadline.since(self.incoming.host.now()).0))
    }
}

/// The right, and the duty, to answer one call. Any thread may hold it. If it is dropped unused, the call fails with
/// [`FailureCode::NoReply`].
#[must_use = "dropping it ends the call without a reply"]
pub struct Responder<R: Message, H: Host> {
    token: DetachedToken<Origin<H>>,
    reply: core::marker::PhantomData<fn(R)>,
}

impl<R: Message, H: Host> Responder<R, H> {
    const fn new(token: DetachedToken<Origin<H>>) -> Self {
        Self { token, reply: core::marker::PhantomData }
    }

    /// The node that waits for the answer.
    pub fn source(&self) -> NodeId {
        self.token.callee().session.peer()
    }

    /// Answers.
    pub fn reply(self, reply: &R) {
        let answer = reply_of(reply, &self.token.callee().session, &|_| {});
        self.token.answer(answer);
    }

    /// Answers with an error of the handler's own.
    pub fn fail<E: Payload>(self, error: &E) {
        let answer = error_of(error, self.token.class(), &self.token.callee().session, &|_| {});
        self.token.answer(answer);
    }

    /// Whether the caller has given up.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// Calls an attempt until it succeeds, or patience ends; possibly never.
pub type Patience<'a> = &'a dyn Fn(&mut dyn FnMut() -> bool);

/// What a handler may return: a reply, or a result of a reply and an error of its own.
pub trait IntoAnswer<R: Message> {
    /// The answer. If there is no room for it, `patience` may try again.
    fn into_answer<Q: QueuePair>(self, session: &Session<Q>, patience: Patience<'_>) -> Answer;
}

impl<R: Message> IntoAnswer<R> for R {
    fn into_answer<Q: QueuePair>(self, session: &Session<Q>, patience: Patience<'_>) -> Answer {
        reply_of(&self, session, patience)
    }
}

impl<R: Message, E: Payload> IntoAnswer<R> for Result<R, E> {
    fn into_answer<Q: QueuePair>(self, session: &Session<Q>, patience: Patience<'_>) -> Answer {
        match self {
            Ok(reply) => reply_of(&reply, session, patience),
            Err(error) => error_of(&error, R::CLASS, session, patience),
        }
    }
}

/// How long a worker waits for room for a reply, at most.
const REPLY_PATIENCE: Nanos = Nanos::from_secs(1);

/// Owner of ring space that a reply takes.
const OWNER_REPLY: u32 = 1;

fn reply_of<R: Message, Q: QueuePair>(reply: &R, session: &Session<Q>, patience: Patience<'_>) -> Answer {
    match encode_patiently(session, R::CLASS, reply, patience) {
        Ok(payload) => Answer::Reply { class: R::CLASS, payload },
        Err(error) => Answer::failure(code_of(error)),
    }
}

fn error_of<E: Payload, Q: QueuePair>(
    error: &E,
    class: Class,
    session: &Session<Q>,
    patience: Patience<'_>,
) -> Answer {
    match encode_patiently(session, class, error, patience) {
        Ok(payload) => Answer::Failure { code: FailureCode::HandlerError, payload },
        Err(error) => Answer::failure(code_of(error)),
    }
}

fn encode_patiently<P: Payload, Q: QueuePair>(
    session: &Session<Q>,
    class: Class,
    value: &P,
    patience: Patience<'_>,
) -> Result<OutgoingPayload, NotEncoded> {
    let encode = || encode(value, |len| session.loan(class, len, OWNER_REPLY));
    let mut outcome = encode();
    let waits = |outcome: &Result<_, NotEncoded>| matches!(outcome, Err(NotEncoded::Refused(refused)) if refused.is_retryable());
    if waits(&outcome) {
        patience(&mut || {
            outcome = encode();
            !waits(&outcome)
        });
    }
    outcome
}

/// A reply that has no room: the handler ran, its caller learns that and why.
const fn code_of(error: NotEncoded) -> FailureCode {
    match error {
        NotEncoded::Refused(_) => FailureCode::NoBuffer,
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
