//! Detached tokens that are consumed, dropped, unwound by a panic or detached again: each sends one response and
//! returns one credit.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::rc::Rc;

use pronto_core::Nanos;
use pronto_core::fabric::{Arrived, ConnectionLimits};
use pronto_core::session::{
    Authenticated, CallSpec, Callee, DetachedToken, End, Event, Identity, Inbound, Limits, Links,
    OutgoingPayload, Response, Session, Sink, TypeKey, agree, greet,
};
use pronto_sim::{SimExecutor, SimLease, SimNode, SimOptions, SimQueuePair, SimWorld};
use pronto_wire::{
    Class, Epoch, FailureCode, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeEntry, TypeId,
};

type SimSession = Session<SimQueuePair>;

/// Maximum number of requests in flight.
const WINDOW: u16 = 8;
const KEY: TypeKey = TypeKey { name: NameHash::of("t"), layout: LayoutHash(5), service: ServiceId(0) };

#[derive(Clone)]
struct Origin {
    session: Rc<SimSession>,
    executor: SimExecutor,
}

impl Callee for Origin {
    type Qp = SimQueuePair;
    type Executor = SimExecutor;

    fn session(&self) -> &SimSession {
        &self.session
    }

    fn executor(&self) -> &SimExecutor {
        &self.executor
    }
}

/// Sink that passes requests on and ignores events.
struct Requests<F>(F);

impl<F: FnMut(Inbound<'_, Arrived<SimLease>>)> Sink<SimLease> for Requests<F> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        (self.0)(inbound);
    }

    fn event(&mut self, _: Event) {}
}

fn limits() -> Limits {
    let limits = Limits { requests: [WINDOW; 2], ..Limits::default() };
    limits.with_liveness(Some(Nanos::from_secs(3600)), Some(Nanos::from_secs(1)))
}

fn identity(id: u16) -> Identity {
    let (name, layout, service, type_id) = (KEY.name, KEY.layout, KEY.service, TypeId(id));
    let types = vec![TypeEntry { name, layout, service, type_id }];
    Identity { node: NodeId(id), epoch: Epoch(id.into()), name: String::new(), types }
}

/// Returns the connected sessions of a caller and a callee.
fn sessions(world: &SimWorld, nodes: [SimNode; 2]) -> [Origin; 2] {
    let connection = ConnectionLimits {
        send_depth: 64,
        receive_depth: 64,
        max_send_payload: 64 << 10,
        max_receive_payload: 64 << 10,
        send_memory: 1 << 20,
    };
    let [(a, b), (bulk_a, bulk_b)] = [(); 2].map(|()| world.connect(nodes[0], nodes[1], connection));
    let end = |me: u16, peer: u16, pairs| {
        let executor = SimExecutor::new(world);
        let theirs = greet(&identity(peer), &limits(), NodeId(me), None);
        let agreement = agree(&identity(me), &limits(), Authenticated::claimed(theirs), SessionId(7), None)
            .expect("the greetings match");
        let session = Rc::new(Session::new(NodeId(peer), limits()));
        session.install(Links { pairs, agreement }, &mut Requests(|_: Inbound<'_, _>| {}), &executor);
        Origin { session, executor }
    };
    [end(1, 2, [a, bulk_a]), end(2, 1, [b, bulk_b])]
}

fn reply() -> Response {
    Response::Reply { class: Class::Control, payload: OutgoingPayload::EMPTY }
}

/// A way to end a detached token, and the failure that its caller gets; `None` for a reply.
type Way = (fn(DetachedToken<Origin>), Option<FailureCode>);

const WAYS: [Way; 9] = [
    (|token| token.respond(reply()), None),
    (|token| token.fail(FailureCode::Draining), Some(FailureCode::Draining)),
    (drop, Some(FailureCode::NoReply)),
    (|token| token.handle(|_, token| token.respond(reply())), None),
    (|token| token.handle(|_, token| token.finish()), Some(FailureCode::NoReply)),
    (|token| panics(|| token.handle(|_, _token| panic!("meant"))), Some(FailureCode::NoReply)),
    (
        |token| {
            panics(|| {
                token.handle(|_, token| {
                    token.respond(reply());
                    panic!("meant")
                });
            });
        },
        None,
    ),
    (|token| token.handle(|origin, token| token.detach(origin.clone()).respond(reply())), None),
    (
        |token| {
            panics(|| {
                token.handle(|origin, token| {
                    let _again = token.detach(origin.clone());
                    panic!("meant")
                });
            });
        },
        Some(FailureCode::NoReply),
    ),
];

fn panics(run: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "it panics");
}

/// Shows: protocol.credit-requests
#[test]
fn each_token_sends_one_response_and_returns_one_credit() {
    let world = SimWorld::new(1, SimOptions::like_shm());
    let nodes = [world.add_node(), world.add_node()];
    let [near, far] = sessions(&world, nodes);
    let turn = |end: &Origin, sink: &mut dyn FnMut(Inbound<'_, Arrived<SimLease>>)| {
        while world.step() {}
        end.session
            .turn(64, || false, &mut Requests(sink), &end.executor)
            .expect("no other thread holds the engine");
        while world.step() {}
    };
    let none = &mut |_: Inbound<'_, Arrived<SimLease>>| panic!("a request at its caller");
    let spec = CallSpec { key: KEY, class: Class::Control, timeout: Nanos::NEVER };
    // A window of requests in each way: a lost credit stops it, and a credit that is returned twice ends the session.
    for round in 0..usize::from(WINDOW) * 2 {
        for (number, (way, failure)) in WAYS.into_iter().enumerate() {
            let call = near.session.call(&spec, OutgoingPayload::EMPTY, &near.executor);
            let call = call.unwrap_or_else(|refused| panic!("round {round}, way {number}: {refused}"));
            let mut tokens = Vec::new();
            turn(&far, &mut |inbound| tokens.push(inbound.token.detach(far.clone())));
            assert_eq!(tokens.len(), 1, "round {round}, way {number}");
            tokens.into_iter().for_each(way);
            turn(&far, none);
            turn(&near, none);
            assert!(near.session.has_ended(call), "round {round}, way {number}");
            let got = match near.session.take(call, &near.executor) {
                End::Reply(_) => None,
                End::Failure { code, .. } => Some(code),
                end => panic!("round {round}, way {number}: {end:?}"),
            };
            assert_eq!(got, failure, "round {round}, way {number}");
        }
    }
    assert_eq!(near.session.stats().stale_replies.count(), 0, "no call got two responses");
    assert!(near.session.is_up() && far.session.is_up());
    assert_eq!(near.session.credits(Class::Control), u32::from(WINDOW));
}
