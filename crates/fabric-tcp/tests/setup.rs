//! Setting up links: the normal case, and everything that strangers can do to a listener.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Gather, Operation, QueuePair, SendWork, Signal, poll_by_value,
};
use pronto_fabric_tcp::{
    Handshake, Incoming, Link, Listener, ListenerCounters, MAX_HALF_OPEN, Options, Plaintext, ReceivePool,
    SetupError, TcpQueuePair,
};
use pronto_wire::RawHeader;

const PATIENCE: Duration = Duration::from_secs(10);
const BRIEF: Duration = Duration::from_millis(50);
const LIMITS: [ConnectionLimits; 2] = [ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 1 << 20,
}; 2];

fn listen() -> (Arc<Listener>, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0", Options::default()).unwrap();
    let addr = listener.local_addr().unwrap();
    (Arc::new(listener), addr)
}

fn dial(addr: SocketAddr) -> Handshake {
    Handshake::dial(addr, PATIENCE, Options::default()).unwrap()
}

fn pool() -> Arc<ReceivePool> {
    ReceivePool::new(8 << 20).unwrap()
}

/// A stranger's connection to a listener.
fn stranger(addr: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

fn send(qp: &mut TcpQueuePair, bytes: &[u8]) {
    let header = RawHeader::default();
    let operation = Operation::Send { header: &header, payload: Gather::Short(bytes) };
    qp.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

fn receive(qp: &mut TcpQueuePair) -> Vec<u8> {
    loop {
        if let Some(message) = poll_by_value(qp).unwrap() {
            return message.payload.as_private().unwrap().to_vec();
        }
    }
}

/// Returns the next handshake, with little time left; the bytes that its dialler has already sent do not count.
fn begun_with_little_time(listener: &Listener) -> Handshake {
    listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap().within(BRIEF)
}

/// Accepts, begins and establishes links in a loop until the listener closes. Links go to the channel.
fn serve(listener: &Arc<Listener>) -> std::sync::mpsc::Receiver<Link> {
    let (links, established) = channel();
    let listener = Arc::clone(listener);
    thread::spawn(move || {
        while let Ok(incoming) = listener.accept() {
            let links = links.clone();
            thread::spawn(move || {
                let mut handshake = incoming.begin(PATIENCE).ok()??;
                let greeting = handshake.receive(100).ok()?;
                handshake.send(&greeting).ok()?;
                links.send(handshake.establish(LIMITS, &pool()).ok()?).ok()
            });
        }
    });
    established
}

/// Shows: protocol.two-connections
#[test]
fn two_connections_become_a_link_and_do_not_mix() {
    let (listener, addr) = listen();
    let links = serve(&listener);
    let ends: Vec<(Link, Link)> = (0u8..3)
        .map(|n| {
            let mut handshake = dial(addr);
            assert_eq!(handshake.peer_addr(), addr);
            handshake.send(&[n; 9]).unwrap();
            assert_eq!(handshake.receive(9).unwrap(), [n; 9]);
            (handshake.establish(LIMITS, &pool()).unwrap(), links.recv_timeout(PATIENCE).unwrap())
        })
        .collect();
    for (n, (mut near, mut far)) in (0u8..).zip(ends) {
        send(&mut near.control, &[n, 1]);
        send(&mut near.bulk, &[n, 2]);
        send(&mut far.bulk, &[n, 3]);
        assert_eq!(receive(&mut far.bulk), [n, 2]);
        assert_eq!(receive(&mut far.control), [n, 1]);
        assert_eq!(receive(&mut near.bulk), [n, 3]);
    }
    listener.close();
    assert_eq!(listener.counters(), ListenerCounters::default());
}

/// Shows: operations.plaintext
#[test]
fn addresses_outside_the_host_need_permission() {
    let outside = "0.0.0.0:0";
    let refused = Listener::bind(outside, Options::default()).unwrap_err();
    assert_eq!(refused, SetupError::NotLoopback(outside.parse().unwrap()));
    let understood = Options { plaintext: Plaintext::IUnderstand, ..Options::default() };
    Listener::bind(outside, understood).unwrap();
    let elsewhere = "192.0.2.1:9".parse().unwrap();
    let refused = Handshake::dial(elsewhere, PATIENCE, Options::default()).unwrap_err();
    assert_eq!(refused, SetupError::NotLoopback(elsewhere));
}

#[test]
fn a_silent_stranger_is_dropped_in_time() {
    let (listener, addr) = listen();
    let mut silent = stranger(addr, b"");
    assert_eq!(listener.accept().unwrap().begin(BRIEF).unwrap_err(), SetupError::TimedOut);
    assert_eq!(listener.counters().silent, 1);
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0, "the connection was closed");
}

#[test]
fn the_purpose_of_a_connection_is_expected_before_the_rest() {
    let (listener, addr) = listen();
    // An hour for the whole handshake: it would not end if the first bytes had as much.
    for first in [&b""[..], b"pronto\x032"] {
        let _silent = stranger(addr, first);
        let hour = Duration::from_secs(3_600);
        assert_eq!(listener.accept().unwrap().begin(hour).unwrap_err(), SetupError::TimedOut);
    }
    assert_eq!(listener.counters().silent, 2);
}

#[test]
fn a_stranger_that_sends_slowly_is_dropped_in_time() {
    let (listener, addr) = listen();
    // Bytes arrive continuously, so that no single read is late; only the whole message is.
    let len = 256u32 << 20;
    let mut dripping = stranger(addr, &[b"pronto\x031", &len.to_le_bytes()[..]].concat());
    let drip = thread::spawn(move || while dripping.write_all(&[0]).is_ok() {});
    let mut handshake = begun_with_little_time(&listener);
    assert_eq!(handshake.receive(256 << 20).unwrap_err(), SetupError::TimedOut);
    drop(handshake);
    drip.join().unwrap();
}

#[test]
fn half_open_connections_are_bounded_and_released() {
    let (listener, addr) = listen();
    let mut held: Vec<(TcpStream, Incoming)> =
        (0..MAX_HALF_OPEN).map(|_| (stranger(addr, b""), listener.accept().unwrap())).collect();
    let mut crowded = stranger(addr, b"");
    let next = {
        let listener = Arc::clone(&listener);
        thread::spawn(move || listener.accept().unwrap().peer_addr())
    };
    assert_eq!(crowded.read(&mut [0; 8]).unwrap(), 0, "a connection beyond the limit is closed immediately");
    assert_eq!(listener.counters().crowded, 1);
    held.pop();
    let welcome = stranger(addr, b"");
    assert_eq!(next.join().unwrap(), welcome.local_addr().unwrap());
}

#[test]
fn handshakes_are_bounded_and_leave_room_for_their_second_connections() {
    let (listener, addr) = listen();
    let begin = || listener.accept().unwrap().begin(PATIENCE);
    let mut first = stranger(addr, b"pronto\x031");
    let one = begin().unwrap().unwrap();
    let others: Vec<_> =
        (1..MAX_HALF_OPEN).map(|_| (stranger(addr, b"pronto\x031"), begin().unwrap().unwrap())).collect();
    let _refused = stranger(addr, b"pronto\x031");
    assert_eq!(begin().unwrap_err(), SetupError::Crowded);
    assert_eq!(listener.counters(), ListenerCounters { crowded: 1, ..ListenerCounters::default() });

    let establishing = thread::spawn(move || one.establish(LIMITS, &pool()));
    let mut answer_and_token = [0; 24];
    first.read_exact(&mut answer_and_token).unwrap();
    let _second = stranger(addr, &[b"pronto\x032", &answer_and_token[8..]].concat());
    assert!(begin().unwrap().is_none());
    establishing.join().unwrap().unwrap();
    let _welcome = stranger(addr, b"pronto\x031");
    assert!(begin().unwrap().is_some());
    drop(others);
}

/// Shows: protocol.preamble
#[test]
fn other_protocols_and_versions_are_refused() {
    let (listener, addr) = listen();
    for bytes in [b"GET / HT", b"pronto\x012", b"pronto\x03a", b"\0\0\0\0\0\0\0\0"] {
        let _stream = stranger(addr, bytes);
        assert_eq!(listener.accept().unwrap().begin(PATIENCE).unwrap_err(), SetupError::Preamble(*bytes));
    }
    assert_eq!(listener.counters().bad_preambles, 4);
}

#[test]
fn a_dialler_refuses_a_server_of_another_protocol() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut handshake = dial(other.local_addr().unwrap());
    let (mut stream, _) = other.accept().unwrap();
    stream.write_all(b"220 smtp").unwrap();
    assert_eq!(handshake.receive(100).unwrap_err(), SetupError::Preamble(*b"220 smtp"));
}

