//! The only index where this crate uses the communication layer. It posts messages and counts them.
//!
//! Every message gets its stamp here, under a lock that keeps stamps and posts to one peer in the same order. Every arriving
//! message is checked against its stream before anything else happens to it.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use pronto::{CallError, NodeId, Order, Peer, Pending, Request, Responder};
use pronto_sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

use crate::account::{Faults, Incoming, Ledger, Outgoing};
use crate::clock;
use crate::executor::Executor;
use crate::messages::{Kind, Stamp, Stamped};

/// Failure of a message or of its reply.
#[derive(Debug, Error)]
#[error("{} to node {to}: {source}", kind.name())]
pub struct NetworkError {
    /// Type of the message.
    pub kind: Kind,
    /// Receiver of the message.
    pub to: NodeId,
    /// Cause.
    pub source: CallError,
}

/// All other nodes, as seen from one node.
#[derive(Debug)]
pub(crate) struct Network {
    accounts: Arc<Accounts>,
    nodes: u16,
    peers: OnceLock<Vec<Peer>>,
    executor: Executor,
}

/// Counts and streams of all messages, shared with the responders.
#[derive(Debug)]
struct Accounts {
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
        let accounts = Accounts {
            me,
            ledger: Ledger::default(),
            outgoing: (0..nodes).map(|_| Mutex::default()).collect(),
            incoming: (0..nodes).map(|_| Mutex::default()).collect(),
            waits_for_room: AtomicU64::new(0),
        };
        Ok(Self { accounts: Arc::new(accounts), nodes, peers: OnceLock::new(), executor: Executor::start()? })
    }

    /// Sets the peers, once, when the node runs. Messages sent earlier wait for this.
    pub(crate) fn connect(&self, peers: Vec<Peer>) {
        self.peers.set(peers).expect("connected once");
    }

    pub(crate) fn me(&self) -> NodeId {
        self.accounts.me
    }

    pub(crate) fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Returns all other nodes.
    pub(crate) fn peers(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.accounts.me;
        (1..=self.nodes).map(NodeId).filter(move |node| *node != me)
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.accounts.ledger
    }

    /// Returns the number of times that a message had to wait for room.
    pub(crate) fn waits_for_room(&self) -> u64 {
        // SYNC: statistics; orders nothing.
        self.accounts.waits_for_room.load(Ordering::Relaxed)
    }

    /// Returns the transmission faults of all messages received here.
    pub(crate) fn faults(&self) -> Faults {
        let mut sum = Faults::default();
        for incoming in &self.accounts.incoming {
            let faults = lock(incoming).faults();
            sum.duplicated += faults.duplicated;
            sum.out_of_order += faults.out_of_order;
            sum.corrupt += faults.corrupt;
        }
        sum
    }

    /// Counts contents from `from` that do not match their checksum.
    pub(crate) fn corrupt(&self, from: NodeId) {
        if let Some(incoming) = self.accounts.incoming(from) {
            lock(incoming).corrupt();
        }
    }

    /// Sends a request and waits for the reply.
    pub(crate) fn call<M>(&self, to: NodeId, mut message: M) -> Result<M::Reply, NetworkError>
    where
        M: Request<Reply: Stamped> + Stamped,
    {
        let kind = message.kind();
        let failed = |source| NetworkError { kind, to, source };
        let started = clock::now();
        let pending = loop {
            match self.post(to, &mut message) {
                Err(error) if error.is_retryable() && started.elapsed() < RESPONSE_LIMIT => {
                    std::thread::yield_now()
                }
                outcome => break outcome.map_err(failed)?,
            }
        };
        let reply = pending.wait().map_err(failed)?;
        self.accounts.reply_received(to, kind, &reply, started);
        Ok(reply)
    }

    /// Sends a request and runs `then` with the reply when it arrives. Never waits, not even for room.
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
        let (accounts, peer) = (Arc::clone(&self.accounts), self.peer(to).clone());
        self.executor.send(async move {
            while posted.as_ref().is_err_and(CallError::is_retryable) && started.elapsed() < RESPONSE_LIMIT {
                yield_to_executor().await;
                posted = accounts.post(&peer, &mut message);
            }
            let reply = match posted {
                Ok(pending) => pending.await,
                Err(error) => Err(error),
            };
            if let Ok(reply) = &reply {
                accounts.reply_received(to, kind, reply, started);
            }
            then(reply.map_err(failed));
        });
    }

    /// Sends a notification; waits if there is no room.
    pub(crate) fn notify<M: Stamped>(&self, to: NodeId, mut message: M) -> Result<(), NetworkError> {
        let kind = message.kind();
        let peer = self.peer(to);
        let started = clock::now();
        loop {
            match self.accounts.post_in_order(to, &mut message, |message| peer.notify(message)) {
                Ok(()) => break,
                Err(error) if error.is_retryable() && started.elapsed() < RESPONSE_LIMIT => {
                    std::thread::yield_now()
                }
                Err(source) => return Err(NetworkError { kind, to, source }),
            }
        }
        self.accounts.ledger.took(kind, started.elapsed());
        Ok(())
    }

    /// Records an arrival. Returns `false` if the message must be ignored.
    pub(crate) fn received<M: Stamped>(&self, from: NodeId, message: &M) -> bool {
        self.accounts.received(from, message, M::ORDER)
    }

    /// Wraps a responder so that its response is counted.
    pub(crate) fn reply_to<R: Stamped>(&self, responder: Responder<R>) -> ReplyTo<R> {
        ReplyTo { responder, accounts: Arc::clone(&self.accounts) }
    }

    fn post<M: Request + Stamped>(&self, to: NodeId, message: &mut M) -> Result<Pending<M>, CallError> {
        self.accounts.post(self.peer(to), message)
    }

    fn peer(&self, to: NodeId) -> &Peer {
        let peers = self.peers.wait();
        peers.iter().find(|peer| peer.node() == to).expect("messages go only to nodes of the setup")
    }
}

