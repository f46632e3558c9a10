//! `kill -9` of either side of a rendezvous transfer, in each of its phases.
//!
//! Neither side makes progress unless the test runs a step of it. A message therefore stays in the phase to which it was brought,
//! and each scenario checks that phase.

use std::sync::Arc;

use pronto::progress::Engine;
use pronto::{Event, Node, Peer, Receive, ReceiveError, Region, Sending, TransferError};

use crate::child::{Child, command, report};
use crate::rig::{TIMEOUT, TRANSPORTS, Watch, address, event, shared_run, until};

const SURVIVOR: u16 = 1;
const VICTIM: u16 = 2;
const TAG: u64 = 3;
/// Length of the message, many chunks over either transport.
const LEN: u64 = 1 << 20;
/// Fill byte of the message; a new buffer does not contain it.
const FILL: u8 = 0xa5;
/// Maximum number of sends, or receives, with one peer at a time.
const MANY: usize = 16;

/// Phase of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The request with its grant was sent, and the receiver has not processed it.
    Requested,
    /// The receiver has the grant, but no buffer.
    Granted,
    /// The first byte is in the buffer, and the last one is not.
    Moving,
    /// All bytes are in the buffer, and the sender has not been notified.
    Arrived,
}

const PHASES: [Phase; 4] = [Phase::Requested, Phase::Granted, Phase::Moving, Phase::Arrived];

/// State of a message as one side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Messages without a receive, receives without a message, transfers.
    transfers: [usize; 3],
    /// Whether the first and the last byte are in the buffer.
    arrived: [bool; 2],
    /// Calls and receives that have not ended.
    open: u16,
}

impl Seen {
    fn line(&self) -> String {
        let ([waiting, posted, moving], [first, last]) = (self.transfers, self.arrived);
        format!("seen {waiting} {posted} {moving} {} {} {}", u8::from(first), u8::from(last), self.open)
    }

    fn parse(line: &str) -> Self {
        let number = |at: usize| line.split(' ').nth(at).unwrap().parse::<u16>().unwrap();
        let transfers = [0, 1, 2].map(|at| usize::from(number(at)));
        Self { transfers, arrived: [number(3) == 1, number(4) == 1], open: number(5) }
    }
}

impl Phase {
    fn is_reached(self, receiver: &Seen, sender: &Seen) -> bool {
        let Seen { transfers, arrived, .. } = *receiver;
        let unanswered = sender.open == 1;
        unanswered
            && match self {
                Self::Requested => (transfers, arrived) == ([0, 1, 0], [false, false]),
                Self::Granted => (transfers, arrived) == ([1, 0, 0], [false, false]),
                Self::Moving => (transfers, arrived) == ([0, 0, 1], [true, false]),
                Self::Arrived => arrived == [true, true],
            }
    }

    const fn is_posted(self) -> bool {
        !matches!(self, Self::Granted)
    }
}

/// A node that makes progress only when the test runs a step.
struct Side {
    node: Node,
    peer: Peer,
    memory: Region,
    receive: Option<Receive>,
    sending: Option<Sending>,
}

impl Side {
    fn new(node: Node, peer: u16) -> Self {
        let peer = node.wait_for_peer(peer, TIMEOUT).unwrap();
        let memory = node.region(usize::try_from(LEN).unwrap()).unwrap();
        Self { node, peer, memory, receive: None, sending: None }
    }

    fn post(&mut self) {
        self.receive = Some(self.peer.post(TAG, &self.memory, 0..LEN).unwrap());
    }

    fn send(&mut self) {
        self.memory.write(0, &vec![FILL; self.memory.len()]).unwrap();
        self.sending = Some(self.peer.start_send(TAG, &self.memory, 0..LEN, TIMEOUT).unwrap());
    }

    fn seen(&self) -> Seen {
        let byte = |at| {
            let mut byte = [0];
            self.memory.read(at, &mut byte).unwrap();
            byte[0] == FILL
        };
        let status = self.node.status();
        Seen {
            transfers: self.peer.transfers(),
            arrived: [byte(0), byte(self.memory.len() - 1)],
            open: status.peers.iter().map(|peer| peer.open_calls).sum(),
        }
    }

    fn step(&self) {
        self.node.progress();
    }

    fn is_whole(&self) -> bool {
        let mut bytes = vec![0; self.memory.len()];
        self.memory.read(0, &mut bytes).unwrap();
        bytes.iter().all(|byte| *byte == FILL)
    }
}

/// Runs the child: `ADDRESS` of the survivor.
pub(crate) fn serve(arguments: &[&str]) {
    let node = Node::builder(VICTIM).engine(Engine::None).peer(SURVIVOR, arguments[0]).start().unwrap();
    let mut side = Side::new(node, SURVIVOR);
    report("ready");
    loop {
        match command()[0].as_str() {
            "post" => side.post(),
            "send" => side.send(),
            "step" => side.step(),
            "status" => {}
            other => panic!("unknown command {other:?}"),
        }
        report(&side.seen().line());
    }
}

/// Either side of a message: the child process, or the survivor in this process.
trait Party {
    fn run_command(&mut self, name: &str) -> Seen;
}

impl Party for Child {
    fn run_command(&mut self, name: &str) -> Seen {
        self.send_command(name);
        Seen::parse(&self.expect_line("seen "))
    }
}

