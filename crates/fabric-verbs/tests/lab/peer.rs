//! The provider and a peer that shares no code with it, on the two nodes of the lab.

use core::net::IpAddr;
use core::time::Duration;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;

use pronto_core::fabric::{
    ConnectionLimits, DoorbellEvent, Extent, FabricError, Gather, HeapMemory, Operation, QueuePair as _,
    Region, RemoteRange, SendWork, Signal, Status, WrId, poll_by_value,
};
use pronto_fabric_verbs::{Device, Link, Offer, VerbsQueuePair};
use pronto_wire::RawHeader;

const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 16,
    receive_depth: 16,
    max_send_payload: 1 << 16,
    max_receive_payload: 1 << 16,
    send_memory: 1 << 16,
};

/// Maximum number of rounds of a tenth of a millisecond: at least ten seconds.
const PATIENCE: u32 = 100_000;

/// The other program: the example `verbs-peer`, which the lab builds.
struct Peer {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Key of its region.
    key: u64,
    address: u64,
    /// Ends of the sockets that report the end of the peer; they carry no data.
    _sockets: [UnixStream; 2],
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Peer {
    fn ask(&mut self, line: &str) {
        writeln!(self.asked, "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the peer has ended; its error is above");
        line.trim_end().to_owned()
    }

    fn region(&mut self) -> Vec<u8> {
        self.ask("show");
        unhex(self.answer().strip_prefix("region ").unwrap())
    }

    fn reached(&self, range: core::ops::Range<u64>) -> RemoteRange {
        RemoteRange { key: self.key, offset: self.address + range.start, len: range.end - range.start }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Returns the path of the other program: cargo builds examples in a folder next to that of this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().with_file_name("examples").join("verbs-peer")
}

/// Returns a link from the first node to the other program on the second.
fn connect() -> (Link, Peer) {
    let nodes = std::fs::read_to_string("/run/lab/nodes").unwrap();
    let addresses: Vec<IpAddr> =
        nodes.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect();
    let mut child = Command::new(program())
        .arg(addresses[1].to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (asked, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let sockets = [(); 2].map(|()| UnixStream::pair().unwrap());
    let [(near, far), (near_too, far_too)] = sockets;
    let mut peer = Peer { child, asked, answers, key: 0, address: 0, _sockets: [far, far_too] };
    let offer = Offer::new(&Device::for_address(addresses[0]).unwrap(), [LIMITS; 2]).unwrap();
    let bytes: String = offer.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    peer.ask(&format!("connect {bytes}"));
    let answer = peer.answer();
    let words: Vec<_> = answer.split(' ').collect();
    (peer.key, peer.address) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let mut link = offer.connect(&unhex(words[1])).unwrap();
    link.reaches(Duration::from_secs(10)).unwrap();
    link.attach([near.into(), near_too.into()]).unwrap();
    (link, peer)
}

fn header(first: u8) -> RawHeader {
    let mut bytes = [0; 24];
    bytes[4..].fill(first);
    RawHeader::from_array(bytes)
}

fn post(qp: &mut VerbsQueuePair, slot: u16, operation: Operation<'_>) {
    let signal = Signal::Signalled(WrId { slot, generation: 7 });
    qp.post(SendWork { signal, operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

/// Returns the status of a work request.
fn end_of(qp: &mut VerbsQueuePair, slot: u16) -> Status {
    let ended = (0..PATIENCE).find_map(|_| {
        thread::park_timeout(Duration::from_micros(100));
        qp.poll_send()
    });
    let completion = ended.expect("the request completes");
    assert_eq!(completion.wr, WrId { slot, generation: 7 });
    completion.status
}

/// Returns the next message: its header after the fabric word, and its payload.
fn next(qp: &mut VerbsQueuePair) -> Result<(Vec<u8>, Vec<u8>), FabricError> {
    let came = (0..PATIENCE).find_map(|_| {
        thread::park_timeout(Duration::from_micros(100));
        poll_by_value(qp).transpose()
    });
    let message = came.expect("a message arrives")?;
    let payload = message.payload.as_private().unwrap().to_vec();
    Ok((message.header.as_array()[4..].to_vec(), payload))
}

/// Shows: protocol.rdma-offer, protocol.rdma-test, protocol.rdma-kinds
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn messages_of_every_form_pass_in_both_directions() {
    let (mut link, mut peer) = connect();
    for (class, qp) in [&mut link.control, &mut link.bulk].into_iter().enumerate() {
        qp.prepare(0..1 << 16).unwrap();
        // A hundred, so that the receives of both sides are reused.
        let lengths: Vec<u8> = (0..100).map(|round| round % 41).collect();
        peer.ask(&format!("echo {class} {}", lengths.len()));
        for (round, len) in (0..).zip(&lengths) {
            let payload: Vec<u8> = (0..*len).map(|at| at ^ round).collect();
            let sent = header(round);
            post(qp, u16::from(round), Operation::Send { header: &sent, payload: Gather::Short(&payload) });
            assert_eq!(end_of(qp, round.into()), Status::Done(0));
            let (headed, came) = next(qp).unwrap();
            assert_eq!(headed, [round; 20]);
            assert!(came.iter().eq(payload.iter().rev()), "round {round}");
        }
        let echoed: String = lengths.iter().map(|len| format!(" {len}")).collect();
        assert_eq!(peer.answer(), format!("echoed{echoed}"));
        // By reference: copied by the device, gathered by it, and waiting to be read.
        let memory = HeapMemory::new(1 << 16);
        let region = Region::new(Arc::new(memory));
        let bytes: Vec<u8> = (0..1 << 16).map(|at: u32| (at * 7 % 251) as u8).collect();
        region.write(0, &bytes).unwrap();
        qp.register(&region).unwrap();
        for len in [41_u32, 232, 233, 2024] {
            peer.ask(&format!("echo {class} 1"));
            let payload = Gather::Region { region: &region, offset: 5, len };
            post(qp, 1, Operation::Send { header: &header(9), payload });
            assert_eq!(end_of(qp, 1), Status::Done(0));
            let (_, came) = next(qp).unwrap();
            assert!(came.iter().eq(bytes[5..5 + len as usize].iter().rev()), "{len} bytes");
            assert_eq!(peer.answer(), format!("echoed {len}"));
        }
        // From send memory, which contains zeros. More messages than windows: each window is returned.
        for round in 0..40 {
            let len = 2025 + round * 100;
            let payload = Gather::Ring(Extent { offset: 64, len });
            post(qp, 2, Operation::Send { header: &header(9), payload });
            peer.ask(&format!("echo {class} 1"));
            assert_eq!(peer.answer(), format!("echoed {len}"));
            let ended = (0..PATIENCE).find_map(|_| {
                assert!(poll_by_value(qp).unwrap().is_none());
                qp.poll_send()
            });
            assert_eq!(ended.expect("the peer reports that it was read").status, Status::Done(0));
        }
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn its_memory_is_read_written_and_incremented() {
    let (mut link, mut peer) = connect();
    let qp = &mut link.bulk;
    let local = Region::new(Arc::new(HeapMemory::new(4096)));
    let remote = peer.reached(8..2008);
    post(qp, 0, Operation::Read { local: &local, local_offset: 100, remote });
    assert_eq!(end_of(qp, 0), Status::Done(0));
    let mut read = vec![0; 2000];
    local.read(100, &mut read).unwrap();
    let mut expected: Vec<u8> = (0..512_u64).flat_map(u64::to_le_bytes).collect();
    assert!(read == expected[8..2008]);
    local.write(0, &[0xaa; 100]).unwrap();
    post(qp, 1, Operation::Write { local: &local, local_offset: 0, remote: peer.reached(16..116) });
    assert_eq!(end_of(qp, 1), Status::Done(0));
    expected[16..116].fill(0xaa);
    post(qp, 2, Operation::FetchAdd { remote: peer.reached(4088..4096), add: 10 });
    assert_eq!(end_of(qp, 2), Status::Done(511));
    let swap = Operation::CompareSwap { remote: peer.reached(4088..4096), expected: 521, desired: 7 };
    post(qp, 3, swap);
    assert_eq!(end_of(qp, 3), Status::Done(521));
    expected[4088..].copy_from_slice(&7_u64.to_le_bytes());
    assert!(peer.region() == expected);
    // The device refuses an access beyond the end.
    post(qp, 4, Operation::Read { local: &local, local_offset: 0, remote: peer.reached(4090..4100) });
    assert_eq!(end_of(qp, 4), Status::AccessRefused);
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_payload_that_cannot_be_read_ends_the_connection() {
    let (mut link, mut peer) = connect();
    peer.ask("claim 1 5000 3");
    assert_eq!(peer.answer(), "claimed");
    // The refusal equals that after a peer that has ended the connection, and with it its windows.
    assert_eq!(next(&mut link.bulk).unwrap_err(), FabricError::Lost);
    // The other class is a separate connection.
    peer.ask("echo 0 1");
    post(&mut link.control, 0, Operation::Send { header: &header(1), payload: Gather::Short(b"abc") });
    assert_eq!(next(&mut link.control).unwrap().1, b"cba");
}

/// Shows: protocol.rdma-sockets
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_peer_that_dies_is_noticed() {
    let (mut link, peer) = connect();
    drop(peer);
    assert!(link.lifeline.check(), "its sockets have ended");
    assert_eq!(next(&mut link.bulk).unwrap_err(), FabricError::Lost);
}
