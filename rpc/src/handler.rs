//! Handlers: typed functions, erased to bytes in and an answer out.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::fabric::{self, Arrived, QueuePair};
use pronto_core::session::{Answer, Inbound, OutgoingPayload, Session, TypeKey};
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

type OfBytes<H> = Box<dyn Fn(&Incoming<'_, H>, &[u8], &mut Answer) + Send + Sync>;
type OfPlace<H> = Box<dyn Fn(&Incoming<'_, H>, &InPlace<'_>) -> Answer + Send + Sync>;

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
    /// The link that it came on.
    pub link: u16,
    /// The class that it came in.
    pub class: Class,
    /// When its caller stops waiting, by the host's clock; `NEVER` for never, and for inline handlers, which do not ask.
    pub deadline: Nanos,
}

impl<H: Host> Route<H> {
    /// A handler that runs where the message is taken in. It gets a context that offers nothing to wait with.
    pub fn inline<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&InlineContext<'_, H>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, bytes| {
            decoded(bytes, |message| {
                handler(&InlineContext { incoming }, message).into_answer(incoming.session, &|_| {})
            })
        })
    }

    /// A handler that runs on the pool, in the order that its type asks for.
    pub fn pooled<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&Context<'_, H>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(M::ORDER.into(), move |incoming, bytes| {
            decoded(bytes, |message| {
                let result = handler(&Context { incoming }, message);
                result.into_answer(incoming.session, &|attempt| incoming.try_patiently(attempt))
            })
        })
    }

    /// A handler that answers later, from wherever it gives its responder to. It runs inline and must not block.
    pub fn deferred<M: Request>(
        handler: impl Fn(&InlineContext<'_, H>, M, Responder<M::Reply, H>) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, bytes| {
            decoded(bytes, |message| {
                let Some(call) = incoming.call else { return Answer::Done };
                let (session, host) = (Arc::clone(incoming.session), Arc::clone(incoming.host));
                let responder = Responder::new(session, host, call, incoming.link, incoming.class);
                handler(&InlineContext { incoming }, message, responder);
                Answer::Later
            })
        })
    }

    /// A handler of notifications that runs where the message is taken in.
    pub fn inline_notification<M: Message>(
        handler: impl Fn(&InlineContext<'_, H>, M) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(RouteMode::Inline, move |incoming, bytes| {
            decoded(bytes, |message| {
                handler(&InlineContext { incoming }, message);
                Answer::Done
            })
        })
    }

    /// A handler of notifications that runs on the pool, in the order that its type asks for.
    pub fn pooled_notification<M: Message>(
        handler: impl Fn(&Context<'_, H>, M) + Send + Sync + 'static,
    ) -> Self {
        Self::new::<M>(M::ORDER.into(), move |incoming, bytes| {
            decoded(bytes, |message| {
                handler(&Context { incoming }, message);
                Answer::Done
            })
        })
    }

    /// A handler that gets a request as it was encoded, in the place that it lies in; for long payloads, of which a copy costs more
    /// than the call. Nothing but its length was checked. It runs where the message is taken in.
    pub fn inline_in_place<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&InlineContext<'_, H>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        let run = move |incoming: &Incoming<'_, H>, place: &InPlace<'_>| {
            handler(&InlineContext { incoming }, place).into_answer(incoming.session, &|_| {})
        };
        Self { run: Run::InPlace(Box::new(run)), ..Self::new::<M>(RouteMode::Inline, |_, _| Answer::Done) }
    }

    /// The same for a notification.
    pub fn inline_notification_in_place<M: Message>(
        handler: impl Fn(&InlineContext<'_, H>, &InPlace<'_>) + Send + Sync + 'static,
    ) -> Self {
        let run = move |incoming: &Incoming<'_, H>, place: &InPlace<'_>| {
            handler(&InlineContext { incoming }, place);
            Answer::Done
        };
        Self { run: Run::InPlace(Box::new(run)), ..Self::new::<M>(RouteMode::Inline, |_, _| Answer::Done) }
    }

    /// The same on the pool, in the order that the type asks for; a key is decoded from the whole message.
    pub fn pooled_in_place<M: Request, A: IntoAnswer<M::Reply>>(
        handler: impl Fn(&Context<'_, H>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        let run = move |incoming: &Incoming<'_, H>, place: &InPlace<'_>| {
            let result = handler(&Context { incoming }, place);
            result.into_answer(incoming.session, &|attempt| incoming.try_patiently(attempt))
        };
        Self { run: Run::InPlace(Box::new(run)), ..Self::new::<M>(M::ORDER.into(), |_, _| Answer::Done) }
    }

    /// The routes of the rendezvous' own messages, which every node has.
    pub fn rendezvous() -> [Self; 3] {
        // Sinks take these in themselves, and never run a handler.
        let no_handler = |_: &Incoming<'_, H>, _: &[u8]| Answer::failure(FailureCode::NoHandler);
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
        run: impl Fn(&Incoming<'_, H>, &[u8]) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let (name, layout) = M::type_key();
        let key = TypeKey { service: ServiceId(0), name, layout };
        let key_of = |bytes: &[u8]| decode_message::<M>(bytes).map(|message| message.key());
        let run = move |incoming: &Incoming<'_, H>, bytes: &[u8], answer: &mut Answer| {
            *answer = run(incoming, bytes)
        };
        Self { key, name: M::NAME, mode, key_of, run: Run::Bytes(Box::new(run)) }
    }

    /// The lane of a message, if the mode is [`RouteMode::ByKey`].
    pub fn lane_of(&self, bytes: &[u8]) -> Result<u64, Malformed> {
        (self.key_of)(bytes)
    }

    /// Runs the handler. [`Answer::Later`] says that a responder has taken over the answer and the credit.
    pub fn run<L: fabric::Payload>(&self, incoming: &Incoming<'_, H>, payload: &Arrived<L>) -> Answer {
        let mut answer = Answer::Later;
        match &self.run {
            Run::Bytes(run) => with_bytes(payload, |bytes| run(incoming, bytes, &mut answer)),
            Run::InPlace(run) => answer = run(incoming, &InPlace::arrived(payload)),
        }
        answer
    }

    /// The same for a payload that nobody else can write to, and a place of the caller's for the answer.
    #[inline]
    pub fn run_on(&self, incoming: &Incoming<'_, H>, payload: &[u8], answer: &mut Answer) {
        match &self.run {
            Run::Bytes(run) => run(incoming, payload, answer),
            Run::InPlace(run) => *answer = run(incoming, &InPlace::from(payload)),
        }
    }
}