#[test]
fn set_up_messages_are_bounded_before_they_are_read() {
    let (listener, addr) = listen();
    let mut dialler = dial(addr);
    let mut acceptor = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    dialler.send(&[1; 100]).unwrap();
    assert_eq!(acceptor.receive(99).unwrap_err(), SetupError::TooLong { len: 100, max: 99 });
    acceptor.send(&[]).unwrap();
    assert_eq!(dialler.receive(0).unwrap(), []);
    // A length without the bytes, then the end.
    let mut liar = stranger(addr, b"pronto\x031\xff\xff\xff\x7fabc");
    let mut acceptor = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    assert_eq!(
        acceptor.receive(1 << 20).unwrap_err(),
        SetupError::TooLong { len: 0x7fff_ffff, max: 1 << 20 }
    );
    assert_eq!(liar.read(&mut [0; 8]).unwrap(), 8, "the preamble that it received before");
    let _cut = stranger(addr, b"pronto\x031\x09\0\0\0abc").shutdown(std::net::Shutdown::Write);
    let mut acceptor = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    assert_eq!(acceptor.receive(1 << 20).unwrap_err(), SetupError::Lost);
}

/// Shows: protocol.preamble, protocol.token
#[test]
fn a_second_connection_is_good_once_and_only_with_the_token() {
    let (listener, addr) = listen();
    // A raw dialler, so that its bytes can be replayed.
    let mut first = stranger(addr, b"pronto\x031");
    let handshake = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    let establishing = thread::spawn(move || handshake.establish(LIMITS, &pool()));
    let mut answer_and_token = [0; 24];
    first.read_exact(&mut answer_and_token).unwrap();
    let (answer, token) = answer_and_token.split_at(8);
    assert_eq!(answer, b"pronto\x03a");

    let mut wrong = token.to_vec();
    wrong[15] ^= 1;
    let _guessing = stranger(addr, &[b"pronto\x032", &wrong[..]].concat());
    assert_eq!(listener.accept().unwrap().begin(PATIENCE).unwrap_err(), SetupError::UnknownToken);

    let bytes = [b"pronto\x032", token].concat();
    let _second = stranger(addr, &bytes);
    assert!(listener.accept().unwrap().begin(PATIENCE).unwrap().is_none());
    establishing.join().unwrap().unwrap();

    let _replayed = stranger(addr, &bytes);
    assert_eq!(listener.accept().unwrap().begin(PATIENCE).unwrap_err(), SetupError::UnknownToken);
    assert_eq!(listener.counters().unknown_tokens, 2);
}

