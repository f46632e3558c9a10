//! How a node is put together.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use pronto_core::session::{Identity, Limits};
use pronto_core::wait::WaitOverride;
use pronto_core::{Nanos, WaitPolicy};
use pronto_fabric_tcp::ReceivePool;
use pronto_progress::{BusyPoll, Engine};
use pronto_rpc::handler::IntoAnswer;
use pronto_rpc::{Context, InPlace, InlineContext, Message, Request, Responder, Route};
use pronto_sched_policy::policy::spin;
use pronto_topology::Wish;
use pronto_wire::greeting::MAX_TYPES;
use pronto_wire::{Epoch, NodeId, TypeEntry, TypeId};

use crate::address::Address;
use crate::admin::FIRST_VISITOR;
use crate::boost::Boost;
use crate::checks;
use crate::config::{Addresses, Config, ConfigError, RECEIVE_BUDGET};
use crate::error::NodeError;
use crate::host::NodeHost;
use crate::interfaces;
use crate::links::LinkOptions;
use crate::node::Node;
use crate::placement::{Asked, Placement};
use crate::rdma::Rdma;
use crate::system;

/// A long time to poll after traffic, as services do that are called in bursts: Margo's.
pub const SPIN_DOWN: Duration = Duration::from_nanos(spin::SPIN_DOWN.0);

/// Numbers that visitors take, from [`FIRST_VISITOR`] on.
const VISITORS: u32 = 1_000;

/// A node in the making: who it is, where it listens, whom it knows, what it handles.
#[derive(Debug)]
#[must_use = "a node runs after start()"]
pub struct Builder {
    node: NodeId,
    is_visitor: bool,
    name: String,
    listen: Vec<Result<Address, ConfigError>>,
    peers: Vec<(NodeId, Vec<Result<Address, ConfigError>>)>,
    routes: Vec<Route<NodeHost>>,
    policy: WaitPolicy,
    spin_down: Option<Nanos>,
    boost: Boost,
    engine: Engine,
    workers: usize,
    max_peers: usize,
    limits: Limits,
    receive_budget: usize,
    plaintext: bool,
    rdma: Rdma,
    busy_poll: BusyPoll,
    socket_buffer: Option<u32>,
    placement: Asked,
}

