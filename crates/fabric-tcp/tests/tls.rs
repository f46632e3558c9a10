//! Links over TLS: the data path, the handshake under attack, and identities.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod certificates;

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use certificates::World;
use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Gather, Operation, QueuePair, SendWork, Signal, poll_by_value,
};
use pronto_fabric_tcp::{
    Handshake, Link, Listener, ListenerCounters, Options, ReceivePool, SetupError, TcpQueuePair, Tls, TlsBy,
};
use pronto_trust::rustls::Error as TlsError;
use pronto_trust::{Credentials, Denied, alert_reason};
use pronto_wire::RawHeader;

const PATIENCE: Duration = Duration::from_secs(20);
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 4 << 20,
};

struct Secured {
    credentials: Credentials,
    tls: Arc<Tls>,
}

fn secured(credentials: Credentials) -> Secured {
    let tls = Arc::new(Tls::new(credentials.client(), credentials.server()));
    Secured { credentials, tls }
}

fn options(tls: &Arc<Tls>) -> Options {
    Options { tls: Some(Arc::clone(tls)), tls_by: TlsBy::Process, ..Options::default() }
}

/// A listener whose handshakes arrive in a channel, or the reasons why there are none.
struct Acceptor {
    listener: Arc<Listener>,
    address: SocketAddr,
    handshakes: Receiver<Result<Handshake, SetupError>>,
}

impl Acceptor {
    fn new(options: Options, timeout: Duration) -> Self {
        let listener = Arc::new(Listener::bind("127.0.0.1:0", options).unwrap());
        let (address, (sender, handshakes)) = (listener.local_addr().unwrap(), channel());
        let accepting = Arc::clone(&listener);
        thread::spawn(move || {
            while let Ok(incoming) = accepting.accept() {
                let sender = sender.clone();
                thread::spawn(move || {
                    let _test_is_over = match incoming.begin(timeout) {
                        Ok(None) => return,
                        Ok(Some(handshake)) => sender.send(Ok(handshake)),
                        Err(error) => sender.send(Err(error)),
                    };
                });
            }
        });
        Self { listener, address, handshakes }
    }

    fn next(&self) -> Result<Handshake, SetupError> {
        self.handshakes.recv_timeout(PATIENCE).unwrap()
    }

    fn counters(&self) -> ListenerCounters {
        self.listener.counters()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.listener.close();
    }
}

/// Establishes a link between two handshakes.
fn established(dialler: Handshake, accepted: Handshake) -> (Link, Link) {
    let pool = || ReceivePool::new(16 << 20).unwrap();
    thread::scope(|threads| {
        let far = threads.spawn(|| accepted.establish([LIMITS; 2], &pool()).unwrap());
        (dialler.establish([LIMITS; 2], &pool()).unwrap(), far.join().unwrap())
    })
}