#[test]
fn an_acceptor_does_not_wait_forever_and_its_token_expires() {
    let (listener, addr) = listen();
    let mut first = stranger(addr, b"pronto\x031");
    let handshake = begun_with_little_time(&listener);
    assert_eq!(handshake.establish(LIMITS, &pool()).unwrap_err(), SetupError::TimedOut);
    let mut answer_and_token = [0; 24];
    first.read_exact(&mut answer_and_token).unwrap();
    let _late = stranger(addr, &[b"pronto\x032", &answer_and_token[8..]].concat());
    assert_eq!(listener.accept().unwrap().begin(PATIENCE).unwrap_err(), SetupError::UnknownToken);
}

type Establishing = thread::JoinHandle<Result<Link, SetupError>>;

/// Returns a raw dialler that has its token, and the acceptor that waits for its second connection.
fn half_made() -> (Arc<Listener>, TcpStream, [u8; 16], Establishing) {
    let (listener, addr) = listen();
    let mut first = stranger(addr, b"pronto\x031");
    let handshake = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    let establishing = thread::spawn(move || handshake.establish(LIMITS, &pool()));
    let mut answer_and_token = [0; 24];
    first.read_exact(&mut answer_and_token).unwrap();
    (listener, first, answer_and_token[8..].try_into().unwrap(), establishing)
}

/// Shows: protocol.attempt-ends
#[test]
fn an_acceptor_gives_up_when_the_first_connection_breaks() {
    let (_listener, first, _, establishing) = half_made();
    drop(first);
    // Lost, not timed out: the acceptor did not wait until its deadline.
    assert_eq!(establishing.join().unwrap().unwrap_err(), SetupError::Lost);
}

/// Shows: protocol.no-link-before
#[test]
fn an_acceptor_gives_up_on_a_dialler_that_does_not_wait() {
    let (_listener, mut first, _, establishing) = half_made();
    first.write_all(&[0]).unwrap();
    assert_eq!(establishing.join().unwrap().unwrap_err(), SetupError::OutOfTurn);
}

