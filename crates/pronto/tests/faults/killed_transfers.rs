//! `kill -9` of either side of a message into a posted buffer, in each of its phases.
//!
//! Nobody looks for either side but where it is told to, step by step: so a message stays in the phase to which it was brought, and
//! each story says by what it knows that it was there.

use core::time::Duration;
use std::sync::Arc;

use pronto::progress::Engine;
use pronto::{Event, Node, Peer, Receive, ReceiveError, Region, Sending, TransferError};

use crate::child::{Child, command, say};
use crate::rig::{SOON, TRANSPORTS, Watch, address, beside_others, event, until};

const SURVIVOR: u16 = 1;
const VICTIM: u16 = 2;
const TAG: u64 = 3;
/// Many chunks long, over either transport.
const LEN: u64 = 1 << 20;
/// No byte of a buffer that nothing was written to.
const FILL: u8 = 0xa5;
/// Sends, or receives, under way to one peer at a time.
const MANY: usize = 16;
/// Over shared memory a death is noticed at once; a TCP connection that has ended may be made anew for three seconds.
const NOTICED: Duration = Duration::from_secs(8);

/// How far a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It was asked for and granted in one message, which its receiver has not looked at.
    Requested,
    /// Its receiver has the grant, and no buffer.
    Granted,
    /// Some of its bytes are in their buffer, and the last one is not.
    UnderWay,
    /// All of them are, and its sender has not heard of it.
    Arrived,
}

const PHASES: [Phase; 4] = [Phase::Requested, Phase::Granted, Phase::UnderWay, Phase::Arrived];

/// One side, as it sees a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Messages without a receive, receives without a message, transfers.
    transfers: [usize; 3],
    /// Whether the first and the last byte are in its buffer.
    there: [bool; 2],
    /// Calls and receives that have not ended.
    open: u16,
}

impl Seen {
    fn line(&self) -> String {
        let ([waiting, posted, moving], [first, last]) = (self.transfers, self.there);
        format!("seen {waiting} {posted} {moving} {} {} {}", u8::from(first), u8::from(last), self.open)
    }

    fn parse(line: &str) -> Self {
        let number = |at: usize| line.split(' ').nth(at).unwrap().parse::<u16>().unwrap();
        let transfers = [0, 1, 2].map(|at| usize::from(number(at)));
        Self { transfers, there: [number(3) == 1, number(4) == 1], open: number(5) }
    }
}

impl Phase {
    fn is_reached(self, receiver: &Seen, sender: &Seen) -> bool {
        let Seen { transfers, there, .. } = *receiver;
        let unanswered = sender.open == 1;
        unanswered
            && match self {
                Self::Requested => (transfers, there) == ([0, 1, 0], [false, false]),
                Self::Granted => (transfers, there) == ([1, 0, 0], [false, false]),
                Self::UnderWay => (transfers, there) == ([0, 0, 1], [true, false]),
                Self::Arrived => there == [true, true],
            }
    }

    const fn is_posted(self) -> bool {
        !matches!(self, Self::Granted)
    }
}

/// A node that does nothing but what it is told to.
struct Side {
    node: Node,
    peer: Peer,
    memory: Region,
    receive: Option<Receive>,
    sending: Option<Sending>,
}

impl Side {
    fn new(node: Node, peer: u16) -> Self {
        let peer = node.wait_for_peer(peer, SOON).unwrap();
        let memory = node.region(usize::try_from(LEN).unwrap()).unwrap();
        Self { node, peer, memory, receive: None, sending: None }
    }

    fn post(&mut self) {
        self.receive = Some(self.peer.post(TAG, &self.memory, 0..LEN).unwrap());
    }

