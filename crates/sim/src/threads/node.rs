//! A node with several threads: its sessions, its queues of messages, and the sinks that fill them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pronto_core::fabric::Arrived;
use pronto_core::session::{Callee, DetachedToken, Event, Inbound, Limits, Sink};
use pronto_core::{Executor as _, Nanos};
use pronto_sync::WakeWord;
use pronto_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pronto_wire::{Class, FailureCode, NodeId};

use super::executor::{ThreadExecutor, holding_engine};
use super::panics::Panics;
use crate::queue_pair::SimQueuePair;
use crate::scenario::{Kind, Lease, Ledger, SimSession, Stamp, answer_to};
use crate::world::{SimNode, SimWorld};

/// A node, which its threads share.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) place: SimNode,
    pub(super) world: SimWorld,
    pub(super) executor: ThreadExecutor,
    pub(super) limits: Limits,
    pub(super) peers: BTreeMap<NodeId, Arc<SimSession>>,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) stops: AtomicBool,
    /// Messages for inline handlers that waiting callers have received.
    jobs: Mutex<VecDeque<Job>>,
    /// Number of these, including the one that is handled now.
    queued: AtomicUsize,
    pool: Mutex<VecDeque<Job>>,
    /// The word of the worker.
    pub(super) worker: WakeWord,
    pub(super) panics: Panics,
}

/// A message that waits for its handler.
pub(super) struct Job {
    token: DetachedToken<Origin>,
    stamp: Stamp,
    kind: Kind,
    payload: Arrived<Lease>,
}

/// The session through which a message came.
#[derive(Clone)]
pub(super) struct Origin {
    session: Arc<SimSession>,
    executor: ThreadExecutor,
}

impl Callee for Origin {
    type Qp = SimQueuePair;
    type Executor = ThreadExecutor;

    fn session(&self) -> &SimSession {
        &self.session
    }

    fn executor(&self) -> &ThreadExecutor {
        &self.executor
    }
}

/// Locks a mutex of the simulation itself, whose holder is never switched.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(super) fn new(
        (id, place): (NodeId, SimNode),
        world: &SimWorld,
        executor: ThreadExecutor,
        limits: Limits,
        others: impl Iterator<Item = NodeId>,
        ledger: &Arc<Mutex<Ledger>>,
        panics: Panics,
    ) -> Self {
        Self {
            id,
            place,
            world: world.clone(),
            executor,
            limits,
            peers: others.map(|id| (id, Arc::new(SimSession::new(id, limits)))).collect(),
            ledger: Arc::clone(ledger),
            stops: AtomicBool::new(false),
            jobs: Mutex::default(),
            queued: AtomicUsize::new(0),
            pool: Mutex::default(),
            worker: WakeWord::new(),
            panics,
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(super) fn sink<'a>(&'a self, session: &'a Arc<SimSession>, thread: Thread) -> NodeSink<'a> {
        NodeSink { node: self, session, thread }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    pub(super) fn has_jobs(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    /// Runs the queued inline handlers. Returns their number.
    pub(super) fn handle_jobs(&self) -> usize {
        let mut count = 0;
        loop {
            let Some(job) = lock(&self.jobs).pop_front() else { return count };
            holding_engine(|| job.run(self));
            // Until here, other messages for inline handlers were queued behind this one.
            self.queued.fetch_sub(1, Ordering::Relaxed);
            count += 1;
        }
    }

    /// Returns the next job of the worker.
    pub(super) fn next_job(&self) -> Option<Job> {
        lock(&self.pool).pop_front()
    }

    pub(super) fn has_work(&self) -> bool {
        !lock(&self.pool).is_empty()
    }

    /// Wakes the worker.
    pub(super) fn wake_worker(&self) {
        if self.worker.needs_wake() {
            self.executor.wake(self.worker.by_ref().0);
        }
    }

    /// Ends the threads of the node itself.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.wake_worker();
        self.executor.wake_server();
    }

    /// Returns whether nothing is open in a session, and its credits are there: up to three quarters of a window may be returned only with the next
    /// message.
    pub(super) fn is_settled(&self, session: &SimSession) -> bool {
        let has_credits = |class: Class| {
            let window = u32::from(self.limits.requests[class.index()]);
            (window - window / 2 - window / 4..=window).contains(&session.credits(class))
        };
        session.open_calls() == 0
            && session.work_in_flight(&self.executor) == 0
            && Class::ALL.into_iter().all(has_credits)
    }

    /// Returns the place of a peer.
    pub(super) fn place_of(peer: NodeId) -> SimNode {
        SimNode(usize::from(peer.0) - 1)
    }
}

/// The thread for which a sink takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    /// The serving thread, which runs inline handlers.
    Serving,
    /// A caller that waits, or another thread: it queues all messages.
    Waiting,
}

/// Sink of one session's engine.
pub(super) struct NodeSink<'a> {
    node: &'a Node,
    session: &'a Arc<SimSession>,
    thread: Thread,
}

impl Sink<Lease> for NodeSink<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<Lease>>) {
        let Self { node, session, thread } = *self;
        let kind = Kind::of(inbound.type_id);
        let Inbound { token, payload, .. } = inbound;
        let stamp = Stamp::read(&payload);
        assert!(!stamp.answer, "a reply arrived as a request: {stamp:?}");
        node.ledger().arrived(stamp.name, node.id, 1, token.class());
        node.panics.maybe();
        if kind != Kind::Laned && thread == Thread::Serving && !node.has_jobs() {
            return holding_engine(|| {
                node.ledger().executed(stamp.name);
                if kind == Kind::Notice {
                    return token.finish();
                }
                let answer = answer_to(session, &stamp, token.class());
                drop(payload);
                token.respond(answer);
            });
        }
        let origin = Origin { session: Arc::clone(session), executor: node.executor.clone() };
        let job = Job { token: token.detach(origin), stamp, kind, payload };
        if kind == Kind::Laned {
            lock(&node.pool).push_back(job);
            return node.wake_worker();
        }
        let mut jobs = lock(&node.jobs);
        jobs.push_back(job);
        drop(jobs);
        node.queued.fetch_add(1, Ordering::Relaxed);
        if thread == Thread::Waiting {
            node.executor.wake_server();
        }
    }

    fn event(&mut self, event: Event) {
        self.node.ledger().event(self.node.id, 1, self.session.peer(), &event);
        // The serving thread sleeps in the channels of the new link from now on.
        self.node.executor.wake_server_for(self.session.peer());
    }
}

impl core::fmt::Debug for NodeSink<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("NodeSink")
    }
}

impl Job {
    /// Runs the handler and responds.
    pub(super) fn run(self, node: &Node) {
        let Self { token, stamp, kind, payload } = self;
        if kind == Kind::Laned && token.is_cancelled() {
            drop(payload);
            return token.fail(FailureCode::Cancelled);
        }
        node.ledger().executed(stamp.name);
        // The request's buffer is returned before its credit.
        drop(payload);
        let answer = answer_to(&token.callee().session, &stamp, token.class());
        token.respond(answer);
    }
}

/// The worker of a node: runs the handlers that take a while.
pub(super) fn work(node: &Node, mut time: impl FnMut() -> Nanos) {
    while !node.is_stopping() {
        let Some(job) = node.next_job() else {
            node.worker.arm();
            if !node.has_work() && !node.is_stopping() && node.worker.should_sleep() {
                node.executor.sleep(node.worker.by_ref().0, Nanos::NEVER);
            }
            node.worker.disarm();
            continue;
        };
        match time() {
            Nanos::ZERO => {}
            span => node.executor.pause(span),
        }
        job.run(node);
    }
}
