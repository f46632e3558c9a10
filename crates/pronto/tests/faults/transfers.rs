//! What happens to a message into a posted buffer in each of its phases: a side goes away, the sender gives up, its time is over.

use core::time::Duration;

use pronto::progress::Engine;
use pronto::{Node, Peer, Receive, ReceiveError, Region, Sending, TransferError};

use crate::rig::{address, beside_others, until};

const SOON: Duration = Duration::from_secs(20);
const TAG: u64 = 3;
/// Some hundred looks long, over either transport.
const LEN: u64 = 32 << 20;

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for a receive.
    Offered,
    /// A receive waits for it.
    Posted,
    /// It moves.
    UnderWay,
}

/// A receiver that does nothing but where it is told to, and its sender.
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
        let receiver = Node::builder(1).engine(Engine::None).listen(&listen).start().expect("it starts");
        let address = receiver.listening()[0].to_string();
        let sender = Node::builder(2).peer(1, &address).start().expect("it starts");
        let to_receiver = sender.wait_for_peer(1, SOON).expect("it comes up");
        let to_sender = receiver.wait_for_peer(2, SOON).expect("it comes up");
        let memory = |node: &Node| node.region(usize::try_from(LEN).expect("64 bits")).expect("memory");
        let (from, to) = (memory(&sender), memory(&receiver));
        Self { receiver, sender, to_sender, to_receiver, from, to }
    }

    /// Brings a message so far, and holds it there: nobody looks for the receiver from now on.
    fn brought(&self, phase: Phase, limit: Duration) -> (Option<Receive>, Option<Sending>) {
        let receive = || self.to_sender.post(TAG, &self.to, 0..LEN).expect("posted");
        let send = || self.to_receiver.start_send(TAG, &self.from, 0..LEN, limit).expect("sent");
        let both = match phase {
            Phase::Offered => (None, Some(send())),
            Phase::Posted => (Some(receive()), None),
            Phase::UnderWay => (Some(receive()), Some(send())),
        };
        let wanted = match phase {
            Phase::Offered => [1, 0, 0],
            Phase::Posted => [0, 1, 0],
            Phase::UnderWay => [0, 0, 1],
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

    /// The receiver looks until nothing of a message is left but so many receives.
    fn is_left_with(&self, receives: usize) {
        until("the rest is forgotten", || {
            self.receiver.progress();
            self.to_sender.transfers() == [0, receives, 0]
        });
    }

    /// A message goes through, into a receive that is there or is posted now.
    fn goes_on(&self, posted: Option<Receive>) {
        let mut receive =
            posted.unwrap_or_else(|| self.to_sender.post(TAG, &self.to, 0..LEN).expect("posted"));
        self.from.write(0, b"once more").expect("within");
        let sending = self.to_receiver.start_send(TAG, &self.from, 0..LEN, SOON).expect("sent");
        assert_eq!(receive.wait(SOON), Ok(LEN));
        sending.wait().expect("received");
        let mut begin = [0; 9];
        self.to.read(0, &mut begin).expect("within");
        assert_eq!(&begin, b"once more");
    }
}

const PHASES: [Phase; 3] = [Phase::Offered, Phase::Posted, Phase::UnderWay];

#[test]
fn a_sender_that_goes_away_ends_each_phase() {
    let _others = beside_others();
    for transport in ["shm", "tcp"] {
        for phase in PHASES {
            let held = Held::over(transport, "sender-goes");
            let (receive, sending) = held.brought(phase, SOON);
            drop(held.sender);
            if let Some(mut receive) = receive {
                assert_eq!(receive.wait(SOON), Err(ReceiveError::PeerDown), "{transport} {phase:?}");
            }
            if let Some(sending) = sending {
                assert_eq!(sending.wait(), Err(TransferError::PeerDown), "{transport} {phase:?}");
            }
            until("nothing is left", || {
                held.receiver.progress();
                held.to_sender.transfers() == [0; 3]
            });
        }
    }
}

#[test]
fn a_receiver_that_goes_away_ends_each_phase() {
    let _others = beside_others();
    for transport in ["shm", "tcp"] {
        for phase in PHASES {
            let held = Held::over(transport, "receiver-goes");
            let (receive, sending) = held.brought(phase, SOON);
            drop(held.receiver);
            if let Some(sending) = sending {
                assert_eq!(sending.wait(), Err(TransferError::PeerDown), "{transport} {phase:?}");
            }
            if let Some(mut receive) = receive {
                assert_eq!(receive.wait(SOON), Err(ReceiveError::PeerDown), "{transport} {phase:?}");
            }
            assert_eq!(held.to_receiver.transfers(), [0; 3]);
        }
    }
}

#[test]
fn a_sender_that_gives_up_in_the_middle_leaves_the_receive_to_the_next() {
    let _others = beside_others();
    for transport in ["shm", "tcp"] {
        let held = Held::over(transport, "gives-up");
        let (receive, sending) = held.brought(Phase::UnderWay, SOON);
        assert_eq!(sending.expect("it was sent").cancel(), TransferError::Cancelled);
        held.is_left_with(1);
        held.goes_on(receive);
    }
}

#[test]
fn a_deadline_in_the_middle_ends_a_message_and_nothing_else() {
    let _others = beside_others();
    for transport in ["shm", "tcp"] {
        let held = Held::over(transport, "in-time");
        // Long enough to get into the middle on a busy machine.
        let (receive, sending) = held.brought(Phase::UnderWay, Duration::from_secs(1));
        assert_eq!(sending.expect("it was sent").wait(), Err(TransferError::Deadline));
        held.is_left_with(1);
        held.goes_on(receive);
    }
}
