//! Interruptions of a rendezvous transfer in each of its phases: a side goes away, the sender cancels, the deadline passes.

use core::ops::Range;
use core::time::Duration;

use pronto::progress::Engine;
use pronto::{
    CallRejection, Event, Node, NodeId, Peer, Receive, ReceiveError, Region, SendError, Sending,
    TransferError,
};

use crate::proxy::Proxy;
use crate::rig::{address, event, shared_run, until};

const TIMEOUT: Duration = Duration::from_secs(20);
const TAG: u64 = 3;
/// Length of the message, several hundred polls over either transport.
const LEN: u64 = 32 << 20;

/// Phase of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The message waits for a receive.
    Offered,
    /// A receive waits for the message.
    Posted,
    /// The bytes are being transferred.
    Moving,
}

/// A receiver that makes progress only when the test polls it, and its sender.
struct Held {
    receiver: Node,
    sender: Node,
    to_sender: Peer,
    to_receiver: Peer,
    from: Region,
    to: Region,
}

impl Held {
    fn over(transport: &str, name: &str) -> Self {
        let listen = address(transport, name);
        let receiver =
            Node::builder(1).engine(Engine::None).listen(&listen).start().expect("the node starts");
        let address = receiver.listening()[0].to_string();
        let sender = Node::builder(2).peer(1, &address).start().expect("the node starts");
        let to_receiver = sender.wait_for_peer(1, TIMEOUT).expect("the peer connects");
        let to_sender = receiver.wait_for_peer(2, TIMEOUT).expect("the peer connects");
        let memory = |node: &Node| node.region(usize::try_from(LEN).expect("64 bits")).expect("memory");
        let (from, to) = (memory(&sender), memory(&receiver));
        Self { receiver, sender, to_sender, to_receiver, from, to }
    }

    /// Brings a message to a phase and holds it there: the receiver is not polled from now on.
    fn bring_to(&self, phase: Phase, limit: Duration) -> (Option<Receive>, Option<Sending>) {
        let receive = || self.to_sender.post(TAG, &self.to, 0..LEN).expect("posted");
        let send = || self.to_receiver.start_send(TAG, &self.from, 0..LEN, limit).expect("sent");
        let both = match phase {
            Phase::Offered => (None, Some(send())),
            Phase::Posted => (Some(receive()), None),
            Phase::Moving => (Some(receive()), Some(send())),
        };
        let wanted = match phase {
            Phase::Offered => [1, 0, 0],
            Phase::Posted => [0, 1, 0],
            Phase::Moving => [0, 0, 1],
        };
        until(&format!("a message is {phase:?}"), || {
            if self.to_sender.transfers() == wanted {
                return true;
            }
            self.receiver.progress();
            false
        });
        both
    }

    /// Polls the receiver until no message is left, and only `receives` receives.
    fn poll_until_left_with(&self, receives: usize) {
        until("the other transfers are removed", || {
            self.receiver.progress();
            self.to_sender.transfers() == [0, receives, 0]
        });
    }

    /// Asserts that a message arrives, in `posted` or in a receive that is posted now.
    fn assert_next_message_arrives(&self, posted: Option<Receive>) {
        let mut receive =
            posted.unwrap_or_else(|| self.to_sender.post(TAG, &self.to, 0..LEN).expect("posted"));
        self.from.write(0, b"once more").expect("the range is valid");
        let sending = self.to_receiver.start_send(TAG, &self.from, 0..LEN, TIMEOUT).expect("sent");
        assert_eq!(receive.wait(TIMEOUT), Ok(LEN));
        sending.wait().expect("received");
        let mut begin = [0; 9];
        self.to.read(0, &mut begin).expect("the range is valid");
        assert_eq!(&begin, b"once more");
    }
}

const PHASES: [Phase; 3] = [Phase::Offered, Phase::Posted, Phase::Moving];

/// Shows: calls.long-waits
#[test]
fn a_sender_that_goes_away_ends_each_phase() {
    let _shared = shared_run();
    for transport in ["shm", "tcp"] {
        for phase in PHASES {
            let held = Held::over(transport, "sender-goes");
            let (receive, sending) = held.bring_to(phase, TIMEOUT);
            drop(held.sender);
            if let Some(mut receive) = receive {
                assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::PeerDown), "{transport} {phase:?}");
            }
            if let Some(sending) = sending {
                assert_eq!(sending.wait(), Err(TransferError::PeerDown), "{transport} {phase:?}");
            }
            until("all transfers are removed", || {
                held.receiver.progress();
                held.to_sender.transfers() == [0; 3]
            });
        }
    }
}

#[test]
fn a_receiver_that_goes_away_ends_each_phase() {
    let _shared = shared_run();
    for transport in ["shm", "tcp"] {
        for phase in PHASES {
            let held = Held::over(transport, "receiver-goes");
            let (receive, sending) = held.bring_to(phase, TIMEOUT);
            drop(held.receiver);
            if let Some(sending) = sending {
                assert_eq!(sending.wait(), Err(TransferError::PeerDown), "{transport} {phase:?}");
            }
            if let Some(mut receive) = receive {
                assert_eq!(receive.wait(TIMEOUT), Err(ReceiveError::PeerDown), "{transport} {phase:?}");
            }
            assert_eq!(held.to_receiver.transfers(), [0; 3]);
        }
    }
}

/// Shows: calls.start-send
#[test]
fn a_cancelled_send_leaves_the_receive_to_the_next_message() {
    let _shared = shared_run();
    for transport in ["shm", "tcp"] {
        let held = Held::over(transport, "gives-up");
        let (receive, sending) = held.bring_to(Phase::Moving, TIMEOUT);
        assert_eq!(sending.expect("the message was sent").cancel(), TransferError::Cancelled);
        held.poll_until_left_with(1);
        held.assert_next_message_arrives(receive);
    }
}

