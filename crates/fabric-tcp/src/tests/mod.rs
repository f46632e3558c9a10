//! Tests over loopback sockets: two queue pairs, or one and a raw stream that plays a peer violating the protocol.

#[path = "../../tests/certificates/mod.rs"]
mod certificates;
mod faults;
mod flow;
mod messages;
mod one_sided;
mod silent;
mod tls;

use core::time::Duration;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pronto_core::Class;
use pronto_core::fabric::{
    Completion, ConnectionLimits, DoorbellEvent, Extent, FabricError, Gather, HeapMemory, Operation,
    PostError, QueuePair, Received, Region, SendWork, Signal, Status, WrId, poll_by_value,
};
use pronto_wire::RawHeader;

use crate::setup::Channel;
use crate::{Lease, Options, ReceivePool, TcpQueuePair};

/// Longer than anything here takes, shorter than the time limit of a test run.
const PATIENCE_MS: u16 = 10_000;
const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 256,
    receive_depth: 256,
    max_send_payload: 4 << 20,
    max_receive_payload: 4 << 20,
    send_memory: 16 << 20,
};

/// Returns two connected streams.
fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    (a, b)
}

fn over(stream: TcpStream, limits: &ConnectionLimits, pool: &Arc<ReceivePool>) -> TcpQueuePair {
    let options = Options { answer_timeout: Duration::from_secs(10), ..Options::default() };
    TcpQueuePair::new(Channel::plain(stream), Class::Bulk, limits, pool, &options).unwrap()
}

/// Returns two connected queue pairs with a pool each.
fn pair() -> (TcpQueuePair, TcpQueuePair) {
    let (a, b) = streams();
    let pool = || ReceivePool::new(64 << 20).unwrap();
    (over(a, &LIMITS, &pool()), over(b, &LIMITS, &pool()))
}

/// Returns a queue pair, and its peer's end as a raw stream.
fn victim() -> (TcpQueuePair, TcpStream) {
    let (a, b) = streams();
    (over(a, &LIMITS, &ReceivePool::new(64 << 20).unwrap()), b)
}

/// Waits until the channel has an event that the queue pair is interested in.
fn sleep(qp: &TcpQueuePair) {
    let interest = qp.interest();
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::POLLIN, interest.readable);
    flags.set(PollFlags::POLLOUT, interest.writable);
    let ready = poll(&mut [PollFd::new(qp.as_fd(), flags)], PollTimeout::from(PATIENCE_MS)).unwrap();
    assert_eq!(ready, 1, "no event for a long time");
}

/// Returns the next message, however long it takes.
fn receive(qp: &mut TcpQueuePair) -> Result<Received<Lease>, FabricError> {
    loop {
        if let Some(message) = poll_by_value(qp)? {
            return Ok(message);
        }
        sleep(qp);
    }
}

/// Polls two ends alternately until `done` returns a value.
fn until<T>(
    a: &mut TcpQueuePair,
    b: &mut TcpQueuePair,
    mut done: impl FnMut(&mut TcpQueuePair, &mut TcpQueuePair) -> Option<T>,
) -> T {
    for _ in 0..50_000_000 {
        if let Some(found) = done(a, b) {
            return found;
        }
    }
    panic!("no result for a long time");
}

fn wr(slot: u16) -> WrId {
    WrId { slot, generation: 7 }
}

fn post(qp: &mut TcpQueuePair, slot: u16, payload: Gather<'_>) -> Result<(), PostError> {
    let header = RawHeader::from_array([u8::try_from(slot & 0xff).unwrap(); 24]);
    let operation = Operation::Send { header: &header, payload };
    qp.post(SendWork { signal: Signal::Signalled(wr(slot)), operation })
}

/// Writes a pattern into send memory and returns its extent.
fn compose(qp: &TcpQueuePair, offset: u32, bytes: &[u8]) -> Extent {
    let memory = qp.send_memory();
    assert!(offset as usize + bytes.len() <= memory.len());
    for (at, byte) in bytes.iter().enumerate() {
        #[expect(unsafe_code, reason = "the fabric provides send memory as a pointer")]
        // SAFETY: within the memory, as asserted, and nothing posted covers it.
        let to = unsafe { memory.base().add(offset as usize + at) };
        #[expect(unsafe_code, reason = "the fabric provides send memory as a pointer")]
        // SAFETY: as above.
        unsafe {
            to.write(*byte);
        }
    }
    Extent { offset, len: u32::try_from(bytes.len()).unwrap() }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 251 + seed * 17) % 256).unwrap()).collect()
}

fn bytes_of(message: &Received<Lease>) -> Vec<u8> {
    message.payload.as_private().expect("TCP payloads are private").to_vec()
}

fn done(slot: u16) -> Option<Completion> {
    Some(Completion { wr: wr(slot), status: Status::Done(0) })
}

fn region(len: usize) -> Region {
    Region::new(Arc::new(HeapMemory::new(len)))
}

fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}
