//! The builder of a node.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use nix::errno::Errno;
use pronto_core::session::{HeaderPressure, Identity, Limits};
use pronto_core::wait::WaitOverride;
use pronto_core::{Nanos, WaitPolicy};
use pronto_fabric_tcp::{ReceivePool, TlsBy};
use pronto_progress::{BusyPoll, Engine};
use pronto_rpc::handler::IntoResponse;
use pronto_rpc::{AsyncContext, Context, InPlace, InlineContext, Message, Request, Responder, Route};
use pronto_sched_policy::policy::spin;
use pronto_topology::Wish;
use pronto_trust::Source as TrustSource;
use pronto_wire::greeting::MAX_TYPES;
use pronto_wire::{Epoch, NodeId, TypeEntry, TypeId};

use crate::access::{Rule, Rules};
use crate::config::address::Address;
use crate::config::checks;
use crate::config::coschedule::CoscheduleConfig;
use crate::config::{Addresses, Config, ConfigError, EncryptedBy, RECEIVE_BUDGET, network_of};
use crate::error::NodeError;
use crate::host::NodeHost;
use crate::links::{Connect, LinkOptions, PeerOptions, interfaces};
use crate::node::Node;
use crate::rdma::Rdma;
use crate::serving::futures::{HandlerFuture, MAX_FUTURES, Spawn};
use crate::serving::pool::{Pool, PoolLimits};
use crate::status::admin::visitor_id;
use crate::system;
use crate::threads::boost::Boost;
use crate::threads::placement::{Asked, Placement};
use crate::trust::{Kind, Trust};

/// A long polling time after traffic, for services that are called in bursts. Source: Margo.
pub const SPIN_DOWN: Duration = Duration::from_nanos(spin::SPIN_DOWN.0);

/// Settings of a node before its start: its id, its addresses, its peers and its handlers.
#[derive(Debug)]
#[must_use = "call start() to run the node"]
pub struct Builder {
    node: NodeId,
    is_visitor: bool,
    name: String,
    listen: Vec<Result<Address, ConfigError>>,
    peers: Vec<(NodeId, Vec<Result<Address, ConfigError>>)>,
    /// The networks from which peers connect.
    from: Vec<(NodeId, Result<IpNet, ConfigError>)>,
    users: Vec<(NodeId, u32)>,
    routes: Vec<Route<NodeHost>>,
    policy: WaitPolicy,
    spin_down: Option<Nanos>,
    boost: Boost,
    engine: Engine,
    workers: usize,
    max_futures: usize,
    /// The program's executor of async handlers.
    spawn: Option<Spawn>,
    max_peers: usize,
    limits: Limits,
    receive_budget: usize,
    plaintext: bool,
    /// Credentials, and the node that has them.
    trust: Option<(TrustSource, NodeId)>,
    /// Whether RDMA may carry unencrypted traffic next to TLS.
    rdma_plaintext: bool,
    rdma_soft_roce: bool,
    tls_by: TlsBy,
    rdma: Rdma,
    busy_poll: BusyPoll,
    socket_buffer: Option<u32>,
    connect: Connect,
    placement: Asked,
    rules: Vec<Result<Rule, ConfigError>>,
}