impl Party for Side {
    fn run_command(&mut self, name: &str) -> Seen {
        match name {
            "post" => self.post(),
            "send" => self.send(),
            "step" => self.step(),
            _ => {}
        }
        self.seen()
    }
}

/// Runs steps of both sides until the message has reached a phase.
fn advance_to(phase: Phase, receiver: &mut impl Party, sender: &mut impl Party) {
    // The buffer is posted first, so that posting does not move a message that has arrived.
    if phase.is_posted() {
        receiver.run_command("post");
    }
    let mut sent = sender.run_command("send");
    let mut received = receiver.run_command("status");
    let watch = Watch::start();
    while !phase.is_reached(&received, &sent) {
        assert!(watch.passed() < TIMEOUT, "{phase:?} is not reached: {received:?}, {sent:?}");
        received = receiver.run_command("step");
        if !phase.is_reached(&received, &sent) {
            sent = sender.run_command("step");
        }
    }
}

fn survivor(transport: &str, name: &str) -> (Node, String) {
    let node =
        Node::builder(SURVIVOR).engine(Engine::None).listen(&address(transport, name)).start().unwrap();
    let address = node.listening()[0].to_string();
    (node, address)
}

fn victim(address: &str) -> Child {
    let child = Child::start("transfers", &[address]);
    child.expect_line("ready");
    child
}

/// Asserts that no state of the message is left, and that the maximum number of transfers can be started with the next incarnation.
fn assert_nothing_is_left(mut side: Side, address: &str, case: &str) {
    let is_released = |side: &Side| {
        side.step();
        let status = side.node.status();
        let used =
            status.peers.iter().map(|peer| usize::from(peer.open_calls) + peer.work_in_flight).sum::<usize>();
        // Only this scenario holds the region: no grant, receive or request.
        side.peer.transfers() == [0; 3] && used == 0 && Arc::strong_count(side.memory.memory()) == 1
    };
    until(&format!("{case}: all state is released"), || is_released(&side));
    let mut next = victim(address);
    until(&format!("{case}: the next incarnation connects"), || side.peer.session().is_up());
    let receives: Vec<_> =
        (0..MANY).map(|_| side.peer.post(TAG, &side.memory, 0..LEN).expect(case)).collect();
    drop(receives);
    let sends: Vec<_> =
        (0..MANY).map(|_| side.peer.start_send(TAG, &side.memory, 0..LEN, TIMEOUT).expect(case)).collect();
    drop(sends);
    until(&format!("{case}: all state of many transfers is released"), || {
        next.run_command("step");
        is_released(&side)
    });
    side.memory.write(0, &vec![0; side.memory.len()]).unwrap();
    side.post();
    next.run_command("send");
    let mut receive = side.receive.take().unwrap();
    until(&format!("{case}: a message of the next incarnation arrives"), || {
        next.run_command("step");
        receive.poll().is_some_and(|end| end == Ok(LEN))
    });
    assert!(side.is_whole(), "{case}");
}

/// Runs a scenario for each transport and phase concurrently, because most of the time passes until a death is detected.
fn each(name: &str, scenario: impl Fn(&str, Phase, &str, &str) + Sync) {
    let _shared = shared_run();
    std::thread::scope(|scope| {
        for (transport, phase) in TRANSPORTS.into_iter().flat_map(|one| PHASES.map(|phase| (one, phase))) {
            let scenario = &scenario;
            scope.spawn(move || {
                scenario(transport, phase, &format!("{name}-{phase:?}"), &format!("{transport} {phase:?}"));
            });
        }
    });
}

#[test]
fn a_killed_sender_ends_each_phase() {
    each("killed-sender", |transport, phase, name, case| {
        let (node, address) = survivor(transport, name);
        let events = node.events();
        let mut child = victim(&address);
        let mut side = Side::new(node, VICTIM);
        advance_to(phase, &mut side, &mut child);
        // Over TCP the last byte ends the receive in the same poll.
        let ended = (transport, phase) == ("tcp", Phase::Arrived);
        assert_eq!(Arc::strong_count(side.memory.memory()) > 1, phase.is_posted() && !ended, "{case}");
        child.kill();
        if let Some(mut receive) = side.receive.take() {
            match receive.wait(TIMEOUT) {
                Err(ReceiveError::PeerDown) => assert!(!ended, "{case}"),
                // Granted shared memory can be read until the death of its sender is detected.
                Ok(len) => assert!(len == LEN && side.is_whole(), "{case}"),
                other => panic!("{case}: {other:?}"),
            }
        }
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        assert_nothing_is_left(side, &address, case);
    });
}

#[test]
fn a_killed_receiver_ends_each_phase() {
    each("killed-receiver", |transport, phase, name, case| {
        let (node, address) = survivor(transport, name);
        let events = node.events();
        let mut child = victim(&address);
        let mut side = Side::new(node, VICTIM);
        advance_to(phase, &mut child, &mut side);
        assert!(Arc::strong_count(side.memory.memory()) > 1, "{case}: the memory must be granted");
        child.kill();
        match side.sending.take().unwrap().wait() {
            Err(TransferError::PeerDown) => {}
            // The receiver reported the end before it died.
            Ok(()) => assert_eq!((transport, phase), ("tcp", Phase::Arrived)),
            other => panic!("{case}: {other:?}"),
        }
        event(&events, TIMEOUT, |event| matches!(event, Event::PeerDown { .. }));
        assert_nothing_is_left(side, &address, case);
    });
}