    fn send(&mut self) {
        self.memory.write(0, &vec![FILL; self.memory.len()]).unwrap();
        self.sending = Some(self.peer.start_send(TAG, &self.memory, 0..LEN, SOON).unwrap());
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
            there: [byte(0), byte(self.memory.len() - 1)],
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

/// What a child does in this role: `ADDRESS` of the survivor.
pub(crate) fn serves(arguments: &[&str]) {
    let node = Node::builder(VICTIM).engine(Engine::None).peer(SURVIVOR, arguments[0]).start().unwrap();
    let mut side = Side::new(node, SURVIVOR);
    say("ready");
    loop {
        match command()[0].as_str() {
            "post" => side.post(),
            "send" => side.send(),
            "step" => side.step(),
            "look" => {}
            other => panic!("unknown command {other:?}"),
        }
        say(&side.seen().line());
    }
}

/// Either side of a message: the child, or the one that outlives it.
trait Party {
    fn does(&mut self, what: &str) -> Seen;
}

impl Party for Child {
    fn does(&mut self, what: &str) -> Seen {
        self.tell(what);
        Seen::parse(&self.hears("seen "))
    }
}

impl Party for Side {
    fn does(&mut self, what: &str) -> Seen {
        match what {
            "post" => self.post(),
            "send" => self.send(),
            "step" => self.step(),
            _ => {}
        }
        self.seen()
    }
}

/// Brings a message so far that a phase is reached, and leaves it there.
fn bring(phase: Phase, receiver: &mut impl Party, sender: &mut impl Party) {
    // A buffer is posted first: so who posts does not move what has arrived.
    if phase.is_posted() {
        receiver.does("post");
    }
    let mut sent = sender.does("send");
    let mut received = receiver.does("look");
    let watch = Watch::start();
    while !phase.is_reached(&received, &sent) {
        assert!(watch.passed() < SOON, "{phase:?} is not reached: {received:?}, {sent:?}");
        received = receiver.does("step");
        if !phase.is_reached(&received, &sent) {
            sent = sender.does("step");
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
    child.hears("ready");
    child
}

/// Nothing of the message is left, and as many as may be under way can be begun with another life of the peer.
fn assert_nothing_is_left(mut side: Side, address: &str, what: &str) {
    let back = |side: &Side| {
        side.step();
        let status = side.node.status();
        let used =
            status.peers.iter().map(|peer| usize::from(peer.open_calls) + peer.work_in_flight).sum::<usize>();
        // The region is held by this story alone: no grant, no receive, no request has it any more.
        side.peer.transfers() == [0; 3] && used == 0 && Arc::strong_count(side.memory.memory()) == 1
    };
    until(&format!("{what}: nothing is left"), || back(&side));
    let mut next = victim(address);
    until(&format!("{what}: another life is met"), || side.peer.session().is_up());
    let receives: Vec<_> =
        (0..MANY).map(|_| side.peer.post(TAG, &side.memory, 0..LEN).expect(what)).collect();
    drop(receives);
    let sends: Vec<_> =
        (0..MANY).map(|_| side.peer.start_send(TAG, &side.memory, 0..LEN, SOON).expect(what)).collect();
    drop(sends);
    until(&format!("{what}: nothing is left of many"), || {
        next.does("step");
        back(&side)
    });
    side.memory.write(0, &vec![0; side.memory.len()]).unwrap();
    side.post();
    next.does("send");
    let mut receive = side.receive.take().unwrap();
    until(&format!("{what}: a message of the other life"), || {
        next.does("step");
        receive.poll().is_some_and(|end| end == Ok(LEN))
    });
    assert!(side.is_whole(), "{what}");
}

/// Tells a story of each transport and phase, all at the same time: most of it is waiting for a death to be noticed.
fn each(name: &str, story: impl Fn(&str, Phase, &str, &str) + Sync) {
    let _others = beside_others();
    std::thread::scope(|scope| {
        for (transport, phase) in TRANSPORTS.into_iter().flat_map(|one| PHASES.map(|phase| (one, phase))) {
            let story = &story;
            scope.spawn(move || {
                story(transport, phase, &format!("{name}-{phase:?}"), &format!("{transport} {phase:?}"));
            });
        }
    });
}

#[test]
fn a_killed_sender_ends_each_phase() {
    each("killed-sender", |transport, phase, name, what| {
        let (node, address) = survivor(transport, name);
        let events = node.events();
        let mut child = victim(&address);
        let mut side = Side::new(node, VICTIM);
        bring(phase, &mut side, &mut child);
        // Over TCP the last byte ends the receive in the same look.
        let ended = (transport, phase) == ("tcp", Phase::Arrived);
        assert_eq!(Arc::strong_count(side.memory.memory()) > 1, phase.is_posted() && !ended, "{what}");
        child.kill();
        let watch = Watch::start();
        if let Some(mut receive) = side.receive.take() {
            match receive.wait(SOON) {
                Err(ReceiveError::PeerDown) => assert!(!ended, "{what}"),
                // What was granted can be read for as long as its sender is not missed, where it lies in shared memory.
                Ok(len) => assert!(len == LEN && side.is_whole(), "{what}"),
                other => panic!("{what}: {other:?}"),
            }
        }
        event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
        assert!(watch.passed() < NOTICED, "{what}: {:?}", watch.passed());
        assert_nothing_is_left(side, &address, what);
    });
}

#[test]
fn a_killed_receiver_ends_each_phase() {
    each("killed-receiver", |transport, phase, name, what| {
        let (node, address) = survivor(transport, name);
        let events = node.events();
        let mut child = victim(&address);
        let mut side = Side::new(node, VICTIM);
        bring(phase, &mut child, &mut side);
        assert!(Arc::strong_count(side.memory.memory()) > 1, "{what}: it is granted");
        child.kill();
        let watch = Watch::start();
        match side.sending.take().unwrap().wait() {
            Err(TransferError::PeerDown) => {}
            // It said so before it died.
            Ok(()) => assert_eq!((transport, phase), ("tcp", Phase::Arrived)),
            other => panic!("{what}: {other:?}"),
        }
        event(&events, SOON, |event| matches!(event, Event::PeerDown { .. }));
        assert!(watch.passed() < NOTICED, "{what}: {:?}", watch.passed());
        assert_nothing_is_left(side, &address, what);
    });
}
