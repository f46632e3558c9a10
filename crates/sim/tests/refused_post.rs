//! A fabric without room for a message must not lose an acknowledgement: the peer is notified as soon as there is room.

use pronto_core::Nanos;
use pronto_core::fabric::{Arrived, ConnectionLimits};
use pronto_core::session::{
    Authenticated, Event, Identity, Inbound, Limits, Links, OutgoingPayload, Session, Sink, TypeKey, agree,
    greet,
};
use pronto_sim::{SimExecutor, SimLease, SimNode, SimOptions, SimQueuePair, SimWorld};
use pronto_wire::{Class, Epoch, LayoutHash, NameHash, NodeId, ServiceId, SessionId, TypeEntry, TypeId};

/// Number of messages that a connection takes before the fabric is full.
const DEPTH: u32 = 20 + 16;
/// Number of the peer's control messages after which it must get an acknowledgement.
const OWED: u64 = 4;

struct Nobody;

impl Sink<SimLease> for Nobody {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        inbound.token.finish();
    }

    fn event(&mut self, _event: Event) {}
}

fn limits() -> Limits {
    let limits = Limits { requests: [100, 100], ..Limits::default() };
    limits.with_liveness(Some(Nanos::from_secs(3600)), Some(Nanos::from_secs(1)))
}

fn identity(id: u16) -> Identity {
    let entry = TypeEntry {
        name: NameHash::of("t"),
        layout: LayoutHash(5),
        service: ServiceId(0),
        type_id: TypeId(id),
    };
    Identity { node: NodeId(id), epoch: Epoch(id.into()), name: String::new(), types: vec![entry] }
}

/// Returns two connected sessions, whose connections have room for [`DEPTH`] messages each.
fn sessions(world: &SimWorld, nodes: [SimNode; 2]) -> [Session<SimQueuePair>; 2] {
    let connection = ConnectionLimits {
        send_depth: DEPTH - 16,
        receive_depth: DEPTH - 16,
        max_send_payload: 64 << 10,
        max_receive_payload: 64 << 10,
        send_memory: 1 << 20,
    };
    let [(a, b), (bulk_a, bulk_b)] = [(); 2].map(|()| world.connect(nodes[0], nodes[1], connection));
    let executor = SimExecutor::new(world);
    let end = |me: u16, peer: u16, pairs| {
        let theirs = greet(&identity(peer), &limits(), NodeId(me), None);
        let agreement = agree(&identity(me), &limits(), Authenticated::claimed(theirs), SessionId(7), None)
            .expect("the greetings match");
        let session = Session::new(NodeId(peer), limits());
        session.install(Links { pairs, agreement }, &mut Nobody, &executor);
        session
    };
    [end(1, 2, [a, bulk_a]), end(2, 1, [b, bulk_b])]
}

/// Shows: protocol.credit-message, protocol.credit-free, operations.messages
#[test]
fn an_acknowledgement_is_sent_once_there_is_room() {
    let world = SimWorld::new(1, SimOptions::like_shm());
    let executor = SimExecutor::new(&world);
    let nodes = [world.add_node(), world.add_node()];
    let [near, far] = sessions(&world, nodes);
    // Heartbeats wait to be received.
    for second in 1..=OWED {
        assert!(far.tick(Nanos::from_secs(second), Nanos::ZERO, &mut Nobody, &executor).is_some());
    }
    world.run_until(Nanos::from_millis(1));
    // The connection is full: the world stands still, so nothing is delivered.
    let key = TypeKey { name: NameHash::of("t"), layout: LayoutHash(5), service: ServiceId(0) };
    for _ in 0..DEPTH {
        let mut loan = near.loan(Class::Control, 300, 0).expect("send memory is available");
        loan.as_mut_slice().fill(1);
        let payload = OutgoingPayload::Frame(loan.finish());
        near.notify(&key, Class::Control, payload, &executor).expect("a credit is available");
    }
    let turn = |session: &Session<SimQueuePair>| {
        session.turn(1, || false, &mut Nobody, &executor).expect("no other thread holds the engine");
    };
    // The heartbeats are received, and the credit for them finds no room.
    turn(&near);
    assert_eq!(near.stats().messages_received.count(), OWED);
    assert_eq!(near.stats().messages_sent.count(), u64::from(DEPTH));
    while world.step() {
        turn(&far);
        turn(&near);
    }
    assert_eq!(near.stats().messages_sent.count(), u64::from(DEPTH) + 1, "the credit was sent");
    assert_eq!(far.stats().messages_received.count(), u64::from(DEPTH) + 1);
    assert_eq!(world.overruns(), 0);
}
