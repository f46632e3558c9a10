//! The node's dispatch: from a message that passed the session to its handler, on a real node without callers.

use core::hint::black_box;
use std::sync::Arc;

use crate::pair::Still;
use anyhow::Context as _;
use pronto::rpc::Host as _;
use pronto::rpc::codec::encode_message;
use pronto::rpc::handler::Incoming;
use pronto::{Message as _, Nanos, Node, NodeId, Route, ServiceId, WaitPolicy};
use pronto_core::fabric::{Arrived, QueuePair};
use pronto_core::session::{Inbound, Limits, Response, Session, Sink as _, TokenSlot};
use pronto_node::{AnyLease, AnyQueuePair, ServingSink};
use pronto_wire::{CallId, InlinePayload, TypeId};

use super::{Ask as _, Part, Parts};
use crate::echo::{self, Ask32, Provider, Wait};
use crate::home::Home;

type Lease = <AnyQueuePair as QueuePair>::Lease;

/// A node that serves echoes, and its handler without a node.
#[derive(Debug)]
pub(crate) struct Dispatch {
    node: Node,
    number: TypeId,
    payload: InlinePayload,
    route: Route<Still<AnyQueuePair>>,
    host: Arc<Still<AnyQueuePair>>,
    session: Arc<Session<AnyQueuePair>>,
}

impl Dispatch {
    /// Starts the node, which sleeps.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let home = Home::here(Provider::Shm.address("-dispatch"));
        let node = echo::serve(&home, Wait(WaitPolicy::Block))?;
        let number = node.status().types.iter().position(|name| *name == Ask32::NAME);
        let number = TypeId(u16::try_from(number.context("it handles echoes")?)?);
        let mut bytes = [0; 40];
        let len = encode_message(&Ask32::of(32), &mut bytes)?;
        let payload = InlinePayload::new(&bytes[..len]).context("it is small")?;
        let (host, session) =
            (Arc::new(Still::alone()), Arc::new(Session::new(NodeId(9), Limits::default())));
        Ok(Self { node, number, payload, route: Ask32::route(), host, session })
    }

    /// Measures requests through the node's dispatch and through the handler alone, and a caller's queries to its node.
    pub(crate) fn round(&self, parts: &mut Parts) -> anyhow::Result<()> {
        let peer = self.node.peer(NOBODY).context("a peer that is not there")?;
        let mut sink = ServingSink::new(peer.host(), peer.session());
        let mut slot = Self::slot();
        sink.request(self.inbound(&mut slot));
        let response = slot.into_response();
        anyhow::ensure!(
            matches!(response, Some(Response::Reply { .. })),
            "the handler replies, and not: {response:?}"
        );
        parts.time(Part::Dispatch, REPEATS, || {
            for _ in 0..REPEATS {
                let mut slot = Self::slot();
                sink.request(black_box(self.inbound(&mut slot)));
                drop(black_box(slot));
            }
        });
        let (host, session) = (peer.host(), peer.session());
        parts.time(Part::Around, REPEATS, || {
            for _ in 0..REPEATS {
                black_box(black_box(host).may_wait());
                black_box(host.waiting_sink(black_box(session)));
                black_box(Ask32::type_key());
            }
        });
        parts.time(Part::Handler32, REPEATS, || {
            for _ in 0..REPEATS {
                let mut slot = Self::slot();
                let Inbound { token, payload, .. } = black_box(self.inbound(&mut slot));
                let incoming = Incoming::new(token.call(), &self.session, &self.host, Nanos::NEVER);
                self.route.run(&incoming, payload, token);
                drop(black_box(slot));
            }
        });
        Ok(())
    }

    fn slot() -> TokenSlot {
        TokenSlot::unowed(Some(CallId { slot: 0, generation: 1 }), Ask32::CLASS)
    }

    fn inbound<'slot>(&self, slot: &'slot mut TokenSlot) -> Inbound<'slot, Arrived<Lease>> {
        Inbound {
            token: slot.token(),
            resent: false,
            type_id: self.number,
            service: ServiceId(0),
            timeout: Nanos::NEVER,
            payload: Arrived::<AnyLease>::Inline(self.payload),
        }
    }
}

/// A peer that never connects.
const NOBODY: u16 = 9;

/// Number of requests in one batch.
const REPEATS: u32 = 32;
