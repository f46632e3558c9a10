//! A peer that asks for a pause where it must not. The test writes the peer's bytes to a real connection, because a correct session never
//! sends them.

use pronto_core::Nanos;
use pronto_core::fabric::{DoorbellEvent, Gather, Operation, QueuePair as _, SendWork, Signal};
use pronto_core::session::{Agreement, Authenticated, Limits, Links, Session, agree, greet};
use pronto_sim::{SimExecutor, SimOptions, SimWorld};
use pronto_wire::{Acks, Class, Header, Kind, NodeId, SessionId};

use super::pair::{Nothing, SimSession, few, identity};

/// Returns a session whose peer has asked for a pause in this class, on a link of the changed agreement.
fn asked(class: Class, change: impl FnOnce(&mut Agreement)) -> SimSession {
    let world = SimWorld::new(1, SimOptions::like_verbs());
    let nodes = [world.add_node(), world.add_node()];
    let executor = SimExecutor::new(&world);
    let limits: Limits = few();
    let greeting = greet(&identity(1), &limits, NodeId(2), None);
    let mut agreement = agree(&identity(2), &limits, Authenticated::claimed(greeting), SessionId(7), None)
        .expect("the greetings match");
    change(&mut agreement);
    let connect = |class: Class| world.connect(nodes[1], nodes[0], agreement.connection(class));
    let [(control, peer), (bulk, peer_bulk)] = Class::ALL.map(connect);
    let session = Session::new(NodeId(1), limits);
    session.install(Links { pairs: [control, bulk], agreement }, &mut Nothing, &executor);
    let header = Header { kind: Kind::Pause, acks: Acks { received: 0, returned: 0 } }.emit();
    let operation = Operation::Send { header: &header, payload: Gather::Short(&[]) };
    let pair = &mut [peer, peer_bulk][class.index()];
    let posted = pair.post(SendWork { signal: Signal::Unsignalled, operation });
    assert!(posted.is_ok() && pair.ring_doorbell(DoorbellEvent::Solicited).is_ok(), "the link lives");
    world.run_until(world.now() + Nanos::from_millis(3));
    let turned = session.turn(1, || false, &mut Nothing, &executor);
    assert!(turned.is_some(), "no other thread holds the engine");
    session
}

#[test]
fn a_peer_may_ask_for_a_pause_in_the_control_class() {
    let session = asked(Class::Control, |_| {});
    assert!(session.is_up() && session.stats().messages_received.count() == 1);
}

#[test]
fn a_question_in_another_class_or_without_agreement_on_pauses_ends_the_session() {
    for session in [
        asked(Class::Bulk, |_| {}),
        asked(Class::Control, |agreement| agreement.pauses = false),
        asked(Class::Bulk, |agreement| agreement.pauses = false),
    ] {
        assert_eq!((session.is_up(), session.stats().corrupt_peers.count()), (false, 1));
    }
}
