//! A running node.

use core::time::Duration;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use pronto_core::Clock;
use pronto_core::fabric::Region;
use pronto_core::session::{DownCause, LinkInfo};
use pronto_fabric_shm::ShmRegion;
use pronto_progress::{Manager, Trigger};
use pronto_rpc::host::MayWait;
use pronto_rpc::{CallError, Peer, Request, multicall};
use pronto_sync::atomic::Ordering;
use pronto_wire::{Class, Epoch, NodeId};

use crate::address::Address;
use crate::builder::Builder;
use crate::config::{Config, ConfigError};
use crate::error::NodeError;
use crate::events::Events;
use crate::host::{NodeHost, NodeSession, as_handler};
use crate::links::{LinkMaker, LinkOptions};
use crate::serving;
use crate::sink::WaitingSink;
use crate::threshold;
use crate::waits::Crowded;

/// A running node. Dropped, it takes its links down and ends its threads; [`Node::drain`] first lets calls end.
#[derive(Debug)]
pub struct Node {
    pub(crate) host: Arc<NodeHost>,
    links: LinkMaker,
    server: Option<JoinHandle<()>>,
}

/// Memory that peers may be granted access to, on any transport; also before there is a node. Zeroed, and committed when
/// touched.
///
/// # Errors
/// [`NodeError::Region`] if the system has none.
pub fn region(len: usize) -> Result<Region, NodeError> {
    ShmRegion::allocate(len).map_err(NodeError::Region)
}