impl Builder {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            is_visitor: false,
            name: String::new(),
            listen: Vec::new(),
            peers: Vec::new(),
            from: Vec::new(),
            users: Vec::new(),
            routes: crate::status::admin::routes().into_iter().chain(Route::rendezvous()).collect(),
            policy: WaitPolicy::Adaptive,
            spin_down: None,
            boost: Boost::None,
            engine: Engine::Idle,
            workers: 4,
            max_futures: MAX_FUTURES,
            spawn: None,
            max_peers: 1024,
            limits: Limits::default(),
            receive_budget: RECEIVE_BUDGET,
            plaintext: false,
            trust: None,
            rdma_plaintext: false,
            rdma_soft_roce: false,
            tls_by: TlsBy::Kernel,
            rdma: Rdma::default(),
            busy_poll: BusyPoll::default(),
            socket_buffer: None,
            connect: Connect::Always,
            placement: Asked::default(),
            rules: Vec::new(),
        }
    }

    pub(crate) fn visitor() -> Self {
        Self { is_visitor: true, ..Self::new(visitor_id()) }
    }

    pub(crate) fn from_config(config: &Config) -> Result<Self, ConfigError> {
        let Addresses { listen, peers, from } = config.addresses()?;
        let mut builder = Self::new(NodeId(config.node)).name(&config.name);
        builder.listen = listen.into_iter().map(Ok).collect();
        builder.peers = peers
            .into_iter()
            .map(|(node, addresses)| (NodeId(node), addresses.into_iter().map(Ok).collect()))
            .collect();
        builder.users = config.peer.iter().filter_map(|peer| Some((NodeId(peer.node), peer.user?))).collect();
        builder.from = from.into_iter().map(|(node, network)| (NodeId(node), Ok(network))).collect();
        builder.policy = config.wait.into();
        builder.spin_down = config.spin_down_us.map(Nanos::from_micros);
        builder.boost = config.boost;
        builder.engine = config.engine.into();
        builder.workers = config.workers;
        builder.max_futures = config.max_futures;
        builder.max_peers = config.max_peers;
        builder.limits = config.limits.limits();
        if config.coschedule.as_ref().is_some_and(CoscheduleConfig::is_carried) {
            builder = builder.carry_pressure();
        }
        builder.receive_budget = config.limits.receive_budget.unwrap_or(RECEIVE_BUDGET);
        builder.plaintext = config.plaintext.is_some();
        builder.trust = config.trust_source()?.map(|source| (source, builder.node));
        builder.rdma_plaintext = config.trust.rdma_plaintext;
        builder.rdma_soft_roce = config.trust.rdma_soft_roce;
        if config.trust.encrypted_by == EncryptedBy::Node {
            builder.tls_by = TlsBy::Process;
        }
        builder.rdma = config.rdma;
        builder.busy_poll = config.tcp.busy_poll();
        builder.socket_buffer = config.tcp.socket_buffer;
        builder.connect = config.mesh.connect();
        builder.placement = config.placement.request()?;
        builder.rules = config.rules().map(|rule| rule.map(Ok)).collect::<Result<_, _>>()?;
        Ok(builder)
    }

    /// Sets a human-readable name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an address to listen at: `shm:PATH`, `shm:@NAME`, `tcp:HOST:PORT`.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen.push(parse("listen", address));
        self
    }

    /// Adds a peer to connect to. Call it again with the same id to add a fallback address, tried after the earlier ones. `start`
    /// rejects duplicate addresses.
    pub fn peer(mut self, node: impl Into<NodeId>, address: &str) -> Self {
        let (node, address) = (node.into(), parse("peer.address", address));
        match self.peers.iter_mut().find(|(known, _)| *known == node) {
            Some((_, addresses)) => addresses.push(address),
            None => self.peers.push((node, vec![address])),
        }
        self
    }

    /// Adds a network, such as `10.0.0.0/8`, or an address, from which a peer connects over TCP, apart from the hosts of its addresses. Connections
    /// with the id of a configured peer are refused from elsewhere. A peer that dials this node needs no address.
    pub fn peer_from(mut self, node: impl Into<NodeId>, network: &str) -> Self {
        self.from.push((node.into(), network_of(network)));
        self
    }

    /// Sets the user whose processes are this peer: over shared memory it connects only from them, and they may be of another user than this
    /// node. Without, a peer over shared memory is a process of the same user.
    pub fn peer_user(mut self, node: impl Into<NodeId>, user: u32) -> Self {
        self.users.push((node.into(), user));
        self
    }

    /// Permits peers to use message types. `peers` are `node:2`, `role:NAME` (in a certificate), `same-user` and
    /// `uid:1001` (over shared memory) or `anyone`; a type is a name, such as
    /// `bank.deposit`, or the beginning of names, such as `bank.*`. Without any such rule, every peer may use every type, except those that tell about
    /// the node, such as `pronto.status`; with one, each peer may use what a rule for it names. The types of the node itself, `pronto.*`, have to be named, except for processes of the same user.
    pub fn allow(mut self, peers: &[&str], types: &[&str]) -> Self {
        self.rules.push(Rule::new(peers, types).map_err(ConfigError::from));
        self
    }

    /// Sets the wait policy of the node's threads, and of calls that do not request one.
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how long an adaptive serving thread polls after traffic before it sleeps. The default is the cost of a wake-up. A longer
    /// time, such as [`SPIN_DOWN`], suits bursts with pauses in between. If messages are much rarer than `span`, the thread still
    /// sleeps immediately.
    pub fn spin_down(mut self, span: Duration) -> Self {
        self.spin_down = Some(Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
        self
    }

    /// Sets the boost of the threads that handle messages, so that they get a CPU sooner when a message arrives.
    /// [`crate::Status::boost`] reports the boost that was obtained.
    pub fn boost(mut self, boost: Boost) -> Self {
        self.boost = boost;
        self
    }

    /// Sets the engine that polls while no thread of the program does. With [`Engine::None`] the program must call
    /// [`Node::progress`] at least once per liveness limit.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Makes the kernel poll the devices of TCP connections while a thread waits for them, instead of waiting for an interrupt. It
    /// uses SO_BUSY_POLL (socket(7)) for threads that wait for a peer, and EPIOCSPARAMS (Linux 6.9) for the serving thread. The
    /// former may need CAP_NET_ADMIN. Both need devices with NAPI, which the loopback interface does not have.
    /// [`crate::PeerStatus::choice`] and [`crate::Status::engine`] report whether they are in effect. Off by default.
    pub fn tcp_busy_poll(mut self, how: BusyPoll) -> Self {
        self.busy_poll = how;
        self
    }

    /// Sets when the node has links to the peers of which it has addresses. By default it keeps a link to each. In a large mesh most of them
    /// would be idle; with [`Connect::OnDemand`] a link is made when a message needs one. A paused session, whose idle link has ended, stays
    /// up: no events but [`Event::LinkPaused`](pronto_core::session::Event::LinkPaused) and `PauseEnded` report it, and the next message makes a link again.
    /// While there is no link, the end of the peer is noticed only then.
    pub fn connect(mut self, when: Connect) -> Self {
        self.connect = when;
        self
    }

    /// Sets the size of the send buffer and of the receive buffer of each TCP socket, in bytes. It bounds how much of a message the
    /// kernel holds. By default the kernel chooses and adapts the sizes.
    pub fn tcp_socket_buffer(mut self, bytes: u32) -> Self {
        self.socket_buffer = Some(bytes);
        self
    }

    /// Sets where the serving thread and its spare threads run: wherever the scheduler decides ([`Wish::Off`], the default), near
    /// the devices that have the node's addresses, or on given CPUs. The CPUs are restricted to those that the calling thread may
    /// use. [`crate::Status::placement`] reports the result.
    pub fn serve_on(mut self, serving: Wish) -> Self {
        self.placement.serving = serving;
        self
    }

    /// Sets the maximum number of threads that run handlers at the same time, at least 1.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Sets the maximum number of futures of async handlers that exist at the same time, at least 1. Further messages of such handlers
    /// wait, as those of other handlers wait for a worker. The default is [`MAX_FUTURES`].
    pub fn max_futures(mut self, futures: usize) -> Self {
        self.max_futures = futures.max(1);
        self
    }

    /// Sets the executor that polls the futures of async handlers, for example
    /// `move |future| drop(tokio_handle.spawn(future))`. A worker calls `spawn`, which should not block. By default the workers poll the
    /// futures.
    pub fn executor(mut self, spawn: impl Fn(HandlerFuture) + Send + Sync + 'static) -> Self {
        self.spawn = Some(Spawn::new(spawn));
        self
    }

    /// Sets the maximum number of peers. An unconfigured peer occupies a slot until it disconnects and no handle to it remains.
    pub fn max_peers(mut self, peers: usize) -> Self {
        self.max_peers = peers;
        self
    }

    /// Sets the time of silence after which a peer is down. A link that is lost for less time can resume its session.
    pub fn liveness(mut self, limit: Duration) -> Self {
        let limit = Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.limits = self.limits.with_liveness(Some(limit), None);
        self
    }

    /// Sets all sizes and times of the node's sessions.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets headers carry the pressure of their sender, to and from peers that want it, too: [`Node::set_pressure`] and
    /// [`Node::take_pressure`]. Without, no header of this node has any, and one that arrives with it breaks the protocol.
    pub fn carry_pressure(mut self) -> Self {
        self.limits.pressure = HeaderPressure::Carried;
        self
    }

    /// Allows traffic outside this host, which is not encrypted.
    pub fn plaintext_i_understand(mut self) -> Self {
        self.plaintext = true;
        self
    }

    /// Encrypts TCP connections by TLS 1.3. Both nodes of a link prove their identities, by certificates or keys, and have only the ids for which
    /// they have proof. Shared memory is not affected: the kernel names the other process's user. Start fails if the files are wrong.
    pub fn trust(mut self, source: TrustSource) -> Self {
        self.trust = Some((source, self.node));
        self
    }

    /// Uses the credentials of `owner`, as a visitor ([`Node::visitor`]) does that a node's operator starts. See [`Builder::trust`].
    pub fn trust_of(mut self, owner: impl Into<NodeId>, source: TrustSource) -> Self {
        self.trust = Some((source, owner.into()));
        self
    }

    /// Allows links over RDMA, whose traffic is not encrypted, between nodes that have authenticated each other ([`Builder::trust`]).
    pub fn rdma_plaintext(mut self) -> Self {
        self.rdma_plaintext = true;
        self
    }

    /// Encrypts connections in this process also where the kernel could ([`Builder::trust`]).
    pub fn tls_in_process(mut self) -> Self {
        self.tls_by = TlsBy::Process;
        self
    }

    /// Allows links over soft-RoCE between such nodes ([`Builder::rdma_plaintext`]). It lets a peer read more memory than it was granted: all
    /// that lies in the same registration, such as messages for other peers.
    pub fn rdma_soft_roce(mut self) -> Self {
        self.rdma_soft_roce = true;
        self
    }

    /// Sets whether links go over RDMA.
    pub fn rdma(mut self, rdma: Rdma) -> Self {
        self.rdma = rdma;
        self
    }

    /// Adds a request handler that runs on the worker pool, in the order that its message type specifies. Several workers may run it at
    /// the same time, so that state which it changes belongs in a `Mutex` or an atomic, shared by an `Arc`.
    pub fn handle<M: Request, A: IntoResponse<M::Reply>>(
        self,
        handler: impl Fn(&Context<'_, NodeHost>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::pooled(handler))
    }

    /// Adds a request handler that runs inline, on the thread that received the request. It must not block.
    pub fn handle_inline<M: Request, A: IntoResponse<M::Reply>>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, M) -> A + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::inline(handler))
    }

    /// Adds an inline request handler that may reply later, through its responder. It must not block.
    pub fn handle_deferred<M: Request>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, M, Responder<M::Reply, NodeHost>) + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::deferred(handler))
    }

    /// Adds an async request handler. A worker calls it, in the order that its message type specifies, and polls its future until that
    /// first waits; another message may be handled meanwhile. Then any worker polls the future, or an executor ([`Builder::executor`])
    /// does so from the beginning. The future is dropped if the caller cancels the call, reaches its deadline or goes down.
    pub fn handle_async<M, F>(
        self,
        handler: impl Fn(AsyncContext<NodeHost>, M) -> F + Send + Sync + 'static,
    ) -> Self
    where
        M: Request,
        F: Future + Send + 'static,
        F::Output: IntoResponse<M::Reply> + Send,
    {
        self.route(Route::pooled_async(handler))
    }

    /// Adds an async notification handler, like [`Builder::handle_async`]. Its future is dropped only if the node ends.
    pub fn on_async<M, F>(
        self,
        handler: impl Fn(AsyncContext<NodeHost>, M) -> F + Send + Sync + 'static,
    ) -> Self
    where
        M: Message,
        F: Future<Output = ()> + Send + 'static,
    {
        self.route(Route::pooled_async_notification(handler))
    }

    /// Adds a notification handler that runs on the worker pool, in the order that its message type specifies.
    pub fn on<M: Message>(self, handler: impl Fn(&Context<'_, NodeHost>, M) + Send + Sync + 'static) -> Self {
        self.route(Route::pooled_notification(handler))
    }

    /// Adds a notification handler that runs inline, on the thread that received the notification. It must not block.
    pub fn on_inline<M: Message>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, M) + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::inline_notification(handler))
    }

    /// Adds an inline request handler that reads the encoded request in place ([`Route::inline_in_place`]). It must not block.
    pub fn handle_in_place<M: Request, A: IntoResponse<M::Reply>>(
        self,
        handler: impl Fn(&InlineContext<'_, NodeHost>, &InPlace<'_>) -> A + Send + Sync + 'static,
    ) -> Self {
        self.route(Route::inline_in_place::<M, A>(handler))
    }

    /// Adds a route, for example one in a service of its own ([`Route::in_service`]).
    pub fn route(mut self, route: Route<NodeHost>) -> Self {
        self.routes.push(route);
        self
    }

    /// Performs the checks of [`Builder::start`], without listening or starting a thread.
    ///
    /// # Errors
    /// Returns the first error that it finds.
    pub fn check(self) -> Result<(), NodeError> {
        let (options, builder) = self.checked()?;
        builder.placed(&options)?;
        let kind = builder.trust.as_ref().map(|(source, _)| Kind::of(source));
        if let Some((source, owner)) = builder.trust {
            Trust::load(source, owner)?;
        }
        rules_of(builder.rules, &options, &builder.routes, kind).map(drop)
    }

    /// Performs the checks of the settings themselves. Returns the options for links, and the builder without them.
    pub(crate) fn checked(self) -> Result<(LinkOptions, Self), NodeError> {
        let Self {
            listen,
            peers,
            from,
            users,
            rules,
            plaintext,
            ref trust,
            rdma_plaintext,
            rdma_soft_roce,
            tls_by,
            rdma,
            busy_poll,
            socket_buffer,
            connect,
            node,
            is_visitor,
            ..
        } = self;
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
        listen.iter().try_for_each(|address| checks::is_no_folder("listen", address))?;
        let of_peers = || peers.iter().flat_map(|(_, addresses)| addresses);
        of_peers().try_for_each(|address| checks::is_no_folder("peer.address", address))?;
        let rdma = rdma_with(trust.is_some(), rdma_plaintext, rdma)?;
        // Without authentication a grant protects from no peer anyway.
        let rdma_soft = rdma_soft_roce || trust.is_none();
        if !plaintext && trust.is_none() {
            listen.iter().try_for_each(|address| checks::stays_here("listen", address))?;
            of_peers().try_for_each(|address| checks::stays_here("peer.address", address))?;
        }
        number(&self.routes)?;
        let peers = with_sources(peers, from, users)?;
        let rules = rules.into_iter().map(|rule| Ok(Ok(rule?))).collect::<Result<_, ConfigError>>()?;
        let rest = Self {
            listen: Vec::new(),
            peers: Vec::new(),
            from: Vec::new(),
            users: Vec::new(),
            rules,
            ..self
        };
        let options = LinkOptions {
            listen,
            peers,
            plaintext,
            tls_by,
            rdma,
            rdma_soft,
            busy_poll,
            socket_buffer,
            connect,
        };
        Ok((options, rest))
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
        let trust = self.trust.map(|(source, owner)| Trust::load(source, owner)).transpose()?;
        let pool = ReceivePool::new(self.receive_budget).map_err(|_| system(Errno::EMFILE))?;
        let waiting = WaitOverride { policy: self.policy, bound: self.spin_down };
        let waits = (waiting, self.boost, self.engine);
        let workers = Pool::new(PoolLimits { workers: self.workers, futures: self.max_futures });
        let pause_after = match self.connect {
            Connect::Always => Nanos::NEVER,
            Connect::OnDemand { idle } => Nanos(u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX)),
        };
        let limits = Limits { pause_after, ..self.limits };
        let host =
            NodeHost::new(identity, limits, waits, workers, self.max_peers, pool, trust).map_err(system)?;
        let host = Arc::new(host);
        let kind = host.trust.as_ref().map(Trust::kind);
        let rules = rules_of(self.rules, &options, &self.routes, kind)?;
        host.set_rules(rules);
        host.serving.poll_devices(self.busy_poll);
        host.placement.set(placement).expect("set once");
        let users = options.peers.iter().filter_map(|peer| Some((peer.node, peer.user?))).collect();
        host.users.set(users).expect("set once");
        host.routes.set(self.routes).expect("set once");
        if let Some(spawn) = self.spawn {
            host.futures.spawn.set(spawn).expect("set once");
        }
        Node::start(host, options)
    }

    /// Decides where on its machine the node runs.
    fn placed(&self, options: &LinkOptions) -> Result<Placement, NodeError> {
        // The ids of nodes on one machine differ.
        let spread = self.node.0.into();
        Placement::decide(Path::new("/"), &self.placement, &carrying(options), spread)
    }
}

