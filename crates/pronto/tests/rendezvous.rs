//! Messages into posted buffers, on every transport. Sender and receiver may come in any order and may compute meanwhile.

use core::time::Duration;

use pronto::progress::Engine;
use pronto::{CallRejection, Nanos, Node, Peer, ReceiveError, Region, SendError, TransferError};

const TIMEOUT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

struct Pair {
    receiver: Node,
    sender: Node,
    to_sender: Peer,
    to_receiver: Peer,
}

fn pair(transport: &str, name: &str) -> Pair {
    let listen = match transport {
        "shm" => format!("shm:@pronto-rendezvous-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let receiver = Node::builder(1).listen(&listen).start().expect("the node starts");
    let address = receiver.listening()[0].to_string();
    let sender = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let to_receiver = sender.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let to_sender = receiver.wait_for_peer(2, TIMEOUT).expect("the peer connects");
    Pair { receiver, sender, to_sender, to_receiver }
}

impl Pair {
    /// Waits until both sides have forgotten cancelled transfers; the cancellation is a message and takes time.
    fn until_forgotten(&self) {
        for _ in 0..10_000 {
            // The receiver may not know of a send that was cancelled immediately. It does when the send's call has ended.
            let ended = self.sender.status().peers.iter().all(|peer| peer.open_calls == 0);
            if ended && self.to_sender.transfers() == [0; 3] {
                return;
            }
            let _ = self.to_receiver.call(&pronto::admin::Ping { nonce: 1 });
        }
    }

    /// Asserts that no state of any transfer is left.
    fn assert_closed(&self) {
        let left = |node: &Node| node.status().peers[0].open_calls;
        // A reply to a cancelled call may still be in flight.
        for _ in 0..1000 {
            if left(&self.sender) == 0 && left(&self.receiver) == 0 {
                break;
            }
            let _ = self.to_receiver.call(&pronto::admin::Ping { nonce: 1 });
        }
        assert_eq!((left(&self.sender), left(&self.receiver)), (0, 0), "call slots");
        let none = [0; 3];
        assert_eq!(self.to_sender.transfers(), none, "at the receiver");
        assert_eq!(self.to_receiver.transfers(), none, "at the sender");
    }
}

/// Returns bytes that depend on their position.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| ((at / 251 + at % 251) % 256).try_into().map_or(0, |byte: u8| byte ^ seed)).collect()
}

fn filled(node: &Node, len: usize, seed: u8) -> Region {
    let region = node.region(len.max(1)).expect("memory");
    region.write(0, &pattern(len, seed)).expect("the range is valid");
    region
}

fn bytes(region: &Region, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes).expect("the range is valid");
    bytes
}

fn on_both(name: &str, story: impl Fn(&Pair)) {
    for transport in ["shm", "tcp"] {
        let pair = pair(transport, name);
        story(&pair);
        pair.assert_closed();
    }
}

/// Shows: calls.post, calls.receive-ends, protocol.rendezvous-response
#[test]
fn every_length_arrives_intact_in_any_order() {
    on_both("lengths", |pair| {
        for (seed, len) in [0, 1, 39, 4096, 4097, 65_537, 1 << 20, (16 << 20) + 5].into_iter().enumerate() {
            let seed = u8::try_from(seed).expect("a few lengths");
            let (from, to) =
                (filled(&pair.sender, len, seed), pair.receiver.region(len + 1).expect("memory"));
            let end = len as u64;
            if seed.is_multiple_of(2) {
                let mut receive = pair.to_sender.post(7, &to, 0..end + 1).expect("posted");
                pair.to_receiver.send(7, &from, 0..end, TIMEOUT).expect("received");
                assert_eq!(receive.wait(TIMEOUT), Ok(end));
            } else {
                let sending = pair.to_receiver.start_send(7, &from, 0..end, TIMEOUT).expect("sent");
                let mut receive = pair.to_sender.post(7, &to, 0..end + 1).expect("posted");
                assert_eq!(receive.wait(TIMEOUT), Ok(end));
                sending.wait().expect("received");
            }
            assert!(bytes(&to, len) == pattern(len, seed), "{len} bytes");
        }
    });
}

