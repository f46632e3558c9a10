//! Two nodes in one thread, with the whole path of a call except waiting: encoding, the session, the provider,
//! dispatch, the handler, and the way back.
//!
//! The two ends can be driven separately ([`Ends`]), or the caller's waits run the callee ([`Ends::carried`]). A wait
//! begins by asking its executor how long it may poll ([`Executor::circumstances`]). By then the request has been
//! posted, and the caller's host runs the callee's turn there, so that the first poll finds the reply.

use std::sync::Arc;

use anyhow::Context as _;
use pronto_core::fabric::{Arrived, ConnectionLimits, QueuePair};
use pronto_core::note::{Note, What};
use pronto_core::session::{Event, Identity, Inbound, Limits, Links, RequestToken, Session, Sink, introduce};
use pronto_core::{Channels, Clock, Executor, Nanos, WaitPolicy};
use pronto_fabric_shm::ShmQueuePair;
use pronto_fabric_tcp::{ReceivePool, TcpQueuePair};
use pronto_rpc::handler::Incoming;
use pronto_rpc::host::MayWait;
use pronto_rpc::{Host, Peer, Route};
use pronto_sync::atomic::AtomicU32;
use pronto_wire::{CallId, Class, Epoch, NodeId, TypeEntry, TypeId};

/// Maximum number of polls by a callee before a sent message counts as lost. Over TCP the kernel delivers it
/// immediately, usually within the sender's system call.
pub const POLL_BATCH: u32 = 1_000_000;

/// Budget of the receive pool over TCP, bytes.
const POOL: usize = 8 << 20;

/// The two ends of a link, which are driven separately.
#[derive(Debug)]
pub struct Ends<Q: QueuePair + 'static> {
    /// The caller's session.
    pub caller: Arc<Session<Q>>,
    /// The node that replies.
    pub callee: Callee<Q>,
}

/// A host with a stopped clock, on which no thread sleeps.
pub struct Still<Q: QueuePair + 'static> {
    carried: Option<Ends<Q>>,
}

/// The other node: its session with the caller, and its handlers, indexed by the number of their type.
#[derive(Debug)]
pub struct Callee<Q: QueuePair + 'static> {
    /// Its session with the caller.
    pub session: Arc<Session<Q>>,
    /// Host on which it runs.
    pub host: Arc<Still<Q>>,
    /// Its handlers; a type's number is its index.
    pub routes: Vec<Route<Still<Q>>>,
}

/// Queue pairs of one side of a link: control, then bulk.
pub type Pairs<Q> = [Q; 2];

/// Returns the limits of both nodes. Their windows do not grow, so that each round of a scenario executes the same instructions.
pub fn limits() -> Limits {
    let first = Limits::default().first_requests;
    Limits { calls: 56, requests: first, ..Limits::default() }
}

/// Makes a link over shared memory, within this process.
///
/// # Errors
/// There is no memory.
pub fn shm_link(limits: [ConnectionLimits; 2]) -> anyhow::Result<(Pairs<ShmQueuePair>, Pairs<ShmQueuePair>)> {
    let (near, far) = pronto_fabric_shm::Link::pair(limits).context("a link over shared memory")?;
    Ok(([near.control, near.bulk], [far.control, far.bulk]))
}

/// Makes a link over TCP on the loopback interface, within this process.
///
/// # Errors
/// The kernel has no socket or no memory.
pub fn tcp_link(limits: [ConnectionLimits; 2]) -> anyhow::Result<(Pairs<TcpQueuePair>, Pairs<TcpQueuePair>)> {
    let pools = [ReceivePool::new(POOL)?, ReceivePool::new(POOL)?];
    let (near, far) = pronto_fabric_tcp::Link::pair(limits, &pools).context("a link over TCP")?;
    Ok(([near.control, near.bulk], [far.control, far.bulk]))
}

/// Returns a handler's entry in the greeting.
fn entry<Q: QueuePair + 'static>((number, route): (u16, &Route<Still<Q>>)) -> TypeEntry {
    let key = route.key;
    TypeEntry { name: key.name, layout: key.layout, service: key.service, type_id: TypeId(number) }
}

impl<Q: QueuePair + 'static> Ends<Q> {
    /// Creates two sessions with the queue pairs from `link`, which returns the caller's before the callee's.
    ///
    /// # Errors
    /// `link` fails.
    pub fn new(
        routes: Vec<Route<Still<Q>>>,
        link: impl FnOnce([ConnectionLimits; 2]) -> anyhow::Result<(Pairs<Q>, Pairs<Q>)>,
    ) -> anyhow::Result<Self> {
        let types = (0..).zip(&routes).map(entry).collect();
        let limits = limits();
        let identity =
            |node, types| Identity { node: NodeId(node), epoch: Epoch(1), name: String::new(), types };
        let (near, far) = (identity(1, Vec::new()), identity(2, types));
        let mut agreements = introduce(&near, &far, &limits).context("two nodes agree")?;
        let (near_pairs, far_pairs) = link(Class::ALL.map(|class| agreements[0].connection(class)))?;
        // As in nodes: a session over shared memory ends with its link.
        let local = near_pairs[0].capabilities().provider == "shm";
        for agreement in &mut agreements {
            (agreement.local, agreement.resumable) = (local, !local);
        }
        let [near_agreement, far_agreement] = agreements;
        let caller = Arc::new(Session::new(far.node, limits));
        let session = Arc::new(Session::new(near.node, limits));
        let host = Arc::new(Still::alone());
        session.install(Links { pairs: far_pairs, agreement: far_agreement }, &mut Nobody, &*host);
        caller.install(Links { pairs: near_pairs, agreement: near_agreement }, &mut Nobody, &*host);
        Ok(Self { caller, callee: Callee { session, host, routes } })
    }

    /// Returns the callee as its caller sees it, when waits do not run the callee.
    pub fn peer(&self) -> Peer<Still<Q>> {
        Peer::new(Arc::clone(&self.caller), Arc::new(Still::alone()))
    }

    /// Returns the callee as its caller sees it, when the caller's waits run the callee, and the caller's host, which
    /// does this.
    pub fn carried(self) -> (Peer<Still<Q>>, Arc<Still<Q>>) {
        let caller = Arc::clone(&self.caller);
        let host = Arc::new(Still { carried: Some(self) });
        (Peer::new(caller, Arc::clone(&host)), host)
    }
}

