//! Queries about sockets of this process, and malformed replies.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;

use super::*;

fn inode(file: &impl AsFd) -> u64 {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).unwrap();
    let link = link.to_str().unwrap().strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap();
    link.parse().unwrap()
}

/// Evaluates `holds` until it is true. Data may take a moment, even over the loopback device.
fn eventually(mut holds: impl FnMut() -> bool) {
    let mut tries = 0;
    while !holds() {
        tries += 1;
        assert!(tries < 30_000, "never");
        std::thread::yield_now();
    }
}

fn find_with_key(diag: &mut Diag, inode: u64) -> Option<(Key, Socket)> {
    let mut found = None;
    diag.all(|key, socket| found = if socket.inode == inode { Some((key, socket)) } else { found }).unwrap();
    found
}

fn find(diag: &mut Diag, inode: u64) -> Option<Socket> {
    find_with_key(diag, inode).map(|(_, socket)| socket)
}

#[test]
fn unread_bytes_of_tcp_unix_and_udp_are_seen_at_the_receiver() {
    let mut diag = Diag::open().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.write_all(&[0; 3_000]).unwrap();
    let expected = Queue { bytes: 3_000, messages: 1 };
    eventually(|| find(&mut diag, inode(&receiver)).is_some_and(|seen| seen.occupancy.received == expected));
    let seen = find(&mut diag, inode(&receiver)).unwrap();
    let connection = seen.connection.unwrap();
    assert_eq!(
        (connection.local, connection.remote),
        (receiver.local_addr().unwrap(), sender.local_addr().unwrap())
    );
    let other = find(&mut diag, inode(&sender)).unwrap();
    assert_eq!(other.connection, Some(connection.reversed()));

    let (one, mut two) = UnixStream::pair().unwrap();
    two.write_all(&[0; 500]).unwrap();
    assert_eq!(find(&mut diag, inode(&one)).unwrap().occupancy.received.bytes, 500);
    assert!(find(&mut diag, inode(&two)).unwrap().occupancy.sent.bytes >= 500, "as memory of the sender");

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    from.send_to(&[0; 100], udp.local_addr().unwrap()).unwrap();
    eventually(|| find(&mut diag, inode(&udp)).unwrap().occupancy.received.bytes >= 100);
}

#[test]
fn single_sockets_are_asked_for_without_the_others() {
    let mut diag = Diag::open().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut keys = Vec::new();
    let mut streams = Vec::new();
    for bytes in 0..100 {
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.write_all(&vec![0; bytes]).unwrap();
        keys.push(find_with_key(&mut diag, inode(&receiver)).unwrap().0);
        streams.push((sender, Some(receiver)));
    }
    let (one, mut two) = UnixStream::pair().unwrap();
    two.write_all(b"unix").unwrap();
    keys.push(find_with_key(&mut diag, inode(&one)).unwrap().0);
    let mut seen = |keys: &[Key]| {
        let mut seen = Vec::new();
        diag.some(keys, |_, socket| seen.push(socket.occupancy.received.bytes)).unwrap();
        seen
    };
    eventually(|| seen(&keys) == (0..100).chain([4]).collect::<Vec<_>>());
    // Closed by the process, which had read everything: no socket with this cookie holds data.
    streams[0].1 = None;
    drop(one);
    eventually(|| seen(&keys) == (1..100).collect::<Vec<_>>());
}

#[test]
fn one_request_lists_the_tcp_sockets_of_both_families() {
    let mut diag = Diag::open().unwrap();
    let mut own = Vec::new();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            return pronto_skip::because("this machine has no IPv6");
        };
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        own.push((inode(&sender), sender, listener.accept().unwrap()));
    }
    let mut listed = |list: &mut dyn FnMut(&mut Diag, &mut Vec<u64>)| {
        let mut found = Vec::new();
        list(&mut diag, &mut found);
        found.retain(|inode| own.iter().any(|(own, ..)| own == inode));
        found.sort_unstable();
        found
    };
    let one = listed(&mut |diag, found| diag.tcp(&mut |_, socket| found.push(socket.inode)).unwrap());
    let by_family =
        listed(&mut |diag, found| diag.inet(TCP, &mut |_, socket| found.push(socket.inode)).unwrap());
    assert_eq!((one.len(), &one), (2, &by_family));
}

#[test]
fn a_missing_process_has_no_namespace() {
    let error = Diag::open_in_namespace_of(i32::MAX as u32).unwrap_err();
    assert!(matches!(error, DiagError::Namespace(_, Errno::ENOENT)), "{error}");
}

#[test]
fn truncated_and_unknown_replies_are_errors() {
    assert!(matches!(Messages(&[0; 7]).next(), Some(Err(DiagError::Malformed))));
    // A length beyond the buffer, and one shorter than the header, which would never end.
    for length in [100_u32, 4, 0] {
        let mut message = [0_u8; 16];
        message[..4].copy_from_slice(&length.to_ne_bytes());
        assert!(matches!(Messages(&message).next(), Some(Err(DiagError::Malformed))), "{length}");
    }
    let mut none = |_, _| panic!("no socket");
    assert!(matches!(each_inet(&[0; 20], TCP, &mut none), Err(DiagError::Malformed)));
    assert!(matches!(each_unix(&[0; 8], &mut none), Err(DiagError::Malformed)));
    // An attribute of length zero.
    assert!(matches!(each_unix(&[0; 24], &mut none), Err(DiagError::Malformed)));
}
