//! A running node.

use core::ops::Range;
use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use nix::errno::Errno;
use pronto_core::fabric::{Memory, Region};
use pronto_core::session::{DownCause, Evidence, LinkInfo};
use pronto_core::{Clock, Nanos};
use pronto_fabric_shm::ShmRegion;
use pronto_mapping::FileMapping;
use pronto_progress::{Manager, Trigger};
use pronto_rpc::host::MayWait;
use pronto_rpc::{CallError, Peer, Request, multicall};
use pronto_sync::atomic::Ordering;
use pronto_trust::TrustError;
use pronto_wire::{Class, Epoch, NodeId};

use crate::access::Rules;
use crate::builder::Builder;
use crate::config::address::Address;
use crate::config::{Config, ConfigError};
use crate::error::NodeError;
use crate::host::{NodeHost, NodeSession, as_handler};
use crate::links::{LinkMaker, LinkOptions};
use crate::measure::threshold;
use crate::serving;
use crate::serving::sink::WaitingSink;
use crate::status::awaiting::UntilState;
use crate::status::events::Events;
use crate::trust::{Kind, Trust};
use crate::waits::contention::ContentionCause;

/// A running node. Dropping it takes its links down and ends its threads. [`Node::drain`] lets open calls end first.
#[derive(Debug)]
pub struct Node {
    pub(crate) host: Arc<NodeHost>,
    links: LinkMaker,
    server: Option<JoinHandle<()>>,
}

/// Description of the credentials of a node without.
const NO_TRUST: &str = "none: TCP is not encrypted, and peers are known by their addresses";

/// Allocates memory that peers can be granted access to, on any transport. It needs no node. The memory is zeroed, and committed
/// when it is first touched.
///
/// # Errors
/// Returns [`NodeError::Region`] if the system has no memory.
pub fn region(len: usize) -> Result<Region, NodeError> {
    ShmRegion::allocate(len).map_err(NodeError::Region)
}

/// Maps a range of a file, from which messages can be sent without copying it first. Another process may write to the file, or truncate it,
/// while a message is sent from it: the message then has old or new bytes, or fails. A receiver over shared memory waits for the pages that are not
/// in memory, so the file should not be on a device or a network that may hang.
///
/// # Errors
/// Returns [`NodeError::Map`] if the range is empty, the file has fewer bytes, or it cannot be mapped for reading.
pub fn map_file(file: impl AsFd, range: Range<u64>) -> Result<Memory, NodeError> {
    let asked = range.clone();
    let mapping = FileMapping::new(file, range).map_err(|errno| NodeError::Map {
        start: asked.start,
        end: asked.end,
        errno: errno as i32,
    })?;
    Ok(Memory::new(Arc::new(mapping)))
}

