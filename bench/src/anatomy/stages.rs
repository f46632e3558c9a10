//! The layers above the provider: the two ends of real sessions, each driven separately.

use core::hint::black_box;
use std::sync::Arc;

use crate::pair::{Callee, Ends, Nobody, POLL_BATCH, Pairs, Still};
use anyhow::Context as _;
use pronto::rpc::codec::{decode_message, encode_message};
use pronto::rpc::handler::{Incoming, Origin};
use pronto::rpc::pending::with_bytes;
use pronto::{Nanos, Request, Route, ServiceId, WaitPolicy};
use pronto_core::fabric::{Arrived, ConnectionLimits, Gather, InlineMessage, QueuePair, SHORT_PAYLOAD};
use pronto_core::session::{
    CallSpec, DetachedToken, End, Event, FastOutcome, Inbound, OutgoingPayload, ReplySlots, Response,
    Session, Sink, TokenSlot, TypeKey, WaitOutcome,
};
use pronto_wire::{CallId, INLINE_PAYLOAD, InlinePayload};

use super::{CallPath, LINKS, Part, Parts};
use crate::echo::{Ask32, Ask224, AskMany, Echo32, Echo224, EchoMany};

/// A request of the echo service, of one size.
pub(crate) trait Ask: Request + Clone {
    /// Returns a request whose payload has `size` bytes when encoded.
    fn of(size: usize) -> Self;

    /// Returns the handler of the service.
    fn route<Q: QueuePair + 'static>() -> Route<Still<Q>>;
}

macro_rules! asks {
    ($($ask:ident, $echo:ident, $size:ident => $bytes:expr;)*) => {$(
        impl Ask for $ask {
            fn of($size: usize) -> Self {
                Self { bytes: $bytes }
            }

            fn route<Q: QueuePair + 'static>() -> Route<Still<Q>> {
                Route::inline(|_, ask: Self| $echo { bytes: ask.bytes })
            }
        }
    )*};
}

asks! {
    Ask32, Echo32, _size => [7; 32];
    Ask224, Echo224, _size => [7; 224];
    AskMany, EchoMany, size => vec![7; size - size_of::<u32>()];
}

/// Links, and the request that is sent over them.
#[derive(Debug)]
pub(crate) struct Stages<Q: QueuePair + 'static, M> {
    pub(super) links: Vec<Ends<Q>>,
    pub(super) ask: M,
    spec: CallSpec,
    pub(super) still: Still<Q>,
    pub(super) path: CallPath,
}

