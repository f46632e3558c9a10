//! A peer that offers messages for which no receive is posted, in call slots that it reuses without a response. The
//! test writes the peer's bytes to a real connection, because a correct session never sends them.

use pronto_core::Nanos;
use pronto_core::fabric::{
    Arrived, DoorbellEvent, Gather, Operation, QueuePair as _, RemoteRange, SendWork, Signal, poll_by_value,
};
use pronto_core::session::{
    Authenticated, Event, Inbound, Limits, Links, MAX_UNEXPECTED, Offered, Session, Sink, agree, greet,
};
use pronto_sim::{SimExecutor, SimLease, SimOptions, SimQueuePair, SimWorld};
use pronto_wire::{Acks, CallId, Class, FirstWords, NodeId, RawHeader, ServiceId, SessionId, TypeId};

use super::pair::{SimSession, few, identity};

/// Number of offers.
const OFFERS: u32 = 2_000;

/// Sink that treats every request as an offer.
struct Receiver<'a> {
    session: &'a SimSession,
    executor: &'a SimExecutor,
    offered: Offered,
}

impl Sink<SimLease> for Receiver<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        self.session.take_offer(inbound, 7, self.offered.clone(), self.executor);
    }

    fn event(&mut self, _event: Event) {}
}

/// A peer that writes its own headers, connected to a correct session.
struct Flood {
    world: SimWorld,
    executor: SimExecutor,
    session: SimSession,
    /// The peer's ends.
    pairs: [SimQueuePair; 2],
    /// Number of messages that the peer has received, by class.
    received: [u16; 2],
}

impl Flood {
    fn new(limits: Limits) -> Self {
        let world = SimWorld::new(1, SimOptions::like_verbs());
        let nodes = [world.add_node(), world.add_node()];
        let executor = SimExecutor::new(&world);
        let greeting = greet(&identity(1), &limits, NodeId(2), None);
        let agreement = agree(&identity(2), &limits, Authenticated::claimed(greeting), SessionId(7), None)
            .expect("the greetings match");
        let connect = |class: Class| world.connect(nodes[1], nodes[0], agreement.connection(class));
        let [(control, peer), (bulk, peer_bulk)] = Class::ALL.map(connect);
        let session = Session::new(NodeId(1), limits);
        let mut nobody = super::pair::Callee::default();
        session.install(Links { pairs: [control, bulk], agreement }, &mut nobody, &executor);
        Self { world, executor, session, pairs: [peer, peer_bulk], received: [0; 2] }
    }

    /// Sends one request of the peer, and runs the session's turn.
    fn offer(&mut self, call: CallId, offered: Offered) {
        let class = Class::Bulk.index();
        let acks = Acks { received: self.received[class], returned: 0 };
        let header = RawHeader::request(call, TypeId(2), ServiceId(0), 0, (acks, &FirstWords::PLAIN));
        let operation = Operation::Send { header: &header, payload: Gather::Short(&[0; 16]) };
        let posted = self.pairs[class].post(SendWork { signal: Signal::Unsignalled, operation });
        assert!(
            posted.is_ok() && self.pairs[class].ring_doorbell(DoorbellEvent::Solicited).is_ok(),
            "the link lives"
        );
        self.world.run_until(self.world.now() + Nanos::from_millis(3));
        let mut sink = Receiver { session: &self.session, executor: &self.executor, offered };
        let turned = self.session.turn(1, || false, &mut sink, &self.executor);
        assert!(turned.is_some(), "no other thread holds the engine");
        self.world.run_until(self.world.now() + Nanos::from_millis(3));
        for (pair, received) in self.pairs.iter_mut().zip(&mut self.received) {
            while let Ok(Some(_)) = poll_by_value(pair) {
                *received = received.wrapping_add(1);
            }
        }
    }

    /// Returns the number of offers that wait for a receive.
    fn waiting(&self) -> usize {
        self.session.transfers(&self.executor)[0]
    }
}

fn by_reference() -> Offered {
    Offered::ByReference(RemoteRange { key: 1, offset: 0, len: 100 }.into())
}

#[test]
fn offers_in_a_slot_replace_each_other() {
    let mut flood = Flood::new(few());
    for number in 0..OFFERS {
        let slot = u16::try_from(number % u32::from(few().calls)).expect("a few slots");
        flood.offer(CallId { slot, generation: number + 1 }, by_reference());
        if !flood.session.is_up() {
            // Ending the session is a correct reaction to such a peer, too.
            assert_eq!(flood.session.stats().corrupt_peers.count(), 1);
            return;
        }
    }
    let waiting = flood.waiting();
    assert!(
        waiting <= usize::from(few().calls),
        "{waiting} offers wait, of a peer with {} call slots",
        few().calls
    );
}

/// A parked message has its response, so its slot is free for another offer.
#[test]
fn parked_messages_have_their_own_bound() {
    let mut flood = Flood::new(few());
    let slots = u32::from(few().calls);
    for number in 0..2 * slots {
        let slot = u16::try_from(number % slots).expect("a few slots");
        let call = CallId { slot, generation: number + 1 };
        if number < u32::try_from(MAX_UNEXPECTED).expect("a few") {
            flood.offer(call, Offered::Eager { skip: 8 });
        } else {
            flood.offer(call, by_reference());
        }
        assert!(flood.session.is_up(), "a correct peer may do this");
    }
    assert_eq!(flood.waiting(), MAX_UNEXPECTED + usize::from(few().calls));
}