/// What a node is doing.
#[derive(Clone, Debug)]
pub struct Status {
    /// The node.
    pub node: NodeId,
    /// This life of it.
    pub epoch: Epoch,
    /// Its name for people.
    pub name: String,
    /// Where it listens.
    pub listening: Vec<Address>,
    /// Message types that it handles.
    pub types: Vec<&'static str>,
    /// Why its adaptive waits sleep at once, if they do.
    pub crowded: Option<Crowded>,
    /// How its serving thread waits, and why: `adaptive, as configured; messages come after 5 us; polls for 23 us, what a wake-up costs
    /// here`.
    pub serves: String,
    /// How its handlers are boosted, and why no better: `slice (module: ...; fifo: ...)`.
    pub boost: String,
    /// Who polls: `idle: 3 sources`, with those that were taken out, and why; and whether devices are polled before sleeps.
    pub engine: String,
    /// Up to which length a rendezvous carries its payload along, by transport: `shm 8192 B, tcp 4096 B (assumed)`.
    pub carries: String,
    /// Where on its machine it is, and why: `on processors 8-15: node 1, near eth1; mlx5_0: memory of node 1, completion vector 3, ...`.
    pub placement: String,
    /// What its manager has counted: see [`pronto_progress::Counters`].
    pub progress: Vec<(&'static str, u64)>,
    /// Connections that it accepted and refused, by reason; reasons that never occurred are left out.
    pub refused: Vec<(&'static str, u64)>,
    /// Its own attempts to connect that failed, by reason.
    pub failed_dials: Vec<(&'static str, u64)>,
    /// What the node as a whole has counted, by name: `events_missed`, the events that subscribers did not read in time;
    /// `key_panics`, the messages whose `Message::key` panicked (requests failed with `HandlerPanicked`, notifications were
    /// dropped).
    pub counters: Vec<(&'static str, u64)>,
    /// Its peers: those that it was told of, those that are there or may come back to their session, and those that somebody holds.
    pub peers: Vec<PeerStatus>,
}

/// What a node knows of a peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The peer.
    pub node: NodeId,
    /// The session, if there is one.
    pub info: Option<LinkInfo>,
    /// Whether a link carries it now.
    pub linked: bool,
    /// Why its link goes, or went, over what it does.
    pub choice: Option<String>,
    /// Why it is down, if it was up before.
    pub down: Option<Down>,
    /// Why the last attempt of this node to reach it failed, if it is not linked.
    pub last_failure: Option<String>,
    /// How threads wait for it, and why: `adaptive, as configured; answers take 5 us; polls for 23 us, what a wake-up
    /// costs here`.
    pub waits: String,
    /// Calls of this node that are open.
    pub open_calls: u16,
    /// Work requests under way: buffers that are not back yet. 0 in an inline handler that holds the engine lock of this peer.
    pub work_in_flight: usize,
    /// Request credits left, by class.
    pub credits: [u32; 2],
    /// Counters, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// How a peer went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Down {
    /// Why.
    pub cause: DownCause,
    /// How long ago.
    pub ago: Duration,
}

impl Node {
    /// A node to be put together. Numbers are from 1 to 63999.
    pub fn builder(node: impl Into<NodeId>) -> Builder {
        Builder::new(node.into())
    }

    /// A node that is there for a moment, to ask another one something. It has a number from [`FIRST_VISITOR`](crate::admin::FIRST_VISITOR)
    /// on, by its process: one at a time in each.
    pub fn visitor() -> Builder {
        Builder::visitor()
    }

    /// A node as a configuration says; handlers are added to it.
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

    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.host.identity.node
    }

    /// This life of the node.
    pub fn epoch(&self) -> Epoch {
        self.host.identity.epoch
    }

    /// Where it listens, with the ports that the system chose.
    pub fn listening(&self) -> &[Address] {
        self.links.listening()
    }

    /// A peer, whether it is up or not. None only if there are as many peers as may be.
    pub fn peer(&self, node: impl Into<NodeId>) -> Option<Peer<NodeHost>> {
        let session = self.host.session(node.into())?;
        Some(Peer::new(session, Arc::clone(&self.host)))
    }

    /// A peer, once it is up.
    pub fn wait_for_peer(
        &self,
        node: impl Into<NodeId>,
        limit: Duration,
    ) -> Result<Peer<NodeHost>, NodeError> {
        let node = node.into();
        let not_up = || match self.host.last_failure(node) {
            None if !self.links.dials(node) => NodeError::NoAddress { peer: node },
            why => NodeError::NotUp { peer: node, why },
        };
        let peer = self.peer(node).ok_or_else(not_up)?;
        self.host.events.wait_for(limit, || peer.is_up().then_some(())).ok_or_else(not_up)?;
        Ok(peer)
    }

    /// Calls several peers at once; each has its own outcome.
    pub fn multicall<M: Request>(
        &self,
        nodes: &[NodeId],
        request: &M,
        timeout: Duration,
    ) -> Vec<(NodeId, Result<M::Reply, CallError>)> {
        let peers: Vec<_> = nodes.iter().filter_map(|node| self.peer(*node)).collect();
        multicall(&peers, request, timeout)
    }

    /// Memory that peers may be granted access to, on any transport. Zeroed, and committed when touched.
    pub fn region(&self, len: usize) -> Result<Region, NodeError> {
        region(len)
    }

    /// The manager of everything that this node polls: sources of the program's own are registered here, and polled by the
    /// serving thread beside the peers ([`crate::Builder::engine`] says when). Their polls must not block: peers wait for them.
    pub fn manager(&self) -> &Manager {
        &self.host.serving.manager
    }

    /// A good moment to look at everything that may have arrived: for programs whose node has no engine of its own, or that
    /// compute for long. Runs inline handlers on the calling thread. Returns how much moved; nothing within a handler, and while
    /// another thread looks.
    pub fn progress(&self) -> usize {
        if pronto_rpc::Host::may_wait(&*self.host) != MayWait::Freely {
            return 0;
        }
        as_handler(MayWait::Never, || self.manager().poll(Trigger::Yield)).unwrap_or(0)
    }

    /// What happens to peers from now on.
    pub fn events(&self) -> Events {
        self.host.events.subscribe()
    }

    /// What the node is doing.
    pub fn status(&self) -> Status {
        self.host.status()
    }

    /// Takes no new requests, lets open calls and running handlers end, then stops.
    pub fn drain(self, limit: Duration) -> Result<(), NodeError> {
        let host = &*self.host;
        host.draining.store(true, Ordering::Relaxed);
        let sessions = host.sessions();
        for session in &sessions {
            session.goodbye(host);
        }
        let deadline = host.now() + pronto_core::Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
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
    /// What the node is doing.
    pub fn status(&self) -> Status {
        let host = self;
        // Once for all of them: it changes from one moment to the next.
        let crowded = host.waits.crowded();
        let peers = host.sessions().into_iter().map(|session| {
            let (info, linked) = host.link_of(&session);
            PeerStatus {
                node: session.peer(),
                info,
                linked,
                down: host.down(session.peer()),
                last_failure: if linked { None } else { host.last_failure(session.peer()) },
                waits: host.how_to_wait(&session, crowded),
                choice: host.choice(session.peer()),
                open_calls: session.open_calls(),
                work_in_flight: session.work_in_flight(host),
                credits: Class::ALL.map(|class| session.credits(class)),
                counters: session.stats().each().chain(ring_counters(&session)).collect(),
            }
        });
        Status {
            node: host.identity.node,
            epoch: host.identity.epoch,
            name: host.identity.name.clone(),
            listening: host.listening.get().cloned().unwrap_or_default(),
            types: host.routes().iter().map(|route| route.name).collect(),
            crowded,
            serves: host.how_to_serve(crowded),
            boost: host.boosting.to_string(),
            engine: host.serving.described(),
            carries: threshold::described(),
            placement: host.placement.get().map_or_else(String::new, ToString::to_string),
            progress: host.serving.manager.counters().each().to_vec(),
            refused: host.refusals.each(),
            failed_dials: host.failed_dials.each(),
            counters: vec![("events_missed", host.events.missed()), ("key_panics", host.panics.keys())],
            peers: peers.collect(),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if crate::system::is_forked_child() {
            // Threads and connections are the parent's.
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
        self.host.changed();
        self.links.stop();
        if let Some(server) = self.server.take() {
            serving::end(self.manager(), server);
        }
        self.host.serving.discard_jobs();
    }
}

/// The counters of a session's send rings, both classes together; 0 without a link.
fn ring_counters(session: &NodeSession) -> [(&'static str, u64); 2] {
    let rings = Class::ALL.map(|class| session.ring_stats(class).unwrap_or_default());
    [
        ("ring_overflowed", rings.iter().map(|ring| ring.overflowed).sum()),
        ("ring_refused", rings.iter().map(|ring| ring.refused).sum()),
    ]
}