/// Pieces of two regions: short and long ones, some of which are empty, or overlap.
const PIECES: &[(usize, core::ops::Range<u64>)] =
    &[(0, 10..10), (1, 5..100), (0, 0..70_001), (0, 70_000..300_000), (1, 0..0), (1, 0..50), (1, 50..200)];

/// Shows: calls.pieces
#[test]
fn pieces_arrive_as_one_message() {
    on_both("pieces", |pair| {
        let regions = [filled(&pair.sender, 300_000, 1), filled(&pair.sender, 200, 2)];
        // A long message, a short one, one of a single piece, and one without bytes.
        for chosen in [PIECES, &PIECES[4..], &PIECES[3..4], &PIECES[..1], &[]] {
            let mut wanted = Vec::new();
            for (region, range) in chosen {
                let mut part = vec![0; usize::try_from(range.end - range.start).expect("some kilobytes")];
                let start = usize::try_from(range.start).expect("some kilobytes");
                regions[*region].read(start, &mut part).expect("the range is valid");
                wanted.extend(part);
            }
            let pieces: Vec<_> =
                chosen.iter().map(|(region, range)| (&regions[*region], range.clone())).collect();
            let to = pair.receiver.region(400_000).expect("memory");
            let mut receive = pair.to_sender.post(7, &to, 0..400_000).expect("posted");
            pair.to_receiver.send_pieces(7, &pieces, TIMEOUT).expect("received");
            assert_eq!(receive.wait(TIMEOUT), Ok(wanted.len() as u64));
            assert!(bytes(&to, wanted.len()) == wanted, "{chosen:?}");
        }
    });
}

/// Shows: calls.pieces
#[test]
fn pieces_that_cannot_be_sent_are_refused() {
    on_both("bad-pieces", |pair| {
        let region = filled(&pair.sender, 100_000, 1);
        let send = |pieces: &[(&Region, core::ops::Range<u64>)]| {
            pair.to_receiver.start_send_pieces(7, pieces, TIMEOUT).map(drop)
        };
        let refused = |error| Err(TransferError::Rejected(CallRejection::Here(error)));
        for outside in [99_999..100_001, 100_001..100_001, u64::MAX..u64::MAX] {
            assert_eq!(send(&[(&region, 0..10), (&region, outside)]), refused(SendError::OutOfRegion));
        }
        #[expect(clippy::reversed_empty_ranges, reason = "it is an error of the program")]
        let reversed = 10..5;
        assert_eq!(send(&[(&region, reversed)]), refused(SendError::OutOfRegion));
        let many = vec![(&region, 0..1); 17];
        assert_eq!(send(&many), refused(SendError::TooManyPieces { pieces: 17, max: 16 }));
        assert_eq!(pair.to_receiver.transfers(), [0; 3]);
    });
}

/// More sends than may be in progress: each returns its pieces' grants and its place.
///
/// Shows: calls.pieces
#[test]
fn cancelled_pieces_return_all_grants() {
    on_both("left-pieces", |pair| {
        let region = filled(&pair.sender, 160_000, 1);
        let pieces: Vec<_> = (0..16).map(|piece| (&region, piece * 10_000..(piece + 1) * 10_000)).collect();
        for _ in 0..100 {
            let sending = pair.to_receiver.start_send_pieces(7, &pieces, TIMEOUT).expect("sent");
            drop(sending);
            pair.until_forgotten();
        }
        let to = pair.receiver.region(160_000).expect("memory");
        let mut receive = pair.to_sender.post(7, &to, 0..160_000).expect("posted");
        pair.to_receiver.send_pieces(7, &pieces, TIMEOUT).expect("received");
        assert_eq!(receive.wait(TIMEOUT), Ok(160_000));
        assert!(bytes(&to, 160_000) == pattern(160_000, 1));
    });
}

