//! The one place where this crate meets the communication layer: posts messages, and writes them down.
//!
//! Every message gets its stamp here, under a lock that keeps stamps and posts of one peer in one order; every arrival
//! is checked against its stream before anything else is done with it.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use pronto::{CallError, NodeId, Order, Peer, Pending, Request, Responder};
use pronto_sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

use crate::account::{Faults, Incoming, Ledger, Outgoing};
use crate::clock;
use crate::courier::Courier;
use crate::messages::{Kind, Stamp, Stamped};

/// A message did not arrive, or its answer did not.
#[derive(Debug, Error)]
#[error("{} to node {to}: {source}", kind.name())]
pub struct NetworkError {
    /// The message.
    pub kind: Kind,
    /// Where it went.
    pub to: NodeId,
    /// Why.
    pub source: CallError,
}

/// All other nodes, as seen from one.
#[derive(Debug)]
pub(crate) struct Network {
    books: Arc<Books>,
    nodes: u16,
    peers: OnceLock<Vec<Peer>>,
    courier: Courier,
}

/// What is written down of every message, also by those who answer later.
#[derive(Debug)]
struct Books {
    me: NodeId,
    ledger: Ledger,
    /// By peer, from node 1.
    outgoing: Vec<Mutex<Outgoing>>,
    /// By peer, from node 1.
    incoming: Vec<Mutex<Incoming>>,
    waits_for_room: AtomicU64,
}

impl Network {
    pub(crate) fn new(me: NodeId, nodes: u16) -> std::io::Result<Self> {
        let books = Books {
            me,
            ledger: Ledger::default(),
            outgoing: (0..nodes).map(|_| Mutex::default()).collect(),
            incoming: (0..nodes).map(|_| Mutex::default()).collect(),
            waits_for_room: AtomicU64::new(0),
        };
        Ok(Self { books: Arc::new(books), nodes, peers: OnceLock::new(), courier: Courier::start()? })
    }

    /// Sets the peers, once, when the node runs. What is sent before waits for it.
    pub(crate) fn connect(&self, peers: Vec<Peer>) {
        self.peers.set(peers).expect("connected once");
    }

    pub(crate) fn me(&self) -> NodeId {
        self.books.me
    }

    pub(crate) fn nodes(&self) -> u16 {
        self.nodes
    }

    /// All other nodes.
    pub(crate) fn peers(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.books.me;
        (1..=self.nodes).map(NodeId).filter(move |node| *node != me)
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.books.ledger
    }

    /// How often a message had to wait for room.
    pub(crate) fn waits_for_room(&self) -> u64 {
        // SYNC: statistics; orders nothing.
        self.books.waits_for_room.load(Ordering::Relaxed)
    }

    /// What went wrong on the way here.
    pub(crate) fn faults(&self) -> Faults {
        let mut sum = Faults::default();
        for incoming in &self.books.incoming {
            let faults = lock(incoming).faults();
            sum.duplicated += faults.duplicated;
            sum.out_of_order += faults.out_of_order;
            sum.corrupt += faults.corrupt;
        }
        sum
    }

    /// Notes contents from `from` that are not what their sum says.
    pub(crate) fn corrupt(&self, from: NodeId) {
        if let Some(incoming) = self.books.incoming(from) {
            lock(incoming).corrupt();
        }
    }

    /// Calls and waits for the answer.
    pub(crate) fn call<M>(&self, to: NodeId, mut message: M) -> Result<M::Reply, NetworkError>
    where
        M: Request<Reply: Stamped> + Stamped,
    {
        let kind = message.kind();
        let failed = |source| NetworkError { kind, to, source };
        let started = clock::now();
        let pending = loop {
            match self.post(to, &mut message) {
                Err(error) if error.is_retryable() && started.elapsed() < PATIENCE => {
                    std::thread::yield_now()
                }
                outcome => break outcome.map_err(failed)?,
            }
        };
        let reply = pending.wait().map_err(failed)?;
        self.books.answered(to, kind, &reply, started);
        Ok(reply)
    }

    /// Calls, and has `then` run with the answer when it comes. Waits for nothing, not even for room.
    pub(crate) fn start<M>(
        &self,
        to: NodeId,
        mut message: M,
        then: impl FnOnce(Result<M::Reply, NetworkError>) + Send + 'static,
    ) where
        M: Request<Reply: Stamped> + Stamped + Sync,
    {
        let kind = message.kind();
        let failed = move |source| NetworkError { kind, to, source };
        let started = clock::now();
        let mut posted = self.post(to, &mut message);
        let (books, peer) = (Arc::clone(&self.books), self.peer(to).clone());
        self.courier.send(async move {
            while posted.as_ref().is_err_and(CallError::is_retryable) && started.elapsed() < PATIENCE {
                let_others_run().await;
                posted = books.post(&peer, &mut message);
            }
            let answer = match posted {
                Ok(pending) => pending.await,
                Err(error) => Err(error),
            };
            if let Ok(reply) = &answer {
                books.answered(to, kind, reply, started);
            }
            then(answer.map_err(failed));
        });
    }