impl Builder {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            is_visitor: false,
            name: String::new(),
            listen: Vec::new(),
            peers: Vec::new(),
            routes: crate::admin::routes().into_iter().chain(Route::rendezvous()).collect(),
            policy: WaitPolicy::Adaptive,
            spin_down: None,
            boost: Boost::None,
            engine: Engine::Idle,
            workers: 4,
            max_peers: 1024,
            limits: Limits::default(),
            receive_budget: RECEIVE_BUDGET,
            plaintext: false,
            rdma: Rdma::default(),
            busy_poll: BusyPoll::default(),
            socket_buffer: None,
            placement: Asked::default(),
        }
    }

    pub(crate) fn visitor() -> Self {
        let number = u16::try_from(std::process::id() % VISITORS).expect("there are fewer");
        Self { is_visitor: true, ..Self::new(NodeId(FIRST_VISITOR.0 + number)) }
    }

    pub(crate) fn from_config(config: &Config) -> Result<Self, ConfigError> {
        let Addresses { listen, peers } = config.addresses()?;
        let mut builder = Self::new(NodeId(config.node)).name(&config.name);
        builder.listen = listen.into_iter().map(Ok).collect();
        builder.peers = peers
            .into_iter()
            .map(|(node, addresses)| (NodeId(node), addresses.into_iter().map(Ok).collect()))
            .collect();
        builder.policy = config.wait.into();
        builder.spin_down = config.spin_down_us.map(Nanos::from_micros);
        builder.boost = config.boost;
        builder.engine = config.engine.into();
        builder.workers = config.workers;
        builder.max_peers = config.max_peers;
        builder.limits = config.limits.limits();
        builder.receive_budget = config.limits.receive_budget.unwrap_or(RECEIVE_BUDGET);
        builder.plaintext = config.plaintext.is_some();
        builder.rdma = config.rdma;
        builder.busy_poll = config.tcp.busy_poll();
        builder.socket_buffer = config.tcp.socket_buffer;
        builder.placement = config.placement.asked()?;
        Ok(builder)
    }

    /// A name for people.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Listens at an address: `shm:PATH`, `shm:@NAME`, `tcp:HOST:PORT`.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen.push(parse("listen", address));
        self
    }

    /// Connects to a peer. Said again for the same peer, it is another address of it, tried after the first; the same address again
    /// is refused at the start.
    pub fn peer(mut self, node: impl Into<NodeId>, address: &str) -> Self {
        let (node, address) = (node.into(), parse("peer.address", address));
        match self.peers.iter_mut().find(|(known, _)| *known == node) {
            Some((_, addresses)) => addresses.push(address),
            None => self.peers.push((node, vec![address])),
        }
        self
    }

    /// How the node's threads, and its callers, wait if they do not say so themselves.
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// For how long the serving thread polls after traffic before it sleeps, where it waits adaptively: for what a wake-up costs, if
    /// nothing is said. Longer is for bursts with pauses in between; [`SPIN_DOWN`] is what others use. Where messages
    /// come far less often than that, it sleeps at once all the same.
    pub fn spin_down(mut self, span: Duration) -> Self {
        self.spin_down = Some(Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        self
    }

    /// How the threads that handle messages get onto their processors when one arrives; what was got stands in
    /// [`crate::Status::boost`].
    pub fn boost(mut self, boost: Boost) -> Self {
        self.boost = boost;
        self
    }

    /// Who polls when no thread of the program does. With [`Engine::None`] that is nobody: the program calls
    /// [`Node::progress`], at least once per liveness limit.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Has the kernel poll the devices of TCP connections for so long when a thread waits for them, in place of an interrupt
    /// (SO_BUSY_POLL, socket(7), for threads that wait for a peer; EPIOCSPARAMS, Linux 6.9, for the serving thread). The first
    /// may need CAP_NET_ADMIN, both need devices with NAPI, which the loopback interface is not; what became of them stands in
    /// [`crate::PeerStatus::choice`] and [`crate::Status::engine`]. Off at first.
    pub fn tcp_busy_poll(mut self, how: BusyPoll) -> Self {
        self.busy_poll = how;
        self
    }

    /// Send and receive buffers of each TCP socket, bytes: they bound what the kernel holds of a message. At first the kernel
    /// chooses, and adapts them.
    pub fn tcp_socket_buffer(mut self, bytes: u32) -> Self {
        self.socket_buffer = Some(bytes);
        self
    }

    /// Where the serving thread runs, and the spares that take over from it: where the scheduler likes ([`Wish::Off`], at first),
    /// near the devices that have the node's addresses, or on processors that are named; within what the calling thread may use.
    /// What became of it stands in [`crate::Status::placement`].
    pub fn serve_on(mut self, serving: Wish) -> Self {
        self.placement.serving = serving;
        self
    }

    /// Threads that run handlers, at most.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Peers that it takes, at most. One that it was not told of has its place for as long as it is there, or somebody holds it.
    pub fn max_peers(mut self, peers: usize) -> Self {
        self.max_peers = peers;
        self
    }

    /// A peer that is silent for so long is down; a link that is lost for less resumes its session.
    pub fn liveness(mut self, limit: Duration) -> Self {
        let limit = Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.limits = self.limits.with_liveness(Some(limit), None);
        self
    }

    /// All sizes and times of its sessions.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Traffic outside this host is not encrypted; it is allowed all the same.
    pub fn plaintext_i_understand(mut self) -> Self {
        self.plaintext = true;
        self
    }

    /// Whether its links go over RDMA.
    pub fn rdma(mut self, rdma: Rdma) -> Self {
        self.rdma = rdma;
        self
    }

    /// Handles a request on the pool, in the order that its type asks for.
    pub fn handle<M: Request, A: IntoAnswer<M::Reply>>(
        self,
        handler: impl Fn(&Context<'_, NodeHost>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::pooled(handler))
    }

    /// Handles a request right where it is taken in. The handler must not block.
    pub fn handle_inline<M: Request, A: IntoAnswer<M::Reply>>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::inline(handler))
    }

    /// Takes a request in, and answers it later through its responder. The handler must not block.
    pub fn handle_deferred<M: Request>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, M, Responder<M::Reply, NodeHost>) + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::deferred(handler))
    }

    /// Handles a notification on the pool, in the order that its type asks for.
    pub fn on<M: Message>(self, handler: impl Fn(&Context<'_, NodeHost>, M) + Send + Sync + 'static) -> Self {
        self.route(Route::pooled_notification(handler))
    }

    /// Handles a notification right where it is taken in. The handler must not block.
    pub fn on_inline<M: Message>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, M) + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::inline_notification(handler))
    }

    /// Answers a request from its encoding, read where it lies ([`Route::inline_in_place`]). The handler must not block.
    pub fn handle_in_place<M: Request, A: IntoAnswer<M::Reply>>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::inline_in_place::<M, A>(handler))
    }

    /// Any route, for example one in a service of its own ([`Route::in_service`]).
    pub fn route(mut self, route: Route<NodeHost>) -> Self {
        self.routes.push(route);
        self
    }

    /// What [`Builder::start`] finds wrong before it listens or starts a thread.
    ///
    /// # Errors
    /// The first that it finds.
    pub fn check(self) -> Result<(), NodeError> {
        let (options, builder) = self.checked()?;
        builder.placed(&options).map(drop)
    }

    /// The same, with what links are made from.
    fn checked(self) -> Result<(LinkOptions, Self), NodeError> {
        let Self { listen, peers, plaintext, rdma, busy_poll, socket_buffer, node, is_visitor, .. } = self;
        let listen = listen.into_iter().collect::<Result<Vec<_>, _>>()?;
        let resolve = |(peer, addresses): (NodeId, Vec<_>)| {
            Ok((peer, addresses.into_iter().collect::<Result<Vec<_>, _>>()?))
        };
        let peers = peers.into_iter().map(resolve).collect::<Result<Vec<_>, ConfigError>>()?;
        if peers.iter().any(|(peer, _)| *peer == node) {
            return Err(NodeError::OwnPeer { node });
        }
        if !is_visitor {
            checks::number("node", node)?;
        }
        peers.iter().try_for_each(|(peer, _)| checks::number("peer.node", *peer))?;
        checks::peers(&peers, &listen)?;
        checks::listen(&listen)?;
        listen.iter().try_for_each(checks::folder)?;
        if !plaintext {
            listen.iter().try_for_each(|address| checks::stays_here("listen", address))?;
            let mut of_peers = peers.iter().flat_map(|(_, addresses)| addresses);
            of_peers.try_for_each(|address| checks::stays_here("peer.address", address))?;
        }
        number(&self.routes)?;
        let rest = Self { listen: Vec::new(), peers: Vec::new(), ..self };
        Ok((LinkOptions { listen, peers, plaintext, rdma, busy_poll, socket_buffer }, rest))
    }

    /// Starts the node. Peers may start before or after it.
    pub fn start(self) -> Result<Node, NodeError> {
        let (options, builder) = self.checked()?;
        builder.start_with(options)
    }

    fn start_with(self, options: LinkOptions) -> Result<Node, NodeError> {
        let placement = self.placed(&options)?;
        let identity = Identity {
            node: self.node,
            epoch: Epoch(system::random()),
            name: self.name,
            types: number(&self.routes)?,
        };
        system::watch_forks();
        let system = |errno: Errno| NodeError::System { what: "a serving thread's descriptors", errno };
        let pool = ReceivePool::new(self.receive_budget).map_err(|_| system(Errno::EMFILE))?;
        let waiting = WaitOverride { policy: self.policy, bound: self.spin_down };
        let waits = (waiting, self.boost, self.engine);
        let host = NodeHost::new(identity, self.limits, waits, self.workers, self.max_peers, pool)
            .map_err(system)?;
        let host = Arc::new(host);
        host.serving.poll_devices(self.busy_poll);
        host.placement.set(placement).expect("set once");
        host.routes.set(self.routes).expect("set once");
        Node::start(host, options)
    }

    /// Where on its machine it is to be.
    fn placed(&self, options: &LinkOptions) -> Result<Placement, NodeError> {
        // Node ids differ on one machine.
        let spread = self.node.0.into();
        Placement::decide(Path::new("/"), &self.placement, &carrying(options), spread)
    }
}