/// Returns the rules, and warns of those that probably have another effect than was meant.
fn rules_of(
    rules: Vec<Result<Rule, ConfigError>>,
    options: &LinkOptions,
    routes: &[Route<NodeHost>],
    trust: Option<Kind>,
) -> Result<Rules, NodeError> {
    let rules = Rules(rules.into_iter().collect::<Result<_, _>>()?);
    let has_proofs = trust.is_some();
    for node in
        rules.nodes().filter(|node| !has_proofs && options.peers.iter().all(|peer| peer.node != *node))
    {
        tracing::warn!(%node, "an [[allow]] names a node without a [[peer]]: over TCP, any process can take its id");
    }
    if rules.name_roles() && trust != Some(Kind::Certificates) {
        tracing::warn!(
            "an [[allow]] names a role, which no peer has without certificates ([trust] mode = \"tls\")"
        );
    }
    for types in rules.without_types(routes) {
        tracing::warn!(
            %types,
            "an [[allow]] names message types that this node does not have, or the node's own ones without `pronto.` before the star"
        );
    }
    Ok(rules)
}

/// Returns the peers with the networks from which they connect. A peer without an address dials this node.
fn with_sources(
    peers: Vec<(NodeId, Vec<Address>)>,
    from: Vec<(NodeId, Result<IpNet, ConfigError>)>,
    users: Vec<(NodeId, u32)>,
) -> Result<Vec<PeerOptions>, ConfigError> {
    let peer = |(node, addresses)| PeerOptions { node, addresses, from: Vec::new(), user: None };
    let mut peers: Vec<_> = peers.into_iter().map(peer).collect();
    for (node, network) in from {
        checks::number("peer.node", node)?;
        let network = network?;
        match peers.iter_mut().find(|peer| peer.node == node) {
            Some(peer) => peer.from.push(network),
            None => peers.push(PeerOptions { node, addresses: Vec::new(), from: vec![network], user: None }),
        }
    }
    for (node, user) in users {
        checks::number("peer.node", node)?;
        checks::user(user)?;
        match peers.iter_mut().find(|peer| peer.node == node) {
            Some(peer) => peer.user = Some(user),
            None => {
                peers.push(PeerOptions { node, addresses: Vec::new(), from: Vec::new(), user: Some(user) })
            }
        }
    }
    Ok(peers)
}