    /// Sends a message that is not answered; waits for room, if there is none.
    pub(crate) fn notify<M: Stamped>(&self, to: NodeId, mut message: M) -> Result<(), NetworkError> {
        let kind = message.kind();
        let peer = self.peer(to);
        let started = clock::now();
        loop {
            match self.books.in_order(to, &mut message, |message| peer.notify(message)) {
                Ok(()) => break,
                Err(error) if error.is_retryable() && started.elapsed() < PATIENCE => {
                    std::thread::yield_now()
                }
                Err(source) => return Err(NetworkError { kind, to, source }),
            }
        }
        self.books.ledger.took(kind, started.elapsed());
        Ok(())
    }

    /// Notes an arrival; false if it is to be ignored.
    pub(crate) fn received<M: Stamped>(&self, from: NodeId, message: &M) -> bool {
        self.books.received(from, message, M::ORDER)
    }

    /// The right to answer, with the books.
    pub(crate) fn reply_to<R: Stamped>(&self, responder: Responder<R>) -> ReplyTo<R> {
        ReplyTo { responder, books: Arc::clone(&self.books) }
    }

    fn post<M: Request + Stamped>(&self, to: NodeId, message: &mut M) -> Result<Pending<M>, CallError> {
        self.books.post(self.peer(to), message)
    }

    fn peer(&self, to: NodeId) -> &Peer {
        let peers = self.peers.wait();
        peers.iter().find(|peer| peer.node() == to).expect("messages go to the nodes that the setup names")
    }
}

impl Books {
    fn post<M: Request + Stamped>(&self, peer: &Peer, message: &mut M) -> Result<Pending<M>, CallError> {
        self.in_order(peer.node(), message, |message| peer.start_within(message, PATIENCE))
    }

    /// Stamps and posts in one step; a stamp whose message was refused is given to the next.
    fn in_order<M: Stamped, R>(
        &self,
        to: NodeId,
        message: &mut M,
        post: impl FnOnce(&M) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let kind = message.kind();
        let mut outgoing = lock(&self.outgoing[place(to)]);
        let sequence = outgoing.next(kind, message.key());
        message.set_stamp(Stamp::new(self.me, *sequence));
        let posted = post(message);
        match &posted {
            Ok(_) => {
                *sequence += 1;
                self.ledger.sent(kind, message.encoded_len());
            }
            Err(error) => {
                // SYNC: statistics; orders nothing.
                self.waits_for_room.fetch_add(u64::from(error.is_retryable()), Ordering::Relaxed);
            }
        }
        posted
    }

    /// An answer came: notes it, and the round trip under both types.
    fn answered<R: Stamped>(&self, from: NodeId, request: Kind, reply: &R, started: Instant) {
        self.received(from, reply, Order::Unordered);
        let duration = started.elapsed();
        self.ledger.took(request, duration);
        self.ledger.took(reply.kind(), duration);
    }

    fn received<M: Stamped>(&self, from: NodeId, message: &M, order: Order) -> bool {
        let Some(incoming) = self.incoming(from) else { return false };
        let kind = message.kind();
        let counts = lock(incoming).arrived(from, kind, message.key(), order, message.stamp());
        if counts {
            self.ledger.received(kind);
        }
        counts
    }

    fn incoming(&self, from: NodeId) -> Option<&Mutex<Incoming>> {
        self.incoming.get(usize::from(from.0).checked_sub(1)?)
    }
}

/// The right, and the duty, to answer one call of another node.
#[derive(Debug)]
pub(crate) struct ReplyTo<R: Stamped> {
    responder: Responder<R>,
    books: Arc<Books>,
}

impl<R: Stamped> ReplyTo<R> {
    /// Who asked.
    pub(crate) fn from(&self) -> NodeId {
        self.responder.source()
    }

    /// Answers. Answers of one type may overtake each other; their stamps show losses and doubles.
    pub(crate) fn send(self, mut reply: R) {
        let (to, kind) = (self.from(), reply.kind());
        {
            let mut outgoing = lock(&self.books.outgoing[place(to)]);
            let sequence = outgoing.next(kind, reply.key());
            reply.set_stamp(Stamp::new(self.books.me, *sequence));
            *sequence += 1;
        }
        self.books.ledger.sent(kind, reply.encoded_len());
        self.responder.reply(&reply);
    }
}

/// Goes to the end of the courier's queue once.
async fn let_others_run() {
    let mut yielded = false;
    core::future::poll_fn(|context| {
        if core::mem::replace(&mut yielded, true) {
            return core::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        core::task::Poll::Pending
    })
    .await;
}

/// Counts are whole at every moment: whoever panicked while counting left them so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(node: NodeId) -> usize {
    usize::from(node.0) - 1
}

/// How long an answer may take. Sleepers are answered when they are woken, so this bounds the longest phase of a
/// computation; far above what the demo takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