/// The network interfaces that carry its messages.
fn carrying(options: &LinkOptions) -> Vec<String> {
    let tcp = |address: &Address| match address {
        Address::Tcp(socket) => Some(*socket),
        Address::Shm(_) => None,
    };
    let peers = options.peers.iter().flat_map(|(_, addresses)| addresses).filter_map(tcp);
    interfaces::carrying(options.listen.iter().filter_map(tcp), peers)
}

/// The routes' types with their numbers: the place of each route.
fn number(routes: &[Route<NodeHost>]) -> Result<Vec<TypeEntry>, NodeError> {
    if routes.len() > MAX_TYPES {
        return Err(NodeError::TooManyTypes { count: routes.len(), max: MAX_TYPES });
    }
    for (place, route) in routes.iter().enumerate() {
        let same = |other: &&Route<NodeHost>| {
            (other.key.service, other.key.name) == (route.key.service, route.key.name)
        };
        if routes[..place].iter().any(|other| same(&other)) {
            return Err(NodeError::HandledTwice { name: route.name });
        }
    }
    let entry = |(number, route): (u16, &Route<NodeHost>)| TypeEntry {
        name: route.key.name,
        layout: route.key.layout,
        service: route.key.service,
        type_id: TypeId(number),
    };
    Ok((0u16..).zip(routes).map(entry).collect())
}

fn parse(key: &'static str, address: &str) -> Result<Address, ConfigError> {
    address.parse().map_err(|cause| ConfigError::Address { key, cause })
}
