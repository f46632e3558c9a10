//! One node of the mix: a thread per peer that sends, handlers that check and answer, and the books of both.

use core::time::Duration;
use std::io::{self, BufRead as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command};
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
use super::{GO, MET, NODE, NODES, REPORT, SENT, Seen};
use crate::child;
use crate::clock;
use crate::echo::Provider;

/// The options of a node's process.
pub(crate) fn command() -> Command {
    let required = ["provider", "node", "milliseconds"].map(|name| Arg::new(name).required(true));
    Command::new(NODE)
        .hide(true)
        .args(required)
        .arg(Arg::new("peers").action(ArgAction::Append).num_args(0..))
}

/// Runs one node, told what to do by its parent, until that ends this process.
pub(crate) fn node_command(options: &ArgMatches) -> anyhow::Result<()> {
    child::end_with_parent()?;
    let value = |name: &str| options.get_one::<String>(name).context("an argument is missing");
    let provider: Provider = value("provider")?.parse()?;
    let me = NodeId(value("node")?.parse().context("a node's number")?);
    let time = Duration::from_millis(value("milliseconds")?.parse().context("a time")?);
    let books = Arc::new(Books::new(me));
    let mut builder = register(Node::builder(me).wait(WaitPolicy::Adaptive), &books);
    builder = builder.listen(&provider.address(&format!("-mix-{me}")));
    for (peer, address) in (1_u16..).zip(options.get_many::<String>("peers").into_iter().flatten()) {
        builder = builder.peer(peer, address);
    }
    let node = builder.start().context("starting a node")?;
    child::say(&node.listening().first().context("it listens")?.to_string())?;
    let others = (1..=NODES).map(NodeId).filter(|other| *other != me);
    let peers: Vec<Peer> = others
        .map(|other| node.wait_for_peer(other, START).with_context(|| format!("{me} meeting {other}")))
        .collect::<anyhow::Result<_>>()?;
    child::say(MET)?;
    expect(GO)?;
    let started = clock::now();
    send_to_all(&peers, &books, started, time)?;
    let elapsed = started.elapsed();
    child::say(SENT)?;
    loop {
        expect(REPORT)?;
        child::say(&serde_json::to_string(&books.seen(elapsed)).context("writing a report")?)?;
    }
}

/// Waits until the parent says `line`.
fn expect(line: &str) -> anyhow::Result<()> {
    let mut heard = String::new();
    io::stdin().lock().read_line(&mut heard).context("reading from the parent")?;
    anyhow::ensure!(heard.trim_end() == line, "the parent says {heard:?} where {line:?} was due");
    Ok(())
}

fn send_to_all(peers: &[Peer], books: &Arc<Books>, started: Instant, time: Duration) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let senders: Vec<_> = peers
            .iter()
            .map(|peer| scope.spawn(move || Sender::new(peer, books).run(started, time)))
            .collect();
        senders.into_iter().try_for_each(|sender| sender.join().expect("a sender does not panic"))
    })
}

/// Every request of the set, and every notification. The pool runs them in the order that their type asks for.
fn register(builder: Builder, books: &Arc<Books>) -> Builder {
    let builder = answers::<PageRequest>(builder, books);
    let builder = answers::<Invalidate>(builder, books);
    let builder = answers::<Flush>(builder, books);
    let builder = answers::<Release>(builder, books);
    let builder = answers::<FutexRequest>(builder, books);
    let builder = answers::<VmaInfoRequest>(builder, books);
    let builder = answers::<VmaOpRequest>(builder, books);
    let builder = answers::<Migrate>(builder, books);
    let builder = notes::<MigrateBack>(builder, books);
    let builder = notes::<ExitOrigin>(builder, books);
    let builder = notes::<ExitRemote>(builder, books);
    let builder = notes::<NodeInfo>(builder, books);
    notes::<Signal>(builder, books)
}

fn answers<M: Request<Reply: Made> + Made>(builder: Builder, books: &Arc<Books>) -> Builder {
    let books = Arc::clone(books);
    builder.handle(move |context, request: M| {
        let address = request.key();
        books.received(context.source(), &request, address, M::ORDER);
        books.answer::<M::Reply>(context.source(), address)
    })
}

fn notes<M: Made>(builder: Builder, books: &Arc<Books>) -> Builder {
    let books = Arc::clone(books);
    builder.on(move |context, message: M| books.received(context.source(), &message, message.key(), M::ORDER))
}

/// What a node writes down.
#[derive(Debug)]
struct Books {
    me: NodeId,
    ledger: Ledger,
    /// By peer, from node 1.
    incoming: Vec<Mutex<Incoming>>,
    /// The streams of answers, by peer, from node 1.
    answers: Vec<Mutex<Outgoing>>,
    waits_for_room: AtomicU64,
    /// As in [`Seen`].
    decks: [AtomicU64; 2],
}