/// Shows: calls.send, protocol.rendezvous-response
#[test]
fn a_computing_receiver_does_not_delay_the_sender() {
    on_both("computes", |pair| {
        let len = 4 << 20;
        let (from, to) = (filled(&pair.sender, len, 3), pair.receiver.region(len).expect("memory"));
        let receive = pair.to_sender.post(1, &to, 0..len as u64).expect("posted");
        // The receiver's application makes no call until the send has completed.
        pair.to_receiver.send(1, &from, 0..len as u64, TIMEOUT).expect("received");
        assert!(bytes(&to, len) == pattern(len, 3), "all bytes must arrive before the receiver waits");
        let mut receive = receive;
        assert_eq!(receive.wait(TIMEOUT), Ok(len as u64));
    });
}

/// Shows: calls.send, calls.one-order, calls.eager, protocol.order-rendezvous
#[test]
fn a_short_message_does_not_overtake_a_long_one_of_its_tag() {
    on_both("order", |pair| {
        let len = 1 << 20;
        let (long, short) = (filled(&pair.sender, len, 1), filled(&pair.sender, 10, 2));
        let first = pair.to_receiver.start_send(5, &long, 0..len as u64, TIMEOUT).expect("sent");
        pair.to_receiver.send(5, &short, 0..10, TIMEOUT).expect("sent with the call");
        let other = pair.to_receiver.start_send(6, &short, 0..5, TIMEOUT).expect("sent");
        let to = pair.receiver.region(len).expect("memory");
        let mut of_other_tag = pair.to_sender.post(6, &to, 0..16).expect("posted");
        assert_eq!(of_other_tag.wait(TIMEOUT), Ok(5), "a message with another tag must not wait");
        let mut receive = pair.to_sender.post(5, &to, 0..len as u64).expect("posted");
        assert_eq!(receive.wait(TIMEOUT), Ok(len as u64), "the long message was sent first");
        let mut receive = pair.to_sender.post(5, &to, 0..len as u64).expect("posted");
        assert_eq!(receive.wait(TIMEOUT), Ok(10));
        first.wait().expect("received");
        other.wait().expect("received");
    });
}

/// Shows: calls.post, calls.send-ends, calls.send-deadline, calls.long-waits
#[test]
fn a_send_without_a_receive_ends() {
    on_both("unreceived", |pair| {
        let from = filled(&pair.sender, 1 << 20, 1);
        let never = pair.to_receiver.send(9, &from, 0..1 << 20, SHORT);
        assert_eq!(never, Err(TransferError::Deadline));
        let given_up = pair.to_receiver.start_send(9, &from, 0..1 << 20, TIMEOUT).expect("sent");
        assert_eq!(given_up.cancel(), TransferError::Cancelled);
        pair.until_forgotten();
        let to = pair.receiver.region(64).expect("memory");
        let mut receive = pair.to_sender.post(9, &to, 0..64).expect("posted");
        assert_eq!(receive.wait(SHORT), Err(ReceiveError::TimedOut), "both sends must be forgotten");
        receive.cancel();
        assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::Cancelled));
        assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::Taken));
    });
}

/// Shows: calls.receive-ends, protocol.rendezvous-failure
#[test]
fn too_long_for_the_buffer() {
    on_both("too-long", |pair| {
        let (from, to) = (filled(&pair.sender, 1 << 20, 1), pair.receiver.region(64).expect("memory"));
        for len in [65, 1 << 20] {
            let mut receive = pair.to_sender.post(2, &to, 0..64).expect("posted");
            let sent = pair.to_receiver.send(2, &from, 0..len, TIMEOUT);
            // For an eager message that was stored, only the receiver reports the error.
            assert!(sent == Err(TransferError::TooLong) || len == 65, "{sent:?}");
            assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::TooLong { len }));
        }
    });
}

/// Shows: calls.receive-dropped, calls.start-send, calls.sixteen-transfers
#[test]
fn dropped_transfers_are_cancelled_and_excess_ones_are_refused() {
    on_both("dropped", |pair| {
        let (from, to) = (filled(&pair.sender, 1 << 20, 1), pair.receiver.region(1 << 20).expect("memory"));
        let posted: Vec<_> = (0..100).map_while(|_| pair.to_sender.post(1, &to, 0..64).ok()).collect();
        assert_eq!(posted.len(), 16);
        drop(posted);
        let send = |_| pair.to_receiver.start_send(3, &from, 0..1 << 20, TIMEOUT).ok();
        let sends: Vec<_> = (0..100).map_while(send).collect();
        assert_eq!(sends.len(), 16);
        drop(sends);
        pair.until_forgotten();
        // All cancelled transfers are forgotten, and a new message arrives.
        let mut receive = pair.to_sender.post(3, &to, 0..1 << 20).expect("posted");
        pair.to_receiver.send(3, &from, 0..1 << 20, TIMEOUT).expect("received");
        assert_eq!(receive.wait(TIMEOUT), Ok(1 << 20));
    });
}

