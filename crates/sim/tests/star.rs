//! A node with a thousand peers: an engine for each on either side. Their heartbeats, calls of all peers at the same time, and the loss of links.

use std::sync::Arc;

use pronto_core::fabric::Arrived;
use pronto_core::session::{
    Authenticated, CallSpec, DownCause, Event, Identity, Inbound, Limits, Links, OutgoingPayload, Response,
    Session, Sink, TypeKey, agree, greet,
};
use pronto_core::{Clock as _, Nanos};
use pronto_sim::{Fault, SimExecutor, SimLease, SimNode, SimOptions, SimQueuePair, SimWorld};
use pronto_wire::{
    CallId, Class, Epoch, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeEntry, TypeId,
};

const PEERS: u16 = 1_000;
const HUB: NodeId = NodeId(1);
/// Interval of ticks at rest, and during calls.
const TICK: Nanos = Nanos::from_millis(100);
const BUSY_TICK: Nanos = Nanos::from_millis(4);

type SimSession = Session<SimQueuePair>;

/// Both ends of the session with one peer.
struct Spoke {
    place: SimNode,
    hub: Arc<SimSession>,
    peer: Arc<SimSession>,
}

struct Star {
    world: SimWorld,
    executor: SimExecutor,
    limits: Limits,
    hub: SimNode,
    spokes: Vec<Spoke>,
}

/// Replies to each request, and counts requests and sessions that end.
#[derive(Debug, Default)]
struct Replies {
    requests: usize,
    downs: Vec<DownCause>,
}

impl Sink<SimLease> for Replies {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        self.requests += 1;
        let class = inbound.token.class();
        inbound.token.respond(Response::Reply { class, payload: OutgoingPayload::EMPTY });
    }

    fn event(&mut self, event: Event) {
        if let Event::PeerDown { cause, .. } = event {
            self.downs.push(cause);
        }
    }
}

fn key() -> TypeKey {
    TypeKey { name: NameHash::of("t"), layout: LayoutHash(5), service: ServiceId(0) }
}

fn identity(id: NodeId) -> Identity {
    let TypeKey { name, layout, service } = key();
    let entry = TypeEntry { name, layout, service, type_id: TypeId(0) };
    Identity { node: id, epoch: Epoch(id.0.into()), name: String::new(), types: vec![entry] }
}

impl Star {
    fn new() -> Self {
        let limits = Limits {
            calls: 4,
            requests: [4, 4],
            first_requests: [4, 4],
            send_memory: [1 << 16; 2],
            ..Limits::default()
        };
        let world = SimWorld::new(7, SimOptions::like_tcp());
        let hub = world.add_node();
        let spoke = |id: u16| Spoke {
            place: world.add_node(),
            hub: Arc::new(Session::new(NodeId(id), limits)),
            peer: Arc::new(Session::new(HUB, limits)),
        };
        let spokes = (2..PEERS + 2).map(spoke).collect();
        let mut star = Self { executor: SimExecutor::new(&world), world, limits, hub, spokes };
        (0..star.spokes.len()).for_each(|at| star.link(at));
        star
    }

    /// Makes a link with the peer at `at`, which resumes its session if there is one.
    fn link(&mut self, at: usize) {
        let Spoke { place, hub, peer } = &self.spokes[at];
        let id = hub.peer();
        let session = SessionId(u64::from(id.0));
        let held = hub.info(&self.executor).map(|info| info.session);
        let agreement = |me: NodeId, other: NodeId| {
            let greeting = greet(&identity(other), &self.limits, me, Some(session));
            agree(&identity(me), &self.limits, Authenticated::claimed(greeting), session, held)
                .expect("they match")
        };
        let [at_hub, at_peer] = [agreement(HUB, id), agreement(id, HUB)];
        let connect = |class: Class| self.world.connect(self.hub, *place, at_hub.connection(class));
        let [(near, far), (near_bulk, far_bulk)] = Class::ALL.map(connect);
        let (hub_links, peer_links) = (
            Links { pairs: [near, near_bulk], agreement: at_hub.clone() },
            Links { pairs: [far, far_bulk], agreement: at_peer.clone() },
        );
        hub.install(hub_links, &mut Replies::default(), &self.executor);
        peer.install(peer_links, &mut Replies::default(), &self.executor);
    }