/// Shows: protocol.ready
#[test]
fn an_acceptor_reports_when_it_has_both_connections() {
    let (listener, mut first, token, establishing) = half_made();
    let _second = stranger(listener.local_addr().unwrap(), &[&b"pronto\x032"[..], &token].concat());
    assert!(listener.accept().unwrap().begin(PATIENCE).unwrap().is_none());
    let mut ready = [0; 8];
    first.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"pronto\x03r");
    establishing.join().unwrap().unwrap();
}

#[test]
fn a_handshake_can_be_cancelled_while_it_waits() {
    let (listener, addr) = listen();
    let mut first = stranger(addr, b"pronto\x031");
    let handshake = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap();
    let canceller = handshake.canceller().unwrap();
    let establishing = thread::spawn(move || handshake.establish(LIMITS, &pool()));
    first.read_exact(&mut [0; 24]).unwrap();
    canceller.cancel();
    assert_eq!(establishing.join().unwrap().unwrap_err(), SetupError::Lost);
    assert_eq!(first.read(&mut [0]).unwrap(), 0, "the dialler is notified");
}

#[test]
fn the_time_limit_of_a_handshake_can_be_reduced_but_not_extended() {
    let (listener, addr) = listen();
    let _first = stranger(addr, b"pronto\x031");
    let handshake = listener.accept().unwrap().begin(PATIENCE).unwrap().unwrap().within(BRIEF);
    assert_eq!(handshake.within(PATIENCE).establish(LIMITS, &pool()).unwrap_err(), SetupError::TimedOut);
}

/// Returns a raw acceptor, and a dialler that has opened its second connection and waits.
fn waiting_dialler() -> (TcpStream, TcpStream, Establishing) {
    let acceptor = TcpListener::bind("127.0.0.1:0").unwrap();
    let handshake = dial(acceptor.local_addr().unwrap());
    let (mut first, _) = acceptor.accept().unwrap();
    first.write_all(&[&b"pronto\x03a"[..], &[7; 16]].concat()).unwrap();
    let establishing = thread::spawn(move || handshake.establish(LIMITS, &pool()));
    let (mut second, _) = acceptor.accept().unwrap();
    let mut preamble_and_token = [0; 24];
    second.read_exact(&mut preamble_and_token).unwrap();
    assert_eq!(&preamble_and_token[..8], b"pronto\x032");
    // Reads the dialler's preamble: unread bytes would turn a close into a reset.
    first.read_exact(&mut [0; 8]).unwrap();
    (first, second, establishing)
}

/// Shows: protocol.no-link-before, protocol.attempt-ends
#[test]
fn a_dialler_has_no_link_before_the_acceptor_has_it() {
    for first_breaks in [true, false] {
        let (first, second, establishing) = waiting_dialler();
        let _other = if first_breaks {
            drop(first);
            second
        } else {
            drop(second);
            first
        };
        assert_eq!(establishing.join().unwrap().unwrap_err(), SetupError::Lost);
    }
    let (mut first, _second, establishing) = waiting_dialler();
    first.write_all(b"pronto\x03a").unwrap();
    assert_eq!(establishing.join().unwrap().unwrap_err(), SetupError::Preamble(*b"pronto\x03a"));
}

#[test]
fn bytes_that_overtake_ready_on_the_second_connection_belong_to_the_link() {
    let (mut first, mut second, establishing) = waiting_dialler();
    second.write_all(&[0; 24]).unwrap();
    first.write_all(b"pronto\x03r").unwrap();
    establishing.join().unwrap().unwrap();
}

#[test]
fn a_pool_that_cannot_hold_one_message_is_refused() {
    let (_listener, addr) = listen();
    let small = ReceivePool::new((1 << 20) - 1).unwrap();
    let refused = dial(addr).establish(LIMITS, &small).unwrap_err();
    assert_eq!(refused, SetupError::PoolTooSmall { budget: (1 << 20) - 1, needed: 1 << 20 });
}

#[test]
fn closing_a_listener_ends_accept() {
    let (listener, _) = listen();
    let accepting = {
        let listener = Arc::clone(&listener);
        thread::spawn(move || listener.accept().map(|incoming| incoming.peer_addr()))
    };
    listener.close();
    assert_eq!(accepting.join().unwrap(), Err(SetupError::Closed));
}