/// State and counters of a node at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// The node.
    pub node: NodeId,
    /// Epoch of this incarnation.
    pub epoch: Epoch,
    /// Human-readable name.
    pub name: String,
    /// Addresses where the node listens.
    pub listening: Vec<Address>,
    /// Message types that the node handles.
    pub types: Vec<&'static str>,
    /// Reason why adaptive waits sleep immediately, if they do.
    pub contention: Option<ContentionCause>,
    /// Wait policy of the serving thread and its reason, such as `adaptive, as configured; messages come after 5 us; polls for 23 us,
    /// the cost of a wake-up here`.
    pub serves: String,
    /// Boost of the handlers, and why better ones are not available, such as `slice (module: ...; fifo: ...)`.
    pub boost: String,
    /// Engine and its sources, such as `idle: 3 sources`; removed sources with the reason; busy polling of devices, if configured.
    pub engine: String,
    /// Maximum payload length that a rendezvous carries in its call, by transport, such as `shm 8192 B, tcp 4096 B (assumed)`.
    pub carries: String,
    /// Placement on the machine and its reason, such as `on CPUs 8-15: node 1, near eth1; mlx5_0: memory of node 1, completion
    /// vector 3, ...`.
    pub placement: String,
    /// Credentials of the node, such as `TLS with certificates: node 2, 364 days left`, or `none: ...` without.
    pub trust: String,
    /// Counters of the manager; see [`pronto_progress::Counters`].
    pub progress: Vec<(&'static str, u64)>,
    /// Incoming connections that were rejected, by reason. Reasons that never occurred are left out.
    pub refused: Vec<(&'static str, u64)>,
    /// Failed attempts of this node to connect, by reason.
    pub failed_dials: Vec<(&'static str, u64)>,
    /// Counters of the node as a whole, by name: `events_missed`, the events that subscribers did not read in time;
    /// `key_panics`, the messages whose `Message::key` panicked (requests failed with `HandlerPanicked`, notifications were
    /// dropped); `futures`, the places of async handlers that are taken now; `futures_waited`, the messages for them that found no
    /// place.
    pub counters: Vec<(&'static str, u64)>,
    /// Peers: those that are configured, those with a session that is up or can resume, and those with a live handle.
    pub peers: Vec<PeerStatus>,
}

/// State and counters of a peer, as the node sees it.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The peer.
    pub node: NodeId,
    /// The session, if there is one.
    pub info: Option<LinkInfo>,
    /// Whether a link carries the session now.
    pub linked: bool,
    /// Whether the session waits without a link until a message needs one ([`Builder::connect`]).
    pub paused: bool,
    /// Reason for the transport of the present or last link.
    pub choice: Option<String>,
    /// Reason why the peer is down, if it was up before.
    pub down: Option<Down>,
    /// Reason why this node's last attempt to reach the peer failed, if the peer is not linked.
    pub last_failure: Option<String>,
    /// Wait policy for this peer and its reason, such as `adaptive, as configured; replies take 5 us; polls for 23 us, the cost of a
    /// wake-up here`.
    pub waits: String,
    /// Open calls of this node.
    pub open_calls: u16,
    /// Work requests in flight, whose buffers have not been returned. 0 in an inline handler that holds this peer's engine lock.
    pub work_in_flight: usize,
    /// Request credits left, by class.
    pub credits: [u32; 2],
    /// Counters, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// Cause and time of a peer's last failure or departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Down {
    /// The cause.
    pub cause: DownCause,
    /// Time since then.
    pub ago: Duration,
}

impl Node {
    /// Returns a builder for the node with this id, from 1 to 63999.
    pub fn builder(node: impl Into<NodeId>) -> Builder {
        Builder::new(node.into())
    }

    /// Returns a builder for a visitor: a short-lived node that asks another node something. Its id is chosen at random, from
    /// [`FIRST_VISITOR`](crate::admin::FIRST_VISITOR) to 65535. If another visitor of the same node has that id (`id_taken` among
    /// [`Status::failed_dials`]), start another one.
    pub fn visitor() -> Builder {
        Builder::visitor()
    }

    /// Returns a builder with the settings of a configuration. Add handlers to it.
    pub fn from_config(config: &Config) -> Result<Builder, ConfigError> {
        Builder::from_config(config)
    }

    pub(crate) fn start(host: Arc<NodeHost>, options: LinkOptions) -> Result<Self, NodeError> {
        host.pool.start(&host);
        host.serving.start(&host);
        let links = LinkMaker::start(&host, options)?;
        host.listening.set(links.listening().to_vec()).expect("set once");
        let server = serving::start(&host).map_err(|error| NodeError::System {
            what: "a thread",
            errno: Errno::from_raw(error.raw_os_error().unwrap_or(0)),
        })?;
        Ok(Self { host, links, server: Some(server) })
    }

    /// Returns this node's id.
    pub fn id(&self) -> NodeId {
        self.host.identity.node
    }

    /// Returns the epoch of this incarnation.
    pub fn epoch(&self) -> Epoch {
        self.host.identity.epoch
    }

    /// Returns the addresses where the node listens, with the ports that the system chose.
    pub fn listening(&self) -> &[Address] {
        self.links.listening()
    }

    /// Returns a handle to a peer, whether it is up or not. Returns `None` only if the maximum number of peers is reached.
    pub fn peer(&self, node: impl Into<NodeId>) -> Option<Peer<NodeHost>> {
        let session = self.host.session(node.into())?;
        Some(Peer::new(session, Arc::clone(&self.host)))
    }

    /// Waits until a peer is up, for at most `limit`, and returns a handle to it.
    pub fn wait_for_peer(
        &self,
        node: impl Into<NodeId>,
        limit: Duration,
    ) -> Result<Peer<NodeHost>, NodeError> {
        let node = node.into();
        let peer = self.peer(node).ok_or_else(|| self.not_up(node))?;
        let is_up = || self.is_up(&peer).then_some(());
        self.host.events.wait_for(limit, is_up).ok_or_else(|| self.not_up(node))?;
        Ok(peer)
    }

    /// Awaits a peer, like [`Node::wait_for_peer`].
    pub async fn wait_for_peer_async(
        &self,
        node: impl Into<NodeId>,
        limit: Duration,
    ) -> Result<Peer<NodeHost>, NodeError> {
        let node = node.into();
        let peer = self.peer(node).ok_or_else(|| self.not_up(node))?;
        let limit = Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let deadline = self.host.now() + limit;
        let is_up = || self.is_up(&peer).then_some(());
        UntilState::new(&self.host, deadline, is_up).await.ok_or_else(|| self.not_up(node))?;
        Ok(peer)
    }

    /// Returns whether a peer is up. If not, asks for a link to it.
    fn is_up(&self, peer: &Peer<NodeHost>) -> bool {
        if !peer.is_up() {
            peer.session().want_link(&*self.host);
        }
        peer.is_up()
    }

    /// Returns the error for a peer that is not up.
    fn not_up(&self, node: NodeId) -> NodeError {
        match self.host.last_failure(node) {
            None if !self.links.dials(node) => NodeError::NoAddress { peer: node },
            why => NodeError::NotUp { peer: node, why },
        }
    }

    /// Calls several peers concurrently. Each has its own outcome. Nodes without a peer slot are left out.
    pub fn multicall<M: Request>(
        &self,
        nodes: &[NodeId],
        request: &M,
        timeout: Duration,
    ) -> Vec<(NodeId, Result<M::Reply, CallError>)> {
        let peers: Vec<_> = nodes.iter().filter_map(|node| self.peer(*node)).collect();
        multicall(&peers, request, timeout)
    }

    /// Allocates memory that peers can be granted access to, on any transport. The memory is zeroed, and committed when it is first
    /// touched.
    pub fn region(&self, len: usize) -> Result<Region, NodeError> {
        region(len)
    }

    /// Returns the manager of everything that this node polls. A program can register its own sources here. The serving thread polls
    /// them together with the peers, at the times that [`crate::Builder::engine`] sets. Their polls must not block, because that
    /// delays the peers.
    pub fn manager(&self) -> &Manager {
        &self.host.serving.manager
    }

    /// Polls all sources once, and runs inline handlers on the calling thread. Programs whose node has no engine, or that compute for
    /// a long time, call it regularly. Returns the amount of progress; 0 within a handler, or if another thread is polling.
    pub fn progress(&self) -> usize {
        if pronto_rpc::Host::may_wait(&*self.host) != MayWait::Freely {
            return 0;
        }
        as_handler(MayWait::Never, || self.manager().poll(Trigger::Yield)).unwrap_or(0)
    }

    /// Reads the certificates, keys and revocations of [`crate::Builder::trust`] again, for later connections. Ends the links of peers that the
    /// node no longer trusts, and returns their number. If the files are wrong, the node keeps its present credentials.
    ///
    /// # Errors
    /// The file that cannot be read, or is wrong.
    pub fn reload_trust(&self) -> Result<usize, TrustError> {
        self.host.reload_trust(None)
    }

    /// Applies the `[trust]` section, the keys of peers and the `[[allow]]` rules of a configuration, as it is now. All other keys stay as they
    /// were at the start. If anything is wrong, nothing changes. Returns the number of peers whose links ended because this node trusts them no
    /// longer.
    ///
    /// # Errors
    /// The rules or files are wrong, or `trust.mode` has changed, which takes a restart.
    pub fn reload(&self, config: &Config) -> Result<usize, NodeError> {
        let rules = Rules(config.rules().collect::<Result<_, _>>()?);
        let source = config.trust_source()?;
        let present = self.host.rules.read().unwrap_or_else(PoisonError::into_inner);
        if rules.0.is_empty() && !present.0.is_empty() {
            return Err(NodeError::RulesGone);
        }
        drop(present);
        if source.as_ref().map(Kind::of) != self.host.trust.as_ref().map(Trust::kind) {
            return Err(NodeError::OtherMode);
        }
        let ended = self.host.reload_trust(source)?;
        self.host.set_rules(rules);
        Ok(ended)
    }

    /// Subscribes to the events of peers from now on.
    pub fn events(&self) -> Events {
        self.host.events.subscribe()
    }

    /// Returns state and counters of the node and its peers.
    pub fn status(&self) -> Status {
        self.host.status()
    }

    /// Refuses new requests, waits until open calls, running handlers and futures of async handlers have ended, for at most `limit`, then stops the node.
    pub fn drain(self, limit: Duration) -> Result<(), NodeError> {
        let host = &*self.host;
        host.draining.store(true, Ordering::Relaxed);
        let sessions = host.sessions();
        for session in &sessions {
            session.goodbye(host);
        }
        let deadline = host.now() + Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let calls: usize = sessions.iter().map(|session| usize::from(session.open_calls())).sum();
            if calls == 0 && host.pool.is_idle() {
                return Ok(());
            }
            if host.now() >= deadline {
                return Err(NodeError::NotDrained { calls });
            }
            pronto_rpc::Host::pause(host);
        }
    }
}

impl NodeHost {
    /// Returns state and counters of the node and its peers.
    pub fn status(&self) -> Status {
        let host = self;
        // Read once for the whole report, because it can change at any moment.
        let contention = host.waits.contention();
        let peers = host.sessions().into_iter().map(|session| {
            let (info, linked) = host.link_of(&session);
            PeerStatus {
                node: session.peer(),
                info,
                linked,
                paused: info.is_some() && !linked && !session.wants_link(),
                down: host.down(session.peer()),
                last_failure: if linked { None } else { host.last_failure(session.peer()) },
                waits: host.how_to_wait(&session, contention),
                choice: host.choice(session.peer()).map(|choice| {
                    let evidence = info.map(|info| info.evidence);
                    let has_proof = matches!(evidence, Some(Evidence::Certificate | Evidence::Key));
                    let identity = host.identity_of(session.peer()).filter(|_| has_proof);
                    identity.map_or_else(|| choice.clone(), |identity| format!("{choice}: {identity}"))
                }),
                open_calls: session.open_calls(),
                work_in_flight: session.work_in_flight(host),
                credits: Class::ALL.map(|class| session.credits(class)),
                counters: session.stats().each().chain(ring_counters(&session)).collect(),
            }
        });
        let (futures, futures_waited) = host.pool.futures();
        Status {
            node: host.identity.node,
            epoch: host.identity.epoch,
            name: host.identity.name.clone(),
            listening: host.listening.get().cloned().unwrap_or_default(),
            types: host.routes().iter().map(|route| route.name).collect(),
            contention,
            serves: host.how_to_serve(contention),
            boost: host.boosting.to_string(),
            engine: host.serving.described(),
            carries: threshold::described(),
            placement: host.placement.get().map_or_else(String::new, ToString::to_string),
            trust: host.trust.as_ref().map_or_else(|| NO_TRUST.into(), Trust::describe),
            progress: host.serving.manager.counters().each().to_vec(),
            refused: host.refusals.each(),
            failed_dials: host.failed_dials.each(),
            counters: vec![
                ("events_missed", host.events.missed()),
                ("key_panics", host.panics.keys()),
                ("futures", futures as u64),
                ("futures_waited", futures_waited),
            ],
            peers: peers.collect(),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if crate::system::is_forked_child() {
            // Threads and connections belong to the parent.
            core::mem::forget(self.server.take());
            return;
        }
        self.host.draining.store(true, Ordering::Relaxed);
        for session in self.host.sessions() {
            session.goodbye(&*self.host);
            let mut sink = WaitingSink { host: &self.host, session: &session };
            session.take_down(DownCause::Local, &mut sink, &*self.host);
        }
        self.host.stopping.store(true, Ordering::Relaxed);
        self.host.pool.stop();
        self.host.futures.close(&self.host);
        self.host.changed();
        self.links.stop();
        if let Some(server) = self.server.take() {
            serving::end(self.manager(), server);
        }
        self.host.serving.discard_jobs();
        for session in self.host.sessions() {
            session.close_queue(&*self.host);
        }
        self.host.events.close();
    }
}

/// Returns the counters of a session's send rings, summed over both classes; 0 without a link.
fn ring_counters(session: &NodeSession) -> [(&'static str, u64); 2] {
    let rings = Class::ALL.map(|class| session.ring_stats(class).unwrap_or_default());
    [
        ("ring_overflowed", rings.iter().map(|ring| ring.overflowed).sum()),
        ("ring_refused", rings.iter().map(|ring| ring.refused).sum()),
    ]
}
