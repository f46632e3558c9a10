//! Messages from memory of the program, which the library has not allocated: its heap, constants, mapped files, borrowed bytes.

use core::time::Duration;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use pronto::{
    CallRejection, GrantError, Memory, MessageSource, Node, Peer, ReceiveError, Region, Rights, SendError,
    TransferError, map_file,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);
/// Length of a message that is not eager.
const LONG: usize = (3 << 20) + 7;

struct Pair {
    receiver: Node,
    sender: Node,
    to_sender: Peer,
    to_receiver: Peer,
}

fn pair(transport: &str, name: &str) -> Pair {
    let listen = match transport {
        "shm" => format!("shm:@pronto-own-memory-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let receiver = Node::builder(1).listen(&listen).start().expect("the node starts");
    let address = receiver.listening()[0].to_string();
    let sender = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let to_receiver = sender.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let to_sender = receiver.wait_for_peer(2, TIMEOUT).expect("the peer connects");
    Pair { receiver, sender, to_sender, to_receiver }
}

fn on_both(name: &str, story: impl Fn(&Pair)) {
    for transport in ["shm", "tcp"] {
        story(&pair(transport, name));
    }
}

impl Pair {
    /// Posts a receive and sends the range to it. Returns the bytes that arrived.
    fn moved(&self, source: &dyn MessageSource, range: core::ops::Range<u64>) -> Vec<u8> {
        let to = self.receiver.region(LONG).expect("memory");
        let mut receive = self.to_sender.post(7, &to, 0..LONG as u64).expect("posted");
        let len = range.end - range.start;
        self.to_receiver.send(7, source, range, TIMEOUT).expect("received");
        assert_eq!(receive.wait(TIMEOUT), Ok(len));
        bytes(&to, usize::try_from(len).expect("a few megabytes"))
    }

    /// Returns the number of bytes that the sender has copied.
    fn copied(&self) -> u64 {
        let status = self.sender.status();
        let peer = status.peers.iter().find(|peer| peer.node.0 == 1).expect("the receiver is a peer");
        let counted = peer.counters.iter().find(|(name, _)| *name == "bytes_copied");
        counted.expect("the counter exists").1
    }

    fn assert_alive(&self) {
        self.to_receiver.call(&pronto::admin::Ping { nonce: 1 }).expect("the link is intact");
    }
}

/// Returns bytes that depend on their position.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at / 251 + at % 251) % 256).map_or(0, |byte| byte ^ seed)).collect()
}

fn bytes(region: &Region, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes).expect("the range is valid");
    bytes
}

fn file_of(contents: &[u8]) -> File {
    let thread = std::thread::current().id();
    let path = std::env::temp_dir().join(format!("pronto-own-memory-{}-{thread:?}", std::process::id()));
    let mut file =
        File::options().read(true).write(true).create_new(true).open(&path).expect("a file can be made");
    std::fs::remove_file(&path).expect("it is our file");
    file.write_all(contents).expect("written");
    file
}

/// Shows: calls.own-memory
#[test]
fn messages_leave_from_the_heap_a_constant_and_a_file() {
    static CONSTANT: [u8; 70_000] = [0x5a; 70_000];
    on_both("sources", |pair| {
        let contents = pattern(LONG, 3);
        let heap = Memory::from_owner(contents.clone());
        let shared: Arc<[u8]> = contents.clone().into();
        let shared = Memory::from_owner(shared);
        let file = map_file(file_of(&contents), 0..LONG as u64).expect("mapped");
        for range in [0..LONG, 1..100, 70_001..70_001, 12_345..2_000_001] {
            let (wanted, range) = (&contents[range.clone()], range.start as u64..range.end as u64);
            for source in [&heap, &shared, &file] {
                assert!(pair.moved(source, range.clone()) == wanted, "{range:?} of {source:?}");
            }
        }
        let constant = Memory::from_owner(CONSTANT);
        assert!(pair.moved(&constant, 0..70_000) == CONSTANT);
        assert!(!heap.is_held_elsewhere(), "the memory is returned");
        for rights in [Rights::READ_WRITE, Rights::ALL] {
            let refused = pair.to_receiver.grant(heap.region(), 0..8, rights);
            assert_eq!(refused.unwrap_err(), GrantError::ReadOnly);
        }
        let refused = ReceiveError::Rejected(CallRejection::Here(SendError::OutOfRegion));
        let posted = pair.to_sender.post(7, heap.region(), 0..8);
        assert_eq!(posted.err(), Some(refused), "nothing is received into it");
    });
}

/// Shows: operations.copied
#[test]
fn bytes_that_had_to_be_copied_are_counted() {
    let contents = Memory::from_owner(pattern(LONG, 4));
    let sent_twice = |transport: &str| {
        let pair = pair(transport, "counted");
        [(); 2].map(|()| {
            pair.moved(&contents, 0..LONG as u64);
            pair.copied()
        })
    };
    // The first message over shared memory asks the peer to try its address.
    assert_eq!(sent_twice("shm"), [LONG as u64; 2]);
    assert_eq!(sent_twice("tcp"), [0; 2]);
}

