//! A link whose send memory already has a writer is lost, so that it does not lend the same bytes again.

use pronto_core::Nanos;
use pronto_core::fabric::{Arrived, ConnectionLimits, QueuePair as _};
use pronto_core::session::{
    Authenticated, Event, Identity, Inbound, Limits, Links, Session, Sink, agree, greet,
};
use pronto_sim::{SimExecutor, SimLease, SimOptions, SimQueuePair, SimWorld};
use pronto_wire::{Class, Epoch, NodeId, SessionId};

#[derive(Default)]
struct Events {
    up: usize,
    suspended: usize,
}

impl Sink<SimLease> for Events {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        inbound.token.finish();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::PeerUp(_) => self.up += 1,
            Event::LinkLost { .. } => self.suspended += 1,
            _ => {}
        }
    }
}

/// Returns a session whose link consists of these queue pairs, and its events.
fn linked(world: &SimWorld, pairs: [SimQueuePair; 2]) -> (Session<SimQueuePair>, Events) {
    let identity = |id: u16| Identity {
        node: NodeId(id),
        epoch: Epoch(id.into()),
        name: String::new(),
        types: Vec::new(),
    };
    let limits = Limits::default();
    let theirs = greet(&identity(2), &limits, NodeId(1), None);
    let agreement = agree(&identity(1), &limits, Authenticated::claimed(theirs), SessionId(7), None)
        .expect("the greetings match");
    let (session, mut events) = (Session::new(NodeId(2), limits), Events::default());
    session.install(Links { pairs, agreement }, &mut events, &SimExecutor::new(world));
    (session, events)
}

#[test]
fn a_link_over_memory_that_has_a_writer_lends_nothing_and_is_lost() {
    let connection = ConnectionLimits {
        send_depth: 512,
        receive_depth: 512,
        max_send_payload: 64 << 10,
        max_receive_payload: 64 << 10,
        send_memory: 1 << 20,
    };
    for claimed in [false, true] {
        let world = SimWorld::new(1, SimOptions::like_shm());
        let nodes = [world.add_node(), world.add_node()];
        let [(control, _far), (bulk, _far_bulk)] =
            [(); 2].map(|()| world.connect(nodes[0], nodes[1], connection));
        if claimed {
            assert!(control.send_memory().claim(), "the memory has no writer yet");
        }
        let (session, mut events) = linked(&world, [control, bulk]);
        assert_eq!(session.loan(Class::Control, 300, 0).is_err(), claimed);
        let _ = session.turn(1, || false, &mut events, &SimExecutor::new(&world));
        let _ = session.tick(Nanos::from_millis(1), Nanos::ZERO, &mut events, &SimExecutor::new(&world));
        assert_eq!((events.up, events.suspended), (1, usize::from(claimed)));
    }
}