impl Accounts {
    fn post<M: Request + Stamped>(&self, peer: &Peer, message: &mut M) -> Result<Pending<M>, CallError> {
        self.post_in_order(peer.node(), message, |message| peer.start_within(message, RESPONSE_LIMIT))
    }

    /// Stamps and posts in one step. If the message was not taken, the next one gets its stamp.
    fn post_in_order<M: Stamped, R>(
        &self,
        to: NodeId,
        message: &mut M,
        post: impl FnOnce(&M) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let kind = message.kind();
        let mut outgoing = lock(&self.outgoing[index(to)]);
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

    /// Records the arrival of a reply, and the round trip for both message types.
    fn reply_received<R: Stamped>(&self, from: NodeId, request: Kind, reply: &R, started: Instant) {
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

/// The obligation to respond to one call of another node.
#[derive(Debug)]
pub(crate) struct ReplyTo<R: Stamped> {
    responder: Responder<R>,
    accounts: Arc<Accounts>,
}

impl<R: Stamped> ReplyTo<R> {
    /// Returns the node that called.
    pub(crate) fn from(&self) -> NodeId {
        self.responder.source()
    }

    /// Sends the reply. Replies of one type may overtake each other; their stamps reveal losses and duplicates.
    pub(crate) fn send(self, mut reply: R) {
        let (to, kind) = (self.from(), reply.kind());
        {
            let mut outgoing = lock(&self.accounts.outgoing[index(to)]);
            let sequence = outgoing.next(kind, reply.key());
            reply.set_stamp(Stamp::new(self.accounts.me, *sequence));
            *sequence += 1;
        }
        self.accounts.ledger.sent(kind, reply.encoded_len());
        self.responder.reply(&reply);
    }
}

/// Yields once to the other futures of the executor.
async fn yield_to_executor() {
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

/// Locks `mutex`. A panic while counting leaves consistent counts, so a poisoned lock is usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(node: NodeId) -> usize {
    usize::from(node.0) - 1
}

/// Longest time to wait for a reply. Sleeping tasks get their reply when they are woken, so this bounds the longest phase of
/// a computation. It is far above what the demo needs.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(120);
