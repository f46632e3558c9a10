//! One node of the mix: a sending thread per peer, handlers that check and reply, and the records of both.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use minidos::account::{Faults, Incoming, Ledger, Outgoing};
use minidos::messages::{
    ExitOrigin, ExitRemote, Flush, FutexRequest, Invalidate, Migrate, MigrateBack, NodeInfo, PageRequest,
    Release, Signal, Stamp, VmaInfoRequest, VmaOpRequest,
};
use minidos::random::Random;
use pronto::{Builder, CallError, Node, NodeId, Order, Peer, Pending, Request, WaitPolicy};
use pronto_sync::atomic::{AtomicU64, Ordering};

use super::deck::{Deck, Operation};
use super::made::{Made, PAGES, address_of};
use super::{GO, MET, NODES, REPORT, SENT, Seen};
use crate::child::{self, START};
use crate::clock;
use crate::echo::Provider;
use crate::side::{Arguments, Side};
use crate::workers;

/// The process of a node.
pub(crate) const SIDE: Side = Side {
    name: "serve-mix",
    arguments: &["provider", "node", "milliseconds"],
    more: Some("peers"),
    run: serve,
};

/// Runs one node on command of its parent, until the parent ends this process.
fn serve(arguments: &Arguments<'_>) -> anyhow::Result<()> {
    let provider: Provider = arguments.get("provider")?;
    let me = NodeId(arguments.get("node")?);
    let time = Duration::from_millis(arguments.get("milliseconds")?);
    let records = Arc::new(Records::new(me));
    let mut builder = register(Node::builder(me).wait(WaitPolicy::Adaptive), &records);
    builder = builder.listen(&provider.address(&format!("-mix-{me}")));
    for (peer, address) in (1_u16..).zip(arguments.more("peers")) {
        builder = builder.peer(peer, address);
    }
    let node = builder.start().context("starting a node")?;
    child::announce(&node)?;
    let others = (1..=NODES).map(NodeId).filter(|other| *other != me);
    let peers: Vec<Peer> = others
        .map(|other| node.wait_for_peer(other, START).with_context(|| format!("{me} meeting {other}")))
        .collect::<anyhow::Result<_>>()?;
    child::say(MET)?;
    expect(GO)?;
    let started = clock::now();
    send_to_all(&peers, &records, started, time)?;
    let elapsed = started.elapsed();
    child::say(SENT)?;
    loop {
        expect(REPORT)?;
        child::say(&serde_json::to_string(&records.seen(elapsed)).context("writing a report")?)?;
    }
}

/// Waits until the parent writes `line`.
fn expect(line: &str) -> anyhow::Result<()> {
    let heard = child::listen()?.unwrap_or_default();
    anyhow::ensure!(heard == line, "expected {line:?} from the parent, got {heard:?}");
    Ok(())
}

fn send_to_all(
    peers: &[Peer],
    records: &Arc<Records>,
    started: Instant,
    time: Duration,
) -> anyhow::Result<()> {
    let sent = workers::each(peers, |peer| Sender::new(peer, records).run(started, time));
    sent.into_iter().collect()
}

/// Registers every request of the set, and every notification. The pool runs them in the order that their type requires.
fn register(builder: Builder, records: &Arc<Records>) -> Builder {
    let builder = requests::<PageRequest>(builder, records);
    let builder = requests::<Invalidate>(builder, records);
    let builder = requests::<Flush>(builder, records);
    let builder = requests::<Release>(builder, records);
    let builder = requests::<FutexRequest>(builder, records);
    let builder = requests::<VmaInfoRequest>(builder, records);
    let builder = requests::<VmaOpRequest>(builder, records);
    let builder = requests::<Migrate>(builder, records);
    let builder = notes::<MigrateBack>(builder, records);
    let builder = notes::<ExitOrigin>(builder, records);
    let builder = notes::<ExitRemote>(builder, records);
    let builder = notes::<NodeInfo>(builder, records);
    notes::<Signal>(builder, records)
}

fn requests<M: Request<Reply: Made> + Made>(builder: Builder, records: &Arc<Records>) -> Builder {
    let records = Arc::clone(records);
    builder.handle(move |context, request: M| {
        let address = request.key();
        records.received(context.source(), &request, address, M::ORDER);
        records.reply::<M::Reply>(context.source(), address)
    })
}

fn notes<M: Made>(builder: Builder, records: &Arc<Records>) -> Builder {
    let records = Arc::clone(records);
    builder
        .on(move |context, message: M| records.received(context.source(), &message, message.key(), M::ORDER))
}