impl Books {
    fn new(me: NodeId) -> Self {
        Self {
            me,
            ledger: Ledger::default(),
            incoming: (0..NODES).map(|_| Mutex::default()).collect(),
            answers: (0..NODES).map(|_| Mutex::default()).collect(),
            waits_for_room: AtomicU64::new(0),
            decks: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// A deck was dealt at `elapsed` of `time`.
    fn dealt(&self, elapsed: Duration, time: Duration) {
        let tenth = 10 * elapsed.as_nanos() / time.as_nanos().max(1);
        if tenth < 10 {
            // SYNC: statistics; orders nothing.
            self.decks[usize::from(tenth % 2 == 1)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes an arrival, about `address`.
    fn received<M: Made>(&self, from: NodeId, message: &M, address: u64, order: Order) {
        let intact = message.is_as_made(address);
        let mut incoming = lock(&self.incoming[place(from)]);
        if !intact {
            incoming.corrupt();
        }
        let counts = incoming.arrived(from, message.kind(), message.key(), order, message.stamp());
        drop(incoming);
        if counts {
            self.ledger.received(message.kind());
        }
    }

    /// The next answer of its type to `to`. Answers may overtake each other.
    fn answer<R: Made>(&self, to: NodeId, address: u64) -> R {
        let kind = R::kind_about(address);
        let sequence = {
            let mut answers = lock(&self.answers[place(to)]);
            let next = answers.next(kind, 0);
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
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// What goes to one peer: nobody else sends requests and notifications there, so streams are posted in their order.
struct Sender<'a> {
    peer: &'a Peer,
    books: &'a Books,
    outgoing: Outgoing,
    open: Vec<Box<dyn Open + 'a>>,
    random: Random,
}

impl<'a> Sender<'a> {
    fn new(peer: &'a Peer, books: &'a Books) -> Self {
        let seed = u64::from(books.me.0) << 16 | u64::from(peer.node().0);
        Self { peer, books, outgoing: Outgoing::default(), open: Vec::new(), random: Random::new(seed) }
    }

    /// Deals whole decks until the time is over, and takes in every answer.
    fn run(mut self, started: Instant, time: Duration) -> anyhow::Result<()> {
        let mut deck = Deck::new();
        while started.elapsed() < time {
            let mut random = self.random.clone();
            for operation in deck.shuffled(&mut random) {
                self.carry_out(*operation)?;
            }
            self.random = random;
            self.books.dealt(started.elapsed(), time);
        }
        while !self.open.is_empty() {
            self.take_in()?;
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

    /// Sends a request about `address`. Takes answers in first, if there are as many open as may be.
    fn ask<M: Request<Reply: Made> + Made>(&mut self, address: u64) -> anyhow::Result<()> {
        if self.open.len() >= OPEN {
            self.take_in()?;
        }
        let peer = self.peer;
        let pending = self.post(address, |message: &M| peer.start_within(message, PATIENCE))?;
        let (from, books, started) = (peer.node(), self.books, clock::now());
        self.open.push(Box::new(Asked { pending: Some(pending), from, books, address, started }));
        Ok(())
    }

    fn notify<M: Made>(&mut self) -> anyhow::Result<()> {
        let (peer, started) = (self.peer, clock::now());
        self.post(0, |message: &M| peer.notify(message))?;
        self.books.ledger.took(M::kind_about(0), started.elapsed());
        Ok(())
    }

    /// Posts the next message of its stream; waits for room, if there is none.
    fn post<M: Made, R>(
        &mut self,
        address: u64,
        attempt: impl Fn(&M) -> Result<R, CallError>,
    ) -> anyhow::Result<R> {
        let kind = M::kind_about(address);
        let sequence = *self.outgoing.next(kind, address);
        let message = M::made(Stamp::new(self.books.me, sequence), address);
        let started = clock::now();
        let posted = loop {
            match attempt(&message) {
                Err(error) if error.is_retryable() && started.elapsed() < PATIENCE => {
                    // SYNC: statistics; orders nothing.
                    self.books.waits_for_room.fetch_add(1, Ordering::Relaxed);
                    if self.open.is_empty() { thread::yield_now() } else { self.take_in()? }
                }
                outcome => {
                    break outcome.with_context(|| format!("{} to {}", kind.name(), self.peer.node()))?;
                }
            }
        };
        *self.outgoing.next(kind, address) += 1;
        self.books.ledger.sent(kind, message.encoded_len());
        Ok(posted)
    }

    /// Waits for the oldest answer, and takes in those that came meanwhile.
    fn take_in(&mut self) -> anyhow::Result<()> {
        self.open.remove(0).wait()?;
        let mut outcome = Ok(());
        self.open.retain_mut(|asked| match asked.look() {
            Ok(is_open) => is_open,
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        outcome
    }
}

/// A request that is not answered yet.
trait Open {
    /// Takes the answer in, if it is there; whether the request is still open.
    fn look(&mut self) -> anyhow::Result<bool>;

    /// Waits for the answer and takes it in.
    fn wait(self: Box<Self>) -> anyhow::Result<()>;
}

struct Asked<'a, M: Request> {
    /// None once the answer was taken in.
    pending: Option<Pending<M>>,
    from: NodeId,
    books: &'a Books,
    address: u64,
    started: Instant,
}

impl<M: Request<Reply: Made> + Made> Asked<'_, M> {
    /// Notes the answer, and the round trip under both types.
    fn take(&self, answer: Result<M::Reply, CallError>) -> anyhow::Result<()> {
        let kind = M::kind_about(self.address);
        let reply = answer.with_context(|| format!("the answer of {} to {}", self.from, kind.name()))?;
        let duration = self.started.elapsed();
        self.books.ledger.took(kind, duration);
        self.books.ledger.took(<M::Reply>::kind_about(self.address), duration);
        self.books.received(self.from, &reply, self.address, Order::Unordered);
        Ok(())
    }
}

impl<M: Request<Reply: Made> + Made> Open for Asked<'_, M> {
    fn look(&mut self) -> anyhow::Result<bool> {
        match self.pending.as_mut().and_then(Pending::poll) {
            Some(answer) => self.take(answer).map(|()| false),
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

/// Counts are whole at every moment: whoever panicked while counting left them so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(node: NodeId) -> usize {
    usize::from(node.0) - 1
}

/// Requests that a sender keeps open: a quarter of what a session takes, so that most find room.
const OPEN: usize = 14;

/// How long an answer, or room, may take; far above what a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longer than a start on the busiest machine takes.
const START: Duration = Duration::from_secs(20);
