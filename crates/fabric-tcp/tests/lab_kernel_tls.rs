//! TLS by the kernel, which the lab's kernel has: data in both directions, changes of keys, changed bytes, and the time of a call.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod certificates;

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use certificates::World;
use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, FabricError, Gather, HeapMemory, Operation, QueuePair, Region, SendWork,
    Signal, WrId, poll_by_value,
};
use pronto_fabric_tcp::{
    Handshake, Link, Listener, Options, ReceivePool, SetupError, TcpQueuePair, Tls, TlsBy,
};
use pronto_sync::atomic::{AtomicBool, Ordering};
use pronto_trust::rustls::Error as TlsError;
use pronto_trust::{Credentials, alert_reason};
use pronto_wire::RawHeader;

const PATIENCE: Duration = Duration::from_secs(60);
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 64,
    receive_depth: 64,
    max_send_payload: 1 << 20,
    max_receive_payload: 1 << 20,
    send_memory: 4 << 20,
};

fn options(credentials: &Credentials, by: TlsBy) -> Options {
    let tls = Arc::new(Tls::new(credentials.client(), credentials.server()));
    Options { tls: Some(tls), tls_by: by, ..Options::default() }
}

/// Makes a link, whose connections go through a relay that flips a byte of each piece while `flips` is true.
fn link(near: Options, far: Options, flips: Option<&'static AtomicBool>) -> (Link, Link) {
    let listener = Listener::bind("127.0.0.1:0", far).unwrap();
    let mut address = listener.local_addr().unwrap();
    if let Some(flips) = flips {
        address = relayed(address, flips);
    }
    let pool = || ReceivePool::new(16 << 20).unwrap();
    thread::scope(|threads| {
        let (sender, handshakes) = std::sync::mpsc::channel();
        threads.spawn(move || {
            for _ in 0..2 {
                if let Some(handshake) = listener.accept().unwrap().begin(PATIENCE).unwrap() {
                    sender.send(handshake).unwrap();
                }
            }
        });
        let accepted =
            threads.spawn(move || handshakes.recv().unwrap().establish([LIMITS; 2], &pool()).unwrap());
        let dialled = Handshake::dial(address, PATIENCE, near).unwrap();
        (
            dialled.establish([LIMITS; 2], &ReceivePool::new(16 << 20).unwrap()).unwrap(),
            accepted.join().unwrap(),
        )
    })
}

fn relayed(to: SocketAddr, flips: &'static AtomicBool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        if flips.load(Ordering::Relaxed) {
                            bytes[count / 2] ^= 1;
                        }
                        if into.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    address
}