/// Records of a node.
#[derive(Debug)]
struct Records {
    me: NodeId,
    ledger: Ledger,
    /// By peer, from node 1.
    incoming: Vec<Mutex<Incoming>>,
    /// Streams of replies, by peer, from node 1.
    replies: Vec<Mutex<Outgoing>>,
    waits_for_room: AtomicU64,
    /// As in [`Seen`].
    decks: [AtomicU64; 2],
}

impl Records {
    fn new(me: NodeId) -> Self {
        Self {
            me,
            ledger: Ledger::default(),
            incoming: (0..NODES).map(|_| Mutex::default()).collect(),
            replies: (0..NODES).map(|_| Mutex::default()).collect(),
            waits_for_room: AtomicU64::new(0),
            decks: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Records that a deck was dealt at `elapsed` of `time`.
    fn dealt(&self, elapsed: Duration, time: Duration) {
        let tenth = 10 * elapsed.as_nanos() / time.as_nanos().max(1);
        if tenth < 10 {
            // SYNC: statistics; orders nothing.
            self.decks[usize::from(tenth % 2 == 1)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records an arrival, about `address`.
    fn received<M: Made>(&self, from: NodeId, message: &M, address: u64, order: Order) {
        let intact = message.is_as_made(address);
        let mut incoming = lock(&self.incoming[index(from)]);
        if !intact {
            incoming.corrupt();
        }
        let counts = incoming.arrived(from, message.kind(), message.key(), order, message.stamp());
        drop(incoming);
        if counts {
            self.ledger.received(message.kind());
        }
    }

    /// Returns the next reply of its type to `to`. Replies may overtake each other.
    fn reply<R: Made>(&self, to: NodeId, address: u64) -> R {
        let kind = R::kind_about(address);
        let sequence = {
            let mut replies = lock(&self.replies[index(to)]);
            let next = replies.next(kind, 0);
            *next += 1;
            *next - 1
        };
        let reply = R::made(Stamp::new(self.me, sequence), address);
        self.ledger.sent(kind, reply.encoded_len());
        reply
    }

    fn seen(&self, elapsed: Duration) -> Seen {
        let mut faults = Faults::default();
        for incoming in &self.incoming {
            let more = lock(incoming).faults();
            faults.duplicated += more.duplicated;
            faults.out_of_order += more.out_of_order;
            faults.corrupt += more.corrupt;
        }
        Seen {
            traffic: self.ledger.traffic(),
            faults,
            // SYNC: statistics; orders nothing.
            waits_for_room: self.waits_for_room.load(Ordering::Relaxed),
            decks: [0, 1].map(|half: usize| self.decks[half].load(Ordering::Relaxed)),
            elapsed_ns: clock::nanos(elapsed),
        }
    }
}

/// The only sender of requests and notifications to one peer, so that streams are posted in order.
struct Sender<'a> {
    peer: &'a Peer,
    records: &'a Records,
    outgoing: Outgoing,
    open: Vec<Box<dyn Open + 'a>>,
    random: Random,
}

impl<'a> Sender<'a> {
    fn new(peer: &'a Peer, records: &'a Records) -> Self {
        let seed = u64::from(records.me.0) << 16 | u64::from(peer.node().0);
        Self { peer, records, outgoing: Outgoing::default(), open: Vec::new(), random: Random::new(seed) }
    }

    /// Deals whole decks until the time is over, and receives every reply.
    fn run(mut self, started: Instant, time: Duration) -> anyhow::Result<()> {
        let mut deck = Deck::new();
        while started.elapsed() < time {
            let mut random = self.random.clone();
            for operation in deck.shuffled(&mut random) {
                self.carry_out(*operation)?;
            }
            self.random = random;
            self.records.dealt(started.elapsed(), time);
        }
        while !self.open.is_empty() {
            self.receive_replies()?;
        }
        Ok(())
    }

    fn carry_out(&mut self, operation: Operation) -> anyhow::Result<()> {
        let page = self.random.below(PAGES / 2);
        let contents = address_of(page);
        match operation {
            Operation::Page => self.ask::<PageRequest>(contents),
            Operation::Short => self.ask::<PageRequest>(address_of(PAGES / 2 + page)),
            Operation::Invalidate => self.ask::<Invalidate>(contents),
            Operation::Futex => self.ask::<FutexRequest>(contents),
            Operation::Flush => self.ask::<Flush>(0),
            Operation::Release => self.ask::<Release>(0),
            Operation::VmaInfo => self.ask::<VmaInfoRequest>(0),
            Operation::VmaOp => self.ask::<VmaOpRequest>(0),
            Operation::Migrate => self.ask::<Migrate>(0),
            Operation::MigrateBack => self.notify::<MigrateBack>(),
            Operation::ExitOrigin => self.notify::<ExitOrigin>(),
            Operation::ExitRemote => self.notify::<ExitRemote>(),
            Operation::NodeInfo => self.notify::<NodeInfo>(),
            Operation::Signal => self.notify::<Signal>(),
        }
    }

    /// Sends a request about `address`. If [`OPEN`] requests are open, it receives replies first.
    fn ask<M: Request<Reply: Made> + Made>(&mut self, address: u64) -> anyhow::Result<()> {
        if self.open.len() >= OPEN {
            self.receive_replies()?;
        }
        let peer = self.peer;
        let pending = self.post(address, |message: &M| peer.start_within(message, PATIENCE))?;
        let (from, records, started) = (peer.node(), self.records, clock::now());
        self.open.push(Box::new(OpenRequest { pending: Some(pending), from, records, address, started }));
        Ok(())
    }

    fn notify<M: Made>(&mut self) -> anyhow::Result<()> {
        let (peer, started) = (self.peer, clock::now());
        self.post(0, |message: &M| peer.notify(message))?;
        self.records.ledger.took(M::kind_about(0), started.elapsed());
        Ok(())
    }

    /// Posts the next message of its stream, and waits for room if necessary.
    fn post<M: Made, R>(
        &mut self,
        address: u64,
        attempt: impl Fn(&M) -> Result<R, CallError>,
    ) -> anyhow::Result<R> {
        let kind = M::kind_about(address);
        let sequence = *self.outgoing.next(kind, address);
        let message = M::made(Stamp::new(self.records.me, sequence), address);
        let started = clock::now();
        let posted = loop {
            match attempt(&message) {
                Err(error) if error.is_retryable() && started.elapsed() < PATIENCE => {
                    // SYNC: statistics; orders nothing.
                    self.records.waits_for_room.fetch_add(1, Ordering::Relaxed);
                    if self.open.is_empty() { thread::yield_now() } else { self.receive_replies()? }
                }
                outcome => {
                    break outcome.with_context(|| format!("{} to {}", kind.name(), self.peer.node()))?;
                }
            }
        };
        *self.outgoing.next(kind, address) += 1;
        self.records.ledger.sent(kind, message.encoded_len());
        Ok(posted)
    }

    /// Waits for the oldest reply, and receives those that arrived meanwhile.
    fn receive_replies(&mut self) -> anyhow::Result<()> {
        self.open.remove(0).wait()?;
        let mut outcome = Ok(());
        self.open.retain_mut(|request| match request.poll() {
            Ok(is_open) => is_open,
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        outcome
    }
}

/// An open request.
trait Open {
    /// Receives the reply if it has arrived. Returns whether the request is still open.
    fn poll(&mut self) -> anyhow::Result<bool>;

    /// Waits for the reply and receives it.
    fn wait(self: Box<Self>) -> anyhow::Result<()>;
}

struct OpenRequest<'a, M: Request> {
    /// `None` once the reply was received.
    pending: Option<Pending<M>>,
    from: NodeId,
    records: &'a Records,
    address: u64,
    started: Instant,
}

impl<M: Request<Reply: Made> + Made> OpenRequest<'_, M> {
    /// Records the reply, and the round trip under both types.
    fn take(&self, reply: Result<M::Reply, CallError>) -> anyhow::Result<()> {
        let kind = M::kind_about(self.address);
        let reply = reply.with_context(|| format!("the reply of {} to {}", self.from, kind.name()))?;
        let duration = self.started.elapsed();
        self.records.ledger.took(kind, duration);
        self.records.ledger.took(<M::Reply>::kind_about(self.address), duration);
        self.records.received(self.from, &reply, self.address, Order::Unordered);
        Ok(())
    }
}

impl<M: Request<Reply: Made> + Made> Open for OpenRequest<'_, M> {
    fn poll(&mut self) -> anyhow::Result<bool> {
        match self.pending.as_mut().and_then(Pending::poll) {
            Some(reply) => self.take(reply).map(|()| false),
            None => Ok(true),
        }
    }

    fn wait(mut self: Box<Self>) -> anyhow::Result<()> {
        match self.pending.take() {
            Some(pending) => self.take(pending.wait()),
            None => Ok(()),
        }
    }
}

/// Locks records, which are consistent at every moment, even after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(node: NodeId) -> usize {
    usize::from(node.0) - 1
}

/// Requests that a sender keeps open: a quarter of a session's call slots, so that most find room.
const OPEN: usize = 14;

/// Limit of waits for a reply or for room, far above the needs of a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