impl<Q: QueuePair + 'static, M: Ask> Stages<Q, M> {
    /// Creates links for requests of `size` bytes.
    pub(crate) fn new(
        size: usize,
        link: impl Fn([ConnectionLimits; 2]) -> anyhow::Result<(Pairs<Q>, Pairs<Q>)>,
    ) -> anyhow::Result<Self> {
        let links =
            (0..LINKS).map(|_| Ends::new(vec![M::route()], &link)).collect::<anyhow::Result<Vec<_>>>()?;
        let (name, layout) = M::type_key();
        let key = TypeKey { service: ServiceId(0), name, layout };
        let spec = CallSpec { key, class: M::CLASS, timeout: Nanos::NEVER };
        let mut stages = Self { links, ask: M::of(size), spec, still: Still::alone(), path: CallPath::Fast };
        stages.try_path()?;
        Ok(stages)
    }

    /// Returns the path of these requests.
    pub(crate) const fn path(&self) -> CallPath {
        self.path
    }

    /// Tries a call on the fast path, to find out whether these requests take it.
    fn try_path(&mut self) -> anyhow::Result<()> {
        let link = self.links.first().context("there are links")?;
        let call = match self.encoded(&link.caller)? {
            Encoded::Inline(small) => self.post_fast(link, Gather::Inline(&small)),
            Encoded::Short(bytes, len) => self.post_fast(link, Gather::Short(&bytes[..len])),
            Encoded::Long(_) => None,
        };
        let Some(call) = call else {
            self.path = CallPath::Started;
            return Ok(());
        };
        anyhow::ensure!(link.callee.serve(POLL_BATCH) == 1, "the request is served");
        self.find_fast(link, call, |_| ())?;
        self.settle();
        Ok(())
    }

    /// Makes one call on each link that its callee replies to immediately, then one that it replies to later. Then measures the parts
    /// that need no link.
    pub(crate) fn round(&self, parts: &mut Parts) -> anyhow::Result<()> {
        match self.path {
            CallPath::Fast => self.by_fast_path(parts)?,
            CallPath::Started => self.by_program(parts)?,
        }
        self.by_session(parts)?;
        self.alone(parts)
    }

    fn by_program(&self, parts: &mut Parts) -> anyhow::Result<()> {
        let peers: Vec<_> = self.links.iter().map(Ends::peer).collect();
        let mut pending = Vec::with_capacity(LINKS);
        parts.time(Part::Start, OPS, || {
            peers.iter().try_for_each(|peer| peer.start(black_box(&self.ask)).map(|call| pending.push(call)))
        })?;
        let served = parts.time(Part::Serve, OPS, || {
            self.links.iter().map(|link| link.callee.serve(POLL_BATCH)).sum::<u32>()
        });
        anyhow::ensure!(served == OPS, "each request is served once");
        parts.time(Part::Finish, OPS, || {
            pending.into_iter().try_for_each(|call| call.wait().map(|reply| drop(black_box(reply))))
        })?;
        self.settle();
        Ok(())
    }

    /// Makes calls on the fast path, but with posting and polling separated: the callee replies between them.
    fn by_fast_path(&self, parts: &mut Parts) -> anyhow::Result<()> {
        let calls = self.send(parts)?;
        let served = parts.time(Part::Serve, OPS, || {
            self.links.iter().map(|link| link.callee.serve(POLL_BATCH)).sum::<u32>()
        });
        anyhow::ensure!(served == OPS, "each request is served once");
        parts.time(Part::Wait, OPS, || {
            let mut links = self.links.iter().zip(&calls);
            links.try_for_each(|(link, call)| self.find_fast(link, *call, |bytes| _ = black_box(bytes)))
        })?;
        self.settle();
        Ok(())
    }

    /// Sends a request on each link, from its payload to the doorbell.
    fn send(&self, parts: &mut Parts) -> anyhow::Result<Vec<CallId>> {
        let payloads = self.links.iter().map(|link| self.encoded(&link.caller));
        let payloads: Vec<Encoded> = payloads.collect::<anyhow::Result<_>>()?;
        let mut calls = Vec::with_capacity(LINKS);
        parts.time(Part::Session, OPS, || {
            self.links
                .iter()
                .zip(payloads)
                .try_for_each(|(link, payload)| self.post(link, payload).map(|call| calls.push(call)))
        })?;
        Ok(calls)
    }

    /// Sends a request, from its payload to the doorbell.
    pub(super) fn post(&self, link: &Ends<Q>, payload: Encoded) -> anyhow::Result<CallId> {
        match payload {
            Encoded::Inline(small) => self.post_fast(link, Gather::Inline(&small)).context("a small call"),
            Encoded::Short(bytes, len) => {
                self.post_fast(link, Gather::Short(&bytes[..len])).context("a short call")
            }
            Encoded::Long(payload) => link.caller.call(&self.spec, payload, &self.still).context("a call"),
        }
    }

    /// Posts a call as the fast path does, without polling for its reply, so that it stays open.
    fn post_fast(&self, link: &Ends<Q>, payload: Gather<'_>) -> Option<CallId> {
        let (mut inline, mut end) = (InlineMessage::default(), None);
        let slots = ReplySlots { inline: &mut inline, short: |_: &[u8]| (), end: &mut end };
        let asked = WaitPolicy::Block.into();
        let outcome = link.caller.call_fast(&self.spec, payload, asked, slots, &mut Nobody, &self.still)?;
        if let FastOutcome::Open(call) = outcome { Some(call) } else { None }
    }

    /// Finds a reply that has arrived, as the fast path does, and passes its bytes to `show`.
    pub(super) fn find_fast(&self, link: &Ends<Q>, call: CallId, show: impl Fn(&[u8])) -> anyhow::Result<()> {
        let (mut inline, mut end) = (InlineMessage::default(), None);
        let slots = ReplySlots { inline: &mut inline, short: &show, end: &mut end };
        let asked = WaitPolicy::Spin.into();
        let found = link.caller.wait_fast(call, asked, slots, &mut Nobody, &self.still);
        match (found, end) {
            (Some(FastOutcome::Inline), _) => show(inline.payload.as_slice()),
            (Some(FastOutcome::Short), _) => {}
            // Other messages arrived first, and a turn of the engine received all of them.
            (Some(FastOutcome::Ended(_)), Some(End::Reply(reply))) => with_bytes(&reply, &show)?,
            (found, _) => anyhow::bail!("a reply that has arrived was not found: {found:?}"),
        }
        Ok(())
    }

    fn by_session(&self, parts: &mut Parts) -> anyhow::Result<()> {
        let calls = self.send(parts)?;
        let mut kept = Vec::with_capacity(LINKS);
        parts.time(Part::Receive, OPS, || {
            for (index, link) in self.links.iter().enumerate() {
                let mut sink = Keep { callee: &link.callee, kept: &mut kept };
                for _ in 0..POLL_BATCH {
                    link.callee.session.turn(1, || false, &mut sink, &self.still);
                    if sink.kept.len() > index {
                        break;
                    }
                }
            }
        });
        anyhow::ensure!(kept.len() == LINKS, "each request is taken in once");
        let mut replies = Vec::with_capacity(LINKS);
        parts.time(Part::Handler, OPS, || {
            for (Ends { callee, .. }, request) in self.links.iter().zip(&mut kept) {
                replies.extend(request.handled(callee));
            }
        });
        for (request, response) in kept.into_iter().zip(replies) {
            request.respond(response);
        }
        self.take_replies(&calls, parts)?;
        self.settle();
        Ok(())
    }

    /// Waits for a reply that has arrived, without decoding it.
    pub(super) fn wait(&self, link: &Ends<Q>, call: CallId) -> anyhow::Result<()> {
        match link.caller.wait(call, Nanos::NEVER, WaitPolicy::Spin, &mut Nobody, &self.still) {
            WaitOutcome::Ended(End::Reply(reply)) => {
                drop(black_box(reply));
                Ok(())
            }
            _ => anyhow::bail!("a call with a reply ended differently"),
        }
    }

    /// Takes the replies of calls, which have arrived: decoded on the fast path, otherwise without decoding.
    fn take_replies(&self, calls: &[CallId], parts: &mut Parts) -> anyhow::Result<()> {
        let mut answered = self.links.iter().zip(calls);
        if self.path == CallPath::Fast {
            let decode = |bytes: &[u8]| drop(black_box(decode_message::<M::Reply>(bytes)));
            return parts.time(Part::Finish, OPS, || {
                answered.try_for_each(|(link, call)| self.find_fast(link, *call, decode))
            });
        }
        parts.time(Part::Wait, OPS, || answered.try_for_each(|(link, call)| self.wait(link, *call)))
    }

    fn alone(&self, parts: &mut Parts) -> anyhow::Result<()> {
        let Ends { caller, .. } = self.links.first().context("there are links")?;
        parts.time(Part::Encode, REPEATS, || {
            (0..REPEATS).try_for_each(|_| self.encoded(caller).map(|payload| drop(black_box(payload))))
        })?;
        parts.time(Part::Type, REPEATS, || {
            (0..REPEATS).for_each(|_| _ = black_box(caller.knows(black_box(&self.spec.key))));
        });
        parts.time(Part::EmptyPoll, POLLS, || {
            caller.turn(POLLS, || false, &mut Nobody, &self.still);
        });
        Ok(())
    }

    /// Does the work after a call: processes completions, and returns credits.
    pub(super) fn settle(&self) {
        for Ends { caller, callee } in &self.links {
            caller.turn(1, || false, &mut Nobody, &self.still);
            callee.session.turn(1, || false, &mut Nobody, &self.still);
            caller.turn(1, || false, &mut Nobody, &self.still);
        }
    }

    /// Returns the request as a payload, encoded as in the typed layer.
    pub(super) fn encoded(&self, session: &Session<Q>) -> anyhow::Result<Encoded> {
        let ask = black_box(&self.ask);
        let len = ask.encoded_len();
        if len <= INLINE_PAYLOAD {
            let mut bytes = [0; INLINE_PAYLOAD];
            let len = encode_message(ask, &mut bytes)?;
            return Ok(Encoded::Inline(InlinePayload::first(bytes, u8::try_from(len)?)));
        }
        if len <= SHORT_PAYLOAD && self.path == CallPath::Fast {
            let mut bytes = [0; SHORT_PAYLOAD];
            let len = encode_message(ask, &mut bytes)?;
            return Ok(Encoded::Short(bytes, len));
        }
        let mut loan = session.loan(M::CLASS, len, 0)?;
        let written = encode_message(ask, loan.as_mut_slice())?;
        loan.shrink(written);
        Ok(Encoded::Long(OutgoingPayload::Frame(loan.finish())))
    }
}