fn decoded<M: Message>(bytes: &[u8], run: impl FnOnce(M) -> Answer) -> Answer {
    match decode_message(bytes) {
        Ok(message) => run(message),
        Err(_) => Answer::failure(FailureCode::Malformed),
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

    /// A message as the engine hands it over.
    pub fn new<P>(
        inbound: &Inbound<P>,
        session: &'a Arc<Session<H::Qp>>,
        host: &'a Arc<H>,
        deadline: Nanos,
    ) -> Self {
        let Inbound { call, link, class, .. } = *inbound;
        Self { session, host, call, link, class, deadline }
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

/// The right, and the duty, to answer one call. Any thread may hold it; dropped unused, the call ends without a reply.
#[must_use = "dropping it ends the call without a reply"]
pub struct Responder<R: Message, H: Host> {
    session: Arc<Session<H::Qp>>,
    host: Arc<H>,
    call: CallId,
    link: u16,
    class: Class,
    answered: bool,
    reply: core::marker::PhantomData<fn(R)>,
}

impl<R: Message, H: Host> Responder<R, H> {
    const fn new(session: Arc<Session<H::Qp>>, host: Arc<H>, call: CallId, link: u16, class: Class) -> Self {
        Self { session, host, call, link, class, answered: false, reply: core::marker::PhantomData }
    }

    /// The node that waits for the answer.
    pub fn source(&self) -> NodeId {
        self.session.peer()
    }

    /// Answers.
    pub fn reply(self, reply: &R) {
        let answer = reply_of(reply, &self.session, &|_| {});
        self.send(answer);
    }

    /// Answers with an error of the handler's own.
    pub fn fail<E: Payload>(self, error: &E) {
        let answer = error_of(error, self.class, &self.session, &|_| {});
        self.send(answer);
    }

    /// Whether the caller has given up.
    pub fn is_cancelled(&self) -> bool {
        self.session.is_cancelled(self.call)
    }

    fn send(mut self, answer: Answer) {
        self.answered = true;
        self.session.done_with(self.class, self.link, &*self.host);
        self.session.answer(self.call, self.link, self.class, answer, &*self.host);
    }
}

impl<R: Message, H: Host> Drop for Responder<R, H> {
    fn drop(&mut self) {
        if !self.answered {
            self.session.done_with(self.class, self.link, &*self.host);
            let answer = Answer::failure(FailureCode::NoReply);
            self.session.answer(self.call, self.link, self.class, answer, &*self.host);
        }
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
    Responder<R: Message, H: Host>;
}

impl<H: Host> fmt::Debug for Route<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("mode", &self.mode).finish_non_exhaustive()
    }
}