impl<Q: QueuePair + 'static> Callee<Q> {
    /// Makes at most `turns` turns until a handler has run. Returns the number of handlers that have run.
    pub fn serve(&self, turns: u32) -> u32 {
        let Self { session, host, routes } = self;
        let mut sink = Handlers { session, host, routes, run: 0 };
        for _ in 0..turns {
            session.turn(1, || false, &mut sink, &**host);
            if sink.run != 0 {
                break;
            }
        }
        sink.run
    }
}

impl<Q: QueuePair + 'static> Still<Q> {
    /// Returns a host that runs no callee.
    pub const fn alone() -> Self {
        Self { carried: None }
    }

    /// Makes at most `turns` turns of the callee until it has run a handler.
    pub fn carry(&self, turns: u32) {
        let Some(Ends { caller, callee }) = &self.carried else { return };
        // A waiter's first poll finds nothing, and processes completed sends.
        caller.turn(1, || false, &mut Nobody, self);
        callee.serve(turns);
    }
}

/// Sink that runs handlers where messages are received.
struct Handlers<'a, Q: QueuePair + 'static> {
    session: &'a Arc<Session<Q>>,
    host: &'a Arc<Still<Q>>,
    routes: &'a [Route<Still<Q>>],
    run: u32,
}

impl<Q: QueuePair + 'static> Sink<Q::Lease> for Handlers<'_, Q> {
    fn request_here(&mut self, inbound: Inbound<'_, &[u8]>) -> bool {
        let Inbound { token, type_id, payload, .. } = inbound;
        self.run(type_id, token, |route, incoming, token| route.run_on(incoming, payload, token));
        true
    }

    fn request(&mut self, inbound: Inbound<'_, Arrived<Q::Lease>>) {
        let Inbound { token, type_id, payload, .. } = inbound;
        self.run(type_id, token, |route, incoming, token| route.run(incoming, payload, token));
    }

    fn event(&mut self, _: Event) {}
}

impl<Q: QueuePair + 'static> Handlers<'_, Q> {
    /// Runs a handler as a node's dispatch does.
    fn run(
        &mut self,
        type_id: TypeId,
        token: RequestToken<'_>,
        handle: impl FnOnce(&Route<Still<Q>>, &Incoming<'_, Still<Q>>, RequestToken<'_>),
    ) {
        self.run += 1;
        let call = token.call().unwrap_or(CallId { slot: 0, generation: 0 });
        self.host.note(Note { what: What::Handles, peer: self.session.peer(), call, more: 0 });
        let route = &self.routes[usize::from(type_id.0)];
        let incoming = Incoming::new(token.call(), self.session, self.host, Nanos::NEVER);
        handle(route, &incoming, token);
    }
}

/// Sink of a side that receives no requests.
#[derive(Debug)]
pub struct Nobody;

impl<L> Sink<L> for Nobody {
    fn request(&mut self, inbound: Inbound<'_, Arrived<L>>) {
        inbound.token.finish();
    }

    fn event(&mut self, _: Event) {}
}

impl<Q: QueuePair + 'static> core::fmt::Debug for Still<Q> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Still").finish_non_exhaustive()
    }
}

impl<Q: QueuePair + 'static> Clock for Still<Q> {
    /// Runs the callee, which needs another turn: a poller reads the clock only after several polls without success.
    fn now(&self) -> Nanos {
        self.carry(1);
        Nanos(1)
    }
}

impl<Q: QueuePair + 'static> Executor for Still<Q> {
    fn circumstances(&self, _: WaitPolicy) -> pronto_core::executor::Circumstances {
        self.carry(POLL_BATCH);
        pronto_core::executor::alone(Nanos::NEVER)
    }

    fn sleep(&self, _: &AtomicU32, _: Nanos) {}

    fn wake(&self, _: &AtomicU32) {}

    fn yield_now(&self) {}

    fn back_off(&self, _: Nanos) {}

    fn sleep_on_channels(&self, _: &Channels, _: Nanos) -> [bool; 2] {
        [false; 2]
    }

    /// Records a note as a node does.
    fn note(&self, note: Note) {
        let (word, low) = note.words();
        pronto_node::recorder::note(word, low);
    }
}

impl<Q: QueuePair + 'static> Host for Still<Q> {
    type Qp = Q;

    fn waiting_sink<'a>(self: &'a Arc<Self>, _: &'a Arc<Session<Q>>) -> impl Sink<Q::Lease> {
        Nobody
    }

    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::Spin
    }

    fn may_wait(&self) -> MayWait {
        MayWait::Freely
    }

    fn while_waiting<R>(&self, wait: impl FnOnce() -> R) -> Option<R> {
        Some(wait())
    }

    fn expects_responses(&self) {}

    fn eager_limit(&self, _: &Session<Q>) -> u64 {
        0
    }

    fn pause(&self) {}

    async fn pause_async(self: &Arc<Self>) {}
}