fn send(qp: &mut TcpQueuePair, bytes: &[u8]) {
    let header = RawHeader::default();
    let region = Region::new(Arc::new(HeapMemory::new(bytes.len())));
    region.write(0, bytes).unwrap();
    let (payload, signal) = match u32::try_from(bytes.len()).unwrap() {
        0..=40 => (Gather::Short(bytes), Signal::Unsignalled),
        len => {
            let signal = Signal::Signalled(WrId { slot: 0, generation: 1 });
            (Gather::Region { region: &region, offset: 0, len }, signal)
        }
    };
    qp.post(SendWork { signal, operation: Operation::Send { header: &header, payload } }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

/// Returns the payload of the next message.
fn receive(qp: &mut TcpQueuePair) -> Result<Vec<u8>, FabricError> {
    loop {
        let _sent = qp.poll_send();
        if let Some(message) = poll_by_value(qp)? {
            return Ok(message.payload.as_private().unwrap().to_vec());
        }
        thread::yield_now();
    }
}

/// Returns how each side of the tests encrypts.
const SIDES: [[TlsBy; 2]; 3] =
    [[TlsBy::Kernel, TlsBy::Kernel], [TlsBy::Kernel, TlsBy::Process], [TlsBy::Process, TlsBy::Kernel]];

/// Keys change after 16 records, which the cipher permits no more of here, on a side of the kernel and on one of this process.
///
/// Shows: operations.kernel-tls, operations.key-update
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn messages_arrive_through_changes_of_keys() {
    for by in SIDES {
        let world = World::new();
        let [near, far] =
            [(1, by[0]), (2, by[1])].map(|(node, by)| options(&world.node_with_limit(node, 16), by));
        let (mut near, mut far) = link(near, far, None);
        let by_kernel =
            [&near.control, &near.bulk, &far.control, &far.bulk].map(TcpQueuePair::is_encrypted_by_kernel);
        assert_eq!(by_kernel, [by[0], by[0], by[1], by[1]].map(|by| by == TlsBy::Kernel));
        for number in 0..300_u32 {
            let bytes = number.to_le_bytes();
            send(&mut near.control, &bytes);
            assert_eq!(receive(&mut far.control).unwrap(), bytes);
            // One side sends most of the messages, so that its keys change more often.
            if number % 7 == 0 {
                send(&mut far.control, &bytes);
                assert_eq!(receive(&mut near.control).unwrap(), bytes);
            }
        }
        let long: Vec<_> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
        thread::scope(|threads| {
            let reader = threads.spawn(|| {
                for _ in 0..4 {
                    assert!(receive(&mut far.bulk).unwrap() == long, "a long message arrived changed");
                }
            });
            for _ in 0..4 {
                send(&mut near.bulk, &long);
            }
            // The socket takes the rest as the other side reads.
            while !reader.is_finished() {
                assert!(poll_by_value(&mut near.bulk).unwrap().is_none());
                let _sent = near.bulk.poll_send();
                thread::yield_now();
            }
            reader.join().unwrap();
        });
    }
}

/// Shows: operations.kernel-tls
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn changed_bytes_end_the_link() {
    static FLIPS: AtomicBool = AtomicBool::new(false);
    let world = World::new();
    let [near, far] = [1, 2].map(|node| options(&world.node(node), TlsBy::Kernel));
    let (mut near, mut far) = link(near, far, Some(&FLIPS));
    send(&mut near.control, b"whole");
    assert_eq!(receive(&mut far.control).unwrap(), b"whole");
    FLIPS.store(true, Ordering::Relaxed);
    send(&mut near.control, b"changed on its way");
    assert_eq!(receive(&mut far.control).unwrap_err(), FabricError::Lost);
}

/// The dialler's handshake ends before the acceptor has judged it: the reason arrives in a record of the kernel's.
///
/// Shows: operations.trust-reasons
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_refused_stranger_gets_the_reason() {
    let (world, other) = (World::new(), World::new());
    let listener = Listener::bind("127.0.0.1:0", options(&world.node(2), TlsBy::Kernel)).unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || listener.accept().unwrap().begin(PATIENCE).map(drop).unwrap_err());
    let stranger = options(&other.node_that_trusts(1, &world), TlsBy::Kernel);
    let dialled = Handshake::dial(address, PATIENCE, stranger).map(drop).unwrap_err();
    let SetupError::Tls(TlsError::AlertReceived(alert)) = dialled else { panic!("{dialled:?}") };
    assert!(alert_reason(alert).unwrap().contains("does not know the authority"), "{alert:?}");
    assert!(matches!(accepting.join().unwrap(), SetupError::Tls(_)));
}

/// Reports the time of a ping-pong with either way of encryption. In the lab the CPU is emulated, as are its instructions for encryption, so
/// that the ratio says nothing about a real machine.
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_time_of_a_call_is_reported() {
    for size in [32, 4096, 65_536] {
        let mut times = [0.0; 2];
        for (by, time) in [TlsBy::Process, TlsBy::Kernel].into_iter().zip(&mut times) {
            let world = World::new();
            let [near, far] = [1, 2].map(|node| options(&world.node(node), by));
            let (mut near, mut far) = link(near, far, None);
            let (count, bytes) = (50, vec![7; size]);
            let begun = now();
            for _ in 0..count {
                send(&mut near.bulk, &bytes);
                let ping = receive_while(&mut far.bulk, &mut near.bulk);
                send(&mut far.bulk, &ping);
                assert!(receive_while(&mut near.bulk, &mut far.bulk) == bytes);
            }
            *time = begun.elapsed().as_secs_f64() / f64::from(count) * 1e6;
        }
        let [process, kernel] = times;
        println!(
            "{size} B, both ways: {process:.0} us by the process, {kernel:.0} us by the kernel, {:.2} x",
            kernel / process
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "this reports a time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the next message. Polls the sending side, too, whose socket may have been full.
fn receive_while(qp: &mut TcpQueuePair, sender: &mut TcpQueuePair) -> Vec<u8> {
    loop {
        if let Some(message) = poll_by_value(qp).unwrap() {
            return message.payload.as_private().unwrap().to_vec();
        }
        assert!(poll_by_value(sender).unwrap().is_none());
        let _sent = sender.poll_send();
    }
}