    /// Lets time pass, with a tick of every session per `tick`, and turns as long as anything moves.
    fn pass(&self, span: Nanos, tick: Nanos, sink: &mut Replies) {
        let end = self.world.now() + span;
        while self.world.now() < end {
            self.world.run_until(self.world.now() + tick);
            for Spoke { hub, peer, .. } in &self.spokes {
                for session in [hub, peer] {
                    let ticked = session.tick(self.executor.now(), tick, sink, &self.executor);
                    assert!(ticked.is_some(), "no other thread holds the engine");
                    let turned = session.turn(8, || false, sink, &self.executor);
                    assert!(turned.is_some(), "no other thread holds the engine");
                }
            }
        }
    }

    /// Makes a call of each peer, and returns the calls.
    fn call_all(&self) -> Vec<CallId> {
        let spec = CallSpec { key: key(), class: Class::Control, timeout: Nanos::NEVER };
        let call = |spoke: &Spoke| {
            spoke.peer.call(&spec, OutgoingPayload::EMPTY, &self.executor).expect("there is room for a call")
        };
        self.spokes.iter().map(call).collect()
    }

    fn take_all(&self, calls: &[CallId]) {
        for (spoke, call) in self.spokes.iter().zip(calls) {
            assert!(spoke.peer.has_ended(*call), "a call of {:?} has no reply", spoke.hub.peer());
            let end = spoke.peer.take(*call, &self.executor);
            assert!(matches!(end, pronto_core::session::End::Reply(_)), "{end:?}");
        }
    }

    fn sent_by_hub(&self) -> u64 {
        self.spokes.iter().map(|spoke| spoke.hub.stats().messages_sent.count()).sum()
    }
}

#[test]
fn a_thousand_idle_peers_cost_their_heartbeats_and_stay_up() {
    let star = Star::new();
    let mut sink = Replies::default();
    star.pass(Nanos::from_secs(2), TICK, &mut sink);
    let before = star.sent_by_hub();
    let span = Nanos::from_secs(9);
    star.pass(span, TICK, &mut sink);
    let sent = star.sent_by_hub() - before;
    // One in half an interval at the earliest, and one in a whole interval and a tick at the latest.
    let of_one = |gap: Nanos| u64::from(PEERS) * (span.0 / gap.0);
    let heartbeat = star.limits.heartbeat;
    let (least, most) = (of_one(heartbeat + TICK), of_one(Nanos(heartbeat.0 / 2)) + u64::from(PEERS));
    assert!((least..=most).contains(&sent), "{sent} messages in 9 s instead of {least} to {most}");
    assert_eq!(sink.downs, [], "a peer counts as down");
}

#[test]
fn a_thousand_peers_call_together_and_go_on_after_lost_links() {
    let mut star = Star::new();
    let mut sink = Replies::default();
    let calls = star.call_all();
    star.pass(Nanos::from_millis(100), BUSY_TICK, &mut sink);
    star.take_all(&calls);
    assert_eq!(sink.requests, usize::from(PEERS));
    // Every tenth link is lost while calls are on their way.
    let calls = star.call_all();
    let lost = (0..star.spokes.len()).step_by(10).collect::<Vec<_>>();
    for at in &lost {
        star.world.inflict(Fault::CutBetween(star.hub, star.spokes[*at].place));
    }
    star.pass(Nanos::from_millis(50), BUSY_TICK, &mut sink);
    for at in lost {
        assert!(!star.spokes[at].peer.is_linked(&star.executor), "the link is lost");
        star.link(at);
    }
    star.pass(Nanos::from_millis(100), BUSY_TICK, &mut sink);
    star.take_all(&calls);
    assert_eq!(sink.requests, 2 * usize::from(PEERS), "a request was executed twice, or not");
    assert_eq!(star.world.overruns(), 0);
    assert_eq!(sink.downs, []);
}