fn send(qp: &mut TcpQueuePair, bytes: &[u8]) {
    let header = RawHeader::default();
    let operation = Operation::Send { header: &header, payload: Gather::Short(bytes) };
    qp.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

/// Returns the payload of the next message.
fn receive(qp: &mut TcpQueuePair) -> Vec<u8> {
    loop {
        if let Some(message) = poll_by_value(qp).unwrap() {
            return message.payload.as_private().unwrap().to_vec();
        }
        thread::yield_now();
    }
}

/// Shows: protocol.tls-preambles
#[test]
fn both_connections_are_encrypted_and_their_ends_are_known() {
    let world = World::new();
    let (one, two) = (secured(world.node(1)), secured(world.node(2)));
    let acceptor = Acceptor::new(options(&two.tls), PATIENCE);
    let relay = Relay::new(acceptor.address, None);
    let mut dialler = Handshake::dial(relay.address, PATIENCE, options(&one.tls)).unwrap();
    let mut accepted = acceptor.next().unwrap();
    let secret = b"a greeting that nobody else reads";
    dialler.send(secret).unwrap();
    assert_eq!(accepted.receive(100).unwrap(), secret);
    let name = |credentials: &Credentials, handshake: &Handshake| {
        credentials.identify(handshake.peer_certificates().unwrap()).unwrap().name.to_string()
    };
    assert_eq!(name(&one.credentials, &dialler), "node 2");
    assert_eq!(name(&two.credentials, &accepted), "node 1");
    let (mut near, mut far) = established(dialler, accepted);
    for (near, far) in [(&mut near.control, &mut far.control), (&mut near.bulk, &mut far.bulk)] {
        send(near, secret);
        assert_eq!(receive(far), secret);
    }
    let seen = relay.seen.lock().unwrap();
    let is_there = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
    assert!(is_there(b"pronto\x033") && is_there(b"pronto\x03t") && is_there(b"pronto\x034"));
    assert!(!is_there(&secret[..8]) && !is_there(b"pronto\x03r"), "it went unencrypted");
}

/// Exchanges messages over a link of two nodes, and returns the number of bytes on the wire.
fn exchange(nodes: [Secured; 2]) -> usize {
    let [one, two] = nodes;
    let acceptor = Acceptor::new(options(&two.tls), PATIENCE);
    let relay = Relay::new(acceptor.address, None);
    let dialler = Handshake::dial(relay.address, PATIENCE, options(&one.tls)).unwrap();
    let (mut near, mut far) = established(dialler, acceptor.next().unwrap());
    for number in 0..500u32 {
        let bytes = number.to_le_bytes();
        send(&mut near.control, &bytes);
        assert_eq!(receive(&mut far.control), bytes);
        // One side sends most of the messages, so that its keys change more often.
        if number % 7 == 0 {
            send(&mut far.control, &bytes);
            assert_eq!(receive(&mut near.control), bytes);
        }
    }
    relay.counts().iter().sum()
}

/// The keys change after 16 records, which the cipher permits no more of here.
///
/// Shows: operations.key-update
#[test]
fn a_link_outlives_the_limit_of_its_keys() {
    let world = World::new();
    let limited = exchange([1, 2].map(|node| secured(world.node_with_limit(node, 16))));
    let unlimited = exchange([3, 4].map(|node| secured(world.node(node))));
    // A change is a record of 27 bytes.
    let changes = limited.saturating_sub(unlimited) / 27;
    assert!(changes > 20, "the keys have changed {changes} times");
}

/// Shows: protocol.tls-mismatch
#[test]
fn a_node_with_tls_and_one_without_both_say_so() {
    let world = World::new();
    let secure = options(&secured(world.node(1)).tls);
    for (accepts, dials) in [(secure.clone(), Options::default()), (Options::default(), secure)] {
        let has_tls = accepts.tls.is_some();
        let acceptor = Acceptor::new(accepts, PATIENCE);
        // A dialler without TLS hears the answer when it first receives.
        let dialled = Handshake::dial(acceptor.address, PATIENCE, dials)
            .and_then(|mut handshake| handshake.receive(10))
            .unwrap_err();
        let accepted = acceptor.next().map(drop).unwrap_err();
        let (without, required) = (SetupError::PeerWithoutTls, SetupError::PeerRequiresTls);
        let expected = if has_tls { (required, without) } else { (without, required) };
        assert_eq!((dialled, accepted), expected);
        assert_eq!(acceptor.counters().untrusted, 1);
    }
}

/// Shows: protocol.same-identity
#[test]
fn the_second_connection_has_the_identity_of_the_first() {
    let world = World::new();
    let (one, two, three) = (secured(world.node(1)), secured(world.node(2)), secured(world.node(3)));
    let acceptor = Acceptor::new(options(&two.tls), PATIENCE);
    let dialler = Handshake::dial(acceptor.address, PATIENCE, options(&one.tls)).unwrap();
    let accepted = acceptor.next().unwrap();
    one.tls.replace(three.credentials.client(), three.credentials.server());
    let pool = || ReceivePool::new(16 << 20).unwrap();
    thread::scope(|threads| {
        let far = threads.spawn(|| accepted.establish([LIMITS; 2], &pool()).map(drop));
        let near = dialler.establish([LIMITS; 2], &pool()).map(drop);
        assert_eq!(far.join().unwrap(), Err(SetupError::OtherIdentity));
        assert!(near.is_err());
    });
}

/// Shows: operations.trust-reasons
#[test]
fn a_stranger_is_refused_and_both_sides_say_why() {
    let (world, other) = (World::new(), World::new());
    let acceptor = Acceptor::new(options(&secured(world.node(2)).tls), PATIENCE);
    let stranger = secured(other.node_that_trusts(1, &world));
    let dialled = Handshake::dial(acceptor.address, PATIENCE, options(&stranger.tls)).unwrap_err();
    let accepted = acceptor.next().unwrap_err();
    let SetupError::Tls(TlsError::AlertReceived(alert)) = dialled else { panic!("{dialled:?}") };
    assert!(alert_reason(alert).unwrap().contains("does not know the authority"), "{alert:?}");
    let SetupError::Tls(cause) = accepted else { panic!("{accepted:?}") };
    assert_eq!(Denied::from_tls(&cause), Some(Denied::UnknownAuthority));
}

/// One byte of a handshake is changed, each in turn, in each direction. The bytes of the record's version have no meaning in TLS 1.3; every
/// other change is noticed by both sides.
///
/// Shows: protocol.tls-changed
#[test]
fn a_changed_byte_of_a_handshake_is_noticed_by_both_sides() {
    let world = World::new();
    let ends = Ends { options: [1, 2].map(|node| options(&secured(world.node(node)).tls)) };
    let (dialled, accepted, counts) = ends.greet(&ends.acceptor(), None);
    assert_eq!((dialled.unwrap(), accepted.unwrap()), (b"reply".to_vec(), b"greeting".to_vec()));
    let to_acceptor = (0..counts[0]).map(|place| (Direction::ToAcceptor, place));
    let changes: Vec<_> =
        to_acceptor.chain((0..counts[1]).map(|place| (Direction::ToDialler, place))).collect();
    assert!(changes.len() > 1_000, "the handshake has {} bytes", changes.len());
    // Most of the time is that of ends that wait for bytes which a changed length announces.
    let harmless: usize = thread::scope(|threads| {
        let parts = changes.chunks(changes.len().div_ceil(16));
        let parts: Vec<_> = parts.map(|part| threads.spawn(|| ends.harmless(part))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    assert!(harmless <= 24, "{harmless} changes went unnoticed");
}

/// Both ends of handshakes that may fail.
struct Ends {
    options: [Options; 2],
}

type Received = Result<Vec<u8>, SetupError>;

impl Ends {
    const TIMEOUT: Duration = Duration::from_millis(500);

    fn acceptor(&self) -> Acceptor {
        Acceptor::new(self.options[1].clone(), Self::TIMEOUT)
    }

    /// Exchanges greetings, and returns what each side has received, and the numbers of bytes by direction.
    fn greet(
        &self,
        acceptor: &Acceptor,
        change: Option<(Direction, usize)>,
    ) -> (Received, Received, [usize; 2]) {
        let relay = Relay::new(acceptor.address, change);
        let (address, options) = (relay.address, self.options[0].clone());
        let dialling = thread::spawn(move || {
            Handshake::dial(address, Self::TIMEOUT, options).and_then(|mut handshake| {
                handshake.send(b"greeting")?;
                handshake.receive(100)
            })
        });
        let accepted = acceptor.next().and_then(|mut handshake| {
            let greeting = handshake.receive(100)?;
            handshake.send(b"reply")?;
            Ok(greeting)
        });
        (dialling.join().unwrap(), accepted, relay.counts())
    }

    /// Makes these changes, and returns the number of those that nobody noticed.
    fn harmless(&self, changes: &[(Direction, usize)]) -> usize {
        let acceptor = self.acceptor();
        let is_harmless = |change: &&(Direction, usize)| match self.greet(&acceptor, Some(**change)) {
            (Ok(_), Ok(_), _) => true,
            (Err(_), Err(_), _) => false,
            // The last record of all: its sender has nothing more to receive.
            (Err(_), Ok(_), _) if change.0 == Direction::ToDialler => false,
            other => panic!("{change:?}: {other:?}"),
        };
        changes.iter().filter(is_harmless).count()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToAcceptor,
    ToDialler,
}

/// Forwards connections, may change one byte of the first one, and keeps what it has seen.
struct Relay {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
    counts: Arc<Mutex<[usize; 2]>>,
}

impl Relay {
    fn new(to: SocketAddr, change: Option<(Direction, usize)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, counts) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<Mutex<[usize; 2]>>::default());
        let relay = Self { address, seen: Arc::clone(&seen), counts: Arc::clone(&counts) };
        thread::spawn(move || {
            // A link has two connections.
            for number in 0..2 {
                let Ok((near, _)) = listener.accept() else { return };
                let far = TcpStream::connect(to).unwrap();
                let ways = [(Direction::ToAcceptor, &near, &far), (Direction::ToDialler, &far, &near)];
                for (direction, from, to) in ways {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let place = change.filter(|(way, _)| number == 0 && *way == direction);
                    let (seen, counts) = (Arc::clone(&seen), Arc::clone(&counts));
                    thread::spawn(move || {
                        forward(from, to, place.map(|(_, place)| place), |bytes| {
                            seen.lock().unwrap().extend_from_slice(bytes);
                            counts.lock().unwrap()[direction as usize] += bytes.len();
                        })
                    });
                }
            }
        });
        relay
    }

    fn counts(&self) -> [usize; 2] {
        *self.counts.lock().unwrap()
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, place: Option<usize>, mut note: impl FnMut(&[u8])) {
    let (mut bytes, mut before) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let bytes = &mut bytes[..count];
        note(bytes);
        if let Some(byte) = place.and_then(|place| bytes.get_mut(place.wrapping_sub(before))) {
            *byte ^= 0x10;
        }
        before += count;
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // The other direction goes on: it may carry the reason.
    let _closed = to.shutdown(Shutdown::Write);
}
