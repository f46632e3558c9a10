//! A peer without a session: it greets as a node does, and then sends whatever the test requests.

use std::sync::Arc;

use pronto::{Address, Class, Epoch, LayoutHash, Message, NameHash, NodeId, Payload, ServiceId};
use pronto_core::buf::{RingConfig, SendRing};
use pronto_core::fabric::{
    DoorbellEvent, FabricError, Gather, Operation, PostError, QueuePair, SendWork, Signal, WrId,
    poll_by_value,
};
use pronto_core::session::{Agreement, Authenticated, Identity, Limits, agree, greet};
use pronto_fabric_shm as shm;
use pronto_fabric_tcp as tcp;
use pronto_node::AnyQueuePair;
use pronto_wire::greeting::{GreetingRefusal, MAX_GREETING};
use pronto_wire::{
    Acks, CallId, Greeting, GreetingFault, Header, Kind, RawHeader, SessionId, TypeEntry, TypeId,
};

use crate::rig::{Add, TIMEOUT, until};

/// A connection attempt whose greeting was accepted, and nothing more.
pub(crate) struct HalfMade {
    agreement: Agreement,
    handshake: Handshake,
}

enum Handshake {
    Shm(shm::Handshake),
    Tcp(tcp::Handshake),
}

impl HalfMade {
    /// Greets `target` at an address as node `id`.
    pub(crate) fn greet(id: u16, target: u16, address: &str) -> Result<Self, GreetingFault> {
        Self::greet_with(Limits::default(), id, target, address)
    }

    /// Greets like [`greet`](Self::greet), with these limits.
    pub(crate) fn greet_with(
        limits: Limits,
        id: u16,
        target: u16,
        address: &str,
    ) -> Result<Self, GreetingFault> {
        Self::attempt(limits, [id, target], address, None)
    }

    /// Greets node 1 again, as a peer that has lost this link greets to resume the session.
    pub(crate) fn greet_to_resume(id: u16, lost: &Raw, address: &str) -> Result<Self, GreetingFault> {
        Self::attempt(Limits::default(), [id, 1], address, Some(lost.agreement.session))
    }

    fn attempt(
        limits: Limits,
        [id, target]: [u16; 2],
        address: &str,
        held: Option<SessionId>,
    ) -> Result<Self, GreetingFault> {
        let (name, layout) = Add::type_key();
        let adds = TypeEntry { name, layout, service: ServiceId(0), type_id: TypeId(0) };
        let me = Identity { node: NodeId(id), epoch: Epoch(77), name: String::new(), types: vec![adds] };
        let blob = greet(&me, &limits, NodeId(target), held).encode();
        let (reply, handshake) = match address.parse().unwrap() {
            Address::Shm(path) => {
                let mut handshake = shm::Handshake::dial(&path, TIMEOUT).unwrap();
                handshake.send(&blob).unwrap();
                (handshake.receive(MAX_GREETING).unwrap(), Handshake::Shm(handshake))
            }
            Address::Tcp(socket) => {
                let mut handshake = tcp::Handshake::dial(socket, TIMEOUT, tcp::Options::default()).unwrap();
                handshake.send(&blob).unwrap();
                (handshake.receive(MAX_GREETING).unwrap(), Handshake::Tcp(handshake))
            }
        };
        let theirs = Greeting::decode(&reply)?;
        let session = theirs.session.unwrap();
        Ok(Self {
            agreement: agree(&me, &limits, Authenticated::claimed(theirs), session, held).unwrap(),
            handshake,
        })
    }

    /// Completes the attempt; `None` if the other side has ended it.
    pub(crate) fn finish(self) -> Option<Raw> {
        let Self { agreement, handshake } = self;
        let limits = Class::ALL.map(|class| agreement.connection(class));
        match handshake {
            Handshake::Shm(handshake) => {
                let link = handshake.establish(limits).ok()?;
                let pairs = [AnyQueuePair::Shm(link.control), AnyQueuePair::Shm(link.bulk)];
                Some(Raw::new(pairs, agreement, Some(link.lifeline)))
            }
            Handshake::Tcp(handshake) => {
                let link = handshake.establish(limits, &tcp::ReceivePool::new(64 << 20).unwrap()).ok()?;
                let pairs = [AnyQueuePair::Tcp(link.control), AnyQueuePair::Tcp(link.bulk)];
                Some(Raw::new(pairs, agreement, None))
            }
        }
    }
}

/// The peer, and the counts that it keeps itself.
pub(crate) struct Raw {
    pub(crate) pairs: [AnyQueuePair; 2],
    pub(crate) agreement: Agreement,
    rings: [Arc<SendRing>; 2],
    /// Messages received on each connection, which a correct peer acknowledges.
    pub(crate) received: [u16; 2],
    lifeline: Option<shm::Lifeline>,
}

impl Raw {
    /// Greets node 1 at an address as node `id`.
    pub(crate) fn greet(id: u16, address: &str) -> Self {
        HalfMade::greet(id, 1, address).unwrap().finish().unwrap()
    }