/// Shows: calls.own-pieces
#[test]
fn pieces_of_regions_and_of_the_heap_arrive_as_one_message() {
    on_both("pieces", |pair| {
        let heap = Memory::from_owner(pattern(100_000, 1));
        let region = pair.receiver.region(50_000).expect("memory");
        region.write(0, &pattern(50_000, 2)).expect("the range is valid");
        let to = pair.receiver.region(LONG).expect("memory");
        let mut receive = pair.to_sender.post(7, &to, 0..LONG as u64).expect("posted");
        let pieces: [(&dyn MessageSource, _); 3] =
            [(&heap, 10..90_000), (&region, 0..50_000), (&heap, 99_990..100_000)];
        pair.to_receiver.send_pieces(7, &pieces, TIMEOUT).expect("received");
        let wanted =
            [&pattern(100_000, 1)[10..90_000], &pattern(50_000, 2), &pattern(100_000, 1)[99_990..]].concat();
        assert_eq!(receive.wait(TIMEOUT), Ok(wanted.len() as u64));
        assert!(bytes(&to, wanted.len()) == wanted);
    });
}

/// Shows: calls.truncated
#[test]
fn a_file_that_is_truncated_before_it_is_read_is_an_error_on_both_sides() {
    on_both("truncated", |pair| {
        // The receiver of the first message over shared memory gets a copy, and learns whether it needs one.
        assert!(pair.moved(&Memory::from_owner(pattern(LONG, 2)), 0..LONG as u64) == pattern(LONG, 2));
        let file = file_of(&pattern(LONG, 1));
        let memory = map_file(&file, 0..LONG as u64).expect("mapped");
        let sending = pair.to_receiver.start_send(7, &memory, 0..LONG as u64, TIMEOUT).expect("sent");
        file.set_len(10_000).expect("truncated");
        let to = pair.receiver.region(LONG).expect("memory");
        let mut receive = pair.to_sender.post(7, &to, 0..LONG as u64).expect("posted");
        assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::Unreadable));
        assert_eq!(sending.wait(), Err(TransferError::Unreadable));
        // An eager message finds it immediately.
        let refused = pair.to_receiver.send(7, &memory, 20_000..20_100, TIMEOUT);
        assert_eq!(refused, Err(TransferError::Unreadable));
        assert!(pair.moved(&memory, 0..100) == pattern(100, 1), "the rest can be sent");
        pair.assert_alive();
    });
}

/// Shows: calls.borrowed
#[test]
fn borrowed_bytes_are_sent_and_returned() {
    on_both("borrowed", |pair| {
        for len in [0, 1, 5_000, LONG] {
            let contents = pattern(len, 9);
            let to = pair.receiver.region(LONG).expect("memory");
            let mut receive = pair.to_sender.post(7, &to, 0..LONG as u64).expect("posted");
            pair.to_receiver.send_bytes(7, &contents, TIMEOUT).expect("received");
            assert_eq!(receive.wait(TIMEOUT), Ok(len as u64));
            assert!(bytes(&to, len) == contents);
        }
    });
}

/// Shows: calls.borrow-ends
#[test]
fn a_borrow_ends_with_the_deadline_and_the_bytes_may_change() {
    on_both("deadline", |pair| {
        let mut contents = pattern(LONG, 9);
        // Nobody receives it.
        let ended = pair.to_receiver.send_bytes(7, &contents, SHORT);
        assert_eq!(ended, Err(TransferError::Deadline));
        contents.fill(0xff);
        // The next message with this tag is another one.
        let to = pair.receiver.region(LONG).expect("memory");
        let mut receive = pair.to_sender.post(7, &to, 0..LONG as u64).expect("posted");
        let wanted = pattern(100, 2);
        pair.to_receiver.send_bytes(7, &wanted, TIMEOUT).expect("received");
        assert_eq!(receive.wait(TIMEOUT), Ok(100));
        assert!(bytes(&to, 100) == wanted);
        pair.assert_alive();
    });
}

/// The deadline passes at a random moment of the transfer. A message that is reported as received has the bytes of before.
///
/// Shows: calls.borrow-ends
#[test]
fn bytes_that_change_after_the_borrow_are_never_received() {
    on_both("changes", |pair| {
        let wanted = pattern(LONG, 9);
        let to = pair.receiver.region(LONG).expect("memory");
        let (mut received, mut ended) = (0, 0);
        for round in 0_u32..100 {
            let mut contents = wanted.clone();
            let mut receive = pair.to_sender.post(7, &to, 0..LONG as u64).expect("posted");
            let timeout = Duration::from_micros(u64::from(10 + 20 * round));
            let sent = pair.to_receiver.send_bytes(7, &contents, timeout);
            contents.fill(0xff);
            match (sent, receive.wait(SHORT)) {
                (_, Ok(len)) => {
                    assert_eq!(len, LONG as u64);
                    assert!(bytes(&to, LONG) == wanted, "round {round}");
                    received += 1;
                }
                (Err(_), Err(ReceiveError::TimedOut)) => {
                    ended += 1;
                    receive.cancel();
                }
                (sent, got) => panic!("round {round}: {sent:?}, {got:?}"),
            }
        }
        assert!(ended > 0, "no deadline passed: {received} messages");
        pair.assert_alive();
    });
}