/// Returns whether links go over RDMA, which encrypts nothing: with TLS only if that is permitted.
const fn rdma_with(tls: bool, plaintext: bool, rdma: Rdma) -> Result<Rdma, NodeError> {
    match (tls && !plaintext, rdma) {
        (true, Rdma::Require) => Err(NodeError::RdmaPlaintext),
        (true, _) => Ok(Rdma::Off),
        (false, rdma) => Ok(rdma),
    }
}

/// Returns the network interfaces that carry the node's messages.
fn carrying(options: &LinkOptions) -> Vec<String> {
    let tcp = |address: &Address| match address {
        Address::Tcp(socket) => Some(*socket),
        Address::Shm(_) => None,
    };
    let peers = options.peers.iter().flat_map(|peer| &peer.addresses).filter_map(tcp);
    interfaces::carrying(options.listen.iter().filter_map(tcp), peers)
}

/// Returns the types of the routes. The number of a type is the index of its route.
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

#[cfg(test)]
mod tests {
    use pronto_wire::ServiceId;

    use super::*;

    /// Returns routes of one type, each in a service of its own.
    fn routes(count: usize) -> Vec<Route<NodeHost>> {
        let route = |service| {
            let [route, ..] = Route::rendezvous();
            route.in_service(ServiceId(service))
        };
        (0..).map(route).take(count).collect()
    }

    #[test]
    fn a_node_handles_as_many_types_as_a_greeting_lists_and_no_more() {
        assert_eq!(number(&routes(MAX_TYPES)).map(|types| types.len()).unwrap(), MAX_TYPES);
        let refused = number(&routes(MAX_TYPES + 1));
        let (more, most) = (MAX_TYPES + 1, MAX_TYPES);
        assert!(
            matches!(refused, Err(NodeError::TooManyTypes { count, max }) if (count, max) == (more, most)),
            "{refused:?}"
        );
    }
}
