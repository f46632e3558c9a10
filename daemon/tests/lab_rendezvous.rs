//! Long messages into posted buffers between two nodes of the lab, over RDMA only. The receiver's device reads the payload from the
//! sender's memory. Either process may die meanwhile.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use core::time::Duration;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Child, Command};
use std::thread;

use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Uid, setuid};
use pronto::{Memory, Node, Peer, Rdma, ReceiveError, Region, TransferError, map_file};

const SOON: Duration = Duration::from_secs(60);
/// Length of a message whose transfer takes long enough to be interrupted, bytes.
const LONG: usize = 16 << 20;
/// The tag of messages between processes.
const TAG: u64 = 3;
/// Set in the environment of the other process: the address to dial, and the role.
const DIAL: &str = "PRONTO_LAB_RENDEZVOUS_DIAL";
const BE: &str = "PRONTO_LAB_RENDEZVOUS_BE";

/// Returns the lab's nodes: namespace, device, address.
fn places() -> Vec<[String; 3]> {
    let nodes = fs::read_to_string("/run/lab/nodes").unwrap();
    let words = |line: &str| -> Vec<String> { line.split(' ').take(3).map(str::to_owned).collect() };
    nodes.lines().map(|line| words(line).try_into().unwrap()).collect()
}

/// Starts a node in a namespace. Its threads inherit the namespace.
fn start(place: &[String; 3], make: impl FnOnce(&str) -> Node + Send) -> Node {
    let run = || {
        setns(File::open(format!("/run/netns/{}", place[0])).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        make(&place[2])
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn receiver(place: &[String; 3]) -> Node {
    start(place, |address| {
        let listen = format!("tcp:{address}:0");
        let node = Node::builder(1).plaintext_i_understand().rdma(Rdma::Require).listen(&listen);
        node.start().unwrap()
    })
}

fn dialler(address: &str) -> Node {
    Node::builder(2).plaintext_i_understand().rdma(Rdma::Require).peer(1, address).start().unwrap()
}

struct Pair {
    receiver: Node,
    sender: Node,
    to_sender: Peer,
    to_receiver: Peer,
}

fn pair() -> Pair {
    let places = places();
    let receiver = receiver(&places[0]);
    let sender = start(&places[1], |_| dialler(&receiver.listening()[0].to_string()));
    let to_receiver = sender.wait_for_peer(1, SOON).unwrap();
    let to_sender = receiver.wait_for_peer(2, SOON).unwrap();
    for node in [&receiver, &sender] {
        assert_eq!(node.status().peers[0].info.unwrap().provider, "verbs");
    }
    Pair { receiver, sender, to_sender, to_receiver }
}

impl Pair {
    /// Asserts that no state of any transfer is left.
    fn assert_closed(&self) {
        let open = |node: &Node| node.status().peers[0].open_calls;
        for _ in 0..10_000 {
            if open(&self.sender) == 0 && open(&self.receiver) == 0 {
                break;
            }
            let _ = self.to_receiver.call(&pronto::admin::Ping { nonce: 1 });
        }
        assert_eq!([open(&self.sender), open(&self.receiver)], [0, 0], "call slots");
        assert_eq!([self.to_sender.transfers(), self.to_receiver.transfers()], [[0; 3]; 2]);
    }
}

/// Number of bytes after which a pattern repeats: more than a chunk, and not a divisor of any length.
const PERIOD: usize = 300_007;

/// Returns bytes that depend on their position; the first is `seed`.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let once: Vec<u8> = (0..PERIOD).map(|at| (at / 251 + at).to_le_bytes()[0] ^ seed).collect();
    let mut bytes = Vec::with_capacity(len + PERIOD);
    while bytes.len() < len {
        bytes.extend_from_slice(&once);
    }
    bytes.truncate(len);
    bytes
}

fn filled(node: &Node, len: usize, seed: u8) -> Region {
    let (region, bytes) = (node.region(len).unwrap(), pattern(len, seed));
    assert!(!SEEDS.contains(&seed) || (bytes[0] != 0 && bytes[len - 1] != 0));
    region.write(0, &bytes).unwrap();
    region
}

fn bytes(region: &Region, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes).unwrap();
    bytes
}

fn byte(region: &Region, at: usize) -> u8 {
    let mut byte = [0];
    region.read(at, &mut byte).unwrap();
    byte[0]
}

/// Waits until the first bytes of a message have arrived. Returns whether the last ones have not.
fn is_under_way(region: &Region, len: usize) -> bool {
    for _ in 0..100_000_000_u64 {
        if byte(region, 0) != 0 {
            return byte(region, len - 1) == 0;
        }
        thread::yield_now();
    }
    panic!("no byte arrived");
}

/// Seeds for which the first and the last byte of a pattern of [`LONG`] bytes are not zero.
const SEEDS: [u8; 2] = [0x80, 0xc0];

/// Returns the connected queue pairs. A link that was set up again has other ones.
fn queue_pairs() -> BTreeSet<String> {
    let shown = Command::new("rdma").args(["resource", "show", "qp"]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let connected = text.lines().filter(|line| line.contains(" type RC "));
    // `link rxe0/1 lqpn 19 rqpn 19 type RC state RTS ...`
    connected.map(|line| line.split(" rqpn ").next().unwrap().to_owned()).collect()
}

/// Returns the number of messages that a device has sent since its creation.
fn messages_sent(device: &str) -> u64 {
    let counter = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/rdma_sends");
    fs::read_to_string(counter).unwrap().trim().parse().unwrap()
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn every_length_is_read_by_its_receiver() {
    let devices: Vec<_> = places().into_iter().map(|[_, device, _]| device).collect();
    let pair = pair();
    for (seed, len) in [64 << 10, (64 << 10) + 1, 1 << 20, LONG + 5].into_iter().enumerate() {
        let seed = u8::try_from(seed).unwrap();
        let (from, to) = (filled(&pair.sender, len, seed), pair.receiver.region(len + 1).unwrap());
        let end = len as u64;
        let before = [messages_sent(&devices[0]), messages_sent(&devices[1])];
        if seed.is_multiple_of(2) {
            let mut receive = pair.to_sender.post(7, &to, 0..end + 1).unwrap();
            pair.to_receiver.send(7, &from, 0..end, SOON).unwrap();
            assert_eq!(receive.wait(SOON), Ok(end));
        } else {
            let sending = pair.to_receiver.start_send(7, &from, 0..end, SOON).unwrap();
            let mut receive = pair.to_sender.post(7, &to, 0..end + 1).unwrap();
            assert_eq!(receive.wait(SOON), Ok(end));
            sending.wait().unwrap();
        }
        assert!(bytes(&to, len) == pattern(len, seed), "{len} bytes");
        // A request, its response and a few control messages. If messages carried the payload, the longest would take thousands.
        let sent: u64 =
            devices.iter().zip(before).map(|(device, before)| messages_sent(device) - before).sum();
        assert!((2..64).contains(&sent), "{sent} messages for {len} bytes");
    }
    pair.assert_closed();
}

/// Shows: calls.pieces
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn every_piece_is_read_by_its_receiver() {
    let pair = pair();
    let (long, short) = (filled(&pair.sender, LONG, 1), filled(&pair.sender, 1000, 2));
    let end = LONG as u64;
    let pieces =
        [(&long, 0..end / 3), (&short, 0..1000), (&long, 0..0), (&short, 999..1000), (&long, end / 3..end)];
    let len = LONG + 1001;
    let to = pair.receiver.region(len).unwrap();
    let mut receive = pair.to_sender.post(7, &to, 0..len as u64).unwrap();
    pair.to_receiver.send_pieces(7, &pieces, SOON).unwrap();
    assert_eq!(receive.wait(SOON), Ok(len as u64));
    let (long, short) = (pattern(LONG, 1), pattern(1000, 2));
    let (begin, rest) = long.split_at(LONG / 3);
    assert!(bytes(&to, len) == [begin, &short, &short[999..], rest].concat());
    pair.assert_closed();
}

/// The receiver's device reads memory of the program, or a copy of constants and mapped files, which cannot be registered.
///
/// Shows: calls.own-memory, calls.borrowed, calls.borrow-ends
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn memory_of_the_program_is_read_by_its_receiver() {
    const LEN: usize = 2 << 20;
    static CONSTANT: [u8; 100_000] = [0x3c; 100_000];
    let pair = pair();
    let end = LEN as u64;
    let to = pair.receiver.region(LEN).unwrap();
    let contents = pattern(LEN, 4);
    let path = std::env::temp_dir().join(format!("pronto-lab-memory-{}", std::process::id()));
    fs::write(&path, &contents).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let sources = [
        (Memory::from_owner(contents.clone()), &contents[..]),
        (Memory::from_owner(&CONSTANT[..]), &CONSTANT[..]),
        (map_file(&file, 0..end).unwrap(), &contents[..]),
    ];
    for (memory, wanted) in &sources {
        let len = wanted.len() as u64;
        let mut receive = pair.to_sender.post(7, &to, 0..end).unwrap();
        pair.to_receiver.send(7, memory, 0..len, SOON).unwrap();
        assert_eq!(receive.wait(SOON), Ok(len));
        assert!(bytes(&to, wanted.len()) == *wanted, "{memory:?}");
    }
    let mut receive = pair.to_sender.post(7, &to, 0..end).unwrap();
    pair.to_receiver.send_bytes(7, &contents, SOON).unwrap();
    assert_eq!(receive.wait(SOON), Ok(end));
    assert!(bytes(&to, LEN) == contents);
    // Nobody receives it. Its registration has ended when the call returns.
    let mut borrowed = contents;
    let ended = pair.to_receiver.send_bytes(8, &borrowed, Duration::from_millis(20));
    assert_eq!(ended, Err(TransferError::Deadline));
    borrowed.fill(0);
    pair.to_receiver.call(&pronto::admin::Ping { nonce: 1 }).unwrap();
    pair.assert_closed();
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn transfers_in_both_directions_with_concurrent_calls() {
    let pair = pair();
    let len = 4 << 20;
    let end = len as u64;
    let regions = |node: &Node, seed: u8| [0, 1].map(|nth| filled(node, len, seed + nth));
    let (ours, theirs) = (regions(&pair.sender, 10), regions(&pair.receiver, 20));
    let (here, there) = (regions(&pair.sender, 0), regions(&pair.receiver, 0));
    let post = |peer: &Peer, into: &[Region; 2]| {
        [0, 1].map(|nth| peer.post(nth as u64, &into[nth], 0..end).unwrap())
    };
    let (at_sender, at_receiver) = (post(&pair.to_receiver, &here), post(&pair.to_sender, &there));
    let send = |peer: &Peer, from: &[Region; 2]| {
        [0, 1].map(|nth| peer.start_send(nth as u64, &from[nth], 0..end, SOON).unwrap())
    };
    let (forth, back) = (send(&pair.to_receiver, &ours), send(&pair.to_sender, &theirs));
    for nonce in 0..20 {
        let pong = pair.to_receiver.call(&pronto::admin::Ping { nonce }).unwrap();
        assert_eq!(pong.nonce, nonce, "a short call during long messages");
    }
    for sending in forth.into_iter().chain(back) {
        sending.wait().unwrap();
    }
    for mut receive in at_sender.into_iter().chain(at_receiver) {
        assert_eq!(receive.wait(SOON), Ok(end));
    }
    for (from, to) in ours.iter().zip(&there).chain(theirs.iter().zip(&here)) {
        assert!(bytes(to, len) == bytes(from, len));
    }
    pair.assert_closed();
}

/// A side that cancels during the transfer ends only that message. The connection stays, although a refused access would break it.
///
/// Shows: protocol.rendezvous-failure
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn cancelling_during_a_transfer_keeps_the_link() {
    let pair = pair();
    let from = filled(&pair.sender, LONG, SEEDS[0]);
    let end = LONG as u64;
    let links = queue_pairs();
    assert_eq!(links.len(), 4, "{links:?}");

    let to = pair.receiver.region(LONG).unwrap();
    let mut receive = pair.to_sender.post(TAG, &to, 0..end).unwrap();
    let sending = pair.to_receiver.start_send(TAG, &from, 0..end, SOON).unwrap();
    assert!(is_under_way(&to, LONG), "the transfer ended before it was cancelled");
    receive.cancel();
    assert_eq!(receive.wait(SOON), Err(ReceiveError::Cancelled));
    assert_eq!(sending.wait(), Err(TransferError::ReceiveCancelled));
    assert_eq!(byte(&to, LONG - 1), 0, "the transfer continued after it was cancelled");
    let left = bytes(&to, LONG);

    let again = pair.receiver.region(LONG).unwrap();
    let mut receive = pair.to_sender.post(TAG, &again, 0..end).unwrap();
    let sending = pair.to_receiver.start_send(TAG, &from, 0..end, SOON).unwrap();
    assert!(is_under_way(&again, LONG), "the transfer ended before it was cancelled");
    assert_eq!(sending.cancel(), TransferError::Cancelled);
    // The receive is still posted and takes the next message.
    let other = filled(&pair.sender, LONG, SEEDS[1]);
    pair.to_receiver.send(TAG, &other, 0..end, SOON).unwrap();
    assert_eq!(receive.wait(SOON), Ok(end));
    assert!(bytes(&again, LONG) == bytes(&other, LONG));
    assert!(bytes(&to, LONG) == left, "a cancelled receive's buffer was written to afterwards");
    assert_eq!(queue_pairs(), links, "the link was lost and set up again");
    pair.assert_closed();
}

/// The other side, in a process that a test can kill; killed on drop.
struct Other(Child);

impl Other {
    fn start(address: &str, role: &str) -> Self {
        let namespace = &places()[1][0];
        let program = std::env::current_exe().unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(program)
            .args(["--exact", "the_other_side", "--ignored", "--nocapture"])
            .env(DIAL, address)
            .env(BE, role)
            .spawn()
            .unwrap();
        Self(child)
    }

    fn kill(&mut self) {
        // `ip netns exec` executes the program, so the child is the node.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Not a test: the program of [`Other`].
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_other_side() {
    let (Ok(address), Ok(role)) = (std::env::var(DIAL), std::env::var(BE)) else { return };
    if role == "poor" {
        // An unprivileged user, who may lock half of the message.
        setrlimit(Resource::RLIMIT_MEMLOCK, LONG as u64 / 2, LONG as u64 / 2).unwrap();
        setuid(Uid::from_raw(65_534)).unwrap();
    }
    let node = dialler(&address);
    let peer = node.wait_for_peer(1, SOON).unwrap();
    let end = LONG as u64;
    if role == "sender" {
        let from = filled(&node, LONG, SEEDS[0]);
        // This process may be killed during the transfer, or the test may be over.
        let _sent = peer.send(TAG, &from, 0..end, SOON);
    } else if role == "poor" {
        let to = node.region(LONG).unwrap();
        let mut receive = peer.post(TAG, &to, 0..end).unwrap();
        assert_eq!(receive.wait(SOON), Err(ReceiveError::Unsupported));
        // A receive that needs no more memory succeeds.
        let mut receive = peer.post(TAG, &to, 0..64).unwrap();
        assert_eq!(receive.wait(SOON), Ok(64));
    } else {
        let to = node.region(LONG).unwrap();
        let mut receive = peer.post(TAG, &to, 0..end).unwrap();
        assert!(is_under_way(&to, LONG), "the transfer ended before a process was killed");
        // Reports that the transfer is under way; the rest may arrive or not.
        let _reported = peer.send(TAG + 1, &to, 0..1, SOON);
        let _received = receive.wait(SOON);
    }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_sender_dies_in_the_middle() {
    let node = receiver(&places()[0]);
    let address = node.listening()[0].to_string();
    let mut other = Other::start(&address, "sender");
    let peer = node.wait_for_peer(2, SOON).unwrap();
    let to = node.region(LONG).unwrap();
    let mut receive = peer.post(TAG, &to, 0..LONG as u64).unwrap();
    assert!(is_under_way(&to, LONG), "the transfer ended before its sender was killed");
    other.kill();
    assert_eq!(receive.wait(SOON), Err(ReceiveError::PeerDown));
    assert_eq!(byte(&to, LONG - 1), 0, "everything was sent before");
    assert_eq!(peer.transfers(), [0; 3]);
    let left = bytes(&to, LONG);
    // The next incarnation sends the same message to another buffer.
    let _next = Other::start(&address, "sender");
    let peer = node.wait_for_peer(2, SOON).unwrap();
    let again = node.region(LONG).unwrap();
    let mut receive = peer.post(TAG, &again, 0..LONG as u64).unwrap();
    assert_eq!(receive.wait(SOON), Ok(LONG as u64));
    assert!(bytes(&again, LONG) == pattern(LONG, SEEDS[0]));
    assert!(bytes(&to, LONG) == left, "the message of a dead peer continued");
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn the_receiver_dies_in_the_middle() {
    let node = receiver(&places()[0]);
    let address = node.listening()[0].to_string();
    let mut other = Other::start(&address, "receiver");
    let peer = node.wait_for_peer(2, SOON).unwrap();
    let from = filled(&node, LONG, SEEDS[0]);
    let report = node.region(1).unwrap();
    let mut receive = peer.post(TAG + 1, &report, 0..1).unwrap();
    let sending = peer.start_send(TAG, &from, 0..LONG as u64, SOON).unwrap();
    assert_eq!(receive.wait(SOON), Ok(1));
    assert_eq!(byte(&report, 0), byte(&from, 0), "the first byte is there");
    other.kill();
    assert_eq!(sending.wait(), Err(TransferError::PeerDown), "everything was received before");
    assert_eq!(peer.transfers(), [0; 3]);
}

/// If the receiver may not lock its buffer, the message ends on both sides, without retries. The link stays usable.
///
/// Shows: protocol.rendezvous-failure
#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_receiver_that_may_not_lock_its_buffer_ends_the_message() {
    let node = receiver(&places()[0]);
    let mut other = Other::start(&node.listening()[0].to_string(), "poor");
    let peer = node.wait_for_peer(2, SOON).unwrap();
    let from = filled(&node, LONG, SEEDS[0]);
    assert_eq!(peer.send(TAG, &from, 0..LONG as u64, SOON), Err(TransferError::Unsupported));
    peer.send(TAG, &from, 0..64, SOON).unwrap();
    assert!(other.0.wait().unwrap().success(), "the other side has failed");
}