    /// Greets again, as [`greet`](Self::greet). As every peer does, it tries again while the node still has its former link.
    pub(crate) fn greet_again(id: u16, address: &str) -> Self {
        let mut made = None;
        until("the former link is gone", || {
            match HalfMade::greet(id, 1, address) {
                Ok(half) => made = half.finish(),
                Err(GreetingFault::Refused { refusal: GreetingRefusal::Duplicate, .. }) => {}
                Err(fault) => panic!("{fault}"),
            }
            made.is_some()
        });
        made.unwrap()
    }

    fn new(mut pairs: [AnyQueuePair; 2], agreement: Agreement, lifeline: Option<shm::Lifeline>) -> Self {
        let rings = [0, 1].map(|class: usize| {
            let ring = SendRing::new(pairs[class].send_memory(), RingConfig::default()).unwrap();
            for range in ring.initial() {
                pairs[class].prepare(range).unwrap();
            }
            Arc::new(ring)
        });
        Self { pairs, agreement, rings, received: [0; 2], lifeline }
    }

    /// Returns the node's number for a type.
    pub(crate) fn number<M: Message>(&self) -> TypeId {
        let key: (NameHash, LayoutHash) = M::type_key();
        let matches = |entry: &&TypeEntry| (entry.name, entry.layout) == key;
        self.agreement.types.iter().find(matches).unwrap().type_id
    }

    /// Returns a request of type `M` in a slot.
    pub(crate) fn request<M: Message>(&self, slot: u16, generation: u32) -> Kind {
        let call = CallId { slot, generation };
        let (type_id, service) = (self.number::<M>(), ServiceId(0));
        Kind::Request { call, type_id, service, resent: false, deadline_us: 0 }
    }

    /// Sends a message that acknowledges the received messages.
    pub(crate) fn post(&mut self, class: Class, kind: Kind, payload: &[u8]) -> Result<(), PostError> {
        let acks = Acks { received: self.received[class.index()], returned: 0 };
        self.send(class, &Header { kind, acks }.emit(), payload)
    }

    /// Sends any header with any payload.
    pub(crate) fn send(&mut self, class: Class, header: &RawHeader, payload: &[u8]) -> Result<(), PostError> {
        let pair = &mut self.pairs[class.index()];
        if payload.len() <= 40 {
            let work = Operation::Send { header, payload: Gather::Short(payload) };
            pair.post(SendWork { signal: Signal::Unsignalled, operation: work })?;
        } else {
            let mut loan = Arc::clone(&self.rings[class.index()]).loan(payload.len(), 0).unwrap();
            loan.as_mut_slice().copy_from_slice(payload);
            let frame = loan.finish();
            let work = Operation::Send { header, payload: Gather::Ring(frame.extent()) };
            let signal = Signal::Signalled(WrId { slot: 0, generation: 1 });
            pair.post(SendWork { signal, operation: work })?;
            // The memory stays in use until the end of the test.
            core::mem::forget(frame);
        }
        Ok(pair.ring_doorbell(DoorbellEvent::Solicited)?)
    }

    /// Returns the next message on a connection, if one has arrived.
    pub(crate) fn poll(&mut self, class: Class) -> Result<Option<(Header, Vec<u8>)>, FabricError> {
        while self.pairs[class.index()].poll_send().is_some() {}
        let Some(message) = poll_by_value(&mut self.pairs[class.index()])? else { return Ok(None) };
        self.received[class.index()] = self.received[class.index()].wrapping_add(1);
        let mut bytes = vec![0; message.payload.len()];
        message.payload.copy_to(0, &mut bytes).unwrap();
        Ok(Some((Header::check(&message.header, bytes.len()).unwrap(), bytes)))
    }

    /// Waits for the next message on a connection, other than credits and heartbeats.
    pub(crate) fn receive(&mut self, class: Class) -> (Header, Vec<u8>) {
        let mut received = None;
        until("a message", || {
            received = self.poll(class).unwrap();
            received
                .as_ref()
                .is_some_and(|(header, _)| !matches!(header.kind, Kind::Credit | Kind::Heartbeat))
        });
        received.unwrap()
    }

    /// Makes a call, and asserts that it succeeds.
    pub(crate) fn assert_works(&mut self) {
        let request = self.request::<Add>(0, 1);
        self.post(Class::Control, request, &sum_of(&[1, 2])).unwrap();
        let (header, payload) = self.receive(Class::Control);
        assert_eq!(header.kind, Kind::Reply { call: CallId { slot: 0, generation: 1 } });
        assert_eq!(payload, 3_u64.to_le_bytes());
    }

    /// Waits until the node has closed its end of the connection over which a shared-memory link was established.
    pub(crate) fn wait_until_closed(&self) {
        let lifeline = self.lifeline.as_ref().expect("a link over shared memory");
        until("the other end is closed", || lifeline.is_cut().unwrap());
    }

    /// Waits until the node has ended the link to this peer.
    pub(crate) fn wait_until_dropped(&mut self) {
        until("the link ends", || Class::ALL.into_iter().any(|class| self.poll(class).is_err()));
    }
}

/// Returns an encoded [`Add`] request.
pub(crate) fn sum_of(values: &[u64]) -> Vec<u8> {
    encoded_in(4096, &Add { values: values.to_vec() })
}

/// Encodes a message in at most `room` bytes.
pub(crate) fn encoded_in(room: usize, value: &impl Payload) -> Vec<u8> {
    let mut bytes = vec![0; room];
    let len = pronto::rpc::encode_message(value, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}
