//! Descriptors that block the thread which closes them: sockets with unsent bytes that wait when they are closed.

use core::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Instant;

use nix::sys::socket::sockopt::Linger;
use nix::sys::socket::{SockType, setsockopt};
use pronto_core::fabric::{Armed, FabricError, PeerFault, QueuePair, poll_by_value};
use zerocopy::IntoBytes;

use super::LIMITS;
use super::announce::announcement;
use super::rogue::{Segment, Shown, establish, establish_with, offer, send, sockets, victim_of};
use crate::error::{SegmentFault, SetupError, SetupFault};
use crate::handshake::{Handshake, Listener};

/// Time for which a closing thread waits.
const LINGER: Duration = Duration::from_secs(8);
/// Limit of everything that a thread does with the descriptors.
const PROMPT: Duration = Duration::from_secs(4);

/// A socket that waits when it is closed, and the end that receives nothing.
struct Lingering {
    fd: OwnedFd,
    other: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let full = core::iter::repeat_with(|| stream.write(&[0; 1 << 16])).find_map(Result::err).unwrap();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let seconds = i32::try_from(LINGER.as_secs()).unwrap();
        setsockopt(&stream, Linger, &libc::linger { l_onoff: 1, l_linger: seconds }).unwrap();
        Self { fd: stream.into(), other }
    }

    /// Passes the socket, and closes this process's own descriptor of it while it is in the queue.
    fn pass(self, socket: &OwnedFd, packet: &[u8]) -> TcpStream {
        send(socket, packet, &[self.fd.as_raw_fd()]);
        self.other
    }
}

/// Asserts that every descriptor of the other end gets closed.
fn assert_closed(mut other: TcpStream) {
    other.set_read_timeout(Some(PROMPT)).unwrap();
    let mut bytes = vec![0; 1 << 16];
    while other.read(&mut bytes).expect("the end within the time limit") > 0 {}
}

/// Runs `act` and asserts that it does not wait for a socket to be closed.
#[track_caller]
fn promptly<T>(act: impl FnOnce() -> T) -> T {
    #[expect(clippy::disallowed_methods, reason = "the thread would be blocked in real time")]
    let start = Instant::now();
    let done = act();
    assert!(start.elapsed() < PROMPT, "the thread was blocked for {:?}", start.elapsed());
    done
}

/// A test of the tests: a thread that closes such a socket is blocked.
#[test]
fn a_lingering_socket_blocks_the_thread_that_closes_it() {
    let Lingering { fd, other } = Lingering::new();
    let closing = std::thread::spawn(|| drop(fd));
    std::thread::park_timeout(Duration::from_millis(200));
    assert!(!closing.is_finished(), "nothing has waited");
    drop(other);
    closing.join().unwrap();
}

/// Shows: operations.passed-descriptors
#[test]
fn an_announced_socket_does_not_block_the_thread_that_polls() {
    for kind in [1, 2] {
        let (mut link, shown) = victim_of(&Segment::new().announcements(1));
        let other = Lingering::new().pass(&shown.announcements.0, &announcement(kind, 0, 0, 0));
        promptly(|| {
            let fault = poll_by_value(&mut link.bulk).expect_err("no memory was passed");
            assert_eq!(fault, PeerFault::Unsealed.into());
            drop(link);
        });
        assert_closed(other);
    }
}

/// Shows: operations.passed-descriptors
#[test]
fn a_socket_with_a_wake_up_does_not_block_the_thread_that_sleeps() {
    let (mut link, shown) = victim_of(&Segment::new());
    link.bulk.arm(Armed::All).unwrap();
    let other = Lingering::new().pass(&shown.bell.0, &[1]);
    promptly(|| {
        link.bulk.arm(Armed::Nothing).expect("disarming never fails");
        let fault = poll_by_value(&mut link.bulk).expect_err("wake-ups carry nothing");
        assert_eq!(fault, FabricError::from(PeerFault::Descriptors { found: 1, expected: 0 }));
        drop(link);
    });
    assert_closed(other);
}