/// Shows: calls.send-ends
#[test]
fn a_peer_that_goes_away_ends_transfers_in_both_directions() {
    for transport in ["shm", "tcp"] {
        let pair = pair(transport, "gone");
        let from = filled(&pair.sender, 1 << 20, 1);
        let to = pair.receiver.region(64).expect("memory");
        let sending = pair.to_receiver.start_send(3, &from, 0..1 << 20, TIMEOUT).expect("sent");
        let mut receive = pair.to_sender.post(4, &to, 0..64).expect("posted");
        drop(pair.sender);
        assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::PeerDown));
        assert_eq!(sending.wait(), Err(TransferError::PeerDown));
        assert_eq!(pair.to_sender.transfers(), [0; 3]);
        let refused = pair.to_sender.post(4, &to, 0..64);
        assert!(matches!(refused, Err(ReceiveError::Rejected(_))), "{refused:?}");
    }
}

/// Starts a pair whose receiver uses `engine`.
fn pair_with(engine: Engine, transport: &str, name: &str) -> Pair {
    let listen = match transport {
        "shm" => format!("shm:@pronto-engine-{name}-{}", std::process::id()),
        _ => "tcp:127.0.0.1:0".into(),
    };
    let receiver = Node::builder(1).engine(engine).listen(&listen).start().expect("the node starts");
    let address = receiver.listening()[0].to_string();
    let sender = Node::builder(2).peer(1, &address).start().expect("the node starts");
    let to_receiver = sender.wait_for_peer(1, TIMEOUT).expect("the peer connects");
    let to_sender = receiver.wait_for_peer(2, TIMEOUT).expect("the peer connects");
    Pair { receiver, sender, to_sender, to_receiver }
}

/// Shows: calls.start-send, sources.none
#[test]
fn without_an_engine_a_message_waits_for_a_call_by_its_receiver() {
    for transport in ["shm", "tcp"] {
        let pair = pair_with(Engine::None, transport, "none");
        let (from, to) = (filled(&pair.sender, 1 << 20, 1), pair.receiver.region(1 << 20).expect("memory"));
        let mut receive = pair.to_sender.post(1, &to, 0..1 << 20).expect("posted");
        let mut sending = pair.to_receiver.start_send(1, &from, 0..1 << 20, TIMEOUT).expect("sent");
        // Shorter than the liveness timeout, and much longer than an engine would need.
        for _ in 0..20 {
            let idle = pair.to_sender.transfers();
            assert_eq!((sending.poll(), idle), (None, [0, 1, 0]), "a thread polled without a call");
            std::thread::yield_now();
        }
        assert_eq!(receive.wait(TIMEOUT), Ok(1 << 20));
        sending.wait().expect("received");
        assert!(bytes(&to, 1 << 20) == pattern(1 << 20, 1));
    }
}

/// Shows: sources.timer
#[test]
fn a_timer_moves_a_message_without_a_call_by_its_receiver() {
    for transport in ["shm", "tcp"] {
        let pair = pair_with(Engine::Timer(Nanos::from_millis(4)), transport, "timer");
        let len = 4 << 20;
        let (from, to) = (filled(&pair.sender, len, 1), pair.receiver.region(len).expect("memory"));
        let mut receive = pair.to_sender.post(1, &to, 0..len as u64).expect("posted");
        pair.to_receiver.send(1, &from, 0..len as u64, TIMEOUT).expect("received");
        assert!(bytes(&to, len) == pattern(len, 1), "all bytes must arrive before the receiver waits");
        assert_eq!(receive.wait(TIMEOUT), Ok(len as u64));
        pair.assert_closed();
    }
}
