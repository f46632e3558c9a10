//! A peer with good credentials that uses TLS to occupy this side.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use pronto_core::Class;
use pronto_core::fabric::{FabricError, poll_by_value};
use pronto_trust::server_name;
use rustls::{ClientConnection, StreamOwned};

use super::{LIMITS, bytes_of, streams};
use crate::frame::{self, Kind};
use crate::inbound::RECEIVES_PER_POLL;
use crate::setup::secured;
use crate::tests::certificates::World;
use crate::{Options, ReceivePool, TcpQueuePair, Tls};

type Peer = StreamOwned<ClientConnection, TcpStream>;

/// Returns a queue pair, and the other end of its connection, which is after the handshake.
fn victim() -> (TcpQueuePair, Peer) {
    let world = World::new();
    let (one, two) = (world.node(1), world.node(2));
    let (near, far) = streams();
    let accepting = thread::spawn(move || {
        let tls = Tls::new(two.client(), two.server());
        secured(near, &tls).unwrap()
    });
    let mut peer = StreamOwned::new(ClientConnection::new(one.client(), server_name()).unwrap(), far);
    while peer.conn.is_handshaking() {
        peer.conn.complete_io(&mut peer.sock).unwrap();
    }
    let channel = accepting.join().unwrap();
    let pool = ReceivePool::new(64 << 20).unwrap();
    let qp = TcpQueuePair::new(channel, Class::Bulk, &LIMITS, &pool, &Options::default()).unwrap();
    (qp, peer)
}

/// Returns the bytes of a message without payload.
fn message() -> [u8; 24] {
    let mut header = pronto_wire::RawHeader::from_array([3; 24]);
    header.fabric = frame::word(Kind::Message, 0);
    *header.as_array()
}

/// Each record has one byte, and the keys change before each: most of the work, and of the buffer, is for nothing.
#[test]
fn records_without_data_end_a_poll() {
    let (mut qp, mut peer) = victim();
    let count = 100;
    let sending = thread::spawn(move || {
        for _ in 0..count {
            for byte in message() {
                peer.conn.refresh_traffic_keys().unwrap();
                peer.write_all(&[byte]).unwrap();
            }
        }
        // The victim answers each change of keys with one of its own at its next write.
        peer
    });
    let mut arrived = 0;
    while arrived < count {
        let before = qp.counters().calls.receives;
        let message = poll_by_value(&mut qp).unwrap();
        let receives = qp.counters().calls.receives - before;
        assert!(receives <= RECEIVES_PER_POLL as u64 + 1, "{receives} receives in one poll");
        match message {
            Some(message) => {
                assert_eq!(bytes_of(&message), []);
                arrived += 1;
            }
            None => thread::yield_now(),
        }
    }
    drop(sending.join().unwrap());
}

/// A peer closes its TLS stream, and keeps its socket open.
#[test]
fn the_end_of_the_encrypted_stream_is_the_end_of_the_connection() {
    let (mut qp, mut peer) = victim();
    peer.write_all(&message()).unwrap();
    peer.conn.send_close_notify();
    peer.flush().unwrap();
    let mut arrived = 0;
    let end = loop {
        match poll_by_value(&mut qp) {
            Ok(Some(_)) => arrived += 1,
            Ok(None) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!((arrived, end), (1, FabricError::Lost));
    let _nothing = peer.sock.read(&mut [0]);
}