#[test]
fn a_deadline_during_a_transfer_ends_only_that_message() {
    let _shared = shared_run();
    for transport in ["shm", "tcp"] {
        let held = Held::over(transport, "in-time");
        // Long enough to begin the transfer on a busy machine.
        let (receive, sending) = held.bring_to(Phase::Moving, Duration::from_secs(1));
        assert_eq!(sending.expect("the message was sent").wait(), Err(TransferError::Deadline));
        held.poll_until_left_with(1);
        held.assert_next_message_arrives(receive);
    }
}

/// The grant ends with its link, and nobody polls: the next link wakes the task, which grants the bytes again.
///
/// Shows: calls.async-send-link
#[test]
fn a_send_that_a_task_awaits_continues_over_the_next_link() {
    let _shared = shared_run();
    over_the_next_link(&[]);
}

/// Each piece is granted again.
///
/// Shows: calls.async-send-link, calls.pieces
#[test]
fn pieces_that_a_task_awaits_continue_over_the_next_link() {
    let _shared = shared_run();
    over_the_next_link(&[0..5, 5..LEN / 2, LEN / 2..LEN]);
}

/// Sends a region, whole or in pieces.
fn over_the_next_link(ranges: &[Range<u64>]) {
    let receiver = Node::builder(1).listen("tcp:127.0.0.1:0").start().expect("the node starts");
    let wire = Proxy::to(&receiver.listening()[0].to_string());
    let sender = Node::builder(2).peer(1, &wire.address()).start().expect("the node starts");
    let (events, to_receiver) =
        (sender.events(), sender.wait_for_peer(1, TIMEOUT).expect("the peer connects"));
    let to_sender = receiver.wait_for_peer(2, TIMEOUT).expect("the peer connects");
    let memory = |node: &Node| node.region(usize::try_from(LEN).expect("64 bits")).expect("memory");
    let (from, to) = (memory(&sender), memory(&receiver));
    from.write(0, b"grant").expect("the range is valid");
    let task = smol::spawn({
        let (peer, from, ranges) = (to_receiver.clone(), from.clone(), ranges.to_vec());
        async move {
            if ranges.is_empty() {
                return peer.send_async(TAG, &from, 0..LEN, TIMEOUT).await;
            }
            let pieces: Vec<_> = ranges.into_iter().map(|range| (&from, range)).collect();
            let sending = peer.start_send_pieces(TAG, &pieces, TIMEOUT)?;
            sending.await
        }
    });
    until("the message is offered", || to_sender.transfers() == [1, 0, 0]);
    wire.cut();
    event(&events, TIMEOUT, |event| matches!(event, Event::LinkResumed { .. }));
    let mut receive = to_sender.post(TAG, &to, 0..LEN).expect("posted");
    assert_eq!(receive.wait(TIMEOUT), Ok(LEN));
    smol::block_on(task).expect("received");
    let mut begin = [0; 5];
    to.read(0, &mut begin).expect("the range is valid");
    assert_eq!(&begin, b"grant");
}

/// Breaks the link of a sender, and begins to send before the session has another link.
fn send_between_links(name: &str, send: impl FnOnce(&Peer, &Region) -> Result<(), TransferError> + Send) {
    let _shared = shared_run();
    let receiver = Node::builder(1).listen("tcp:127.0.0.1:0").start().expect("the node starts");
    let wire = Proxy::to(&receiver.listening()[0].to_string());
    let sender = Node::builder(2).peer(1, &wire.address()).start().expect("the node starts");
    let (events, to_receiver) =
        (sender.events(), sender.wait_for_peer(1, TIMEOUT).expect("the peer connects"));
    let to_sender = receiver.wait_for_peer(2, TIMEOUT).expect("the peer connects");
    let memory = |node: &Node| node.region(usize::try_from(LEN).expect("64 bits")).expect("memory");
    let (from, to) = (memory(&sender), memory(&receiver));
    from.write(0, name.as_bytes()).expect("the range is valid");
    let mut receive = to_sender.post(TAG, &to, 0..LEN).expect("posted");
    wire.close();
    event(&events, TIMEOUT, |event| matches!(event, Event::LinkLost { .. }));
    let started = to_receiver.start_send(TAG, &from, 0..LEN, TIMEOUT);
    assert!(
        matches!(
            started,
            Err(TransferError::Rejected(CallRejection::Here(SendError::NotConnected { peer: NodeId(1) })))
        ),
        "nothing can be granted between two links"
    );
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&to_receiver, &from));
        // Usually long enough for a first attempt.
        std::thread::park_timeout(Duration::from_millis(50));
        assert!(!sending.is_finished(), "it waits for a link");
        wire.recover();
        assert_eq!(receive.wait(TIMEOUT), Ok(LEN));
        sending.join().expect("no panic").expect("received");
    });
    let mut begin = vec![0; name.len()];
    to.read(0, &mut begin).expect("the range is valid");
    assert_eq!(begin, name.as_bytes());
}

/// Shows: calls.send-waits
#[test]
fn a_send_between_two_links_waits_for_the_next_one() {
    send_between_links("blocking", |peer, from| peer.send(TAG, from, 0..LEN, TIMEOUT));
}

/// Shows: calls.async-send-link
#[test]
fn a_task_that_sends_between_two_links_waits_for_the_next_one() {
    send_between_links("task", |peer, from| smol::block_on(peer.send_async(TAG, from, 0..LEN, TIMEOUT)));
}