/// An encoded request.
#[derive(Debug)]
pub(super) enum Encoded {
    /// An inline message.
    Inline(InlinePayload),
    /// A short message: bytes, and their number.
    Short([u8; SHORT_PAYLOAD], usize),
    /// A message in send memory.
    Long(OutgoingPayload),
}

/// A received request that is replied to later.
#[derive(Debug)]
pub(super) struct Held<Q: QueuePair + 'static> {
    token: DetachedToken<Origin<Still<Q>>>,
    /// `None` after the handler has taken it.
    payload: Option<Arrived<Q::Lease>>,
}

impl<Q: QueuePair + 'static> Held<Q> {
    /// Takes the token of a request into a detached one.
    pub(super) fn of(callee: &Callee<Q>, inbound: Inbound<'_, Arrived<Q::Lease>>) -> Self {
        let origin = Origin { session: Arc::clone(&callee.session), host: Arc::clone(&callee.host) };
        Self { token: inbound.token.detach(origin), payload: Some(inbound.payload) }
    }

    /// Returns the response of the callee's only handler, which is not sent.
    pub(super) fn handled(&mut self, callee: &Callee<Q>) -> Option<Response> {
        let call = self.token.call();
        let incoming = Incoming::new(call, &callee.session, &callee.host, Nanos::NEVER);
        let mut slot = TokenSlot::unowed(call, self.token.class());
        callee.routes.first()?.run(&incoming, self.payload.take()?, slot.token());
        slot.into_response()
    }

    /// Sends the response.
    pub(super) fn respond(self, response: Response) {
        drop(self.payload);
        self.token.respond(response);
    }
}

/// Keeps requests for later.
struct Keep<'a, Q: QueuePair + 'static> {
    callee: &'a Callee<Q>,
    kept: &'a mut Vec<Held<Q>>,
}

impl<Q: QueuePair + 'static> Sink<Q::Lease> for Keep<'_, Q> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<Q::Lease>>) {
        self.kept.push(Held::of(self.callee, inbound));
    }

    fn event(&mut self, _: Event) {}
}

/// Number of links as a count of operations.
const OPS: u32 = 8;
const _: () = assert!(OPS as usize == LINKS);

/// Number of repetitions of parts without a link in one batch.
const REPEATS: u32 = 32;

/// Number of polls in one batch.
const POLLS: u32 = 64;