/// Shows: operations.passed-descriptors
#[test]
fn sockets_in_the_queues_do_not_block_the_thread_that_ends_a_link() {
    let (link, shown) = victim_of(&Segment::new());
    // An empty packet is not the end of the queue.
    send(&shown.announcements.0, &[], &[]);
    let queues = [&shown.bell.0, &shown.announcements.0];
    let others = queues.map(|queue| Lingering::new().pass(queue, &[1]));
    promptly(|| drop(link));
    others.into_iter().for_each(assert_closed);
}

/// Shows: operations.passed-descriptors
#[test]
fn sockets_at_any_place_of_an_offer_do_not_block_the_handshake() {
    let datagrams = sockets(SockType::Datagram).0;
    for at in 0..8 {
        let shown = [Shown::good(&Segment::new()), Shown::good(&Segment::new())];
        let mut fds: Vec<i32> = shown
            .iter()
            .flat_map(|shown| [&shown.segment, &shown.memory, &shown.bell.1, &shown.announcements.1])
            .map(AsRawFd::as_raw_fd)
            .collect();
        let expected = match at % 4 {
            0 | 1 => SetupFault::Segment(SegmentFault::NotSealed),
            _ => SetupFault::NoSocket,
        };
        let Lingering { fd, other } = Lingering::new();
        fds[at] = fd.as_raw_fd();
        let found = promptly(|| establish_with_last(offer().as_bytes(), &fds, fd));
        assert_eq!(found, SetupError::Peer(expected), "{at}");
        assert_closed(other);
        // A Unix socket of another type is refused as well.
        fds[at] = datagrams.as_raw_fd();
        assert_eq!(establish_with(offer().as_bytes(), &fds).unwrap_err(), SetupError::Peer(expected), "{at}");
    }
}

/// Returns the error of a handshake with an offer of which the victim has the last descriptor.
fn establish_with_last(offer: &[u8], fds: &[i32], last: OwnedFd) -> SetupError {
    let (mut rogue, victim) = Handshake::pair(LINGER).unwrap();
    let victim = victim.offer([LIMITS; 2]).unwrap();
    rogue.send_packet(offer, fds).unwrap();
    drop(last);
    victim.finish().unwrap_err()
}

/// Shows: operations.passed-descriptors
#[test]
fn sockets_before_and_after_a_handshake_block_no_thread() {
    let (mut rogue, mut victim) = Handshake::pair(LINGER).unwrap();
    let [first, second] = [Lingering::new(), Lingering::new()];
    for socket in [&first, &second] {
        rogue.send_packet(&[0; 4], &[socket.fd.as_raw_fd()]).unwrap();
    }
    let others = [first.other, second.other];
    drop((first.fd, second.fd));
    promptly(|| {
        let fault = SetupFault::Descriptors { found: 1, expected: 0 };
        assert_eq!(victim.receive(100).unwrap_err(), fault.into());
        // The second one is still in the queue.
        drop(victim);
    });
    others.into_iter().for_each(assert_closed);
}

/// Shows: operations.passed-descriptors
#[test]
fn sockets_of_waiting_connections_do_not_block_the_thread_that_ends_a_listener() {
    let name = format!("@pronto-shm-foreign-{}", std::process::id());
    let listener = Listener::bind(Path::new(&name)).unwrap();
    let mut rogue = Handshake::dial(Path::new(&name), LINGER).unwrap();
    let Lingering { fd, other } = Lingering::new();
    rogue.send_packet(&[0; 4], &[fd.as_raw_fd()]).unwrap();
    drop(fd);
    promptly(|| drop(listener));
    assert_closed(other);
}

/// A socket that listens is of the right type, but has no other end.
#[test]
fn a_socket_that_is_not_connected_is_refused() {
    let (end, _) = sockets(SockType::Stream);
    let name = SocketAddr::from_abstract_name(format!("pronto-{}", std::process::id()));
    let listening = UnixListener::bind_addr(&name.unwrap()).unwrap();
    let shown = Shown { bell: (end, listening.into()), ..Shown::good(&Segment::new()) };
    let error = establish(&Shown::good(&Segment::new()), &shown).unwrap_err();
    assert_eq!(error, SetupFault::NoSocket.into());
}
